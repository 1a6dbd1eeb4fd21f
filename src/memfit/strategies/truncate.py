"""A greatest length for sequences: inexact, and only if allowed. What is cut off is never seen.

Its settings are lengths: percentiles of those that the data has, so that it is known how many sequences are
cut. Activations over time are in proportion to the length. How batches are cut is decided in `data`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from memfit.records import Effect, Profile, Setting
from memfit.strategies.protocol import Proposal, Step

NAME: Final = "truncate"
# Of all sequences, so many per cent are whole.
PERCENTILES: Final = (50, 75, 90, 95, 99)
# Where all sequences are equally long, percentiles say nothing.
SHARES: Final = (0.5, 0.75, 0.9)


class Truncate:
    """The `truncate` strategy.

    Example:

    >>> profile = Profile(batch_size=1, recurrent=(), lengths=(20, 45, 90, 120, 200, 512))
    >>> [setting.value for setting in Truncate().settings(profile).settings]
    [20, 45, 90, 120, 200]
    """

    name: Final = NAME
    is_exact: Final = False

    def settings(self, profile: Profile) -> Proposal:
        """The percentiles below the longest sequence; if all are equally long, shares of their length."""
        if not profile.lengths or profile.lengths[-1] < 2:
            return Proposal(settings=(), reason="how long sequences are is not known, so they are not cut.")
        *percentiles, longest = profile.lengths
        values = {each for each in percentiles if 0 < each < longest}
        values = values or {max(1, int(share * longest)) for share in SHARES}
        return Proposal(settings=tuple(Setting(strategy=NAME, value=value) for value in sorted(values)))

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """The recurrent parts' activations in proportion to the steps that are left."""
        kept_bytes = sum(part.length * part.tape_bytes for part in profile.recurrent)
        longest = max((part.length for part in profile.recurrent), default=1)
        left = longest // 2 if setting.value is None else min(setting.value, longest)
        return Effect(
            held_bytes=-(-kept_bytes * left // longest),
            kept_bytes=kept_bytes,
            num_recomputed_steps=0,
            num_steps=sum(min(left, part.length) for part in profile.recurrent),
        )

    @contextmanager
    def apply(self, setting: Setting, step: Step) -> Iterator[Step]:
        """The step with the batches of its model's `fit` cut at the end; `None` leaves half of the steps."""
        from memfit.strategies.cutting_tf import cut_steps

        with cut_steps(step.model, setting.value):
            yield step
