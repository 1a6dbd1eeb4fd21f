"""The order of a pass: a function of the number drawn for it, and of nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def shuffled(num: int, *words: int) -> npt.NDArray[np.int64]:
    """The numbers below `num` in an order that depends on the words alone, in every version of NumPy.

    Example:
    >>> sorted(shuffled(5, 1, 2).tolist())
    [0, 1, 2, 3, 4]
    """
    entropy = tuple(abs(int(word)) for word in words)
    raw: npt.NDArray[Any] = np.random.PCG64(np.random.SeedSequence(entropy)).random_raw(num)
    return np.argsort(raw, kind="stable").astype(np.int64)
