"""Where to cut a sequence into segments, and what a cut costs.

A run over time by segments keeps the *state* at the start of every segment and, while it walks back, the
*tape* of the one segment that it is in. This file says which lengths the segments have, how many bytes that
holds at its peak, and how many steps are computed twice. It decides nothing about how a segment is run.

Schedules, from least to most recomputation:

- equal segments: `2 * sqrt(a * length)` states, where `a` is the tape of a step over its state;
- tapered segments, long first: `sqrt(2 * a * length)` states for the same work, because the borders behind
  a segment are free again by the time that it is walked back;
- two levels, for lengths where borders dominate: about `3 * cbrt(a * length)` states, every step computed
  up to three times.

The engine runs equal segments. Tapered ones hold less on paper; on the allocator, tensors of changing sizes
fit badly into each other's places (2 x LSTM(256), 1000 steps: 33.7 MiB against 26.4), and every new length
has to be compiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

from memfit.errors import UsageError

SHORTEST = 18
"""Steps below which a segment costs time and saves few bytes, since its weight gradients are added once a
segment. 2 x LSTM(256), 1000 steps: 30.1 MiB and 1.42 s with 8, 27.0 MiB and 1.31 s with 16, 28.0 MiB and
1.27 s with 20."""

UNHURRIED = 32
"""Steps from which on longer segments seem no faster; from a few noisy runs of LSTM(64), not settled."""

TWO_LEVELS_FROM = 50_000
"""Steps from which on a sequence is cut on two levels. By the formula, 2 x LSTM(256) with 100,000 steps and a
batch of 32 holds 177 MiB of states and tape on one level, and 30 MiB on two, for one more forward pass."""

NEGLIGIBLE_BYTES = 12 * 2**20
"""What a segment may hold without anyone missing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one time step holds in memory.

    Args:
        state_bytes: Bytes kept at a border: the states of all cells for the whole batch.
        tape_bytes: Bytes that one step adds to the segment that is being walked back.
    """

    state_bytes: int
    tape_bytes: int

    def __post_init__(self) -> None:
        if self.state_bytes < 1 or self.tape_bytes < 1:
            raise UsageError(
                f"A step holds {self.state_bytes} bytes of state and {self.tape_bytes} bytes of tape, "
                "but both must be at least 1. Pass the bytes of one step for the whole batch."
            )

    @property
    def tape_states(self) -> float:
        """The tape of a step in states: `a` in the formulas."""
        return self.tape_bytes / self.state_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Segments in the order of time, each cut again into `inner` segments when there are two levels.

    Args:
        lengths: Steps of every segment; their sum is the length of the sequence.
        inner: Steps of the segments inside a segment, or `None` for one level.

    Example:
    >>> Schedule(lengths=(4, 4, 2)).recomputed_steps
    8
    """

    lengths: tuple[int, ...]
    inner: int | None = None

    @property
    def length(self) -> int:
        """Steps of the whole sequence."""
        return sum(self.lengths)

    @property
    def starts(self) -> tuple[int, ...]:
        """First step of every segment, and the length as the last entry."""
        return (0, *accumulate(self.lengths))

    @property
    def recomputed_steps(self) -> int:
        """Steps computed more than once, counted as often as they are computed again.

        The last segment is never recomputed: its tape is kept by the forward pass.
        """
        outer = self.length - self.lengths[-1]
        if self.inner is None:
            return outer
        return outer + sum(equal(length, self.inner).recomputed_steps for length in self.lengths)

    def peak_bytes(self, cost: StepCost) -> int:
        """Bytes of borders and tape at the worst moment of the backward pass.

        The first segment starts from the initial state, which is there anyway.
        """
        held = {length: self._held_bytes(length, cost) for length in set(self.lengths)}
        return max(index * cost.state_bytes + held[length] for index, length in enumerate(self.lengths))

    def _held_bytes(self, length: int, cost: StepCost) -> int:
        if self.inner is None:
            return length * cost.tape_bytes
        return equal(length, self.inner).peak_bytes(cost)


def equal(length: int, segment: int) -> Schedule:
    """Segments of `segment` steps; the last takes the rest.

    Example:
    >>> equal(10, 4).lengths
    (4, 4, 2)
    """
    length, segment = check_steps("length", length), check_steps("segment", segment)
    full, rest = divmod(length, segment)
    return Schedule(lengths=(segment,) * full + ((rest,) if rest else ()))


