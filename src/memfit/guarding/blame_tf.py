"""Who is to blame for growth.

Asked in this order: kept tensors and arrays, traces and models, data pipelines, shapes that never end, Python
objects, and, when all of those are ruled out, what is not Python.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.estimating.internals_tf import buffer_size
from memfit.guarding import sources, wording
from memfit.guarding.census_tf import FEW, Census, Load, grown, live_datasets, weigh
from memfit.guarding.deadline import Deadline
from memfit.guarding.naming import Named, is_user_file, name_of, running_frames
from memfit.guarding.traces import Origin
from memfit.guarding.tracing_tf import Tracer, user_caller
from memfit.measuring import notebook
from memfit.measuring.places import user_place
from memfit.records import Growth, Leak

NUM_SUSPECTS: Final = 6
LEAST_SHARE: Final = 0.1  # Of the growth, for a container to be named.
MANY_SHAPES: Final = 16
MANY_CALLS: Final = 8
ROOM_SHARE: Final = 0.1  # Of what is left, for the intermediate results of a call.
MAX_SHAPES: Final = 4096
FILLED_SHARE: Final = (
    2.0  # Of the bytes of its elements, that a buffer may take: tf.data has its own around them.
)
MOST_SHARE: Final = 0.5  # Of the growth, that known causes must explain for the search to end.


@dataclass(slots=True)
class Evidence:
    """What was noted at steps, besides the readings.

    Attributes:
        shapes: The different shapes that a caller passed, by its place.
        calls: Models that were called outside of functions: how often, and the most that a call held.
        grown_bytes: By how much the host's memory grew since the beginning.
        steps_per_epoch: Steps of an epoch, or `None` where no epoch was seen.
        unit: What growth is per.
        is_running: Whether the program is still in the middle of it.
        names: Of the containers that were blamed, by their ids.
        num_readings: How many there were so far.
        noticed: How many there were when a container was noticed, by its id.
    """

    shapes: dict[tuple[str, int], set[Any]] = field(default_factory=dict)
    calls: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    grown_bytes: int = 0
    steps_per_epoch: float | None = None
    unit: str = "step"
    is_running: bool = True
    names: dict[int, Named] = field(default_factory=dict)
    num_readings: int = 0
    noticed: dict[int, int] = field(default_factory=dict)

    def name(self, holder: Any, deadline: Deadline) -> Named | None:
        """What a container is called: always the same, also when the names that led to it are gone."""
        if id(holder) not in self.names:
            found = name_of(holder, deadline)
            if found is None:
                return None
            self.names[id(holder)] = found
        return self.names[id(holder)]

    def is_proven(self, holder: Any) -> bool:
        """Whether a container that is emptied, too, has grown on for as long again as when it was noticed.

        A pool that is filling up to its size looks like a leak until it is full.
        """
        return self.num_readings >= 2 * self.noticed.setdefault(id(holder), self.num_readings)

    def is_waited_for(self, holder: Any) -> bool:
        """Whether it is too early to say anything of a container that holds what came in between.

        One that has no name may get one at the next look, when there is more time for it.
        """
        return id(holder) in self.noticed if id(holder) in self.names else not self.is_proven(holder)

    def note_shapes(self, function: Any, arguments: Any) -> None:
        """What shapes a call had."""
        del function
        tensors = (each for each in tf.nest.flatten(arguments) if isinstance(each, tf.Tensor))
        shapes = tuple(tuple(each.shape) for each in tensors)
        caller = user_caller() if shapes else None
        if caller is not None:
            seen = self.shapes.setdefault(caller, set())
            if len(seen) < MAX_SHAPES:
                seen.add(shapes)

    def note_peak(self, model: Any, held_bytes: int, room: int | None) -> None:
        """What a call outside of a function held at its peak, where that is much."""
        caller = user_caller()
        if isinstance(model, keras.Model) and room is not None and caller is not None:
            entry = self.calls.setdefault(caller, [0, 0])
            entry[0] += 1
            if held_bytes > ROOM_SHARE * (room + held_bytes):
                entry[1] = max(entry[1], held_bytes)


def blame_habits(growths: list[Growth], tracer: Tracer, evidence: Evidence) -> list[Leak]:
    """What is wrong without a look at the heap: traces, models and pipelines made again and again."""
    leaks = [leak for origin in tracer.origins.all() for leak in _built(origin, growths, tracer)]
    return leaks + [
        wording.eager_call(_receiver(*place), user_place(*place), num, num_bytes)
        for place, (num, num_bytes) in evidence.calls.items()
        if num >= MANY_CALLS and num_bytes
    ]


def blame_heap(
    first: Census,
    second: Census,
    growths: list[Growth],
    known: list[Leak],
    evidence: Evidence,
    seconds: float | None,
) -> list[Leak]:
    """What makes memory grow, by what came between two counts of the heap, beside what is known already.

    Args:
        first: The heap before.
        second: The heap now.
        growths: How the meters' readings go on.
        known: What was found before.
        evidence: What was noted at steps.
        seconds: How long to look for containers, and again for their names: on a busy machine the one must
            not use up the time of the other. `None` for no end.
    """
    num_steps = max(1.0, second.step - first.step)
    growing = [each for each in growths if each.is_growing and each.room is not None]
    slope = max(each.slope for each in growing)
    holders = grown(first, second, LEAST_SHARE * num_steps * slope, Deadline(seconds))[:NUM_SUSPECTS]
    leaks = list(_kept(holders, growing, num_steps, evidence, Deadline(seconds)))
    large = [holder for holder, change in holders if change.num_bytes >= MOST_SHARE * num_steps * slope]
    is_waited_for = any(_is_bounded(each, growing) or evidence.is_waited_for(each) for each in large)
    if is_waited_for or _is_explained([*known, *leaks], growing):
        return leaks
    if not evidence.is_running:
        return leaks + list(_shapes(max(growing, key=lambda each: each.slope), evidence))
    return leaks + _rest(first, second, growing, num_steps, evidence)


def _is_explained(leaks: list[Leak], growing: list[Growth]) -> bool:
    if any(leak.kind not in ("kept", "eager_call") for leak in leaks):
        return True
    kept_bytes = sum((leak.num_bytes or 0) * (leak.growth or 0) / max(1, leak.num) for leak in leaks)
    return kept_bytes >= MOST_SHARE * max(each.slope for each in growing)


def _kept(
    holders: list[tuple[Any, Load]],
    growing: list[Growth],
    num_steps: float,
    evidence: Evidence,
    deadline: Deadline,
) -> Iterator[Leak]:
    per_epoch = evidence.steps_per_epoch
    named: set[Named] = set()
    for holder, change in holders:
        if notebook.is_outputs(holder):
            whole = weigh(holder)
            growth = change.num / num_steps
            yield wording.shown(whole.num, whole.num_bytes, growth=growth, unit=evidence.unit)
            continue
        name = None if _is_bounded(holder, growing) else evidence.name(holder, deadline)
        if name is None or name in named or (name.shrinks() and not evidence.is_proven(holder)):
            continue
        named.add(name)
        load = max(weigh(holder), change, key=lambda each: each.num)
        yield wording.kept(
            name.name,
            name.place(),
            "tensors" if 2 * load.num_tensors >= load.num else "arrays",
            load.num,
            load.num_bytes,
            growth=change.num / num_steps,
            per_epoch=None if per_epoch is None else change.num / num_steps * per_epoch,
            unit=evidence.unit,
        )


def _is_bounded(holder: Any, growing: list[Growth]) -> bool:
    """Whether a container is filling up to a length of its own, and will fit."""
    if not isinstance(holder, deque) or holder.maxlen is None:
        return False
    whole_bytes = weigh(holder).num_bytes * holder.maxlen / max(1, len(holder))
    return whole_bytes <= min(each.room or 0 for each in growing)


# Traces, models, pipelines that are built again and again


def _built(origin: Origin, growths: list[Growth], tracer: Tracer) -> Iterator[Leak]:
    now = tracer.num_ticks()
    is_retraced, is_rebuilt = origin.is_retraced(now), origin.is_rebuilt(now)
    growth = origin.num / max(1, now)
    if not is_retraced and not is_rebuilt:
        return
    if origin.is_dataset:
        place = user_place(origin.file, origin.line)
        yield wording.rebuilt_dataset(_target(origin.file, origin.line), place, origin.num, growth)
    elif origin.is_library:
        yield from _rebuilt_models(origin, growths, growth)
    else:
        place = user_place(origin.file, _definition(origin))
        if is_retraced:
            yield wording.retraced(origin.name, place, origin.num, origin.culprit(), growth)
        else:
            yield wording.rebuilt_function(origin.name, place, origin.num_made, growth)


def _rebuilt_models(origin: Origin, growths: list[Growth], growth: float) -> Iterator[Leak]:
    """Keras's functions, traced for the user: a new model, or a model that was compiled again.

    With `memfit.release` gradients do not pile up, and it is no leak.
    """
    gradients = next((each for each in growths if each.series == "gradients"), None)
    if origin.caller is None or gradients is None or gradients.slope <= 0:
        return
    file, line = origin.caller
    name, tree = _receiver(file, line), sources.read_tree(file)
    made = None if tree is None else sources.assignment_line(tree, name, before=line)
    slope = max((each.slope for each in growths if each.room is not None and each.is_growing), default=0.0)
    each_bytes = round(slope / growth) if slope else None
    place, caller = user_place(file, line if made is None else made), user_place(file, line)
    yield wording.rebuilt_model(name, place, origin.num_made, caller, each_bytes, growth)


# What is left


def _rest(
    first: Census, second: Census, growing: list[Growth], num_steps: float, evidence: Evidence
) -> list[Leak]:
    worst = max(growing, key=lambda each: each.slope)
    filling = _filling(worst, evidence)
    if filling is not None:
        return [filling[0]] if filling[1] else []
    found = list(_shapes(worst, evidence))
    found = found or list(_objects(first, second, worst, num_steps, evidence.unit))
    return found or [
        wording.native(worst, _ruled_out(first, second, num_steps, evidence.unit), evidence.unit)
    ]


def _ruled_out(first: Census, second: Census, num_steps: float, unit: str) -> str:
    """What did not grow enough to explain it, as a list."""
    changes = {
        "eager tensors": second.tensors.num - first.tensors.num,
        "arrays": second.arrays.num - first.arrays.num,
        "graphs": second.nums["graphs"] - first.nums["graphs"],
        "models": second.nums["models"] - first.nums["models"],
        "Python objects": second.types.total() - first.types.total(),
    }
    listed = ", ".join(f"{name} ({change:+,})" for name, change in changes.items())
    return f"{listed} in {num_steps:,.0f} {unit}s"


def _filling(growth: Growth, evidence: Evidence) -> tuple[Leak, bool] | None:
    """A cache or a shuffle buffer that is filling, and whether it will not fit."""
    assert growth.room is not None
    for stage in live_datasets():
        method = next((each for each in ("cache", "shuffle") if each in type(stage).__name__.lower()), None)
        place = None if method is None else _method_place(method)
        if method is None or place is None:
            continue
        num, element = _num_held(stage, method), _element_bytes(stage)
        whole = None if num is None or element is None else num * element
        if whole is None or evidence.grown_bytes <= FILLED_SHARE * whole:
            leak = wording.pipeline(_target(*place), user_place(*place), method, whole, growth, evidence.unit)
            return leak, whole is None or whole > growth.room + evidence.grown_bytes
    return None


def _num_held(stage: Any, method: str) -> int | None:
    num = int(stage.cardinality())
    size = buffer_size(stage) if method == "shuffle" else None
    if size is not None and size >= 0:
        return min(size, num) if num >= 0 else size
    return num if num >= 0 else None


def _element_bytes(stage: Any) -> int | None:
    specs = tf.nest.flatten(stage.element_spec)
    if not all(isinstance(each, tf.TensorSpec) and each.shape.is_fully_defined() for each in specs):
        return None
    return sum(int(each.shape.num_elements()) * int(each.dtype.size) for each in specs)


def _method_place(method: str) -> tuple[str, int] | None:
    """Where the user's running code, or a cell that ran before, calls a method of a data set."""
    running = (frame.f_code.co_filename for frame in running_frames())
    for file in filter(is_user_file, dict.fromkeys((*running, *notebook.cell_files()))):
        tree = sources.read_tree(file)
        lines = [] if tree is None else sources.method_lines(tree, method)
        if lines:
            return file, lines[0]
    return None


