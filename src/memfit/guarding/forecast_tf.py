"""What would have fitted: a step that ran out of memory, measured at tiny batches once it is dead.

Safely, or not at all. What the measurement takes must fit beside what is alive by a wide margin, since on the
CPU a failed request may be a crash; and where anything goes wrong, the autopsy does without it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import keras

from memfit.budgeting.budget import budget as find_budget
from memfit.estimating.batches_tf import describe
from memfit.estimating.parts import ACTIVATIONS, layer_parts, step_parts
from memfit.estimating.prediction import Growth
from memfit.estimating.probing_tf import LEAST_RATIO, find_subject, measure_growth
from memfit.guarding.first_epoch import Shapes
from memfit.measuring import device_tf
from memfit.records import BatchPeak, Forecast, Held
from memfit.splitting import internals_tf as internals

# Of the batch that failed, which may have needed several times what there is.
PROBED_SHARE: Final = 16
# Beside the model there are, while it is measured, copies of its weights and slots, and gradients.
COPIES: Final = 3
LEAST_FREE_SHARE: Final = 0.25
NUM_RECORDINGS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A step that ran out of memory.

    Attributes:
        model: The model.
        data: `(x, y)` as it was given, where those are arrays; `None` otherwise.
        shapes: The shapes of the inputs of the batch; empty if unknown.
        batch_size: Its examples, or `None` if unknown.
        is_training: Whether it was a step of training rather than of validation.
    """

    model: Any
    data: Any = None
    shapes: Shapes = ()
    batch_size: int | None = None
    is_training: bool = True

    @property
    def num_examples(self) -> int | None:
        """The examples of the batch, as it was seen or else as it was asked for."""
        return self.shapes[0][0] if self.shapes else self.batch_size


def forecast(dead: Dead, *, budget: int | None) -> Forecast | None:
    """What the step would take in smaller batches and in micro-batches; `None` where that cannot be told.

    Args:
        dead: The step.
        budget: What the device may use, or `None` for what `memfit.budget` finds.
    """
    gc.collect()  # What the step held, and nobody holds any more.
    try:
        if not _is_safe(dead.model, find_budget(budget).device_bytes):
            return None
        return _measured(dead)
    except Exception:  # noqa: BLE001 - an autopsy must not fail for want of one of its numbers.
        return None


def _is_safe(model: Any, limit_bytes: int) -> bool:
    """Whether there is far more room than the measurement will take."""
    if not model.compiled or internals.is_replicated(model):
        return False
    used_bytes = max((each.current_bytes for each in device_tf.read_figures()), default=0)
    variables = [*model.variables, *(model.optimizer.variables if model.optimizer is not None else ())]
    own_bytes = sum(_bytes_of(each) for each in variables)
    return limit_bytes - used_bytes >= COPIES * own_bytes + LEAST_FREE_SHARE * limit_bytes


def _bytes_of(variable: Any) -> int:
    return int(variable.value.shape.num_elements()) * int(variable.value.dtype.size)


def _measured(dead: Dead) -> Forecast | None:
    size = dead.num_examples
    if size is None:
        return None
    model = dead.model
    length = _free_length(model, dead.shapes)
    small = max(LEAST_RATIO, size * LEAST_RATIO // PROBED_SHARE)
    batches = describe(model, dead.data, batch_size=small, length=length, loss=model.loss)
    growth = measure_growth(
        find_subject(model), batches, is_training=dead.is_training, num_recordings=NUM_RECORDINGS
    )
    found = growth.predict(size, length=batches.length)
    parts = step_parts(growth, found, size, batches.length)
    layers = layer_parts(found, [layer.name for layer in internals.all_layers(model)], parts)
    rest = [each for each in parts if each.name in ("inputs", "gradients", "temporaries") and each.num_bytes]
    resting = 0 if dead.is_training else sum(_bytes_of(each) for each in model.optimizer.variables)
    return Forecast(
        is_training=dead.is_training,
        batch_size=size,
        peak_bytes=found.peak_bytes + resting,
        high_bytes=found.high_bytes + resting,
        smaller=tuple(_smaller(growth, size, batches.length, resting, is_split=False)),
        # A validation in parts sums up no gradients.
        split=tuple(_smaller(growth, size, batches.length, resting, is_split=dead.is_training)),
        activations=tuple(
            Held(name=name, num_bytes=num_bytes)
            for name, num_bytes in (
                *((f"{ACTIVATIONS} of {each.name}", each.num_bytes) for each in layers),
                *((each.name, each.num_bytes) for each in rest),
            )
        ),
    )


def _smaller(
    growth: Growth, size: int, length: int | None, resting: int, *, is_split: bool
) -> Iterator[BatchPeak]:
    """Halves of the batch down to one example, each as a batch of its own or as a part of the whole one."""
    num = size // 2
    while num:
        found = growth.predict(
            size if is_split else num, length=length, micro_batch=num if is_split else None
        )
        yield BatchPeak(
            num_examples=num, peak_bytes=found.peak_bytes + resting, high_bytes=found.high_bytes + resting
        )
        num //= 2


def _free_length(model: Any, shapes: Shapes) -> int | None:
    """The time steps of the batch, where the model leaves them free."""
    inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
    for tensor, shape in zip(inputs, shapes, strict=False):
        if len(tensor.shape) > 1 and len(shape) > 1 and tensor.shape[1] is None:
            return shape[1]
    return None
