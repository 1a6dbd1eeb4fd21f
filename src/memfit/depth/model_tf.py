"""`memfit.checkpoint_depth`: puts depth checkpointing under a model, and takes it out again.

The one thing that is replaced is `call` of the model, on the instance. Layers, variables and config stay what
they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import keras

from memfit.depth.calling_tf import DepthCall
from memfit.depth.deciding import Decision
from memfit.depth.internals_tf import check_versions
from memfit.depth.limits import check_batch_size, parse_limit
from memfit.errors import SetupError, UsageError
from memfit.rnn import seam_tf
from memfit.rnn.layer_tf import Handle
from memfit.rnn.model_tf import trace_anew


@dataclass(slots=True)
class DepthHandle(Handle):
    """What was changed, and how to change it back. Dropping it changes nothing."""

    _calls: list[DepthCall] = field(default_factory=list)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What was decided for every call that was traced so far."""
        return tuple(decision for call in self._calls for decision in call.decisions)


def checkpoint_depth(
    model: keras.layers.Layer,
    limit: str | int | None = None,
    *,
    batch_size: int | None = None,
    is_measured: bool = False,
) -> DepthHandle:
    """Keeps only a part of a model's activations from now on, and computes the rest again; same gradients.

    Functions that the user has traced already keep running as they were traced: call this first.

    Args:
        model: A model or layer of any kind, built or not.
        limit: What the activations may hold: bytes (`"64MiB"`), or a share of what plain Keras holds
            (`"40%"`); the fastest way within it is taken. `None` takes as little as can be had for at most
            one more forward pass.
        batch_size: What to take a batch for whose size is not known while the step is traced, as in `fit`; a
            limit in bytes needs it there.
        is_measured: Whether every operation is timed on this machine while the step is traced, which takes
            about three forward passes; otherwise its time is estimated from its work.

    Returns:
        A handle that undoes it, by `with` or `.undo()`, and tells what was decided.

    Example:
    ```python
    with checkpoint_depth(model, "40%") as handle:
        model.fit(x, y)
        print(*handle.decisions)
    ```
    """
    check_versions()
    parsed = parse_limit(limit)
    check_batch_size(batch_size)
    if not isinstance(model, keras.layers.Layer):
        raise UsageError(f"checkpoint_depth takes a Keras model or layer. Received: {model!r}.")
    if _is_under(model):
        raise SetupError(f"{model.name!r} is under depth checkpointing already. Undo the first handle first.")
    call = DepthCall(model, parsed, batch_size, is_measured=is_measured)
    was_jit = model.supports_jit
    seam_tf.put(model, call)
    model.supports_jit = False

    def undo() -> None:
        seam_tf.take_out(model, call)
        model.supports_jit = was_jit

    handle = DepthHandle(_undo=[undo], _calls=[call])
    trace_anew(model, handle)
    return handle


def _is_under(model: keras.layers.Layer) -> bool:
    call = seam_tf.overlay(model)
    while call is not None:
        if isinstance(call, DepthCall):
            return True
        call = call.previous
    return False
