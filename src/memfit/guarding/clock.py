"""Which of the things that happen in a program is its step.

Keras tells when a batch ends. A loop of one's own does not, but it calls a `tf.function`, or an optimizer, or
a model. Several of them may happen in each turn of the loop, so one is the step, and the others are passed
over for as long as that one goes on.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

# The nearer to a training step the earlier. Seconds pass when nothing else happens.
KINDS: Final = ("train batch", "optimizer", "function", "batch", "call", "second")
PATIENCE: Final = 200

Key = tuple[str, object]


class Clock:
    """Counts steps. What is called at every step looks up next to nothing: after a step, all that is cold.

    Example:
    >>> clock = Clock()
    >>> [clock.tick(kind) is not None for kind in ("function", "optimizer", "function", "optimizer")]
    [True, True, False, True]
    """

    def __init__(self) -> None:
        self.num_ticks = 0
        self.current: Key | None = None
        self._kind: str | None = None
        self._name: object = None
        self._step = 0
        self._earlier: Counter[Key] = Counter()
        self._num_others = 0
        self._longest_gap = 0

    def tick(self, kind: str, name: object = None) -> int | None:
        """Which step this is, if what just happened is one.

        Args:
            kind: One of `KINDS`.
            name: Which function it was, where there are several; best a number, since it is hashed.
        """
        self.num_ticks += 1
        if name != self._name or kind != self._kind:
            if not self._takes_over(kind):
                self._num_others += 1
                return None
            self._give_over(kind, name)
        if self._num_others:
            # Validation comes again, and is as long as the last time.
            self._longest_gap = max(self._longest_gap, self._num_others)
            self._num_others = 0
        self._step += 1
        return self._step

    def num_steps(self, kind: str, name: object = None) -> int:
        """How many steps something was."""
        return self._step if (kind, name) == self.current else self._earlier[kind, name]

    def most_steps(self) -> int:
        """How many steps that was which was the most."""
        return max([self._step, *self._earlier.values()])

    def _give_over(self, kind: str, name: object) -> None:
        if self.current is not None:
            self._earlier[self.current] = self._step
        self.current = self._kind, self._name = kind, name
        self._step = self._earlier[kind, name]

    def _takes_over(self, kind: str) -> bool:
        if self.current is None or KINDS.index(kind) < KINDS.index(self.current[0]):
            return True
        return self._num_others >= PATIENCE + 2 * self._longest_gap
