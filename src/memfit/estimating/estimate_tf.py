"""`memfit.estimate`: what a training step will take, before it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import tensorflow as tf

from memfit.errors import UsageError
from memfit.estimating.batches_tf import all_layers, describe
from memfit.estimating.parts import layer_parts, step_parts
from memfit.estimating.pipeline_tf import host_parts
from memfit.estimating.prediction import Growth, Prediction
from memfit.estimating.probing_tf import find_subject, measure_growth
from memfit.records import Estimate
from memfit.splitting import internals_tf as internals

NOTABLE_SHARE: Final = 0.02


def estimate(
    model: Any,
    data: Any = None,
    *,
    batch_size: int | None = None,
    length: int | None = None,
    loss: Any = None,
    optimizer: Any = None,
    validation: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Estimate:
    """What a training step will take, for a batch that need not fit.

    The real step is measured at a few tiny batches in this process: gradients are computed, nothing is
    applied, and the model, its optimizer, metrics and seeds are as before. What it holds is then replayed at
    the batch that was asked for, which is never run.

    Args:
        model: A built Keras model.
        data: `(x, y)` or `(x, y, sample_weight)` of arrays, or of `tf.TensorSpec`s whose first axis is the
            batch; a `tf.data` set of batches; a `PyDataset`; or `None` for what the model's inputs and
            outputs say.
        batch_size: Examples in a batch; `None` for what the data says, or 32 for arrays, as in Keras.
        length: Time steps, where the model leaves them free; `None` for what the data says.
        loss: As in `model.compile`, for a model that is not compiled.
        optimizer: As in `model.compile`, for a model that is not compiled.
        validation: Whether to estimate the validation step, too.
        tell: Called with what is being done, when it begins.

    Returns:
        An `Estimate`.

    Raises:
        UsageError: If the model was never built, or data and model do not fit.
        SetupError: If memfit was imported after TensorFlow's first op: the CPU then has no true meter.

    Example:
    ```python
    print(memfit.estimate(model, (x, y), batch_size=64).peak_bytes)
    ```
    """
    internals.check_versions()
    subject = find_subject(model, loss=loss, optimizer=optimizer)
    batches = describe(model, data, batch_size=batch_size, length=length, loss=loss or _own_loss(model))
    size = choose_batch_size(batches.batch_size, batches.num_examples)
    tell = tell or (lambda _: None)
    tell("measuring the training step at tiny batches")
    growth = measure_growth(subject, batches)
    found = growth.predict(size, length=batches.length)
    evaluated = None
    if validation:
        tell("measuring the validation step")
        evaluated = measure_growth(subject, batches, is_training=False, num_recordings=1)
    tested = None if evaluated is None else evaluated.predict(size, length=batches.length)
    names = [layer.name for layer in all_layers(model)]
    parts = step_parts(growth, found, size, batches.length)
    pipeline = host_parts(data, batches, size)
    return Estimate(
        batch_size=size,
        length=batches.length,
        device="GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0",
        peak_bytes=found.peak_bytes,
        low_bytes=found.low_bytes,
        high_bytes=found.high_bytes,
        parts=parts,
        layers=layer_parts(found, names, parts),
        # What is held between the steps stays for validation: the slots are not in its growth.
        validation_peak_bytes=None if tested is None else tested.peak_bytes + sum(growth.slots),
        validation_high_bytes=None if tested is None else tested.high_bytes + sum(growth.slots),
        host_bytes=sum(part.num_bytes for part in pipeline),
        host_parts=pipeline,
        step_seconds=found.seconds,
        num_parameters=model.count_params(),
        probes=growth.probes,
        notes=tuple(_notes(growth, found, tested, batches.length)),
    )


def _notes(growth: Growth, found: Prediction, tested: Prediction | None, length: int | None) -> Iterator[str]:
    if growth.spans[-1].length != length:
        yield f"the length was extrapolated from {growth.spans[-1].length} time steps, along a line."
    if growth.unknown_share() > NOTABLE_SHARE:
        yield (
            f"{growth.unknown_share():.0%} of the measured bytes could not be followed from one batch to the "
            "next, and were taken to grow with it."
        )
    if any("Conv3DBackprop" in op for op in growth.ops()) and not tf.config.list_logical_devices("GPU"):
        yield (
            "a Conv3D on a CPU without oneDNN may take a large workspace (256 MiB were seen), and only at "
            "larger batches than were measured: let memfit.plan rehearse the whole batch."
        )
    if tested is not None and tested.peak_bytes + sum(growth.slots) > found.peak_bytes:
        yield "validation needs more than training at this batch: give it a smaller validation_batch_size."


def choose_batch_size(batch_size: int | None, num_examples: int | None) -> int:
    """The batch that was asked for, or Keras's own."""
    if batch_size is None:
        if num_examples is None:
            raise UsageError(
                "the data does not say how large a batch is. Say it: batch_size=32 (on the command line: "
                "--batch-size 32)"
            )
        batch_size = min(32, num_examples)  # Keras's own.
    if batch_size < 1:
        raise UsageError(f"batch_size must be a positive whole number. Received: {batch_size!r}.")
    return batch_size


def _own_loss(model: Any) -> Any:
    return model.loss if model.compiled else None
