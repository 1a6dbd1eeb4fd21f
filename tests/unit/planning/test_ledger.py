"""The books of a search: what is waiting, what a rehearsal that missed teaches, what is told in the end."""

import pytest

from memfit.planning.ledger import Ledger
from memfit.planning.search import Candidate, Try
from memfit.records import Plan
from memfit.units import MIB


@pytest.fixture
def ledger() -> Ledger:
    """Whole batches of 8 take 180 MiB as they are, and 100 MiB in segments."""
    found = Ledger(batch_size=8, budget_bytes=200 * MIB, gradient_bytes=MIB, can_split=True)
    found.add(Plan(), tries((1, 40, 0.1), (2, 60, 0.2)), num_measures=0)
    found.add(Plan(time_segment=5), tries((2, 40, 0.4), (4, 60, 0.8)), num_measures=1)
    return found


def tries(*points: tuple[int, int, float]) -> list[Try]:
    return [Try(num_examples=n, peak_bytes=size * MIB, seconds=seconds) for n, size, seconds in points]


def rehearsed(candidate: Candidate, mebibytes: int) -> Try:
    return Try(num_examples=8, peak_bytes=mebibytes * MIB, seconds=candidate.seconds)


def test_the_fastest_waits_first_and_waits_no_more_once_it_was_rehearsed(ledger: Ledger) -> None:
    first, second = ledger.waiting()[:2]
    assert ledger.settings(first) == Plan()
    ledger.note(first, rehearsed(first, 150))
    assert second == ledger.waiting()[0]
    assert ledger.safe() == [(first, rehearsed(first, 150))]


@pytest.mark.parametrize("mebibytes", [220, None])
def test_a_micro_batch_that_missed_makes_its_kind_look_larger_and_no_other(
    ledger: Ledger, mebibytes: int | None
) -> None:
    before = {(each.variant.name, each.micro_batch): each.peak_bytes for each in ledger.candidates()}
    first = next(each for each in ledger.waiting() if each.micro_batch and not each.variant.name)
    ledger.note(first, None if mebibytes is None else rehearsed(first, mebibytes))
    assert not ledger.safe()
    for each in ledger.candidates():
        size = before[each.variant.name, each.micro_batch]
        assert each.peak_bytes > size if each.variant.name == "" else each.peak_bytes == size


@pytest.mark.parametrize("mebibytes", [360, None])
def test_a_whole_batch_that_missed_leaves_alone_what_was_measured_at_small_ones(
    ledger: Ledger, mebibytes: int | None
) -> None:
    whole = ledger.waiting()[0]
    assert whole.micro_batch is None
    missed = None if mebibytes is None else rehearsed(whole, mebibytes)
    ledger.note(whole, missed)
    assert not ledger.safe()
    plain = {each.micro_batch: each for each in ledger.candidates() if not each.variant.name}
    needed = 2 * ledger.budget_bytes if missed is None else missed.high_bytes
    assert plain[None].high_bytes == pytest.approx(needed, abs=2), "what a refusal says that it needs"
    assert [plain[size].peak_bytes for size in (1, 2)] == [41 * MIB, 61 * MIB]
    on_the_line = 60 * MIB + (plain[None].peak_bytes - 60 * MIB) / 3
    assert plain[4].peak_bytes == pytest.approx(on_the_line + MIB, abs=2)


def test_more_tries_are_taken_up(ledger: Ledger) -> None:
    single = ledger.candidates()[-1]
    ledger.add_tries(single.variant, tries((1, 10, 0.1)))
    assert ledger.candidates()[-1].peak_bytes == 11 * MIB


def test_the_same_way_in_micro_batches_of_another_size(ledger: Ledger) -> None:
    def size(variant: str, micro_batch: int | None, factor: float) -> tuple[str, int | None]:
        own = next(
            each
            for each in ledger.candidates()
            if (each.variant.name, each.micro_batch) == (variant, micro_batch)
        )
        found = ledger.resized(own, factor)
        return found.variant.name, found.micro_batch

    assert (size("", 2, 2.0), size("", 2, 0.5)) == (("", 4), ("", 1))
    assert size("time segments of 5", 3, 0.5)[0] == "time segments of 5"
    # Whole batches are halved, and nothing is smaller than one or larger than half.
    assert (size("", None, 0.5), size("", 1, 0.5), size("", 4, 2.0)) == (("", 4), ("", 1), ("", 4))


def test_what_was_rehearsed_is_known_however_it_went(ledger: Ledger) -> None:
    first, second, third = ledger.waiting()[:3]
    ledger.note(first, rehearsed(first, 150))
    ledger.note(second, None)
    assert [ledger.has(each) for each in (first, second, third)] == [True, True, False]


def test_what_was_considered_says_why_not(ledger: Ledger) -> None:
    whole = ledger.waiting()[0]
    ledger.note(whole, rehearsed(whole, 220))
    chosen = next(each for each in ledger.waiting() if each.variant.name)
    ledger.note(chosen, rehearsed(chosen, 110))
    told = {each.what: ((each.peak_bytes or 0) // MIB, each.verdict) for each in ledger.considered(chosen)}
    assert told["whole batches"] == (220, "did not fit when rehearsed")
    assert told[ledger.settings(chosen).in_words()] == (110, "chosen")
    assert "slower" in {verdict for _, verdict in told.values()}


def test_what_was_chosen_is_always_told(ledger: Ledger) -> None:
    for chosen in ledger.candidates():
        told = [each.what for each in ledger.considered(chosen) if each.verdict == "chosen"]
        assert told == [ledger.settings(chosen).in_words()]


def test_one_that_does_not_fit_after_all_gives_way_to_the_next(ledger: Ledger) -> None:
    first, second, third = ledger.waiting()[:3]
    for candidate in (first, second, third):
        ledger.note(candidate, rehearsed(candidate, 150))
    rooms = {ledger.settings(first): 150, ledger.settings(second): 210, ledger.settings(third): 160}

    def chosen() -> Plan | None:
        found = ledger.settled(lambda candidate, _: rooms[ledger.settings(candidate)] * MIB)
        assert found is None or found[1].high_bytes <= ledger.budget_bytes
        return None if found is None else ledger.settings(found[0])

    assert chosen() == ledger.settings(first)
    ledger.note(first, rehearsed(first, 199))  # Timed again, it peaks higher.
    assert chosen() == ledger.settings(third), "the second has no room"
    ledger.note(third, None)
    assert chosen() is None
