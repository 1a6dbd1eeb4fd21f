"""What a search for a plan knows so far: ways that were measured, candidates that were rehearsed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from memfit.planning.search import Candidate, Law, Try, Variant, candidates_of, is_safe, peak_under, ranked
from memfit.records import Considered, Plan

# A candidate and the rehearsal that it went well in.
Found = tuple[Candidate, Try]


@dataclass(kw_only=True)
class Ledger:
    """Keeps the books of one search.

    Args:
        batch_size: Examples in a batch.
        budget_bytes: What the device may use.
        gradient_bytes: The sum of gradients, which a batch that is split holds besides.
        can_split: Whether batches may be split.
    """

    batch_size: int
    budget_bytes: int
    gradient_bytes: int
    can_split: bool
    _plans: dict[str, Plan] = field(default_factory=dict)
    _variants: dict[str, Variant] = field(default_factory=dict)
    _rehearsed: dict[tuple[str, int | None], Try | None] = field(default_factory=dict)

    def add(self, settings: Plan, tries: Sequence[Try], *, num_measures: int) -> None:
        """A way to run the model, as it was measured at small batches."""
        name = name_of(settings)
        self._plans[name] = settings
        self._variants[name] = Variant(name=name, num_measures=num_measures, law=Law(tuple(tries)))

    def add_tries(self, variant: Variant, tries: Sequence[Try]) -> None:
        """A way to run the model was measured at more batches."""
        self._variants[variant.name] = replace(variant, law=Law((*tries, *variant.law.tries)))

    @property
    def plain(self) -> Law:
        """What the model takes as it is."""
        return self._variants[""].law

    def candidates(self) -> list[Candidate]:
        """All candidates of all ways, as they are seen now."""
        return [
            candidate
            for variant in self._variants.values()
            for candidate in candidates_of(
                variant,
                batch_size=self.batch_size,
                gradient_bytes=self.gradient_bytes,
                can_split=self.can_split,
            )
        ]

    def waiting(self) -> list[Candidate]:
        """Those that would fit and were not rehearsed, the best first."""
        return [each for each in ranked(self.candidates(), self.budget_bytes) if not self.has(each)]

    def settings(self, candidate: Candidate) -> Plan:
        """A candidate as a plan."""
        return replace(self._plans[candidate.variant.name], micro_batch=candidate.micro_batch)

    def note(self, candidate: Candidate, rehearsed: Try | None) -> None:
        """How a rehearsal went; `None` if it ran out of memory. Of one that missed, its kind learns.

        A whole batch is one more point of the law: it says little of micro-batches, where other buffers may
        be the largest. A micro-batch that missed makes all of its kind larger by as much.
        """
        name = candidate.variant.name
        self._rehearsed[name, candidate.micro_batch] = rehearsed
        if rehearsed is not None and is_safe(rehearsed, self.budget_bytes):
            return
        variant = self._variants[name]
        high_bytes = 2 * self.budget_bytes if rehearsed is None else rehearsed.high_bytes
        if candidate.micro_batch is None:
            seconds = candidate.seconds if rehearsed is None else rehearsed.seconds
            peak_bytes = peak_under(high_bytes)
            self.add_tries(
                variant, [Try(num_examples=self.batch_size, peak_bytes=peak_bytes, seconds=seconds)]
            )
            return
        learnt = variant.bias * high_bytes / candidate.high_bytes
        self._variants[name] = replace(variant, bias=max(variant.bias, learnt))

    def has(self, candidate: Candidate) -> bool:
        """Whether a candidate was rehearsed, however it went."""
        return _key(candidate) in self._rehearsed

    def resized(self, candidate: Candidate, factor: float) -> Candidate:
        """The same way in micro-batches of about so many times the size."""
        size = factor * (candidate.micro_batch or self.batch_size)
        own = [each for each in self.candidates() if each.variant.name == candidate.variant.name]
        split = [each for each in own if each.micro_batch is not None]
        return min(split, key=lambda each: abs((each.micro_batch or 0) - size), default=candidate)

    def rehearsal(self, candidate: Candidate) -> Try | None:
        """The rehearsal of a candidate; `None` if it ran out of memory, or was not rehearsed."""
        return self._rehearsed.get(_key(candidate))

    def safe(self) -> list[Found]:
        """The candidates whose rehearsal fits, the fastest first."""
        found = [
            (each, rehearsed)
            for each in self.candidates()
            if (rehearsed := self.rehearsal(each)) is not None and is_safe(rehearsed, self.budget_bytes)
        ]
        return sorted(found, key=lambda each: each[1].seconds)

    def settled(self, room_bytes: Callable[[Candidate, Try], int | None]) -> Found | None:
        """The fastest that fits when it is also known in which room its buffers find a place; `None` if none.

        Args:
            room_bytes: Finds that room for a candidate that was rehearsed without looking for it.
        """
        for candidate, rehearsed in self.safe():
            if rehearsed.room_bytes is None:
                rehearsed = replace(rehearsed, room_bytes=room_bytes(candidate, rehearsed))
                self.note(candidate, rehearsed)
            if is_safe(rehearsed, self.budget_bytes):
                return candidate, rehearsed
        return None

    def considered(self, chosen: Candidate) -> tuple[Considered, ...]:
        """What was chosen, the best of each kind, and whole batches where they do not fit."""
        shown: list[Considered] = []
        for name in self._variants:
            own = [each for each in self.candidates() if each.variant.name == name]
            taken = [each for each in own if _key(each) == _key(chosen)]
            rows = {_key(each): each for each in (own[0], *ranked(own, self.budget_bytes)[:1], *taken)}
            shown += [self._considered_one(each, chosen) for each in rows.values()]
        return tuple(shown)

    def _considered_one(self, candidate: Candidate, chosen: Candidate) -> Considered:
        rehearsed = self.rehearsal(candidate)
        verdict = "slower" if candidate.high_bytes <= self.budget_bytes else "does not fit"
        if _key(candidate) == _key(chosen):
            verdict = "chosen"
        elif rehearsed is not None and not is_safe(rehearsed, self.budget_bytes):
            verdict = "did not fit when rehearsed"
        return Considered(
            what=self.settings(candidate).in_words(),
            peak_bytes=candidate.peak_bytes if rehearsed is None else rehearsed.peak_bytes,
            seconds=candidate.seconds if rehearsed is None else rehearsed.seconds,
            verdict=verdict,
        )


def name_of(settings: Plan) -> str:
    """What tells a way to run a model from the others; empty for the model as it is."""
    return settings.in_words().removeprefix("whole batches").removeprefix(", ")


def _key(candidate: Candidate) -> tuple[str, int | None]:
    return candidate.variant.name, candidate.micro_batch
