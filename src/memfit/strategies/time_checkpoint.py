"""RNNs by time segments: keep the states at the borders, recompute one segment at a time on the way back.

Its settings are segment lengths. The shortest hold the least; a segment of the whole length recomputes
nothing and is the fastest. What a segment costs is decided by `rnn.segments`, how it runs by the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from memfit.records import Effect, Profile, RecurrentPart, Setting
from memfit.rnn.segments import Schedule, StepCost, choose, shortest_for
from memfit.strategies.protocol import Proposal, Step

NAME: Final = "time_checkpoint"
# Into how many equal segments a sequence may be cut: of n, n - 1 are computed again, and one is held.
PARTS: Final = (16, 8, 4, 2)


class TimeCheckpoint:
    """The `time_checkpoint` strategy.

    Example:

    >>> from memfit.records import RecurrentPart
    >>> part = RecurrentPart(layers=("lstm",), length=1000, state_bytes=2, tape_bytes=8, is_closed_form=True)
    >>> profile = Profile(batch_size=1, recurrent=(part,))
    >>> [setting.value for setting in TimeCheckpoint().settings(profile).settings]
    [32, 63, 125, 250, 500, 1000]
    """

    name: Final = NAME
    is_exact: Final = True

    def settings(self, profile: Profile) -> Proposal:
        """Segments from the shortest worth having to a half and to the whole of the sequence."""
        if not profile.recurrent:
            return Proposal(
                settings=(), reason="the model has no RNN layer, so there is no time to cut into segments."
            )
        length = max(part.length for part in profile.recurrent)
        longest = max(max(_schedule(part, None).lengths) for part in profile.recurrent)
        segments = [segment for parts in PARTS if (segment := -(-length // parts)) > longest]
        values = (longest, *segments, length)
        return Proposal(settings=tuple(Setting(strategy=NAME, value=value) for value in values))

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """The sum over all parts. They are walked back one after the other, so it is an upper bound."""
        schedules = [(_schedule(part, setting.value), part) for part in profile.recurrent]
        return Effect(
            held_bytes=sum(schedule.peak_bytes(_cost(part)) for schedule, part in schedules),
            kept_bytes=sum(part.length * part.tape_bytes for part in profile.recurrent),
            num_recomputed_steps=sum(schedule.recomputed_steps for schedule, _ in schedules),
            num_steps=sum(part.length for part in profile.recurrent),
        )

    @contextmanager
    def apply(self, setting: Setting, step: Step) -> Iterator[Step]:
        """The step with its model's RNNs on the engine."""
        from memfit.rnn.model_tf import checkpoint_time

        with checkpoint_time(step.model, setting.value):
            yield step


def _schedule(part: RecurrentPart, segment: int | None) -> Schedule:
    return choose(part.length, _cost(part), segment=segment, shortest=shortest_for(part.tape_bytes))


def _cost(part: RecurrentPart) -> StepCost:
    return StepCost(state_bytes=part.state_bytes, tape_bytes=part.tape_bytes)
