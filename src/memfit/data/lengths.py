"""`memfit.lengths`: how long sequences are, and what padding them costs.

This file counts and sums up; it is pure. Files are read in `files`, arrays and sets in `reading_tf`.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from memfit.data.buckets import best_boundaries, num_padded_steps
from memfit.data.found import Found, check_length
from memfit.data.padding import num_random_steps
from memfit.errors import UsageError
from memfit.records import LengthBin, LengthCut, Lengths, Padding

PERCENTS: Final = (50, 75, 90, 95, 99, 100)
NUM_BINS: Final = 12
# An int32 id: what a step of text or of plain lists becomes, unless something else is said.
ID_BYTES: Final = 4


def lengths(
    data: Any,
    *,
    column: str | None = None,
    unit: str = "words",
    buckets: int = 16,
    batch_size: int = 32,
    step_bytes: int | None = None,
    padding_value: float | None = 0,
    limit: int | None = None,
) -> Lengths:
    """How long sequences are, in one pass over them, and what padding them costs.

    Args:
        data: A list of sequences; a `tf.RaggedTensor`; a padded array `[sequences, steps, ...]`; a `tf.data`
            set of sequences or of batches; a dict of features, of which the longest counts; `(x, y)`, of
            which x counts; numbers, which are the lengths themselves; or the path of a text file (a
            sequence a line), a `.csv` or `.parquet` file (with `column`) or an `.npy` file.
        column: The column of a CSV or Parquet file.
        unit: What a step of text is: `"words"` or `"characters"`; `"number"` if the text is the length.
        buckets: The most different lengths that sequences would be padded to.
        batch_size: Sequences in a batch, for what random batches cost.
        step_bytes: Bytes of a step, to say what a maximum length saves; `None` for those of the inputs, or
            4, an int32 id, for text and lists.
        padding_value: What a padded array is padded with, in front or at the end; `None` if it is not padded.
        limit: The most sequences of a file or elements of a `tf.data` set that are read. `None`: a file
            whole, and the first 100,000 elements of a set, which may have no end.

    Returns:
        A `Lengths`.

    Raises:
        UsageError: If a length is no whole number of steps, or a file is broken: with the index of the
            sample.

    Example:
    >>> lengths([[1, 2], [3], [4, 5, 6]]).longest
    3
    """
    _check_positive(buckets=buckets, batch_size=batch_size)
    if isinstance(data, (str, os.PathLike)):
        from memfit.data.files import read

        found = read(os.fspath(data), column=column, unit=unit, limit=limit, padding_value=padding_value)
    elif isinstance(data, list) and all(isinstance(each, (str, int, float, list, tuple)) for each in data):
        found = Found(counts=_count(data, unit), source=f"a list of {len(data):,}", step_bytes=ID_BYTES)
    else:
        from memfit.data.reading_tf import read_lengths

        found = read_lengths(data, limit=limit, padding_value=padding_value)
    return summarise(found, buckets=buckets, batch_size=batch_size, step_bytes=step_bytes)


def summarise(found: Found, *, buckets: int, batch_size: int, step_bytes: int | None = None) -> Lengths:
    """The statistics of lengths that were counted."""
    counts = {length: found.counts[length] for length in sorted(found.counts)}
    num = sum(counts.values())
    if not num:
        raise UsageError(f"{found.source} holds no sequences. Pass at least one.")
    present = list(counts)
    num_steps = sum(length * count for length, count in counts.items())
    boundaries = best_boundaries(counts, buckets)
    size = step_bytes or found.step_bytes
    widest = max(present[-1], found.padded_length or 0)
    return Lengths(
        source=found.source,
        is_sample=found.is_sample,
        num_sequences=num,
        num_empty=counts.get(0, 0),
        num_steps=num_steps,
        shortest=present[0],
        longest=present[-1],
        step_bytes=size,
        bins=_bins(counts),
        cuts=tuple(_cut(percent, counts, num, widest * size, size) for percent in PERCENTS),
        boundaries=boundaries,
        paddings=(
            Padding(how="all padded to one length", num_steps=num * widest),
            *found.paddings,
            Padding(
                how=f"random batches of {batch_size}, each padded to its longest",
                num_steps=num_random_steps(counts, batch_size),
            ),
            Padding(
                how=f"batches by length, {len(boundaries)} lengths",
                num_steps=num_padded_steps(counts, boundaries),
            ),
        ),
        notes=_notes(found, counts, num),
    )


def quantile(counts: Mapping[int, int], percent: int) -> int:
    """The least length that `percent` of all sequences do not exceed; `counts` are in order.

    Example:
    >>> quantile({1: 90, 7: 10}, 90), quantile({1: 90, 7: 10}, 91)
    (1, 7)
    """
    totals = list(accumulate(counts.values()))
    return list(counts)[bisect_left(totals, math.ceil(totals[-1] * percent / 100))]


def _count(sequences: Sequence[Any], unit: str) -> Counter[int]:
    counts: Counter[int] = Counter()
    for index, sequence in enumerate(sequences):
        if isinstance(sequence, str):
            from memfit.data.files import text_length

            counts[text_length(sequence, unit, f"sample {index}")] += 1
        elif isinstance(sequence, (list, tuple)):
            counts[len(sequence)] += 1
        elif index and isinstance(sequences[0], (str, list, tuple)):
            raise UsageError(f"sample {index} is {sequence}, not a sequence. Mend it, or leave it out.")
        else:
            counts[check_length(sequence, f"sample {index}")] += 1
    return counts


def _cut(percent: int, counts: Mapping[int, int], num: int, widest_bytes: int, step_bytes: int) -> LengthCut:
    length = quantile(counts, percent)
    longer = [(each, count) for each, count in counts.items() if each > length]
    return LengthCut(
        percent=percent,
        length=length,
        num_longer=sum(count for _, count in longer),
        num_lost_steps=sum((each - length) * count for each, count in longer),
        saved_bytes=num * (widest_bytes - length * step_bytes),
    )


def _bins(counts: Mapping[int, int]) -> tuple[LengthBin, ...]:
    """Bars of one round width up to the 99th percentile, and one for the rest."""
    first, last, most = next(iter(counts)), list(counts)[-1], quantile(counts, 99)
    width = _round_width((most - first + 1) / NUM_BINS)
    start = first // width * width
    edges = list(range(start, most + 1, width))
    found = dict.fromkeys(edges, 0)
    rest = 0
    end = edges[-1] + width
    for length, count in counts.items():
        if length < end:
            found[start + (length - start) // width * width] += count
        else:
            rest += count
    bins = [
        LengthBin(shortest=max(edge, first), longest=min(edge + width - 1, last), num_sequences=count)
        for edge, count in found.items()
    ]
    if rest:
        bins.append(LengthBin(shortest=end, longest=last, num_sequences=rest))
    return tuple(bins)


def _round_width(least: float) -> int:
    """The least of 1, 2, 5, 10, 20, 50, ... that is no less."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= least:
                return digit * power
        power *= 10


def _notes(found: Found, counts: Mapping[int, int], num: int) -> tuple[str, ...]:
    notes = list(found.notes)
    if counts.get(0):
        notes.append(f"empty sequences, which batches pad to the shortest length: {counts[0]:,}.")
    if found.is_sample:
        notes.append(f"reading stopped after {num:,} sequences; there may be longer ones.")
    longest, usual = list(counts)[-1], quantile(counts, 99)
    if longest > 4 * max(1, usual):
        notes.append(
            f"the longest sequence has {longest / max(1, usual):.0f} times the steps of 99 % of all."
        )
    return tuple(notes)


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise UsageError(f"{name} must be at least 1. Received: {name}={number}.")
