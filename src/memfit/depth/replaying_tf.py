"""Lays a trace out in the graph being built: forward once, backward with what was not kept computed again.

Operations that read or write anything but their inputs are laid out once, in the forward pass, whatever the
cuts say; their outputs are kept. So variables are written once, random numbers come from the same seeds, and
nothing has to be put back.

TensorFlow runs whatever is ready. A segment is therefore tied to the gradients that come in: its operations
wait until all that used the segment behind it has run. That also keeps TensorFlow from merging them with
those of the forward pass. What the backward pass computes from kept tensors alone waits, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from memfit.depth.graph import Layout
from memfit.depth.internals_tf import repeat
from memfit.depth.reading_tf import ALIASES, SHAPES, Reading
from memfit.depth.tracing_tf import READS, Trace

# TensorFlow regroups factors of element-wise products, and then a gradient that others wait for may become a
# constant that is there from the start. These it leaves as they are.
PRODUCTS: Final = ("BatchMatMul", "Conv", "Depthwise", "Einsum", "MatMul")


class Replay:
    """One call of a model in the graph being built.

    Args:
        trace: The call.
        reading: It as operations.
        layout: What is computed again.
    """

    def __init__(self, trace: Trace, reading: Reading, layout: Layout) -> None:
        self._trace = trace
        self._reading = reading
        self._layout = layout
        self._forward: dict[int, tf.Tensor] = {}

    def forward(self, given: Sequence[tf.Tensor], weights: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Lays out the forward pass.

        Args:
            given: The values of the inputs and of what was captured besides.
            weights: The values of the variables.
        """
        trace, values = self._trace, self._forward
        inside = (*trace.inputs, *(inside for _, inside in trace.captured))
        values.update((id(tensor), value) for tensor, value in zip(inside, given, strict=True))
        changed = trace.changed_handles
        read = {
            id(handle): weight
            for handle, weight in zip(trace.handles, weights, strict=True)
            if id(handle) not in changed
        }
        laid: dict[str, tf.Operation] = {}
        for operation in trace.forward:
            if operation.type == "Placeholder":
                continue
            if operation.type == READS and id(operation.inputs[0]) in read:
                values[id(operation.outputs[0])] = read[id(operation.inputs[0])]
                continue
            laid[operation.name] = self._lay(operation, values, laid)
        for operation in trace.backward:
            if operation.type in SHAPES and all(id(tensor) in values for tensor in operation.inputs):
                self._lay(operation, values, {})
        return [values[id(output)] for output in trace.outputs]

    def backward(self, upstream: Sequence[tf.Tensor], sources: Sequence[tf.Tensor]) -> list[Any]:
        """Lays out the backward pass.

        Args:
            upstream: The gradients of the differentiable outputs.
            sources: Placeholders of the trace.

        Returns:
            The gradients of the sources, `None` for those that have none.
        """
        walk = _Backward(self._trace, self._reading, self._layout, self._forward)
        return walk.run(upstream, sources)

    def _lay(
        self, operation: tf.Operation, values: dict[int, tf.Tensor], laid: dict[str, tf.Operation]
    ) -> tf.Operation:
        inputs = [values[id(tensor)] for tensor in operation.inputs]
        control = [laid[each.name] for each in operation.control_inputs if each.name in laid]
        new = repeat(operation, inputs, control, operation.name)
        values.update((id(old), made) for old, made in zip(operation.outputs, new.outputs, strict=True))
        return new


