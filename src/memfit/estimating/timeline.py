"""What a step held and when: the buffers that it took from an allocator, in order.

An allocator tells of births and deaths. This file pairs them; what a buffer's size would be at another shape
is left to `growth`, and what an allocator makes of them to `chunks`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An allocator gave a buffer, or took one back.

    Attributes:
        at: When, in any unit.
        is_birth: Whether it was given.
        address: Where.
        num_bytes: What was asked for.
        op: The op that asked, or the empty text where it is not known.
        thread: The thread that it happened on.
        since: When the op began that it happened in; `None` where that is not known.
    """

    at: int
    is_birth: bool
    address: int
    num_bytes: int
    op: str = ""
    thread: int = 0
    since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One buffer of a step.

    Attributes:
        op: The op that asked for it; empty where it is not known.
        turn: Which of the buffers of that op it is, from 0.
        num_bytes: What was asked for.
        born: The moment from which on it is held; -1 if it was there before the step.
        died: The moment from which on it is not held any more, or `None` if the step leaves it behind.
        awaited: The places of buffers that ops on other threads gave back which were under way when it was
            born, in the order of their deaths: where there is no room for it, it can wait for those.
    """

    op: str
    turn: int
    num_bytes: int
    born: int
    died: int | None
    awaited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The buffers of one step in the order of their births.

    Attributes:
        buffers: The buffers.
        num_moments: How many times something was born or died.
    """

    buffers: tuple[Buffer, ...]
    num_moments: int


def timeline_of(events: Iterable[Event]) -> Timeline:
    """The buffers that the events of one step tell of.

    Example:
    >>> found = timeline_of([
    ...     Event(at=1, is_birth=True, address=8, num_bytes=40, op="MatMul"),
    ...     Event(at=2, is_birth=False, address=8, num_bytes=40),
    ... ])
    >>> found.buffers[0].born, found.buffers[0].died, found.num_moments
    (0, 1, 2)
    """
    ordered = sorted(events, key=lambda event: event.at)
    alive: dict[int, tuple[int, Event]] = {}
    found: list[tuple[int, Event, int | None]] = []
    for moment, event in enumerate(ordered):
        if event.is_birth:
            alive[event.address] = (moment, event)
        else:
            # What was there before the step and ends in it: an old value of a variable.
            born, birth = alive.pop(event.address, (-1, event))
            found.append((born, birth, moment))
    found += [(born, birth, None) for born, birth in alive.values()]
    found.sort(key=lambda each: (each[0], each[2] or 0))
    awaited = _awaited(ordered, {died: place for place, (_, _, died) in enumerate(found) if died is not None})
    turns: Counter[str] = Counter()
    buffers = []
    for born, birth, died in found:
        op = birth.op if born >= 0 else ""
        buffers.append(
            Buffer(
                op=op,
                turn=turns[op],
                num_bytes=birth.num_bytes,
                born=born,
                died=died,
                awaited=tuple(awaited.get(born, ())),
            )
        )
        turns[op] += 1
    return Timeline(buffers=tuple(buffers), num_moments=len(ordered))


def _awaited(ordered: Sequence[Event], dead: Mapping[int, int]) -> dict[int, list[int]]:
    """For moments of birth, the places of what ops that are under way then on other threads give back.

    Args:
        ordered: All events.
        dead: The places of buffers by the moments of their deaths.
    """
    times = [event.at for event in ordered]
    births: dict[int, list[int]] = defaultdict(list)
    for moment, event in enumerate(ordered):
        if event.is_birth:
            births[event.thread].append(moment)
    found: dict[int, list[int]] = defaultdict(list)
    for died, place in sorted(dead.items()):
        death = ordered[died]
        if death.since is None:
            continue
        own = births[death.thread]
        # Before it comes to that, the op must have all that it asks for itself.
        last = bisect_left(own, died) - 1
        first = max(bisect_left(times, death.since), own[last] + 1 if last >= 0 else 0)
        for thread, moments in births.items():
            if thread != death.thread:
                for moment in moments[bisect_left(moments, first) : bisect_left(moments, died)]:
                    found[moment].append(place)
    return found
