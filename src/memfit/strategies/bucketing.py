"""Batches of like lengths, so that little is padded: each example counts as before, but batches are others.

Its setting is the most steps of a batch. That is exact for each example, and not for the training: an
optimizer step sees sequences of one length, and many short or few long ones. So it is done only if allowed.
How batches are made is decided in `data`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from memfit.records import Effect, Profile, Setting
from memfit.strategies.protocol import Proposal, Step

NAME: Final = "bucketing"
# Fewer steps than this share of a padded batch are worth other batches.
WORTH: Final = 0.9


class Bucketing:
    """The `bucketing` strategy.

    Example:

    >>> profile = Profile(batch_size=64, recurrent=(), lengths=(20, 45, 90, 120, 200, 512), tokens=4940)
    >>> [setting.value for setting in Bucketing().settings(profile).settings]
    [4940]
    """

    name: Final = NAME
    is_exact: Final = False

    def settings(self, profile: Profile) -> Proposal:
        """As many steps as make as many batches as before, if that is less than a padded batch has."""
        if profile.tokens is None or not profile.lengths:
            return Proposal(settings=(), reason="how long sequences are is not known.")
        if profile.tokens > WORTH * profile.batch_size * profile.lengths[-1]:
            return Proposal(settings=(), reason="sequences are about equally long.")
        return Proposal(settings=(Setting(strategy=NAME, value=profile.tokens),))

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """The recurrent parts' activations in proportion to the steps of a batch."""
        kept_bytes = sum(part.length * part.tape_bytes for part in profile.recurrent)
        whole = profile.batch_size * max((part.length for part in profile.recurrent), default=1)
        tokens = whole if setting.value is None else min(setting.value, whole)
        return Effect(
            held_bytes=-(-kept_bytes * tokens // whole),
            kept_bytes=kept_bytes,
            num_recomputed_steps=0,
            num_steps=sum(part.length for part in profile.recurrent),
        )

    @contextmanager
    def apply(self, setting: Setting, step: Step) -> Iterator[Step]:
        """The step as it is: batches are made before it, by `memfit.fit` or `memfit.batch_by_length`."""
        del setting
        yield step