class _Backward:
    """The backward pass of one call."""

    def __init__(self, trace: Trace, reading: Reading, layout: Layout, forward: dict[int, tf.Tensor]) -> None:
        self._trace = trace
        self._reading = reading
        self._layout = layout
        self._values = dict(forward)
        self._early = frozenset(forward)
        self._anchor: tf.Operation | None = None
        self._again: dict[int, tf.Tensor] = {}
        self._laid: dict[str, tf.Operation] = {}
        self._users: list[tf.Operation] = []
        self._done: set[int] = set()

    def run(self, upstream: Sequence[tf.Tensor], sources: Sequence[tf.Tensor]) -> list[Any]:
        """The gradients of the sources, from those that come in."""
        for placeholder, value in zip(self._trace.upstream, upstream, strict=True):
            self._values[id(placeholder)] = value
        for operation in self._ordered():
            self._lay(operation)
        return [self._gradient(self._trace.gradients.get(id(source))) for source in sources]

    def _gradient(self, gradient: Any) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values, indices, shape = (
                None if part is None else self._value(part)
                for part in (gradient.values, gradient.indices, gradient.dense_shape)
            )
            return tf.IndexedSlices(values, indices, shape)
        return None if gradient is None else self._value(gradient)

    def _ordered(self) -> list[tf.Operation]:
        """The operations of the backward pass, those of later segments first."""
        operations = [
            each
            for each in self._trace.backward
            if each.type != "Placeholder" and not all(id(output) in self._values for output in each.outputs)
        ]
        number = {operation.name: place for place, operation in enumerate(operations)}
        last = len(self._layout.segments)
        segment: list[int] = []
        before: list[set[int]] = []
        for operation in operations:
            own = [each for tensor in operation.inputs if (each := self._segment(tensor)) is not None]
            makers = {each.op.name for each in operation.inputs} | {
                each.name for each in operation.control_inputs
            }
            sources = {number[name] for name in makers if name in number}
            before.append(sources)
            segment.append(min(own or [segment[each] for each in sources if each < len(segment)] or [last]))
        after: list[list[int]] = [[] for _ in operations]
        for place, sources in enumerate(before):
            for source in sources:
                after[source].append(place)
        waiting = [len(sources) for sources in before]
        ready = [(-segment[place], place) for place, count in enumerate(waiting) if count == 0]
        heapq.heapify(ready)
        ordered = []
        while ready:
            _, place = heapq.heappop(ready)
            ordered.append(operations[place])
            for each in after[place]:
                waiting[each] -= 1
                if waiting[each] == 0:
                    heapq.heappush(ready, (-segment[each], each))
        return ordered

    def _segment(self, tensor: tf.Tensor) -> int | None:
        """The segment in which a tensor is made again, or `None` if it is kept."""
        root = self._reading.root_of.get(id(tensor))
        return None if root is None else self._layout.segment_of.get(root)

    def _lay(self, operation: tf.Operation) -> None:
        incoming = [each for each in operation.inputs if self._segment(each) is None]
        segments = {each for tensor in operation.inputs if (each := self._segment(tensor)) is not None}
        for segment in sorted(segments - self._done, reverse=True):
            self._unfold(
                segment, [self._value(tensor).op for tensor in incoming if tensor.op.name in self._laid]
            )
        inputs = [self._value(tensor) for tensor in operation.inputs]
        control = [self._laid[each.name] for each in operation.control_inputs if each.name in self._laid]
        if self._anchor is not None and not self._is_late(operation):
            control.append(self._anchor)
        new = repeat(operation, inputs, control, operation.name)
        self._laid[operation.name] = new
        if operation.type.startswith(PRODUCTS):
            self._anchor = new
        self._values.update((id(old), made) for old, made in zip(operation.outputs, new.outputs, strict=True))
        if segments:
            self._users.append(new)

    def _is_late(self, operation: tf.Operation) -> bool:
        """Whether an operation cannot run before the backward pass comes to it anyway."""
        return not operation.inputs or any(
            self._segment(tensor) is not None or id(tensor) not in self._early for tensor in operation.inputs
        )

    def _unfold(self, segment: int, incoming: list[tf.Operation]) -> None:
        """Computes a segment again, once all that used those behind it has run and its gradient has come."""
        self._done.add(segment)
        anchor = [] if self._anchor is None else [self._anchor]
        with tf.control_dependencies([*self._users, *incoming, *anchor]):
            begin = tf.no_op("again")
        self._users = [begin]
        for index in self._layout.segments[segment]:
            operation = self._reading.operations[index]
            is_first = all(self._segment(tensor) != segment for tensor in operation.inputs)
            inputs = [self._value(tensor) for tensor in operation.inputs]
            new = repeat(operation, inputs, [begin] if is_first else [], f"{operation.name}/again")
            for old, made in zip(operation.outputs, new.outputs, strict=True):
                if self._segment(old) == segment:
                    self._again[id(old)] = made

    def _value(self, tensor: tf.Tensor) -> tf.Tensor:
        """A tensor as it is kept, or as it was made again."""
        if self._segment(tensor) is None:
            return self._values[id(tensor)]
        if id(tensor) not in self._again:
            operation = tensor.op
            assert operation.type in ALIASES, f"{operation.name} was not computed again"
            if operation.type == "IdentityN":
                self._again[id(tensor)] = self._value(operation.inputs[tensor.value_index])
            else:
                inputs = [self._value(each) for each in operation.inputs]
                new = repeat(operation, inputs, [], f"{operation.name}/again")
                self._again[id(tensor)] = new.outputs[0]
        return self._again[id(tensor)]
