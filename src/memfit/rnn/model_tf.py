"""Puts the engine under a whole model: stacks where it finds them, single layers elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from memfit.errors import UsageError
from memfit.rnn import seam_tf, segments
from memfit.rnn.borders_tf import borders_of
from memfit.rnn.engine_tf import Program, run
from memfit.rnn.internals_tf import (
    all_layers,
    attach_mask,
    check_versions,
    functional_of,
    is_compiled_by_xla,
    mask_of,
)
from memfit.rnn.lanes import usable_cores
from memfit.rnn.layer_tf import Handle, Tuning, checkpoint_layer, one_mask, warn_of_xla
from memfit.rnn.paths_tf import Path
from memfit.rnn.pointwise_tf import EmbeddingBlock
from memfit.rnn.stack_tf import Stack, find_stacks, parts_of


def checkpoint_time(model_or_layer: keras.layers.Layer, segment: int | None = None) -> Handle:
    """Runs every RNN of a model, or one layer, by time segments from now on; same gradients, less memory.

    Functions that the user has traced already keep running as they were traced: call this first.

    Args:
        model_or_layer: A model, built or not, or a layer.
        segment: Steps of a segment; `None` chooses from the length; the length or more recomputes nothing.

    Returns:
        A handle that undoes it, by `with` or `.undo()`. Dropping it changes nothing.

    Example:
    ```python
    with checkpoint_time(model) as handle:
        model.fit(x, y)
        print(handle.paths)
    ```
    """
    check_versions()
    if segment is not None:
        segments.check_steps("segment", segment)
    if not isinstance(model_or_layer, keras.layers.Layer):
        raise UsageError(f"checkpoint_time takes a Keras model or layer. Received: {model_or_layer!r}.")
    if not any(isinstance(layer, keras.layers.RNN) for layer in all_layers(model_or_layer)):
        raise UsageError(
            f"{model_or_layer.name!r} has no keras.layers.RNN (LSTM, GRU, SimpleRNN, ConvLSTM...), so there "
            "is no time to cut into segments. Nothing was changed."
        )
    handle = Handle()
    try:
        for part in _parts(model_or_layer, segment):
            handle.add(part)
        trace_anew(model_or_layer, handle)
    except BaseException:
        handle.undo()
        raise
    return handle


def _parts(model_or_layer: keras.layers.Layer, segment: int | None) -> Iterator[Handle]:
    layers = all_layers(model_or_layer)
    taken: set[int] = set()
    for layer in layers:
        functional = functional_of(layer)
        if functional is not None and id(functional) not in taken:
            taken.add(id(functional))
            stacks = find_stacks(functional)
            taken.update(id(each) for stack in stacks for each in stack.layers)
            if stacks:
                yield _checkpoint_stacks(functional, stacks, segment)
    halves = {
        id(half)
        for layer in layers
        if isinstance(layer, keras.layers.Bidirectional)
        for half in (layer.forward_layer, layer.backward_layer)
    }
    for layer in layers:
        if isinstance(layer, keras.layers.RNN) and id(layer) not in taken:
            # The two directions of a Bidirectional are lanes already.
            num_lanes = max(1, usable_cores() // 2) if id(layer) in halves else None
            yield checkpoint_layer(layer, segment, num_lanes=num_lanes)


def trace_anew(model_or_layer: keras.layers.Layer, handle: Handle) -> None:
    """Has Keras forget the functions that it traced before, now and when the handle is undone."""
    models = [layer for layer in all_layers(model_or_layer) if isinstance(layer, keras.Model)]

    def forget() -> None:
        for model in models:
            model.train_function = model.test_function = model.predict_function = None

    forget()
    handle.add(Handle((), [forget]))


def _checkpoint_stacks(functional: Any, stacks: list[Stack], segment: int | None) -> Handle:
    """Replaces how a functional model runs the layers of its stacks."""
    call = _Call(functional, stacks, segment)
    jit = [(layer, layer.supports_jit) for stack in stacks for layer in stack.layers]
    seam_tf.put(functional, call)
    object.__setattr__(functional, "_run_through_graph", call.run_through_graph)
    for layer, _ in jit:
        layer.supports_jit = False

    def undo() -> None:
        seam_tf.take_out(functional, call)
        object.__delattr__(functional, "_run_through_graph")
        for layer, was_jit in jit:
            layer.supports_jit = was_jit

    paths = tuple(
        Path(
            layer_name=layer.name, kind="closed form" if isinstance(layer, keras.layers.RNN) else "in a stack"
        )
        for stack in stacks
        for layer in stack.layers
    )
    return Handle(paths, [undo])


@dataclass(frozen=True, slots=True)
class _Now:
    """One call of a functional model that is under way.

    Args:
        training: As in `call`.
        masks: By the id of a stack, the mask that its layers are called with.
    """

    training: bool
    masks: dict[int, tf.Tensor | None]


class _Calls(threading.local):
    """The calls under way in this thread, the innermost last; replicas run in threads of their own."""

    def __init__(self) -> None:
        self.all: list[_Now] = []


class _Call:
    """The `call` of a functional model: the last layer of a stack runs it, the others pass its inputs on."""

    def __init__(self, functional: Any, stacks: list[Stack], segment: int | None) -> None:
        self._functional = functional
        self.previous: Callable[..., Any] | None = None
        runs = [_StackRun(stack, segment) for stack in stacks]
        self._runs = {id(layer): run for run in runs for layer in run.layers}
        self._calls = _Calls()

    def __call__(self, inputs: Any, training: bool | None = None, mask: Any = None, **options: Any) -> Any:
        call = seam_tf.below(self._functional, self)
        if is_compiled_by_xla():
            warn_of_xla(self._functional.name)
            return call(inputs, training, mask, **options)
        self._calls.all.append(_Now(bool(training), {}))
        try:
            return call(inputs, training, mask, **options)
        finally:
            self._calls.all.pop()

    def run_through_graph(
        self, inputs: Any, operation_fn: Callable[[Any], Any] = lambda operation: operation, **options: Any
    ) -> Any:
        """As Keras's own, with the layers of the stacks replaced while the model is being called."""

        def choose(operation: Any) -> Any:
            run = self._runs.get(id(operation))
            if run is None or not self._calls.all:
                return operation_fn(operation)
            return run.member(operation, self._calls.all[-1])

        return type(self._functional)._run_through_graph(self._functional, inputs, choose, **options)


