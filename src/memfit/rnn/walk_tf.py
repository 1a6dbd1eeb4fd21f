"""All segments of a sequence in turn: forward with borders kept, backward with one tape at a time.

TensorFlow runs whatever is ready. Left alone it would recompute segments before their gradient is there, or
several at a time, and hold more than without segments. So everything here is ordered: loops run one round at
a time, the backward loop starts when the last segment is done, and a block when its gradient has come. Only
the lanes, which are parts of the batch, run side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import tensorflow as tf

from memfit.rnn.block_tf import Block, Tensors
from memfit.rnn.loop_tf import tensors_in, with_tensors
from memfit.rnn.rows_tf import add_rows, no_rows
from memfit.rnn.timeline_tf import Timeline, joined, slices, time_first

States = tuple[Tensors, ...]
"""The states of all blocks, for one lane."""


class Lane(NamedTuple):
    """A part of the batch: its inputs, and a structure of dropout masks and seeds a block."""

    inputs: Timeline
    noise: tuple[Any, ...]


class Trail(NamedTuple):
    """What the backward pass needs of a forward pass.

    Args:
        kept: For all segments but the last: arrays of states at their starts, or of their whole tapes.
        last: Of the last segment: its tapes, a list a lane; or, with two levels, the trail inside it.
    """

    kept: Any
    last: Any


class Passed(NamedTuple):
    """A forward pass.

    Args:
        outputs: A tensor a lane, of all steps or of the last.
        states: The final states a lane.
        trail: For the backward pass.
    """

    outputs: Tensors
    states: tuple[States, ...]
    trail: Trail


class Gradients(NamedTuple):
    """The result of a backward pass: of inputs and states a lane, of weights for all lanes together."""

    inputs: Tensors | None
    states: tuple[States, ...]
    weights: tuple[Tensors, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Blocks over all segments.

    Args:
        blocks: From the inputs to the outputs.
        last_blocks: The same for the last segment, whose length is its own.
        weights: Prepared weights, one entry a block.
        lanes: Parts of the batch.
        starts: First step of every segment, and the length as the last entry.
        return_sequences: Whether the outputs of all steps are wanted, or only of the last.
        keep_tapes: Whether the tapes of all segments are kept, so that nothing is recomputed.
        inner: With two levels, the steps of the segments inside a segment.
    """

    blocks: tuple[Block, ...]
    last_blocks: tuple[Block, ...]
    weights: tuple[Any, ...]
    lanes: tuple[Lane, ...]
    starts: tf.Tensor
    return_sequences: bool
    keep_tapes: bool = False
    inner: int | None = None

    @property
    def has_one_segment(self) -> bool:
        """Whether it is known that there is a single segment: then no loop is built."""
        return bool(self.starts.shape[0] == 2)

    @property
    def last_segment(self) -> tf.Tensor:
        """The index of the last segment."""
        return tf.shape(self.starts)[0] - 2

    def _inside(self, index: tf.Tensor) -> Walk:
        """With two levels, the walk over the segments inside a segment."""
        begin, end = self.starts[index], self.starts[index + 1]
        num_segments = (end - begin + self.inner - 1) // self.inner
        starts = tf.minimum(begin + tf.range(num_segments + 1) * self.inner, end)
        return replace(self, starts=starts, inner=None)

    def forward(self, states: tuple[States, ...]) -> Passed:
        """Runs all segments from the given initial states."""
        outputs, states, trail = self._forward(states, collects=self.return_sequences)
        shape = time_first if self.return_sequences else lambda values: values[-1]
        return Passed(tuple(shape(values) for values in outputs), states, trail)

    def _forward(
        self, states: tuple[States, ...], *, collects: bool
    ) -> tuple[Tensors, tuple[States, ...], Trail]:
        """All segments: outputs time first, states and trail; without `collects`, outputs of the last one."""
        kept: Any = None
        arrays: Any = ()
        if not self.has_one_segment:
            states, kept, arrays = self._forward_loop(states, collects=collects)
        last: Any
        if self.inner is None:
            outputs, states, last = self._run(self.last_blocks, self.last_segment, states, keep=True)
        else:
            outputs, states, last = self._inside(self.last_segment)._forward(states, collects=collects)
        if arrays:
            outputs = tuple(
                joined(array.write(self.last_segment, values), values)
                for array, values in zip(arrays, outputs, strict=True)
            )
        return outputs, states, Trail(kept, last)

    def _run(
        self, blocks: tuple[Block, ...], index: tf.Tensor, states: tuple[States, ...], *, keep: bool
    ) -> tuple[Tensors, tuple[States, ...], Any]:
        """One segment forward through all blocks: outputs, states and tapes a lane."""
        outputs, after, tapes = [], [], []
        for lane, lane_states in zip(self.lanes, states, strict=True):
            values = lane.inputs.read(self.starts[index], self.starts[index + 1])
            found = []
            for block, weights, noise, state in zip(
                blocks, self.weights, lane.noise, lane_states, strict=True
            ):
                values, *rest = block.forward(weights, noise, state, values, keep)
                found.append(rest)
            outputs.append(values.values)
            after.append(tuple(state for state, _ in found))
            tapes.append(tuple(tape for _, tape in found))
        _refine(after, states)
        return tuple(outputs), tuple(after), tuple(tapes)

    def _forward_loop(
        self, states: tuple[States, ...], *, collects: bool
    ) -> tuple[tuple[States, ...], Any, Any]:
        if self.keep_tapes:
            kept = tf.nest.map_structure(self._array_for, self._tape_specs(states))
        else:
            kept = tf.nest.map_structure(self._array_for, states)
        outputs = tuple(slices(self.blocks[-1].dtype, self.last_segment + 1) for _ in self.lanes if collects)

        def body(index: tf.Tensor, states: tuple[States, ...], kept: Any, outputs: Any) -> Any:
            values, after, tapes = self._run(self.blocks, index, states, keep=self.keep_tapes)
            keeping = tensors_in(tapes) if self.keep_tapes else states
            kept = tf.nest.map_structure(lambda array, value: array.write(index, value), kept, keeping)
            outputs = tuple(array.write(index, value) for array, value in zip(outputs, values, strict=False))
            return index + 1, after, kept, outputs

        _, states, kept, outputs = tf.while_loop(
            lambda index, *_: index < self.last_segment,
            body,
            (0, states, kept, outputs),
            parallel_iterations=1,
        )
        return states, kept, outputs

    def _tape_specs(self, states: tuple[States, ...]) -> Any:
        """What a tape is made of, seen by tracing a segment that is never run."""
        traced = tf.function(
            lambda: tensors_in(self._run(self.blocks, tf.constant(0), states, keep=True)[2]), autograph=False
        )
        return traced.get_concrete_function().structured_outputs

    def _array_for(self, spec: Any) -> tf.TensorArray:
        return tf.TensorArray(spec.dtype, size=self.last_segment, infer_shape=False, element_shape=spec.shape)

    def backward(
        self,
        passed: Passed,
        upstream: Tensors,
        d_states: tuple[States, ...],
        weights: tuple[Tensors, ...],
    ) -> Gradients:
        """Walks back from the last segment to the first.

        Args:
            passed: The forward pass.
            upstream: The gradient of its outputs.
            d_states: The gradient of its states.
            weights: The weights as given; their gradients are summed in their dtype.
        """
        sources = tuple(Timeline(values=values) for values in upstream) if self.return_sequences else None
        d_last = None if self.return_sequences else upstream
        d_inputs, d_states, sums = self._backward(passed.trail, sources, d_last, d_states, _Sums(weights))
        if d_inputs is not None and self.lanes[0].inputs.go_backwards:
            d_inputs = tuple(tf.reverse(values, axis=[0]) for values in d_inputs)
        return Gradients(
            None if d_inputs is None else tuple(time_first(values) for values in d_inputs),
            d_states,
            sums.totals,
        )

    def _backward(
        self,
        trail: Trail,
        sources: tuple[Timeline, ...] | None,
        d_last: Tensors | None,
        d_states: tuple[States, ...],
        sums: _Sums,
    ) -> tuple[Tensors | None, tuple[States, ...], _Sums]:
        """Gradients of the inputs, time first, of the states before, and the sums of those of the weights.

        Args:
            trail: Of the forward pass.
            sources: The gradient of all outputs, if they were wanted.
            d_last: Else that of the output of the very last step, if this walk goes so far.
            d_states: The gradient of the states after the last segment.
            sums: What was summed before.
        """
        if self.inner is None:
            upstream = self._upstream(sources, self.last_segment, d_last)
            d_inputs, d_states, d_weights = self._walk_back(self.last_blocks, trail.last, upstream, d_states)
            sums = sums.plus(d_weights)
        else:
            inside = self._inside(self.last_segment)
            d_inputs, d_states, sums = inside._backward(trail.last, sources, d_last, d_states, sums)
        if self.has_one_segment:
            return d_inputs, d_states, sums
        return self._backward_loop(trail, sources, d_inputs, d_states, sums)

    def _upstream(self, sources: Any, index: tf.Tensor, d_last: Tensors | None = None) -> Tensors | None:
        """The gradient of the outputs of a segment, time first."""
        begin, end = self.starts[index], self.starts[index + 1]
        if sources is not None:
            return tuple(source.read(begin, end).values for source in sources)
        if d_last is None:
            return None
        paddings = [[end - begin - 1, 0]]
        return tuple(tf.pad(values[tf.newaxis], paddings + [[0, 0]] * values.shape.rank) for values in d_last)

    def _walk_back(
        self,
        blocks: tuple[Block, ...],
        tapes: Any,
        upstream: Tensors | None,
        d_states: tuple[States, ...],
    ) -> tuple[Tensors | None, tuple[States, ...], list[tuple[Tensors, ...]]]:
        """One segment back through all blocks, from the last to the first; all results a lane."""
        d_inputs, before, d_weights = [], [], []
        for index, (lane, lane_tapes, d_lane) in enumerate(zip(self.lanes, tapes, d_states, strict=True)):
            values = None if upstream is None else upstream[index]
            found = []
            steps = zip(blocks, self.weights, lane.noise, lane_tapes, d_lane, strict=True)
            for block, weights, noise, tape, d_state in reversed(list(steps)):
                come = d_state if values is None else (values, *d_state)
                with tf.control_dependencies(come):  # not earlier, or all tapes are unfolded at once
                    values, *rest = block.backward(weights, noise, tape, values, d_state)
                found.append(rest)
            d_inputs.append(values)
            before.append(tuple(d_state for d_state, _ in reversed(found)))
            d_weights.append(tuple(d_weight for _, d_weight in reversed(found)))
        _refine(before, d_states)
        return (
            None if d_inputs[0] is None else tuple(d_inputs),
            tuple(before),
            d_weights,
        )

    def _backward_loop(
        self, trail: Trail, sources: Any, d_last: Tensors | None, d_states: tuple[States, ...], sums: _Sums
    ) -> tuple[Tensors | None, tuple[States, ...], _Sums]:
        last = self.last_segment
        arrays = tuple(slices(d.dtype, last + 1).write(last, d) for d in d_last or ())
        with tf.control_dependencies(tf.nest.flatten(d_states)):
            first = tf.identity(last - 1)

        def body(index: tf.Tensor, d_states: tuple[States, ...], totals: Any, arrays: Any) -> Any:
            kept = tf.nest.map_structure(lambda array: array.read(index), trail.kept)
            d_inputs, before, sums = self._again(index, trail, kept, sources, d_states, _Sums(totals, True))
            arrays = tuple(array.write(index, d) for array, d in zip(arrays, d_inputs or (), strict=True))
            return index - 1, before, sums.totals, arrays

        _, d_states, totals, arrays = tf.while_loop(
            lambda index, *_: index >= 0, body, (first, d_states, sums.totals, arrays), parallel_iterations=1
        )
        d_inputs = d_last and tuple(joined(array, d) for array, d in zip(arrays, d_last, strict=True))
        return d_inputs, d_states, _Sums(totals, True)

    def _again(
        self,
        index: tf.Tensor,
        trail: Trail,
        kept: Any,
        sources: Any,
        d_states: tuple[States, ...],
        sums: _Sums,
    ) -> tuple[Tensors | None, tuple[States, ...], _Sums]:
        """One segment recomputed from what was kept of it, and walked back."""
        if self.inner is not None:
            _refine(kept, d_states)
            inside = self._inside(index)
            _, _, again = inside._forward(kept, collects=False)
            return inside._backward(again, sources, None, d_states, sums)
        if self.keep_tapes:
            tapes = with_tensors(trail.last, kept)
        else:
            _refine(kept, d_states)
            _, _, tapes = self._run(self.blocks, index, kept, keep=True)
        upstream = self._upstream(sources, index)
        d_inputs, before, d_weights = self._walk_back(self.blocks, tapes, upstream, d_states)
        return d_inputs, before, sums.plus(d_weights)


