from hypothesis import given
from hypothesis import strategies as st

from memfit.records import Profile, RecurrentPart, Setting
from memfit.strategies.time_checkpoint import TimeCheckpoint

STRATEGY = TimeCheckpoint()


def part(length: int, state_bytes: int, more_bytes: int, is_closed_form: bool) -> RecurrentPart:
    """The tape of a step has its state, and more."""
    return RecurrentPart(
        layers=("lstm",),
        length=length,
        state_bytes=state_bytes,
        tape_bytes=state_bytes + more_bytes,
        is_closed_form=is_closed_form,
    )


profiles = st.lists(
    st.builds(part, st.integers(1, 5000), st.integers(1, 10**6), st.integers(0, 10**7), st.booleans()),
    min_size=1,
    max_size=3,
).map(lambda parts: Profile(batch_size=8, recurrent=tuple(parts)))


def test_a_model_without_an_rnn_gets_a_sentence() -> None:
    proposal = STRATEGY.settings(Profile(batch_size=8, recurrent=()))
    assert proposal.settings == ()
    assert "no RNN layer" in proposal.reason


@given(profiles)
def test_less_memory_is_more_work_and_the_last_setting_recomputes_nothing(profile: Profile) -> None:
    effects = [STRATEGY.effect(setting, profile) for setting in STRATEGY.settings(profile).settings]
    assert effects[-1].num_recomputed_steps == 0
    assert effects[-1].held_bytes == effects[-1].kept_bytes
    assert all(effect.num_recomputed_steps <= effect.num_steps for effect in effects)
    if len(profile.recurrent) == 1:
        work = [
            effect.num_recomputed_steps for effect in effects[1:]
        ]  # the chosen segments are not equal ones
        assert work == sorted(work, reverse=True)


@given(profiles, st.none() | st.integers(1, 6000))
def test_no_setting_holds_more_than_keeping_everything_and_the_borders(
    profile: Profile, segment: int | None
) -> None:
    effect = STRATEGY.effect(Setting(strategy="time_checkpoint", value=segment), profile)
    borders = sum(part.length * part.state_bytes for part in profile.recurrent)
    assert 0 < effect.held_bytes <= effect.kept_bytes + borders


@given(profiles)
def test_the_chosen_segments_hold_the_least(profile: Profile) -> None:
    chosen, *others = (STRATEGY.effect(setting, profile) for setting in STRATEGY.settings(profile).settings)
    assert all(chosen.held_bytes <= other.held_bytes for other in others)
