"""The plan that `memfit.fit` makes by itself, where none is given and the data can be looked at."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from memfit.errors import MemfitWarning, SetupError, UsageError
from memfit.planning.plan_tf import plan
from memfit.records import Plan
from memfit.splitting import internals_tf as internals
from memfit.training.mapped_tf import MappedArrays


def plan_fit(
    model: Any,
    x: Any,
    y: Any,
    *,
    budget: str | int | None,
    allow: str | Iterable[str],
    arguments: dict[str, Any],
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """The plan for a fit; one that does nothing where data or model cannot be measured.

    A budget that was asked for and cannot be planned for is said in a warning.

    Args:
        model: A compiled model.
        x: As in `keras.Model.fit`.
        y: As in `keras.Model.fit`.
        budget: What the device may use; `None` for what `memfit.budget` finds.
        allow: What may be done although it changes the mathematics.
        arguments: The other arguments of `fit`.
        tell: Called with the stages of the work; `None` prints them unless `fit` is to be silent.

    Raises:
        BudgetError: If nothing fits.
    """
    why_not = _why_not(model, x, arguments)
    if budget is None and internals.overrides(model, "train_step"):
        why_not = "it has a training step of its own, which nobody asked to run in advance."
    if not why_not:
        data = x if y is None and not _is_array(x) else (x, y, arguments.get("sample_weight"))
        if isinstance(x, MappedArrays):
            data = (x.x, x.y, x.sample_weight)
        try:
            if not model.built:
                internals.build_from(model, _first_batch(x.sample() if isinstance(x, MappedArrays) else data))
            found = plan(
                model,
                data,
                budget=budget,
                batch_size=arguments.get("batch_size"),
                allow=allow,
                tell=tell or (_tell if arguments.get("verbose", "auto") not in (0, "0") else None),
            )
            # The first batch may be smaller than was asked for: there may be no more examples.
            return replace(found, batch_size=None)
        except (SetupError, UsageError) as fault:
            why_not = str(fault)
    if budget is not None:
        warnings.warn(
            f"no plan was made for budget={budget!r}: {why_not} Training starts as it is, and falls back "
            "when memory runs out.",
            MemfitWarning,
            stacklevel=4,
        )
    return Plan()


def _why_not(model: Any, x: Any, arguments: dict[str, Any]) -> str:
    if internals.is_replicated(model):
        return "the model is trained by several replicas."
    if isinstance(x, (tf.data.Dataset, keras.utils.PyDataset, MappedArrays)):
        return ""
    leaves = keras.tree.flatten(x)
    if not leaves or not all(_is_array(leaf) for leaf in leaves):
        return f"x is a {type(x).__name__}, whose batches cannot be looked at before training."
    if arguments.get("batch_size") is not None and not isinstance(arguments["batch_size"], int):
        return f"batch_size is {arguments['batch_size']!r}."
    return ""


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, tf.Tensor, tf.Variable)) and bool(np.ndim(leaf))


def _first_batch(data: Any) -> Any:
    if isinstance(data, tf.data.Dataset):
        return next(iter(data.take(1)))
    if isinstance(data, keras.utils.PyDataset):
        return data[0]
    parts = tuple(part for part in data if part is not None)
    return keras.tree.map_structure(lambda leaf: tf.convert_to_tensor(leaf[:1]), parts)


def _tell(stage: str) -> None:
    print(f"memfit: {stage}", flush=True)
