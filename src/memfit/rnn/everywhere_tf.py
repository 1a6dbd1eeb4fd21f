"""Puts the engine under every RNN layer of the process, for programs that cannot be changed."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras

from memfit.errors import SetupError
from memfit.rnn import segments
from memfit.rnn.internals_tf import check_versions, inner_loops
from memfit.rnn.layer_tf import SEAM, Handle, SegmentedLoop, Tuning
from memfit.rnn.paths_tf import path_of

CLASSES = (keras.layers.RNN, keras.layers.LSTM, keras.layers.GRU)
"""The classes that have a loop of their own; all other RNN layers inherit one of theirs."""


def checkpoint_time_everywhere(segment: int | None = None) -> Handle:
    """Runs every RNN layer of this process by time segments, made before or after this call.

    Layers are taken one by one; stacks of layers need `checkpoint_time` on their model.

    Args:
        segment: Steps of a segment; `None` chooses from the length; the length or more recomputes nothing.

    Returns:
        A handle that undoes it.

    Example:
    ```python
    with checkpoint_time_everywhere():
        runpy.run_path("train.py", run_name="__main__")
    ```
    """
    check_versions()
    if segment is not None:
        segments.check_steps("segment", segment)
    originals = {each: vars(each)[SEAM] for each in CLASSES}
    if any(original not in inner_loops() for original in originals.values()):
        raise SetupError("All RNN layers run by time segments already. Undo the first handle first.")
    for each, original in originals.items():
        setattr(each, SEAM, _segmented(original, segment))

    def undo() -> None:
        for each, original in originals.items():
            setattr(each, SEAM, original)

    return Handle((), [undo])


def _segmented(original: Callable[..., Any], segment: int | None) -> Callable[..., Any]:
    loops: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def inner_loop(
        self: keras.layers.RNN, sequences: Any, initial_state: Any, mask: Any, training: bool | None = False
    ) -> Any:
        if self not in loops:
            # The loop must not hold its layer, or the layer would never be let go.
            layer = weakref.proxy(self)
            plain = functools.partial(original, layer)
            path = path_of(self)
            is_plain = path.kind == "plain"
            loops[self] = plain if is_plain else SegmentedLoop(layer, Tuning(segment), path, plain)
        return loops[self](sequences, initial_state, mask, training)

    return inner_loop
