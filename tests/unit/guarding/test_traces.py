"""Who keeps on tracing, by a log that was made up."""

from memfit.guarding.traces import Origin, Origins


def origin() -> Origin:
    return Origin("step", "train.py", 3, None)


def test_the_argument_that_changes_is_found() -> None:
    found = origin()
    for step in range(20):
        found.happened(step, is_new=step == 0)
        found.called_with({"x": ("tensor", "[2]"), "lr": ("Python float", str(step / 7))})
    assert found.is_retraced(20)
    assert not found.is_rebuilt(20)
    assert found.culprit() == ("lr", "Python float")


def test_what_was_traced_at_the_beginning_only_is_fine() -> None:
    found = origin()
    for step in range(12):
        found.happened(step, is_new=step == 0)
    assert not found.is_retraced(200)


def test_new_functions_are_told_from_retraced_ones() -> None:
    found = origin()
    for step in range(0, 50, 10):
        found.happened(step, is_new=True)
    assert found.is_rebuilt(50)
    assert not found.is_retraced(50)


def test_one_place_is_one_origin() -> None:
    origins = Origins()
    assert origins.at(origin()) is origins.at(origin())
    assert origins.at(Origin("step", "train.py", 3, ("a.py", 1))) is not origins.at(origin())
