"""Windows of rows: read by several threads from all over the data, and mixed.

A `tf.data` set asks for them by their number in a pass; they depend on that and on the number drawn for the
pass, so a pass can be begun anew in any process.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from memfit.errors import UsageError
from memfit.streaming.blocks import Blocks, even_borders, lay_out
from memfit.streaming.order_tf import shuffled
from memfit.streaming.rows_tf import Array, Leaf, Rows, new_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of all passes over some rows.

    Attributes:
        parts: What a row is made of: all have as many rows.
        blocks: How the rows are cut.
        is_shuffled: Whether each pass has another order.
        num_readers: Threads that read at once.
    """

    parts: tuple[Rows, ...]
    blocks: Blocks
    is_shuffled: bool
    num_readers: int

    @property
    def leaves(self) -> list[Leaf]:
        """The arrays of a row."""
        return [leaf for part in self.parts for leaf in part.leaves]

    @property
    def num_rows(self) -> int:
        """In a pass."""
        return self.parts[0].num_rows

    def read(self, number: int, index: int) -> list[Array]:
        """The rows of a window, an array for each leaf, and at last the order to use them in."""
        chosen = self._blocks_of(number, index)
        sizes = [stop - start for start, stop in chosen]
        arrays = [new_array(leaf, sum(sizes)) for leaf in self.leaves]
        places = np.cumsum([0, *sizes]).tolist()
        with ThreadPoolExecutor(self.num_readers) as pool:
            tasks = [
                pool.submit(
                    self._fill, start, stop, [array[place : place + stop - start] for array in arrays]
                )
                for (start, stop), place in zip(chosen, places, strict=False)
            ]
            for task in tasks:
                task.result()
        num = sum(sizes)
        return [*arrays, shuffled(num, number, index) if self.is_shuffled else np.arange(num, dtype=np.int64)]

    def _blocks_of(self, number: int, index: int) -> list[tuple[int, int]]:
        num, size = self.blocks.num_blocks, self.blocks.per_window
        places = shuffled(num, number) if self.is_shuffled else np.arange(num)
        chosen = places[index * size : (index + 1) * size].tolist()
        borders = self.blocks.borders
        return [(borders[place], borders[place + 1]) for place in chosen]

    def _fill(self, start: int, stop: int, into: Sequence[Array]) -> None:
        place = 0
        for part in self.parts:
            part.read(start, stop, into[place : place + len(part.leaves)])
            place += len(part.leaves)


def make_windows(parts: Sequence[Rows], *, window_bytes: int, is_shuffled: bool, num_readers: int) -> Windows:
    """Windows over parts that belong together.

    Raises:
        UsageError: If there are no rows, or one part has more than another.
    """
    first = parts[0]
    for part in parts:
        if part.num_rows != first.num_rows:
            raise UsageError(
                f"{part.name} has {part.num_rows:,} rows, but {first.name} has {first.num_rows:,}. Each row "
                "needs its own label and weight: make them equal."
            )
    if first.num_rows == 0:
        raise UsageError(f"{first.name} has no rows. Pass data with at least one.")

    def bytes_between(start: int, stop: int) -> int:
        return sum(part.bytes_between(start, stop) for part in parts)

    row_bytes = max(1, bytes_between(0, first.num_rows) // first.num_rows)
    cut = [part for part in parts if part.cuts is not None]
    if cut:
        leading = max(cut, key=lambda part: part.bytes_between(0, part.num_rows))
        borders: Sequence[int] = [*(leading.cuts or ()), leading.num_rows]
    else:
        borders = even_borders(first.num_rows, row_bytes, window_bytes)
    return Windows(
        parts=tuple(parts),
        blocks=lay_out(borders, bytes_between, window_bytes),
        is_shuffled=is_shuffled,
        num_readers=num_readers,
    )
