"""Everything that is alive, counted: tensors, arrays, models, objects by type, and who holds how many.

This walks the whole heap, which takes tenths of a second, so it is done only when the cheap readings show
that something grows. Two counts are compared: what grew between them is to blame.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, Final
from weakref import ReferenceType

import keras
import numpy as np
import tensorflow as tf

from memfit.guarding.deadline import Deadline
from memfit.guarding.naming import CONTAINERS

EagerTensor: Final = tf.__internal__.EagerTensor
Function: Final = type(tf.function(lambda: None))
COUNTED: Final = {
    "models": keras.Model,
    "optimizers": keras.optimizers.Optimizer,
    "functions": Function,
    "graphs": tf.__internal__.FuncGraph,
    "datasets": tf.data.Dataset,
}
MANY: Final = 8  # Fewer things than this in a new container, and it is only carried by a larger one.
FEW: Final = 3  # Fewer than this came in between, and it is chance.
MAX_LEVELS: Final = 3
BETWEEN_LOOKS: Final = 2000  # Containers between two looks at the time.
NUM_MARKS: Final = 200  # Some of the newest containers, of which some will live on.
UNWEIGHED: Final = (tf.resource, tf.variant)
# They hold no tensors of their own, and there are very many of them.
PASSED_OVER: Final = frozenset(
    {
        FunctionType,
        BuiltinFunctionType,
        MethodType,
        CodeType,
        ModuleType,
        FrameType,
        TracebackType,
        MappingProxyType,
        GetSetDescriptorType,
        ReferenceType,
        type,
        property,
        EagerTensor,
    }
)
DULL_MODULES: Final = frozenset(
    {"abc", "ast", "enum", "inspect", "re", "typing", "weakref", "importlib.machinery"}
)


@dataclass(slots=True)
class Load:
    """What one container holds: how many things, their bytes, and how many of them are tensors."""

    num: int = 0
    num_bytes: int = 0
    num_tensors: int = 0

    def add(self, other: Load) -> None:
        """Counts what a part holds as its own."""
        self.num += other.num
        self.num_bytes += other.num_bytes
        self.num_tensors += other.num_tensors


@dataclass(slots=True)
class Census:
    """What was alive at one step.

    Attributes:
        step: When.
        tensors: All eager tensors.
        arrays: All arrays that something the collector knows refers to.
        loads: What each container holds, by its id.
        kinds: The type of each of those containers.
        types: Objects by type.
        nums: How many models, optimizers, functions, graphs and datasets there are.
        is_whole: Whether there was time for all containers; if not, `loads` are of the newest.
        newest: The ids of the newest containers, by which a later count knows those that came after them.
        added: The ids of those in `loads` that came after an earlier count.
    """

    step: float
    tensors: Load = field(default_factory=Load)
    arrays: Load = field(default_factory=Load)
    loads: dict[int, Load] = field(default_factory=dict)
    kinds: dict[int, type] = field(default_factory=dict)
    types: Counter[type] = field(default_factory=Counter)
    nums: dict[str, int] = field(default_factory=dict)
    is_whole: bool = True
    newest: frozenset[int] = frozenset()
    added: set[int] = field(default_factory=set)


def take_census(step: float, deadline: Deadline | None = None, earlier: Census | None = None) -> Census:
    """Counts everything that is alive now.

    Args:
        step: When.
        earlier: What it will be compared with, or `None`.
        deadline: When to stop looking into containers. The newest come first: what a program keeps is younger
            than what was there when it had loaded TensorFlow.
    """
    objects = gc.get_objects()
    census = Census(step=step, types=Counter(map(type, objects)))
    census.nums = {name: _num_of(census.types, kind) for name, kind in COUNTED.items()}
    weights = _weigh_tensors(objects, census)
    candidates = _candidates(objects)
    del objects
    census.newest = frozenset(map(id, candidates[:NUM_MARKS]))
    _hold_leaves(candidates, weights, census, deadline or Deadline(None))
    census.added = census.loads.keys() & _added(candidates, earlier)
    return census


def _added(candidates: list[Any], earlier: Census | None) -> set[int]:
    """The ids of containers that came after an earlier count; none where nothing tells them apart."""
    if earlier is None:
        return set()
    found = list(takewhile(lambda each: id(each) not in earlier.newest, candidates))
    return set() if len(found) == len(candidates) else set(map(id, found))


def _candidates(objects: list[Any], passed_over: frozenset[type] = PASSED_OVER) -> list[Any]:
    """What may hold tensors and arrays, the newest first."""
    kinds = set(map(type, objects))
    dull = {kind for kind in kinds if kind in passed_over or kind.__module__ in DULL_MODULES}
    return [each for each in reversed(objects) if type(each) not in dull and each is not objects]


def _until(deadline: Deadline, candidates: list[Any]) -> Iterator[Any]:
    """As many as there is time for."""
    for start in range(0, len(candidates), BETWEEN_LOOKS):
        if deadline.is_over:
            return
        yield from candidates[start : start + BETWEEN_LOOKS]


def _num_of(types: Counter[type], wanted: type) -> int:
    # Not `issubclass`: abstract classes remember every class that they were ever asked about.
    return sum(num for kind, num in types.items() if wanted in kind.__mro__)


def _weigh_tensors(objects: list[Any], census: Census) -> dict[int, Load]:
    weights = {}
    for each in objects:
        if type(each) is EagerTensor and each.dtype not in UNWEIGHED:
            weights[id(each)] = load = Load(1, tensor_bytes(each), 1)
            census.tensors.add(load)
    return weights


def tensor_bytes(tensor: Any) -> int:
    """What the values of a tensor take; of text only the pointers."""
    return int(np.prod(tensor.shape)) * int(tensor.dtype.size or 1)


def array_bytes(array: Any) -> int:
    """What an array keeps alive: a view keeps all of what it is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return int(array.nbytes)


