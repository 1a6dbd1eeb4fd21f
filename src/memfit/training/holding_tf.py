"""Holds what a traced step began with, so that Python can take it back when the step dies.

A traced function gives nothing back when it fails, not even the batch that it took from the data. Calling
another one first, which takes the batch, costs a third of a small step. So the step itself puts what it
begins with into a staging area of TensorFlow's, and empties it at its end. Nothing is copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

_NUMBERS: Final = itertools.count()
# Staging areas that nobody uses now. TensorFlow keeps an area for as long as the process lives.
_FREE: Final[list[str]] = []


class Hold:
    """A place for one structure of tensors: `put` and `drop` are for traced functions, `take` for Python."""

    def __init__(self) -> None:
        self._name = _FREE.pop() if _FREE else f"memfit_hold_{next(_NUMBERS)}"
        self._structure: Any = None
        self._dtypes: Sequence[tf.DType] = ()

    def close(self) -> None:
        """Empties the place and gives it back. The hold must not be used again."""
        self.drop()
        _FREE.append(self._name)

    def put(self, structure: Any) -> tf.Operation:
        """Keeps a structure. Nothing may be there already."""
        leaves = tf.nest.flatten(structure, expand_composites=True)
        self._structure = structure
        self._dtypes = [leaf.dtype for leaf in leaves]
        return tf.raw_ops.Stage(values=leaves, shared_name=self._name)

    def drop(self) -> tf.Operation:
        """Lets go of what is there, if anything is."""
        return tf.raw_ops.StageClear(dtypes=self._dtypes, shared_name=self._name)

    def take(self) -> Any:
        """What is there, which is then no longer held; `None` if nothing is."""
        if not self._dtypes or int(tf.raw_ops.StageSize(dtypes=self._dtypes, shared_name=self._name)) == 0:
            return None
        leaves = tf.raw_ops.Unstage(dtypes=self._dtypes, shared_name=self._name)
        return tf.nest.pack_sequence_as(self._structure, leaves, expand_composites=True)
