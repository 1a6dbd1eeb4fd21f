"""How long sequences are."""

from __future__ import annotations

from dataclasses import dataclass

from memfit.records.base import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin(Record):
    """A bar of a histogram of lengths.

    Attributes:
        shortest: The least length that it counts, in steps.
        longest: The greatest.
        num_sequences: How many sequences it counts.
    """

    shortest: int
    longest: int
    num_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthCut(Record):
    """What a maximum length would cost and save, if all sequences were padded to it.

    Attributes:
        percent: The share of sequences that are no longer.
        length: The maximum length, in steps.
        num_longer: Sequences that would lose steps.
        num_lost_steps: The steps that they would lose.
        saved_bytes: What the inputs would take less than padded to the longest.
    """

    percent: int
    length: int
    num_longer: int
    num_lost_steps: int
    saved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding(Record):
    """One way to make batches, and the steps that an epoch then has, padding included.

    Attributes:
        how: The way, in a few words.
        num_steps: Steps, padding included.
    """

    how: str
    num_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths(Record):
    """How long sequences are, and what padding them costs.

    Attributes:
        source: What was read, in a few words.
        is_sample: Whether reading stopped at the limit, so that there may be more and longer ones.
        num_sequences: Sequences that were read, empty ones included.
        num_empty: Sequences without a step.
        num_steps: Their steps in all, without padding.
        shortest: The least length, in steps.
        longest: The greatest.
        step_bytes: The inputs of a step.
        bins: The histogram.
        cuts: What a maximum length would cost and save.
        boundaries: The lengths to pad to that leave the least padding, for the number of buckets asked for.
        paddings: What ways to make batches make of `num_steps`.
        notes: What to know about these numbers, a sentence each.
    """

    source: str
    is_sample: bool
    num_sequences: int
    num_empty: int
    num_steps: int
    shortest: int
    longest: int
    step_bytes: int
    bins: tuple[LengthBin, ...]
    cuts: tuple[LengthCut, ...]
    boundaries: tuple[int, ...]
    paddings: tuple[Padding, ...]
    notes: tuple[str, ...] = ()
