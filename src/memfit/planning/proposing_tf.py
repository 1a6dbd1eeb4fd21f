"""What the strategies propose for a model: the settings that are worth measuring, as plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import keras

from memfit.depth.limits import LEAST
from memfit.records import Effect, Plan, Profile, Setting
from memfit.rnn.costs_tf import profile_time
from memfit.splitting import internals_tf as internals
from memfit.strategies.time_checkpoint import NAME, TimeCheckpoint

# Of the room that is left, arithmetic may take this share: it leaves out temporaries.
SHARE: Final = 0.85


# A share of plain Keras's activations is asked for in steps of so many per cent, and not below the least.
STEP_PER_CENT: Final = 5
LEAST_PER_CENT: Final = 20
# Segments shorter than this may be slower than longer ones on half a batch at a time: of 2 x GRU, whole
# batches in segments of 25 took 0.29 s, and a third of them in segments of 100 took 0.25 s.
SHORT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Settings to measure.

    Attributes:
        plans: The least work first.
        reasons: Why a strategy has none to offer, a sentence each.
        effects: What those with time segments do to a whole batch, by arithmetic.
        halved: Longer time segments for half of the batch at a time, where those that fit are short.
    """

    plans: tuple[Plan, ...]
    reasons: tuple[str, ...]
    effects: dict[Plan, Effect]
    halved: Plan | None = None


def propose(
    model: Any, batch_size: int, length: int | None, *, room_bytes: int, plain_bytes: int
) -> Proposed:
    """The settings that are worth measuring on a model.

    Of each strategy these are the one with the least work of those that fit by arithmetic, and the one that
    holds the least, for when nothing else does; for RNNs also the one that computes nothing again. RNNs are
    cut through time; through depth, they are cut only besides.

    Args:
        model: The model.
        batch_size: Examples in a step.
        length: Time steps where the data leaves them open; `None` for what the model says.
        room_bytes: What is left of the budget for activations.
        plain_bytes: What the activations take as it is.
    """
    profile = _profile(model, batch_size, length)
    segments = _segments(profile, room_bytes)
    if not segments:
        reason = TimeCheckpoint().settings(profile).reason
        limits = _limits(room_bytes, plain_bytes)
        return Proposed(
            plans=tuple(Plan(depth_limit=limit) for limit in limits),
            reasons=(f"No time segments: {reason}",),
            effects={},
        )
    plans = [Plan(time_segment=segment) for segment in segments]
    effects = {
        plan: TimeCheckpoint().effect(Setting(strategy=NAME, value=plan.time_segment), profile)
        for plan in plans
    }
    plans.append(Plan(time_segment=segments[-1], depth_limit=LEAST))
    return Proposed(
        plans=tuple(plans), reasons=(), effects=effects, halved=_halved(profile, segments[-1], room_bytes)
    )


def _segments(profile: Profile, room_bytes: int) -> list[int]:
    """Segments for recurrent parts: what fits with the least work, all steps, and what holds the least."""
    settings = TimeCheckpoint().settings(profile).settings
    if not settings:
        return []
    tightest, *looser = settings
    # The last one computes nothing again; with micro-batches, that can be the fastest.
    values = [setting.value for setting in (*_fitting(profile, room_bytes)[-1:], looser[-1], tightest)]
    return [value for value in dict.fromkeys(values) if value is not None]


def _halved(profile: Profile, tightest: int, room_bytes: int) -> Plan | None:
    """The longest segments that fit where half of a batch is under way, if those of whole ones are short."""
    whole, half = (
        max((setting.value or 0 for setting in _fitting(profile, room)), default=tightest)
        for room in (room_bytes, 2 * room_bytes)
    )
    return Plan(time_segment=half) if whole < SHORT and half > whole else None


def _fitting(profile: Profile, room_bytes: int) -> list[Setting]:
    """Those that fit by arithmetic, the most work first."""
    strategy = TimeCheckpoint()
    _, *looser = strategy.settings(profile).settings
    return [each for each in looser if strategy.effect(each, profile).held_bytes <= SHARE * room_bytes]


def _limits(room_bytes: int, plain_bytes: int) -> list[str]:
    """Limits for checkpointing through depth, the widest first."""
    per_cent = int(100 * SHARE * room_bytes / max(1, plain_bytes)) // STEP_PER_CENT * STEP_PER_CENT
    return [f"{per_cent}%", LEAST] if LEAST_PER_CENT <= per_cent < 100 else [LEAST]


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
