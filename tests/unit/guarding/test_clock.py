"""What counts as a step."""

from memfit.guarding.clock import PATIENCE, Clock


def test_keras_batches_count_and_the_functions_inside_do_not() -> None:
    clock = Clock()
    clock.tick("function", "train")  # The first one ends before Keras has told of a batch.
    steps = [clock.tick("train batch")]
    for _ in range(5):
        assert clock.tick("function", "train") is None
        steps.append(clock.tick("train batch"))
    assert steps == [1, 2, 3, 4, 5, 6]


def test_one_of_several_functions_is_the_step() -> None:
    clock = Clock()
    names = ["generator", "discriminator"] * 10
    assert [clock.tick("function", name) is not None for name in names] == [True, False] * 10


def test_a_short_validation_does_not_take_over_and_a_new_loop_does() -> None:
    clock = Clock()
    clock.tick("train batch")
    for _ in range(PATIENCE):
        assert clock.tick("batch") is None
    assert clock.tick("batch") == 1


def test_a_gap_that_was_seen_is_waited_for() -> None:
    clock = Clock()
    for _ in range(3):
        assert clock.tick("train batch") is not None
        for _ in range(PATIENCE - 10):
            assert clock.tick("batch") is None
    clock.tick("train batch")
    assert [clock.tick("batch") for _ in range(2 * PATIENCE)] == [None] * (2 * PATIENCE)


def test_what_was_a_step_before_is_counted_on() -> None:
    clock = Clock()
    for _ in range(5):
        clock.tick("function", 1)
    assert (clock.num_steps("function", 1), clock.most_steps()) == (5, 5)
    assert clock.tick("train batch") == 1
    assert clock.current == ("train batch", None)
    assert (clock.num_steps("train batch"), clock.num_steps("function", 1), clock.most_steps()) == (1, 5, 5)
    assert clock.num_steps("optimizer") == 0
    for _ in range(PATIENCE):
        assert clock.tick("function", 1) is None
    assert clock.tick("function", 1) == 6
    assert (clock.num_steps("train batch"), clock.num_ticks) == (1, 7 + PATIENCE)
