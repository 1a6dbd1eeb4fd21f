"""Which lengths sequences are padded to and how large batches are, as asked for; and what is said of it.

Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memfit.data.batching import Slot, batch_size_of, cut, cut_by_sizes, most_size_for, tokens_for
from memfit.data.buckets import best_boundaries, check_boundaries
from memfit.data.padding import num_random_steps
from memfit.errors import UsageError

WAYS: Final = ("own_bucket", "truncate", "error")
# As in Keras.
BATCH_SIZE: Final = 32
# Lengths to pad to, where nothing else is asked for.
NUM_BUCKETS: Final = 16

SizesFor = Callable[[tuple[int, ...]], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How an epoch is made of batches.

    Attributes:
        boundaries: The lengths that sequences are padded to, rising.
        sizes: The most sequences of a batch at each of them.
        tokens: The most steps of a batch, padding included, but for sequences that are longer alone.
        slots: The batches, of sequences in order of their buckets.
        most_steps: Where sequences are cut, or `None`.
    """

    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    tokens: int
    slots: tuple[Slot, ...]
    most_steps: int | None


def lay_out(
    counts: Mapping[int, int],
    *,
    buckets: int | Sequence[int],
    tokens: int | None,
    batch_size: int | None,
    longer: str,
    most_size: int | None = None,
    sizes_for: SizesFor | None = None,
) -> Layout:
    """The batches for sequences of these lengths.

    Args:
        counts: How many sequences have each length.
        buckets: As in `memfit.batch_by_length`, and so on.
        tokens: The most steps of a batch.
        batch_size: In place of that.
        longer: What is done with what is longer than all boundaries.
        most_size: The most sequences of a batch of `tokens` steps; `None`: as many as there is room for.
        sizes_for: In place of both: says how many sequences of each boundary a batch may have.

    Raises:
        UsageError: If something asked for cannot be; a sequence that is too long is for the caller to name.
    """
    check_asked(tokens=tokens, batch_size=batch_size, longer=longer)
    most_steps = None
    if isinstance(buckets, int):
        boundaries = best_boundaries(counts, buckets)
    else:
        boundaries = check_boundaries(buckets)
        if longer == "truncate":
            most_steps = boundaries[-1]
        elif max(counts) > boundaries[-1]:
            boundaries = (*boundaries, max(counts))
    sizes = [0] * len(boundaries)
    for length, num in counts.items():
        sizes[bisect_left(boundaries, min(length, boundaries[-1]))] += num
    # Boundaries that nothing is padded to are no shapes.
    used = [(size, boundary) for size, boundary in zip(sizes, boundaries, strict=True) if size]
    sizes, boundaries = [size for size, _ in used], tuple(boundary for _, boundary in used)
    if sizes_for is not None:
        most = tuple(sizes_for(boundaries))
        slots = cut_by_sizes(sizes, boundaries, most)
        tokens = max(slot.size * slot.length for slot in slots)
    else:
        if tokens is None:
            most_size = most_size_for(batch_size or BATCH_SIZE)
            tokens = tokens_for(batch_size or BATCH_SIZE, sizes, boundaries)
        most = tuple(batch_size_of(boundary, tokens, most_size) for boundary in boundaries)
        slots = cut(sizes, boundaries, tokens, most_size)
    return Layout(boundaries=boundaries, sizes=most, tokens=tokens, slots=slots, most_steps=most_steps)


def check_asked(*, tokens: int | None, batch_size: int | None, longer: str) -> None:
    """Raises a `UsageError` for what cannot be."""
    if tokens is not None and batch_size is not None:
        raise UsageError(
            f"tokens={tokens} and batch_size={batch_size} both say how large a batch is. Pass one of them."
        )
    for name, value in (("tokens", tokens), ("batch_size", batch_size)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1. Received: {name}={value}.")
    if longer not in WAYS:
        raise UsageError(f"longer must be one of {', '.join(WAYS)}. Received: {longer!r}.")


def in_words(layout: Layout, counts: Mapping[int, int]) -> str:
    """What the batches are, and the padding before and after."""
    num, slots = sum(counts.values()), layout.slots
    shapes = {(slot.size, slot.length) for slot in slots}
    most = layout.most_steps
    kept = counts if most is None else _cut_counts(counts, most)
    num_steps = sum(length * count for length, count in kept.items())
    usual = max(1, round(num / len(slots)))
    before = 1 - num_steps / max(1, num_random_steps(kept, usual))
    after = 1 - num_steps / sum(slot.size * slot.length for slot in slots)
    text = (
        f"memfit: {num:,} sequences in {len(slots):,} batches of at most {layout.tokens:,} steps and "
        f"{len(shapes)} shapes: {after:.1%} padding, where random batches of {usual} have {before:.1%}."
    )
    alone = sum(count for length, count in kept.items() if length > layout.tokens)
    if alone:
        text += f" Longer than that, and batches of their own: {alone:,}."
    lost = sum(length * count for length, count in counts.items()) - num_steps
    if most is not None and lost:
        cut_off = sum(count for length, count in counts.items() if length > most)
        share = lost / (lost + num_steps)
        text += f" Cut to {most:,} steps: {cut_off:,}, which loses {lost:,} steps, {share:.1%}."
    if counts.get(0):
        text += f" Empty, and padding alone: {counts[0]:,}."
    return text


def _cut_counts(counts: Mapping[int, int], most_steps: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for length, num in counts.items():
        found[min(length, most_steps)] = found.get(min(length, most_steps), 0) + num
    return found