class _Sums(NamedTuple):
    """The gradients of the weights so far.

    Args:
        totals: The sums, or the weights themselves as long as there are none.
        is_begun: Whether there are any.
    """

    totals: tuple[Tensors, ...]
    is_begun: bool = False

    def plus(self, d_weights: list[tuple[Tensors, ...]]) -> _Sums:
        """With the gradients of one segment, a structure a lane."""
        add = _add if self.is_begun else _first
        return _Sums(tf.nest.map_structure(lambda total, *d: add(total, d), self.totals, *d_weights), True)


def _refine(values: Any, like: Any) -> None:
    """Tells TensorFlow that a state keeps its shape, where it cannot see that for itself."""
    for value, known in zip(tf.nest.flatten(values), tf.nest.flatten(like), strict=True):
        value.set_shape(known.shape)


def _add(total: tf.Tensor, parts: tuple[Any, ...]) -> tf.Tensor:
    """The sum so far and the gradients of all lanes, dense or as rows of a table."""
    if not any(isinstance(part, tf.IndexedSlices) for part in parts):
        return tf.add_n([total, *(tf.cast(part, total.dtype) for part in parts)])
    for part in parts:
        total = add_rows(total, part)
    return total


def _first(weight: tf.Tensor, parts: tuple[Any, ...]) -> tf.Tensor:
    """The sum of the first segment, in the dtype of the weight."""
    if isinstance(parts[0], tf.IndexedSlices):
        return _add(no_rows(weight), parts)
    return _add(tf.cast(parts[0], weight.dtype), parts[1:])
