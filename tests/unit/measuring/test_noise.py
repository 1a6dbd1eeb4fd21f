import pytest

from memfit.measuring.noise import LogFilter

NOISE = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    b"I0000 00:00:1794774303.776503    2617 port.cc:153] oneDNN custom operations are on.\n"
    b"2026-11-15 20:18:59.123456: W tensorflow/core/framework/op_kernel.cc:1858] OP_REQUIRES failed\n"
    b"I0000 00:00:1794774303.812149    2617 cpu_feature_guard.cc:227] This TensorFlow binary is optimized\n"
    b"To enable the following instructions: AVX2, in other operations, rebuild TensorFlow\n"
    b"W0000 00:00:1794774316.122076    2617 bfc_allocator.cc:502] Allocator (x) ran out of memory\n"
    b"If the cause is memory fragmentation maybe the environment variable\n"
    b"Current allocation summary follows.\n"
)
PLAIN = (
    b"Epoch 1/10\n"
    b"I am a line\n"
    b"W: a warning of the user's\n"
    b"2026-11-15 20:18:59,123 INFO trainer: a user's log\n"
    b"Traceback (most recent call last):\n"
    b"F0000 00:00:1794774316.122076    2617 tensor.cc:5] Check failed\n"
    b"no newline at the end"
)


def filtered(data: bytes, *, size: int) -> tuple[bytes, list[str]]:
    log: list[str] = []
    stream = LogFilter(log.append)
    shown = b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size))
    return shown + stream.close(), log


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_the_log_is_taken_out_however_the_stream_is_cut(size: int) -> None:
    shown, log = filtered(NOISE + PLAIN, size=size)
    assert shown == PLAIN
    assert log == NOISE.decode().splitlines()


def test_what_a_program_writes_is_shown_at_once() -> None:
    stream = LogFilter(lambda _: None)
    assert stream.feed(b"Password: ") == b"Password: "
    assert stream.feed(b"\r 12% done") == b"\r 12% done"
    assert stream.feed(b"\nIt") == b"\nIt"


def test_a_log_line_in_the_middle_of_a_users_line_is_left_alone() -> None:
    line = b"I0000 00:00:1794774303.776503    2617 port.cc:153] oneDNN\n"
    stream = LogFilter(lambda _: None)
    assert stream.feed(b"loss 0.5 ") == b"loss 0.5 "
    assert stream.feed(line) == line


def test_a_held_beginning_is_given_back_at_the_end() -> None:
    stream = LogFilter(lambda _: None)
    assert stream.feed(b"I0000 00:00") == b""
    assert stream.close() == b"I0000 00:00"
