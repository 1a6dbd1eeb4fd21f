"""What the strategies propose for a model: the settings that are worth measuring, as plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras

from memfit.records import Plan, Profile
from memfit.rnn.costs_tf import profile_time
from memfit.splitting import internals_tf as internals
from memfit.strategies.time_checkpoint import TimeCheckpoint

# Of the room that is left, arithmetic may take this share: it leaves out temporaries.
SHARE: Final = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Settings to measure.

    Attributes:
        plans: Each with one setting, the least work first.
        reasons: Why a strategy has none to offer, a sentence each.
    """

    plans: tuple[Plan, ...]
    reasons: tuple[str, ...]


def propose(model: Any, batch_size: int, length: int | None, room_bytes: int) -> Proposed:
    """The settings that are worth measuring on a model.

    Of each strategy these are two at most: the one with the least work of those that fit by arithmetic, and
    the one that holds the least, for when nothing else does.

    Args:
        model: The model.
        batch_size: Examples in a step.
        length: Time steps where the data leaves them open; `None` for what the model says.
        room_bytes: What is left of the budget for activations.
    """
    strategy = TimeCheckpoint()
    profile = _profile(model, batch_size, length)
    proposal = strategy.settings(profile)
    if proposal.reason:
        return Proposed(plans=(), reasons=(f"No time segments: {proposal.reason}",))
    tightest, *looser = proposal.settings
    fitting = [
        setting for setting in looser if strategy.effect(setting, profile).held_bytes <= SHARE * room_bytes
    ]
    chosen = [*fitting[-1:], tightest]
    return Proposed(plans=tuple(Plan(time_segment=setting.value) for setting in chosen), reasons=())


def _profile(model: Any, batch_size: int, length: int | None) -> Profile:
    layers = [layer for layer in internals.all_layers(model) if isinstance(layer, keras.layers.RNN)]
    lengths = [length] if length is not None else [_own_length(layer) for layer in layers]
    known = [each for each in lengths if each]
    if not layers or not known:
        return Profile(batch_size=batch_size, recurrent=())
    return profile_time(model, batch_size, max(known))


def _own_length(layer: Any) -> int | None:
    try:
        return int(layer.input.shape[1]) if layer.input.shape[1] else None
    except (AttributeError, ValueError):  # Never called on a symbolic input, or on several.
        return None
