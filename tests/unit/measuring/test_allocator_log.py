"""What TensorFlow's allocator says of itself, as TensorFlow 2.21 wrote it."""

from memfit.measuring.allocator_log import DumpReader
from memfit.measuring.noise import LogFilter
from memfit.units import MIB

PREFIX = "I0000 00:00:1794808969.723648   27502 bfc_allocator.cc:1105] "
LINES = [
    "BFCAllocator dump for bfc_cpu_allocator_for_gpu",
    "Bin (256): \tTotal Chunks: 1, Chunks in use: 1. 256B allocated for chunks.",
    "Next region of size 33554432",
    "InUse at 7febb9fff040 of size 3145728 next 11",
    "InUse at 7febba2ff040 of size 3145728 next 12",
    "InUse at 7febd41fc040 of size 256 next 1",
    "Free  at 7febd41fc140 of size 2096896 next 18446744073709551615",
    "Sum Total of in-use chunks: 6.00MiB",
    "Total size in pool: 62.00MiB memory_limit_: 64.00MiB available size: 2.00MiB "
    "curr_region_allocation_bytes_: 64.00MiB",
]
STATISTICS = (
    b"I0000 00:00:1794808969.723715   27502 bfc_allocator.cc:1120] Stats: \n"
    b"Limit:                    64.00MiB\nInUse:                    60.00MiB\n"
    b"NumAllocs:                          37\nLargestFreeBlock:                   0B\n\n"
)


def test_chunks_are_counted() -> None:
    reader = DumpReader()
    reader.feed(PREFIX + LINES[3])  # Before a dump begins, a line is no part of one.
    for line in LINES:
        reader.feed(PREFIX + line)
    dump = reader.dump
    assert dump is not None
    assert dump.in_use_bytes == 2 * 3 * MIB + 256
    assert (dump.free_bytes, dump.largest_free_bytes) == (2_096_896 + 2 * MIB, 2 * MIB)
    assert dump.limit_bytes == 64 * MIB
    assert dump.largest_in_use(1) == [(3 * MIB, 2)]


def test_older_versions_write_bytes_and_zero_is_none() -> None:
    reader = DumpReader()
    reader.feed(PREFIX + LINES[0])
    reader.feed(PREFIX + "Total bytes in pool: 9 memory_limit_: 67108864 available bytes: 0 curr: 1")
    assert reader.dump is not None
    assert (reader.dump.limit_bytes, reader.dump.untaken_bytes) == (64 * MIB, 0)


def test_the_last_dump_counts() -> None:
    reader = DumpReader()
    for line in (*LINES, LINES[0], LINES[5]):
        reader.feed(PREFIX + line)
    assert reader.dump is not None
    assert reader.dump.in_use_bytes == 256


def test_the_figures_after_it_are_not_shown() -> None:
    log: list[str] = []
    stream = LogFilter(log.append)
    shown = stream.feed(STATISTICS + b"InUse: 7\nepoch 2\n") + stream.close()
    assert shown == b"InUse: 7\nepoch 2\n"
    assert len(log) == 6


def test_what_a_message_goes_on_with_is_not_shown_but_the_same_in_an_exception_is() -> None:
    hint = b"Hint: If you want to see a list of allocated tensors when OOM happens, add report\n\n"
    more = b"\t [[{{node lstm/MatMul}}]]\n" + hint
    log = b"I0000 00:00:1794808969.723715   27502 executor.cc:1] RESOURCE_EXHAUSTED: OOM\n"
    stream = LogFilter(lambda _: None)
    assert stream.feed(log + more + b"Error: OOM\n" + more) == b"Error: OOM\n" + more


def test_the_figures_may_come_in_pieces() -> None:
    stream = LogFilter(lambda _: None)
    text = b"a\n" + STATISTICS + b"Limit"
    assert b"".join(stream.feed(bytes([each])) for each in text) + stream.close() == b"a\nLimit"