def _shapes(growth: Growth, evidence: Evidence) -> Iterator[Leak]:
    place, shapes = max(evidence.shapes.items(), key=lambda each: len(each[1]), default=(None, set()))
    if place is not None and len(shapes) >= MANY_SHAPES:
        yield wording.lengths(_receiver(*place), user_place(*place), len(shapes), growth)


def _objects(first: Census, second: Census, growth: Growth, num_steps: float, unit: str) -> Iterator[Leak]:
    """Objects of one type that explain the growth: tensors and arrays by what is in them."""
    is_whole = first.is_whole and second.is_whole  # Else a count of arrays is of those it came to.
    loads = {"EagerTensor": (first.tensors, second.tensors)}
    loads |= {"ndarray": (first.arrays, second.arrays)} if is_whole else {}
    for name, (before, after) in loads.items():
        is_enough = after.num_bytes - before.num_bytes >= MOST_SHARE * growth.slope * num_steps
        if is_enough and after.num - before.num >= FEW:
            yield wording.objects(name, after.num, (after.num - before.num) / num_steps, unit)
            return
    change = second.types - first.types
    for kind, num in change.most_common(3):
        num_bytes = num * max(kind.__basicsize__, 64)
        if num_bytes >= MOST_SHARE * growth.slope * num_steps:
            yield wording.objects(kind.__qualname__, second.types[kind], num / num_steps, unit)
            return


# Places


def _definition(origin: Origin) -> int:
    tree = sources.read_tree(origin.file)
    return origin.line if tree is None else sources.definition_line(tree, origin.line)


def _receiver(file: str, line: int) -> str:
    tree = sources.read_tree(file)
    return (None if tree is None else sources.receiver_at(tree, line)) or "model"


def _target(file: str, line: int) -> str:
    tree = sources.read_tree(file)
    return (None if tree is None else sources.target_at(tree, line)) or "dataset"