def _hold_leaves(candidates: list[Any], weights: dict[int, Load], census: Census, deadline: Deadline) -> None:
    """Who holds tensors and arrays. Arrays are not known to the collector; those that hold them are."""
    arrays: set[int] = set()
    for each in _until(deadline, candidates):
        for part in gc.get_referents(each):
            if type(part) is EagerTensor:
                weight = weights.get(id(part))
            elif type(part) is np.ndarray:
                weight = Load(1, array_bytes(part))
                if id(part) not in arrays:
                    arrays.add(id(part))
                    census.arrays.add(weight)
            else:
                continue
            if weight is not None:
                census.loads.setdefault(id(each), Load()).add(weight)
                census.kinds[id(each)] = type(each)
    census.is_whole = not deadline.is_over


def grown(
    first: Census, second: Census, least_bytes: float, deadline: Deadline | None = None
) -> list[tuple[Any, Load]]:
    """The containers that hold more than before, with what came in between; the most bytes first.

    Tensors may be kept in rows, pairs or objects of which there are ever more. Those are small, and new; what
    grows is the container that holds them, so their loads are carried up to it.
    """
    deadline = deadline or Deadline(None)
    changes = _changes(first, second)
    # What a count did not come to may have been there all the time.
    found = {
        key: load
        for key, load in changes.items()
        if key in first.loads or (load.num >= MANY and (first.is_whole or key in second.added))
    }
    carried = {key: load for key, load in changes.items() if key not in found}
    # Of functions in a list, what their closures and defaults hold.
    candidates = _candidates(gc.get_objects(), PASSED_OVER - {FunctionType, MethodType})
    for _ in range(MAX_LEVELS):
        if sum(load.num_bytes for load in carried.values()) < least_bytes:
            break
        loads, nums = _hold(_until(deadline, candidates), carried)
        for key in [key for key in loads if nums[key] >= FEW]:
            found.setdefault(key, Load()).add(loads.pop(key))
        carried = loads
    found = {key: load for key, load in found.items() if load.num >= FEW and load.num_bytes >= least_bytes}
    holders = [(each, found[id(each)]) for each in candidates if id(each) in found]
    return sorted(holders, key=lambda each: -each[1].num_bytes)


def _changes(first: Census, second: Census) -> dict[int, Load]:
    changes = {}
    for key, load in second.loads.items():
        before = first.loads.get(key, Load()) if first.kinds.get(key) is second.kinds[key] else Load()
        change = Load(load.num - before.num, load.num_bytes - before.num_bytes)
        if change.num > 0 and change.num_bytes > 0:
            changes[key] = change
    return changes


def _hold(candidates: Iterable[Any], carried: dict[int, Load]) -> tuple[dict[int, Load], Counter[int]]:
    """Who holds the small containers that hold the rest, and how many of them."""
    loads: dict[int, Load] = {}
    nums: Counter[int] = Counter()
    for each in candidates:
        for part in gc.get_referents(each):
            weight = carried.get(id(part))
            if weight is not None and part is not each:
                loads.setdefault(id(each), Load()).add(weight)
                nums[id(each)] += 1
    return loads, nums


def live_datasets() -> list[Any]:
    """All data sets, and stages of data sets, that are alive."""
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if tf.data.Dataset in kind.__mro__}
    return [each for each in objects if type(each) in kinds]


def weigh(holder: Any, levels: int = MAX_LEVELS) -> Load:
    """All tensors and arrays in a container, and in the containers and objects in it."""
    whole = Load()
    for part in gc.get_referents(holder):
        if type(part) is EagerTensor and part.dtype not in UNWEIGHED:
            whole.add(Load(1, tensor_bytes(part), 1))
        elif type(part) is np.ndarray:
            whole.add(Load(1, array_bytes(part)))
        elif levels and type(part) not in PASSED_OVER and isinstance(part, CONTAINERS):
            whole.add(weigh(part, levels - 1))
    return whole