class _StackRun:
    """One stack of a model."""

    def __init__(self, stack: Stack, segment: int | None) -> None:
        self.layers = stack.layers
        self._stack = stack
        self._segment = segment
        self._eager = tf.function(self._run, reduce_retracing=True, autograph=False)

    def member(self, layer: keras.layers.Layer, now: _Now) -> Callable[..., tf.Tensor]:
        """What stands in for one layer of the stack in one call of the model."""

        def call(values: tf.Tensor, mask: Any = None, **_: Any) -> tf.Tensor:
            if layer is self.layers[0]:
                now.masks[id(self)] = one_mask(mask_of(values))
            if mask is not None:
                now.masks[id(self)] = one_mask(mask)
            return self._outputs(values, now) if layer is self.layers[-1] else values

        return call

    def _outputs(self, inputs: tf.Tensor, now: _Now) -> tf.Tensor:
        mask = now.masks.pop(id(self))
        run_once = self._eager if tf.executing_eagerly() else self._run
        outputs = run_once(inputs, mask, now.training)
        if self._stack.return_sequences:
            attach_mask(outputs, mask)
        return outputs

    @tf.autograph.experimental.do_not_convert
    def _run(self, inputs: tf.Tensor, mask: tf.Tensor | None, training: bool) -> tf.Tensor:
        parts = parts_of(self._stack, inputs, training=training, is_masked=mask is not None)
        blocks = tuple(part.block for part in parts)
        is_table = isinstance(blocks[0], EmbeddingBlock)
        inputs = tf.cast(inputs, tf.int32 if is_table else blocks[0].dtype)
        borders = borders_of(inputs, blocks, self._segment, can_keep=True)
        program = Program(
            blocks=blocks,
            return_sequences=self._stack.return_sequences,
            num_lanes=Tuning().lanes_of(inputs),
            compiled=Tuning().is_compiled(inputs),
        )
        outputs, _ = run(
            program,
            borders,
            inputs,
            mask,
            tuple(part.states for part in parts),
            tuple(part.weights for part in parts),
            tuple(part.noise for part in parts),
        )
        return outputs
