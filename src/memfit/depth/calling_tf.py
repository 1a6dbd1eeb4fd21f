"""The `call` of a model under depth checkpointing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from memfit.depth.deciding import Decision, decide
from memfit.depth.internals_tf import is_recorded, is_stateless
from memfit.depth.limits import Limit
from memfit.depth.reading_tf import has_unknown_sizes, read, why_not_repeated
from memfit.depth.replaying_tf import Replay
from memfit.depth.returning_tf import Leaf, Returned, leaves_of, without_tensors
from memfit.depth.timing_tf import measure_seconds, timed
from memfit.depth.tracing_tf import Trace, is_tangled, trace_call, untangled
from memfit.errors import MemfitWarning, UsageError
from memfit.rnn import seam_tf
from memfit.rnn.internals_tf import is_compiled_by_xla, mask_of, with_gradient

# Keras's default. Where the batch is of unknown size, only proportions matter, unless the limit is in bytes.
USUAL_BATCH: Final = 32


class DepthCall:
    """The `call` of one model.

    Args:
        model: The model.
        limit: What may be held.
        batch_size: What to take a batch of unknown size for, or `None`.
        is_measured: Whether operations are timed, or their time is estimated.
    """

    def __init__(
        self, model: keras.layers.Layer, limit: Limit, batch_size: int | None, *, is_measured: bool
    ) -> None:
        self.previous: Callable[..., Any] | None = None
        self.decisions: list[Decision] = []
        self._model = model
        self._limit = limit
        self._batch_size = batch_size
        self._is_measured = is_measured
        self._functions: dict[Hashable, tuple[Any, Returned]] = {}

    def _plain(self, *args: Any, **kwargs: Any) -> Any:
        return seam_tf.below(self._model, self)(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the plain call."""
        if is_tangled() or is_stateless() or not is_recorded():
            return self._plain(*args, **kwargs)
        if is_compiled_by_xla():
            warnings.warn(
                f"{self._model.name!r} runs as plain Keras: XLA compiles this function, and would merge what "
                "is computed again with what was computed before. Pass jit_compile=False to save memory.",
                MemfitWarning,
                stacklevel=2,
            )
            return self._plain(*args, **kwargs)
        leaves = leaves_of((args, kwargs))
        structure = without_tensors((args, kwargs))
        tensors = [tensor for leaf in leaves for tensor in leaf.tensors]
        masks = [mask_of(tensor) for tensor in tensors]
        run, returned = self._function(structure, leaves, masks)
        given_masks = [mask for mask in masks if mask is not None]
        return returned.give(run(tensors, given_masks))

    def _function(self, structure: Any, leaves: list[Leaf], masks: list[Any]) -> tuple[Any, Returned]:
        """What runs a call: eagerly, one function for all calls with the same arguments but for tensors."""
        has_mask = tuple(mask is not None for mask in masks)
        returned = Returned(self._model)

        def run(tensors: Sequence[tf.Tensor], given_masks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            rest, rest_masks = iter(tensors), iter(given_masks)
            fresh = [leaf._replace(tensors=[next(rest) for _ in leaf.tensors]) for leaf in leaves]
            each_mask = [next(rest_masks) if one else None for one in has_mask]
            outputs: list[tf.Tensor] = self._run(structure, fresh, each_mask, returned)
            return outputs

        if not tf.executing_eagerly():
            return run, returned
        trained = tuple(variable.trainable for variable in self._model.variables)
        key = (_key(structure, leaves), has_mask, trained)
        if key not in self._functions:
            self._functions[key] = (tf.function(run, reduce_retracing=True, autograph=False), returned)
        return self._functions[key]

    @tf.autograph.experimental.do_not_convert
    def _run(
        self, structure: Any, leaves: list[Leaf], masks: list[tf.Tensor | None], returned: Returned
    ) -> list[tf.Tensor]:
        with untangled():
            trace = trace_call(self._model, self._plain, structure, leaves, masks, returned)
        tensors = [tensor for leaf in leaves for tensor in leaf.tensors]
        return self._lay_out(trace, [*tensors, *(mask for mask in masks if mask is not None)])

    def _lay_out(self, trace: Trace, given: list[tf.Tensor]) -> list[tf.Tensor]:
        replay = self._decide(trace)
        values = [*given, *(outside for outside, _ in trace.captured)]
        places = [*trace.inputs, *(inside for _, inside in trace.captured)]
        floats = [place for place, value in enumerate(values) if value.dtype.is_floating]
        sources = [*(places[place] for place in floats), *trace.handles]
        outputs: list[tf.Tensor] = []

        def function(*arguments: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., list[Any]]]:
            filled = list(values)
            for place, value in zip(floats, arguments, strict=False):
                filled[place] = value
            outputs.extend(replay.forward(filled, arguments[len(floats) :]))
            results = tuple(outputs[place] for place in trace.differentiable)
            return results, lambda *upstream: replay.backward(upstream, sources)

        weights = [tf.convert_to_tensor(variable) for variable in trace.variables]
        arguments = [*(values[place] for place in floats), *weights]
        if not trace.differentiable or not arguments:
            return replay.forward(values, weights)
        results = with_gradient(function, *arguments)
        for place, result in zip(trace.differentiable, results, strict=True):
            outputs[place] = result
        return outputs

    def _decide(self, trace: Trace) -> Replay:
        unknown = has_unknown_sizes(trace)
        # A step that was traced for whole batches is traced anew for any size when a smaller one comes.
        seen = max((each.batch_size for each in self.decisions if each.batch_size), default=None)
        batch_size = self._batch_size or seen
        if unknown and self._limit.num_bytes is not None and batch_size is None:
            raise UsageError(
                f"the batch size of {self._model.name!r} is not known while its step is traced, so a "
                f"limit of {self._limit.text} cannot be held. Say it, checkpoint_depth(model, "
                f"{self._limit.text!r}, batch_size=32) or batch_size=32 in the plan, or give the limit as a "
                'share: "40%".'
            )
        unknown_size = batch_size or USUAL_BATCH
        reading = read(trace, unknown_size)
        if self._is_measured:
            with tf.init_scope():
                reading = timed(reading, measure_seconds(trace, reading, unknown_size))
        decision, layout = decide(
            reading.graph,
            self._limit,
            model_name=self._model.name,
            batch_size=unknown_size if unknown else _batch_of(trace),
            left_out=why_not_repeated(reading, trace),
        )
        self.decisions.append(decision)
        if not decision.num_segments and self._limit.is_least:
            warnings.warn(
                f"{self._model.name!r} gains nothing from depth checkpointing: its backward pass needs "
                f"{decision.plain_bytes} bytes that could not be computed again from less. It runs as plain "
                "Keras; leave depth checkpointing out.",
                MemfitWarning,
                stacklevel=2,
            )
        return Replay(trace, reading, layout)


def _batch_of(trace: Trace) -> int | None:
    return next((int(tensor.shape[0]) for tensor in trace.inputs if tensor.shape.rank), None)


def _key(structure: Any, leaves: list[Leaf]) -> Hashable:
    """A call but for its tensors: equal for calls that one function can run."""
    kinds = tuple(type(leaf.value).__name__ if leaf.tensors else _mark(leaf.value) for leaf in leaves)
    return repr(keras.tree.map_structure(lambda _: 0, structure)), kinds


def _mark(leaf: Any) -> str:
    is_plain = leaf is None or isinstance(leaf, (bool, int, float, str))
    return repr(leaf) if is_plain else f"{type(leaf).__name__} {id(leaf)}"
