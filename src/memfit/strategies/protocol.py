"""What a strategy is: a way to train in less memory, with its settings, their effect, and how to apply one.

Deciding and doing are apart: `settings` and `effect` are pure and see only a `Profile`; `apply` alone touches
TensorFlow. A strategy that has nothing to offer says why, in a sentence that a report can show.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from memfit.records import Effect, Profile, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The settings worth trying, or why there is none.

    Attributes:
        settings: From the one that holds the least memory to the one that takes the least work.
        reason: Why there is none; empty otherwise.
    """

    settings: tuple[Setting, ...]
    reason: str = ""


class Step(Protocol):
    """A training step that a strategy is applied to."""

    @property
    def model(self) -> Any:
        """The Keras model that is trained."""


class Strategy(Protocol):
    """One idea for training in less memory."""

    @property
    def name(self) -> str:
        """What plans, reports and `allow=` call it."""

    @property
    def is_exact(self) -> bool:
        """Whether the gradients stay what they were, float rounding aside."""

    def settings(self, profile: Profile) -> Proposal:
        """The settings worth trying on a step like this."""

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """What a setting does to the step, in bytes and in work."""

    def apply(self, setting: Setting, step: Step) -> AbstractContextManager[Step]:
        """The step under the setting; the model is as before when the context is left."""
