"""Where the wall stands, and how a script that died is started again."""

from memfit.records import Measurement, Outcome
from memfit.running.settings import Settings, tighten
from memfit.units import MIB


def ended(outcome: Outcome, exit_code: int = 1, peak_bytes: int | None = None) -> Measurement:
    return Measurement(
        target="t.py",
        outcome=outcome,
        reason="It died.",
        seconds=1.0,
        exit_code=exit_code,
        peak_bytes=peak_bytes,
    )


def test_the_wall_is_the_budget_where_a_failed_request_is_an_error() -> None:
    budget = 100 * MIB
    assert Settings(budget_bytes=budget, is_clean=True).wall_bytes == budget
    assert Settings(budget_bytes=budget, is_observed=True).wall_bytes == budget
    assert (Settings(budget_bytes=budget).wall_bytes or 0) > budget
    assert Settings().wall_bytes is None


def test_a_script_that_ran_out_of_memory_is_started_again_with_less() -> None:
    first = Settings(budget_bytes=100 * MIB)
    found = tighten(first, ended(Outcome.DEVICE_OUT_OF_MEMORY), has_fit=True)
    assert found is not None
    settings, words = found
    assert settings.wall_bytes == first.wall_bytes
    again = tighten(settings, ended(Outcome.DEVICE_OUT_OF_MEMORY), has_fit=True)
    assert again is not None
    assert (again[0].budget_bytes, again[0].wall_bytes) == (64 * MIB, first.wall_bytes)
    assert settings.budget_bytes == 80 * MIB
    assert settings.is_restarted
    assert "with a budget of 80.0 MiB instead of 100 MiB." in words


def test_without_a_budget_the_peak_is_what_it_had() -> None:
    found = tighten(Settings(), ended(Outcome.HOST_OUT_OF_MEMORY, -9, peak_bytes=50 * MIB), has_fit=False)
    assert found is not None
    assert found[0].wall_bytes is None
    assert found[0].budget_bytes == 40 * MIB


def test_one_that_was_killed_by_someone_is_started_again_as_it_was() -> None:
    found = tighten(Settings(budget_bytes=100 * MIB), ended(Outcome.KILLED, -9), has_fit=False)
    assert found is not None
    assert found[0].budget_bytes == 100 * MIB


def test_others_are_not_started_again() -> None:
    for outcome, code in ((Outcome.OK, 0), (Outcome.ERROR, 1), (Outcome.KILLED, -15), (Outcome.KILLED, -2)):
        assert tighten(Settings(), ended(outcome, code), has_fit=True) is None
    assert tighten(Settings(), ended(Outcome.DEVICE_OUT_OF_MEMORY), has_fit=False) is None
