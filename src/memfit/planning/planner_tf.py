"""The search behind `memfit.plan`: what to measure at small batches, what to rehearse, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from memfit.errors import BudgetError, MemfitError, SetupError, reason_of
from memfit.estimating.batches_tf import Batches
from memfit.estimating.probing_tf import Subject
from memfit.planning.bench_tf import Bench, num_bytes
from memfit.planning.ledger import Found, Ledger, name_of
from memfit.planning.proposing_tf import SHARE, Proposed, propose
from memfit.planning.refusing import refusal
from memfit.planning.search import (
    Candidate,
    Law,
    Try,
    Variant,
    candidates_of,
    even_sizes,
    fallbacks_of,
    is_safe,
    promised_seconds,
    tightest,
)
from memfit.records import Plan
from memfit.splitting.checking_tf import why_not_evaluate, why_not_layers, why_not_train
from memfit.splitting.identity_tf import identify

MOST_REHEARSALS: Final = 8
MOST_FALLBACKS: Final = 4
# A candidate of another kind is rehearsed, too, if it promises to be no slower than this.
WORTH_A_TRY: Final = 1.25
# Another way is measured after whole batches were found to fit if arithmetic promises no more than this.
PROMISING: Final = 1.1
# Two that fit and are no further apart are timed in turn, so often.
CLOSE: Final = 1.3
NUM_ROUNDS: Final = 2
# Micro-batches of so many times the size are looked at, too.
RESIZED: Final = (2.0, 0.5)
# Steps that take longer than this are not looked at twice: planning would take a minute.
LONG: Final = 0.5

Tell = Callable[[str], None]


@dataclass(kw_only=True)
class Planner:
    """One search for a plan.

    Args:
        subject: The model and how it is trained.
        batches: On what.
        bench: Tries it.
        batch_size: Examples in a batch.
        budget_bytes: What the device may use.
        allow: What may change the training.
        tell: Is told what is done next.
    """

    subject: Subject
    batches: Batches
    bench: Bench
    batch_size: int
    budget_bytes: int
    allow: tuple[str, ...]
    tell: Tell

    def __post_init__(self) -> None:
        model = self.subject.model
        why_not = why_not_train if model.compiled else why_not_layers
        self._why_not_split = why_not(model, self.allow)
        self._gradient_bytes = num_bytes(model.trainable_variables)
        self._ledger = Ledger(
            batch_size=self.batch_size,
            budget_bytes=self.budget_bytes,
            gradient_bytes=self._gradient_bytes,
            can_split=not self._why_not_split,
        )
        self._best: Found | None = None
        self._tighter: tuple[Plan, ...] = ()
        self._notes: list[str] = []
        if self._why_not_split:
            self._notes.append(f"Batches are not split: {self._why_not_split}")

    def plan(self) -> Plan:
        """The plan."""
        self._measure(Plan(), num_measures=0)
        found = self._rehearse_best(whole_only=True) or self._search()
        if found is not None:
            found = self._duel(self._resize(found)) or self._rehearse_best()
        if found is None and not self._why_not_split:
            found = self._rehearse_smallest()
        if found is None:
            raise self._refusal()
        return self._finish(found)

    def _search(self) -> Found | None:
        """What the strategies propose, the least work first, until one of them takes whole batches."""
        fixed_bytes = self.bench.resting_bytes + self._gradient_bytes
        proposal = propose(
            self.subject.model,
            self.batch_size,
            self.batches.length,
            room_bytes=self.budget_bytes - fixed_bytes,
            plain_bytes=self._ledger.plain.peak_bytes(self.batch_size) - fixed_bytes,
        )
        self._notes += proposal.reasons
        found = None
        for place, settings in enumerate(proposal.plans):
            num_measures = _num_measures(settings)
            if num_measures > 1 and found is not None:
                continue  # Two ways of computing again, one in the other, are for when nothing else fits.
            try:
                self._measure(settings, num_measures=num_measures)
            except MemfitError as fault:  # What a strategy cannot do for this model, it says.
                self._notes.append(f"Not {settings.in_words()}: {reason_of(fault)}")
                continue
            found = self._rehearse_best()
            if found is not None and found[0].micro_batch is None:
                self._tighter = tuple(
                    each for each in proposal.plans[place + 1 :] if _is_tighter(each, settings)
                )
                return self._challenge(found, settings, proposal)
        return self._rehearse_best()

    def _challenge(self, whole: Found, settings: Plan, proposal: Proposed) -> Found:
        """Whole batches that compute again, or micro-batches that compute less, if those are faster."""
        rivals = dict.fromkeys([self._unrepeated(whole, settings, proposal), proposal.halved])
        if self._why_not_split or whole[1].seconds > LONG:
            return whole
        for rival in filter(None, rivals):
            self._measure(rival, num_measures=1, is_split=True)
        return self._rehearse_best() or whole

    def _unrepeated(self, whole: Found, settings: Plan, proposal: Proposed) -> Plan | None:
        """What computes nothing again, if its micro-batches promise to be about as fast as whole batches."""
        candidate, rehearsed = whole
        own = proposal.effects.get(settings)
        if own is None or not own.num_recomputed_steps:
            return None
        for rival, effect in proposal.effects.items():
            room_bytes = SHARE * (self.budget_bytes - self.bench.resting_bytes - 2 * self._gradient_bytes)
            most = room_bytes * self.batch_size / max(1, effect.held_bytes)
            fitting = [size for size in even_sizes(self.batch_size) if size <= most]
            if effect.num_recomputed_steps or not fitting:
                continue
            promised = promised_seconds(
                candidate.variant.law,
                batch_size=self.batch_size,
                micro_batch=fitting[0],
                again_share=own.num_recomputed_steps / own.num_steps,
            )
            if promised < PROMISING * rehearsed.seconds:
                return rival
        return None

    def _measure(self, settings: Plan, *, num_measures: int, is_split: bool = False) -> None:
        """Tries a way to run the model at small batches."""
        self.tell(f"measuring {name_of(settings) or 'the model as it is'} at small batches")
        tries = self.bench.run(settings, _small_sizes(self.batch_size), is_split=is_split)
        if is_split:  # The sum of the gradients is added to every candidate in micro-batches.
            tries = [replace(each, peak_bytes=each.peak_bytes - self._gradient_bytes) for each in tries]
        self._ledger.add(settings, tries, num_measures=num_measures)

    def _rehearse_smallest(self) -> Found | None:
        """Looks closer at the way that takes the least memory, down to single examples."""
        found = tightest(self._ledger.candidates())
        self.tell("measuring single examples")
        settings = replace(self._ledger.settings(found), micro_batch=None)
        self._ledger.add_tries(found.variant, self.bench.run(settings, (1, 2)))
        return self._rehearse_best()

    def _rehearse_best(self, *, whole_only: bool = False) -> Found | None:
        """The fastest candidate of those whose rehearsal fits, or `None`."""
        best = self._best
        for _ in range(MOST_REHEARSALS):
            waiting = [
                each
                for each in self._ledger.waiting()
                if not (whole_only and each.micro_batch is not None)
                and (best is None or self._is_worth_a_try(each, best))
            ]
            if not waiting:
                break
            found = self._rehearse(waiting[0])
            if found is not None and (best is None or found.seconds < best[1].seconds):
                self._best = best = (waiting[0], found)
        return best

    def _resize(self, best: Found) -> Found:
        """Micro-batches of another size, as long as they are faster and fit: what suits caches, no law says.

        The function is there already, for micro-batches of any size.
        """
        for factor in RESIZED:
            while best[0].micro_batch is not None and best[1].seconds <= LONG:
                own, other = (self._ledger.resized(best[0], each) for each in (1.0, factor))
                # What was rehearsed took so many times what is predicted by now.
                expected_bytes = math.ceil(other.peak_bytes * best[1].peak_bytes / own.peak_bytes)
                if self._ledger.has(other) or expected_bytes > self.budget_bytes:
                    break
                other = replace(other, peak_bytes=expected_bytes)
                found = self._rehearse(other)
                if found is None or found.seconds >= best[1].seconds:
                    break
                self._best = best = (other, found)
        return best

    def _duel(self, best: Found) -> Found | None:
        """The faster of the two that came out ahead, timed in turn: a rehearsal may meet a busy moment.

        Each turn is one more rehearsal, and may show that one of them does not fit: then the next best of
        all that were rehearsed, or `None`.
        """
        rivals = [each for each in self._ledger.safe() if each[1] is not best[1]]
        if not rivals or rivals[0][1].seconds > CLOSE * best[1].seconds or best[1].seconds > LONG:
            return best
        self.tell("timing the two fastest in turn")
        for candidate in NUM_ROUNDS * (best[0], rivals[0][0]):
            self._time_again(candidate)
        self._best = self._ledger.settled(self._room_bytes)
        return self._best

    def _time_again(self, candidate: Candidate) -> None:
        """One more rehearsal: the least of the times and the highest of the peaks count."""
        before = self._ledger.rehearsal(candidate)
        if before is None:
            return  # It ran out of memory the last time.
        again = self.bench.rehearse(self._ledger.settings(candidate), self.batch_size, most_seconds=0.0)
        if again is not None:
            again = replace(
                before,
                seconds=min(before.seconds, again.seconds),
                peak_bytes=max(before.peak_bytes, again.peak_bytes),
            )
        self._ledger.note(candidate, again)

    def _is_worth_a_try(self, candidate: Candidate, best: Found) -> bool:
        """Whether a candidate of a kind whose rehearsals all missed may be faster than the best so far."""
        went_well = {each.variant.name for each, _ in self._ledger.safe()}
        return candidate.variant.name not in went_well and candidate.seconds < WORTH_A_TRY * best[1].seconds

    def _rehearse(self, candidate: Candidate) -> Try | None:
        """Runs the largest batch by a candidate; `None` if it does not fit."""
        settings = self._ledger.settings(candidate)
        self.tell(f"rehearsing {settings.in_words()}")
        found = self.bench.rehearse(settings, self.batch_size)
        is_faster = found is not None and (self._best is None or found.seconds < self._best[1].seconds)
        if found is not None and is_faster and is_safe(found, self.budget_bytes):
            found = replace(found, room_bytes=self._room_bytes(candidate, found))
        self._ledger.note(candidate, found)
        return found if found is not None and is_safe(found, self.budget_bytes) else None

    def _room_bytes(self, candidate: Candidate, found: Try) -> int | None:
        """The limit under which steps of a candidate find a place for every buffer, if that can be told."""
        settings, least_bytes = self._ledger.settings(candidate), found.least_room_bytes
        try:
            return self.bench.room_bytes(settings, self.batch_size, least_bytes, self.budget_bytes)
        except SetupError as fault:  # The profiler is in use.
            self._notes.append(f"Whether memory would be left in holes was not looked at: {fault}")
            return None

    def _finish(self, found: Found) -> Plan:
        chosen, rehearsed = found
        plan = self._ledger.settings(chosen)
        fallbacks = fallbacks_of(chosen, self._ledger.candidates(), most=MOST_FALLBACKS)
        return replace(
            plan,
            evaluation_micro_batch=self._evaluation(plan),
            batch_size=self.batch_size,
            num_parameters=self.subject.model.count_params(),
            model_digest=identify(self.subject.model),
            allow=self.allow,
            fallbacks=(*self._tighter, *map(self._ledger.settings, fallbacks)),
            budget_bytes=self.budget_bytes,
            predicted_bytes=chosen.peak_bytes,
            predicted_seconds=chosen.seconds,
            rehearsed_bytes=rehearsed.peak_bytes,
            rehearsed_seconds=rehearsed.seconds,
            high_bytes=rehearsed.high_bytes,
            considered=self._ledger.considered(chosen),
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _evaluation(self, plan: Plan) -> int | None:
        """The largest validation batch that fits beside what rests; `None` for whole ones."""
        model = self.subject.model
        if plan.micro_batch is None or not model.compiled or why_not_evaluate(model):
            return None
        self.tell("measuring validation at small batches")
        law = Law(tuple(self.bench.evaluate(plan, _small_sizes(self.batch_size))))
        variant = Variant(name="", num_measures=0, law=law)
        found = candidates_of(variant, batch_size=self.batch_size, gradient_bytes=0, can_split=True)
        fitting = [each for each in found if each.high_bytes <= self.budget_bytes]
        return fitting[0].micro_batch if fitting else 1

    def _refusal(self) -> BudgetError:
        model = self.subject.model
        found = tightest(self._ledger.candidates())
        parts = {
            "weights": num_bytes(model.variables),
            "optimizer slots": self.bench.slot_bytes,
            "gradients": self._gradient_bytes,
            "what else is on the device, such as arrays": self.bench.other_bytes,
        }
        return refusal(
            words=self._ledger.settings(found).in_words(),
            tightest=found,
            parts=parts,
            budget_bytes=self.budget_bytes,
            why_not_split=self._why_not_split,
            length=self.batches.length,
        )


def _num_measures(settings: Plan) -> int:
    return (settings.time_segment is not None) + (settings.depth_limit is not None)


def _is_tighter(settings: Plan, chosen: Plan) -> bool:
    """Whether other settings of the same strategy hold less."""
    if _num_measures(settings) > 1:
        return False
    return (settings.time_segment or 0) < (chosen.time_segment or 1)


def _small_sizes(batch_size: int) -> tuple[int, ...]:
    """Two batches that are far smaller than the one asked for, where that is possible."""
    larger = max(1, batch_size // 4)
    smaller = max(1, larger // 2)
    return (smaller, larger) if smaller < larger else (1, 2) if batch_size > 1 else (1,)
