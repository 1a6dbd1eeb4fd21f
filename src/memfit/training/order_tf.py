"""The order of samples in a pass: a function of the recorded seed and the pass, and of nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def order_of_pass(
    num_items: int, shuffle: bool | str, seed: int, pass_index: int, batch_size: int
) -> npt.NDArray[np.int64]:
    """The indices of all items in the order of one pass.

    Sorting the raw words of a bit generator is the same in every version of numpy; its `permutation` need not
    be.

    Args:
        num_items: Samples of arrays, or batches of a `PyDataset`.
        shuffle: As given to `fit`: `True`, `False`, or `"batch"` to shuffle within each batch.
        seed: Recorded at the beginning of the run.
        pass_index: The pass, from 0.
        batch_size: What `"batch"` shuffles within.
    """
    indices = np.arange(num_items, dtype=np.int64)
    if not shuffle:
        return indices
    words: npt.NDArray[Any] = np.random.PCG64(np.random.SeedSequence((seed, pass_index))).random_raw(
        num_items
    )
    if shuffle == "batch":
        return np.lexsort((words, indices // batch_size)).astype(np.int64)
    return np.argsort(words, kind="stable").astype(np.int64)
