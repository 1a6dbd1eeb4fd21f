"""Rows of arrays from where they are, a window at a time, in the place of Keras's copies of the whole.

Its settings are the bytes of a window. It saves host memory, not activations, so it is worth having only
where what Keras holds does not fit the host. How rows are read and mixed is decided in `streaming`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from memfit.records import Effect, Profile, Setting
from memfit.strategies.protocol import Proposal, Step
from memfit.streaming.blocks import LEAST_BLOCK_BYTES, MOST_WINDOW_BYTES, window_for
from memfit.units import format_bytes

NAME: Final = "stream_inputs"
# The least window mixes an eighth of what the greatest does.
SMALLER: Final = 8


class StreamInputs:
    """The `stream_inputs` strategy.

    Example:

    >>> from memfit.records import InputPart
    >>> inputs = InputPart(held_bytes=2**32, host_bytes=2**30)
    >>> profile = Profile(batch_size=32, recurrent=(), inputs=inputs)
    >>> [setting.value for setting in StreamInputs().settings(profile).settings]
    [8388608, 67108864]
    """

    name: Final = NAME
    is_exact: Final = True

    def settings(self, profile: Profile) -> Proposal:
        """The usual window, and a smaller one."""
        inputs = profile.inputs
        if inputs is None:
            return Proposal(settings=(), reason="the data is not made of arrays that Keras would copy.")
        if inputs.held_bytes <= inputs.host_bytes:
            held, host = format_bytes(inputs.held_bytes), format_bytes(inputs.host_bytes)
            return Proposal(
                settings=(), reason=f"what Keras holds of the arrays, {held}, fits the host's {host}."
            )
        window = window_for(inputs.host_bytes)
        values = (max(LEAST_BLOCK_BYTES, window // SMALLER), window)
        return Proposal(settings=tuple(Setting(strategy=NAME, value=value) for value in values))

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """Two windows in the place of all; bytes of the host, where others speak of the device."""
        kept_bytes = 0 if profile.inputs is None else profile.inputs.held_bytes
        return Effect(
            held_bytes=2 * (setting.value or MOST_WINDOW_BYTES),
            kept_bytes=kept_bytes,
            num_recomputed_steps=0,
            num_steps=0,
        )

    @contextmanager
    def apply(self, setting: Setting, step: Step) -> Iterator[Step]:
        """The step with its model's `fit` streaming the arrays that it is given."""
        from memfit.streaming.feeding_tf import stream_fit

        plain = step.model.fit

        def fit(x: Any = None, y: Any = None, **arguments: Any) -> Any:
            batches, rest = stream_fit(x, y, arguments, setting.value or MOST_WINDOW_BYTES)
            return plain(batches, **rest)

        object.__setattr__(step.model, "fit", fit)
        try:
            yield step
        finally:
            object.__delattr__(step.model, "fit")
