"""One optimizer step from several smaller gradient steps, with the gradient of the whole batch.

Its settings are micro-batch sizes. Activations are in proportion to the examples under way; nothing is
computed twice. What micro-batches are and how they are weighed is decided in `splitting`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from memfit.errors import UsageError
from memfit.records import Effect, Profile, Setting
from memfit.strategies.protocol import Proposal, Step

NAME: Final = "micro_batch"
# Into how many parts a batch may be cut.
PARTS: Final = (16, 8, 4, 2, 1)


class MicroBatch:
    """The `micro_batch` strategy: exact for models without BatchNormalization, and refused for those with it.

    Example:

    >>> from memfit.records import RecurrentPart
    >>> part = RecurrentPart(layers=("lstm",), length=10, state_bytes=2, tape_bytes=8, is_closed_form=True)
    >>> profile = Profile(batch_size=6, recurrent=(part,))
    >>> [setting.value for setting in MicroBatch().settings(profile).settings]
    [1, 2, 3, 6]
    """

    name: Final = NAME
    is_exact: Final = True

    def settings(self, profile: Profile) -> Proposal:
        """Micro-batches from a sixteenth of the batch to the whole of it."""
        if profile.batch_size == 1:
            return Proposal(settings=(), reason="the batch has one example, which cannot be split.")
        values = sorted({-(-profile.batch_size // parts) for parts in PARTS})
        return Proposal(settings=tuple(Setting(strategy=NAME, value=value) for value in values))

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """The recurrent parts' activations in proportion to the examples, without the gradients' sum."""
        kept_bytes = sum(part.length * part.tape_bytes for part in profile.recurrent)
        micro_batch = max(1, profile.batch_size // 4) if setting.value is None else setting.value
        micro_batch = min(micro_batch, profile.batch_size)
        return Effect(
            held_bytes=-(-kept_bytes * micro_batch // profile.batch_size),
            kept_bytes=kept_bytes,
            num_recomputed_steps=0,
            num_steps=sum(part.length for part in profile.recurrent),
        )

    @contextmanager
    def apply(self, setting: Setting, step: Step) -> Iterator[Step]:
        """The step with its model's `fit` in micro-batches; `None` takes a quarter of each batch."""
        from memfit.splitting.checking_tf import why_not_train
        from memfit.splitting.step_tf import split_train_step

        reason = why_not_train(step.model, allow=())
        if reason:
            raise UsageError(f"the batches of {step.model.name!r} cannot be split: {reason}")
        object.__setattr__(step.model, "train_step", split_train_step(step.model, setting.value))
        step.model.train_function = None
        try:
            yield step
        finally:
            object.__delattr__(step.model, "train_step")
            step.model.train_function = None