def equal_best(length: int, cost: StepCost) -> Schedule:
    """The equal segments that hold the fewest bytes."""
    check_steps("length", length)
    guess = math.sqrt(length / cost.tape_states)
    # The peak is not smooth in the segment size, so look around the optimum of the smooth formula.
    sizes = range(min(length, max(1, int(guess / 2))), min(length, math.ceil(2 * guess) + 1) + 1)
    return min((equal(length, size) for size in sizes), key=lambda found: found.peak_bytes(cost))


def tapered(length: int, cost: StepCost, *, shortest: int = 1) -> Schedule:
    """Segments from long to short that hold the fewest bytes for one extra forward pass.

    While segment `j` (from 0) is walked back, only `j` borders are still held, so with room for `M` bytes
    it may take `(M - j * state_bytes) / tape_bytes` steps.

    Args:
        length: Steps of the sequence.
        cost: Bytes of one step.
        shortest: Steps that every segment but the last has at least.
    """
    check_steps("length", length)
    low, high = cost.tape_bytes, length * cost.tape_bytes
    while low < high:  # the least room, to the byte, in which the whole length finds place
        middle = (low + high) // 2
        if sum(_fill(length, middle, cost, shortest)) == length:
            high = middle
        else:
            low = middle + 1
    return Schedule(lengths=_fill(length, low, cost, shortest))


def _fill(length: int, room_bytes: int, cost: StepCost, shortest: int) -> tuple[int, ...]:
    """As many steps as find place, in segments from long to short."""
    lengths: list[int] = []
    rest = length
    while rest:
        steps = (room_bytes - len(lengths) * cost.state_bytes) // cost.tape_bytes
        if steps < min(shortest, rest):
            break
        lengths.append(min(steps, rest))
        rest -= lengths[-1]
    return tuple(lengths)


def two_level(length: int, cost: StepCost) -> Schedule:
    """Equal segments, each walked back by equal segments of its own: fewest bytes for two extra passes."""
    check_steps("length", length)
    guess = (length / cost.tape_states**2) ** (1 / 3)
    candidates = (
        Schedule(lengths=equal(length, min(length, inner * blocks)).lengths, inner=inner)
        for inner in range(max(1, int(guess / 2)), math.ceil(2 * guess) + 2)
        for blocks in _around(math.sqrt(length / inner))
    )
    return min(candidates, key=lambda found: found.peak_bytes(cost))


def _around(value: float) -> range:
    return range(max(1, int(value * 0.8)), math.ceil(value * 1.25) + 1)


def shortest_for(tape_bytes: int) -> int:
    """The fewest steps that a segment should have, from the tape of one step of the whole batch.

    Where even long segments hold next to nothing, time is worth more than bytes.
    """
    return UNHURRIED if UNHURRIED * tape_bytes <= NEGLIGIBLE_BYTES else SHORTEST


def choose(length: int, cost: StepCost, *, segment: int | None = None, shortest: int = SHORTEST) -> Schedule:
    """The schedule for a length: the caller's segment, or the best equal one, long enough to be fast.

    A very long sequence is cut on two levels.

    Args:
        length: Steps of the sequence.
        cost: Bytes of one step.
        segment: Steps of a segment, or `None` to choose. A segment of `length` or more keeps the whole
            tape and recomputes nothing.
        shortest: Steps that a chosen segment has at least.

    Example:
    >>> choose(1000, StepCost(state_bytes=1, tape_bytes=4)).peak_bytes(StepCost(state_bytes=1, tape_bytes=4))
    126
    """
    if segment is None and length >= TWO_LEVELS_FROM:
        return two_level(length, cost)
    if segment is None:
        segment = max(equal_best(length, cost).lengths[0], shortest)
    return equal(length, segment)


def check_steps(name: str, value: object) -> int:
    """`value` as a number of steps, or a `UsageError` that says what was wrong."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(
            f"Received {name}={value!r}, but a {name} is a whole number of time steps, at least 1. "
            + ("Pass segment=None to have it chosen." if name == "segment" else "Pass a longer sequence.")
        )
    return value
