"""Keep what crosses a few cuts through the depth of a model, compute the rest again on the way back.

Its settings are per cents of the activation bytes that plain Keras holds, from the least that can be had
(`None`) upwards. What a cut costs is decided in `depth`, where the exact cuts are also chosen, on the
operations of the traced step; here, the parts of a `Profile` are what is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from memfit.depth.cuts import Cuts, fastest, leanest, least_bytes
from memfit.depth.parts import part_options, plain_bytes
from memfit.records import Effect, Profile, Setting
from memfit.strategies.protocol import Proposal, Step

NAME: Final = "depth_checkpoint"
PER_CENTS: Final = (20, 28, 36, 45, 54, 63, 72, 81, 90)
WORTH: Final = 0.95


class DepthCheckpoint:
    """The `depth_checkpoint` strategy.

    Example:

    >>> from memfit.records import DepthPart
    >>> part = DepthPart(layer="dense", cut_bytes=10, new_bytes=10, tape_bytes=40, work_bytes=10, seconds=1.0,
    ...                  again_seconds=0.1)
    >>> profile = Profile(batch_size=1, recurrent=(), depth=(part,) * 8)
    >>> [setting.value for setting in DepthCheckpoint().settings(profile).settings]
    [None, 36, 45, 54, 63, 72, 81, 90]
    """

    name: Final = NAME
    is_exact: Final = True

    def settings(self, profile: Profile) -> Proposal:
        """Shares of plain Keras's bytes from the least upwards."""
        options = part_options(profile.depth)
        plain = plain_bytes(profile.depth)
        least = least_bytes(options) if options else 0
        if not options or least > WORTH * plain:
            return Proposal(
                settings=(), reason="no activations can be computed again from less than what they take."
            )
        values = [None, *(each for each in PER_CENTS if each * plain > 100 * least)]
        return Proposal(settings=tuple(Setting(strategy=NAME, value=value) for value in values))

    def effect(self, setting: Setting, profile: Profile) -> Effect:
        """By the fastest cuts between the parts that stay within the setting."""
        plain = plain_bytes(profile.depth)
        cuts = _cuts(setting, profile)
        return Effect(
            held_bytes=cuts.peak_bytes,
            kept_bytes=plain,
            num_recomputed_steps=0,
            num_steps=sum(part.length for part in profile.recurrent),
            recomputed_seconds=cuts.seconds,
        )

    @contextmanager
    def apply(self, setting: Setting, step: Step) -> Iterator[Step]:
        """The step with its model under depth checkpointing."""
        from memfit.depth.model_tf import checkpoint_depth

        with checkpoint_depth(step.model, None if setting.value is None else f"{setting.value}%"):
            yield step


def _cuts(setting: Setting, profile: Profile) -> Cuts:
    options = part_options(profile.depth)
    if not options:
        return Cuts(segments=())
    if setting.value is None:
        return leanest(options)
    return fastest(options, setting.value * plain_bytes(profile.depth) // 100) or leanest(options)
