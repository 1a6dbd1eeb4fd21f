"""Puts the engine under a Keras RNN layer, and takes it out again.

Keras's `RNN.call` prepares states and dropout masks and then calls `self.inner_loop`. That one method is
replaced on the instance; the layer, its variables and its config stay what they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import keras
import tensorflow as tf

from memfit.errors import MemfitWarning, SetupError
from memfit.rnn import segments
from memfit.rnn.borders_tf import borders_of
from memfit.rnn.cell_tf import from_bits, masks_on
from memfit.rnn.engine_tf import Program, run
from memfit.rnn.internals_tf import (
    check_versions,
    dropout_cells,
    dropout_masks,
    is_compiled_by_xla,
    is_known_loop,
)
from memfit.rnn.lanes import is_worth_compiling, num_lanes_for, usable_cores
from memfit.rnn.paths_tf import Path, closed_part, general_part, path_of

SEAM = "inner_loop"


@dataclass(slots=True)
class Handle:
    """What was changed, and how to change it back.

    Dropping a handle changes nothing. Functions traced while it was in force keep what they were traced
    with; Keras models are told to trace anew.

    Args:
        paths: How each layer runs.
    """

    paths: tuple[Path, ...] = ()
    _undo: list[Callable[[], None]] = field(default_factory=list)

    def add(self, other: Handle) -> None:
        """Takes over what another handle undoes."""
        self.paths += other.paths
        self._undo += other._undo

    def undo(self) -> None:
        """Takes the engine out. A second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.undo()


def checkpoint_layer(
    layer: keras.layers.RNN,
    segment: int | None = None,
    *,
    num_lanes: int | None = None,
    compiled: bool | None = None,
) -> Handle:
    """Runs one RNN layer by time segments from now on.

    Args:
        layer: The layer, built or not.
        segment: Steps of a segment; `None` chooses from the length; the length or more recomputes nothing.
        num_lanes: Independent parts of the batch; `None` takes one a core.
        compiled: Whether XLA compiles the loops over steps; `None` does so where it pays.

    Returns:
        A handle that undoes it.

    Example:
    ```python
    with checkpoint_layer(keras.layers.LSTM(256), segment=25) as handle:
        print(handle.paths[0].kind)
    ```
    """
    check_versions()
    if segment is not None:
        segments.check_steps("segment", segment)
    _check_seam(layer)
    path = path_of(layer)
    if path.kind == "plain":
        return Handle((path,))
    was_jit = layer.supports_jit
    object.__setattr__(
        layer, SEAM, SegmentedLoop(layer, Tuning(segment, num_lanes, compiled), path, getattr(layer, SEAM))
    )
    layer.supports_jit = False

    def undo() -> None:
        object.__delattr__(layer, SEAM)
        layer.supports_jit = was_jit

    return Handle((path,), [undo])


def _check_seam(layer: keras.layers.RNN) -> None:
    if SEAM in vars(layer):
        raise SetupError(f"Layer {layer.name!r} runs by time segments already. Undo the first handle first.")
    if not is_known_loop(getattr(type(layer), SEAM)):
        raise SetupError(
            f"Layer {layer.name!r} of class {type(layer).__name__} has an inner_loop of its own, with Keras "
            f"{keras.__version__} and TensorFlow {tf.__version__}. memfit replaces only Keras's own. "
            "Leave this layer out."
        )


def warn_of_xla(name: str) -> None:
    """Says that a layer runs as plain Keras because XLA compiles it."""
    warnings.warn(
        f"Layer {name!r} runs as plain Keras: XLA compiles this function, where time segments are not run. "
        "Pass jit_compile=False to have them.",
        MemfitWarning,
        stacklevel=3,
    )


class Tuning(NamedTuple):
    """What the caller of `checkpoint_layer` wants; `None` lets memfit choose."""

    segment: int | None = None
    num_lanes: int | None = None
    compiled: bool | None = None

    def lanes_of(self, inputs: tf.Tensor) -> int:
        """The lanes asked for, or as many as the machine has use for."""
        if self.num_lanes is not None:
            return self.num_lanes
        if tf.config.list_logical_devices("GPU"):
            return 1  # a GPU has no idle cores to give to a second chain
        return num_lanes_for(inputs.shape[0], usable_cores())

    def is_compiled(self, inputs: tf.Tensor) -> bool:
        """What was asked for, or whether it pays; on a GPU, where no one has measured it, it is left."""
        if self.compiled is not None:
            return self.compiled
        return is_worth_compiling(inputs.shape[1]) and not tf.config.list_logical_devices("GPU")


class SegmentedLoop:
    """The `inner_loop` of one layer.

    Args:
        layer: The layer.
        tuning: As in `checkpoint_layer`.
        path: How it runs.
        plain: Keras's own loop of this layer, for where XLA compiles it.
    """

    def __init__(
        self,
        layer: keras.layers.RNN,
        tuning: Tuning,
        path: Path,
        plain: Callable[..., Any],
    ) -> None:
        self._layer = layer
        self._tuning = tuning
        self._path = path
        self._plain = plain
        self._eager = tf.function(self._run, reduce_retracing=True, autograph=False)

    def __call__(self, sequences: Any, initial_state: Any, mask: Any, training: bool | None = False) -> Any:
        """As `RNN.inner_loop`: the last output, all outputs, the final states."""
        if is_compiled_by_xla():
            warn_of_xla(self._layer.name)
            return self._plain(sequences, initial_state, mask, training)
        noise = tuple(dropout_masks(cell) for cell in dropout_cells(self._layer.cell))
        # Eagerly, TensorFlow would run the loops in Python and keep every step; so it becomes a graph.
        run_once = self._eager if tf.executing_eagerly() else self._run
        states = initial_state if tf.nest.is_nested(initial_state) else [initial_state]
        return run_once(sequences, list(states), one_mask(mask), noise, training)

    @tf.autograph.experimental.do_not_convert
    def _run(
        self,
        sequences: tf.Tensor,
        states: list[Any],
        mask: tf.Tensor | None,
        noise: Any,
        training: bool | None,
    ) -> tuple[tf.Tensor, tf.Tensor, list[Any]]:
        layer, is_closed = self._layer, self._path.kind == "closed form"
        is_masked = mask is not None
        with masks_on(layer.cell, noise):
            if is_closed:
                sequences = tf.cast(sequences, layer.cell.compute_dtype)
                part = closed_part(layer, states, training=training, is_masked=is_masked)
            else:
                part = general_part(layer, sequences[:, 0], states, training=training, is_masked=is_masked)
        borders = borders_of(sequences, (part.block,), self._tuning.segment, can_keep=is_closed)
        program = Program(
            blocks=(part.block,),
            return_sequences=layer.return_sequences,
            go_backwards=layer.go_backwards,
            num_lanes=self._tuning.lanes_of(sequences) if is_closed else 1,
            compiled=self._tuning.is_compiled(sequences),
        )
        outputs, (after,) = run(
            program, borders, sequences, mask, (part.states,), (part.weights,), (part.noise,)
        )
        for variable, bits in zip(part.carried, after[len(after) - len(part.carried) :], strict=True):
            variable.assign(from_bits(bits, variable))
        final = tf.nest.pack_sequence_as(states, after[: len(tf.nest.flatten(states))])
        if layer.return_sequences:
            return outputs[:, -1], outputs, final
        return outputs, outputs[:, tf.newaxis], final


def one_mask(mask: Any) -> tf.Tensor | None:
    """The mask as `[batch, time]`; Keras may pass a list of it, or one with a last axis of 1."""
    if tf.nest.is_nested(mask):
        mask = mask[0]
    if mask is None:
        return None
    mask = tf.cast(mask, tf.bool)
    return mask[..., 0] if mask.shape.rank == 3 else mask
