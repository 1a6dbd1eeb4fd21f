"""Laws that hold for all values."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from memfit.data.buckets import best_boundaries, num_padded_steps
from memfit.data.layout import lay_out
from memfit.data.padding import num_random_steps
from memfit.estimating.chunks import Chunks, rounded
from memfit.measuring.noise import LogFilter
from memfit.records import (
    Autopsy,
    Budget,
    DeviceReading,
    Estimate,
    EstimatedPart,
    Growth,
    Held,
    HostReading,
    Incident,
    Leak,
    LengthBin,
    LengthCut,
    Lengths,
    Measurement,
    Meter,
    Moment,
    Neighbour,
    Outcome,
    Padding,
    Plan,
    PlanChange,
    Reading,
    Record,
    Request,
    Run,
    Session,
    Source,
    Watched,
    WayOut,
)
from memfit.units import format_bytes, parse_bytes

sizes = st.integers(min_value=1, max_value=2**59)
counts = st.integers(min_value=0, max_value=2**62)
texts = st.text(max_size=30)


@given(sizes)
def test_a_printed_size_reads_back_within_its_last_digit(num_bytes: int) -> None:
    assert abs(parse_bytes(format_bytes(num_bytes)) - num_bytes) <= 0.005 * num_bytes + 1


@given(sizes)
def test_plain_bytes_are_exact(num_bytes: int) -> None:
    assert parse_bytes(str(num_bytes)) == parse_bytes(num_bytes) == num_bytes


@given(sizes, sizes)
def test_more_bytes_never_print_as_less(first: int, second: int) -> None:
    low, high = sorted((first, second))
    assert parse_bytes(format_bytes(low)) <= parse_bytes(format_bytes(high))


@given(st.integers(min_value=1, max_value=100), sizes)
def test_a_share_is_never_more_than_all(percent: int, available_bytes: int) -> None:
    if available_bytes >= 100:
        assert parse_bytes(f"{percent}%", available_bytes=available_bytes) <= available_bytes


readings = st.builds(
    Reading,
    at_seconds=st.floats(allow_nan=False, allow_infinity=False),
    devices=st.lists(
        st.builds(
            DeviceReading,
            device=texts,
            current_bytes=counts,
            peak_bytes=counts,
            meter=st.sampled_from(Meter),
        ),
        max_size=3,
    ).map(tuple),
    host_bytes=counts,
    host_peak_bytes=counts,
    children_bytes=counts,
    container_bytes=st.none() | counts,
)
budgets = st.builds(Budget, device_bytes=counts, device_source=texts, host_bytes=counts, host_source=texts)
requests = st.builds(
    Request,
    num_bytes=st.none() | counts,
    op=st.none() | texts,
    shape=st.none() | st.lists(counts).map(tuple),
    device=st.none() | texts,
)


plans = st.recursive(
    st.builds(Plan, micro_batch=st.none() | counts, allow=st.lists(texts).map(tuple)),
    lambda inner: st.builds(
        Plan, time_segment=st.none() | counts, fallbacks=st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=4,
)
incidents = st.builds(
    Incident,
    step=counts,
    epoch=counts,
    where=texts,
    what=texts,
    action=texts,
    request=st.none() | requests,
    peak_bytes=st.none() | counts,
)
runs = st.builds(
    Run,
    plan=plans,
    outcome=st.sampled_from(Outcome),
    num_steps=counts,
    num_samples=counts,
    seconds=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    peak_bytes=st.lists(st.none() | counts).map(tuple),
    incidents=st.lists(incidents, max_size=2).map(tuple),
    plan_changes=st.lists(st.builds(PlanChange, step=counts, plan=plans), max_size=2).map(tuple),
    history=st.none() | st.dictionaries(texts, st.lists(st.floats(allow_nan=False))),
)


bins = st.builds(LengthBin, shortest=counts, longest=counts, num_sequences=counts)
cuts = st.builds(
    LengthCut, percent=counts, length=counts, num_longer=counts, num_lost_steps=counts, saved_bytes=counts
)
paddings = st.builds(Padding, how=texts, num_steps=counts)
lengths_records = st.builds(
    Lengths,
    source=texts,
    is_sample=st.booleans(),
    num_sequences=counts,
    num_empty=counts,
    num_steps=counts,
    shortest=counts,
    longest=counts,
    step_bytes=counts,
    bins=st.lists(bins, max_size=2).map(tuple),
    cuts=st.lists(cuts, max_size=2).map(tuple),
    boundaries=st.lists(counts).map(tuple),
    paddings=st.lists(paddings, max_size=2).map(tuple),
    notes=st.lists(texts).map(tuple),
)


numbers = st.floats(allow_nan=False, allow_infinity=False)
growths = st.builds(
    Growth,
    series=texts,
    slope=numbers,
    low=numbers,
    high=numbers,
    confidence=numbers,
    is_growing=st.booleans(),
    num_readings=counts,
    last=counts,
    room=st.none() | counts,
)
leaks = st.builds(
    Leak,
    kind=texts,
    name=texts,
    file=st.none() | texts,
    line=st.none() | counts,
    num=counts,
    num_bytes=st.none() | counts,
    growth=st.none() | numbers,
    growth_per_epoch=st.none() | numbers,
    sentence=texts,
    fix=texts,
)
watched = st.builds(
    Watched,
    num_steps=counts,
    num_epochs=counts,
    num_readings=counts,
    unit=texts,
    seconds=numbers,
    growths=st.lists(growths, max_size=2).map(tuple),
    leaks=st.lists(leaks, max_size=2).map(tuple),
    notes=st.lists(texts, max_size=2).map(tuple),
)


@given(readings | budgets | requests | runs | lengths_records | watched)
def test_every_record_survives_json(record: Record) -> None:
    assert Record.from_json(record.to_json()) == record


line_parts = st.sampled_from(
    [
        b"I0000 00:00:1794774303.776503    2617 port.cc:153] noise",
        b"Current allocation summary follows.",
        b"I0000 00:00:1794774303.776503    2617 bfc_allocator.cc:1120] Stats: ",
        b"InUse:                    60.00MiB",
        b"NumAllocs:                          37",
        b"\t [[{{node lstm}}]]",
        b"I",
        b"W0000",
        b"2026",
        b"loss 0.5",
        b"",
        b"\r 12%",
    ]
)


@given(st.lists(line_parts), st.lists(st.integers(min_value=0, max_value=400)))
def test_a_filtered_stream_does_not_depend_on_how_it_is_cut(lines: list[bytes], cuts: list[int]) -> None:
    data = b"\n".join(lines)
    whole = LogFilter(lambda _: None)
    expected = whole.feed(data) + whole.close()
    pieces = LogFilter(lambda _: None)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    shown = b"".join(pieces.feed(data[a:b]) for a, b in pairwise(bounds))
    assert shown + pieces.close() == expected


helds = st.builds(Held, name=texts, num_bytes=counts, num=st.none() | counts)
host_readings = st.builds(
    HostReading, at_seconds=st.floats(min_value=0, allow_nan=False, allow_infinity=False), host_bytes=counts
)
ways_out = st.builds(
    WayOut,
    what=texts,
    command=texts,
    predicted_bytes=st.none() | counts,
    source=st.none() | st.sampled_from(Source),
)
autopsies = st.builds(
    Autopsy,
    outcome=st.sampled_from(Outcome),
    is_survived=st.booleans(),
    what=texts,
    request=st.none() | requests,
    place=st.none() | texts,
    cause=texts,
    evidence=st.lists(texts, max_size=2).map(tuple),
    in_use_bytes=st.none() | counts,
    held=st.lists(helds, max_size=2).map(tuple),
    layers=st.lists(helds, max_size=2).map(tuple),
    chunks=st.lists(helds, max_size=2).map(tuple),
    epoch_peak_bytes=st.lists(st.none() | counts, max_size=3).map(tuple),
    host_readings=st.lists(host_readings, max_size=2).map(tuple),
    neighbours=st.lists(st.builds(Neighbour, name=texts, pid=counts, num_bytes=counts), max_size=2).map(
        tuple
    ),
    ways_out=st.lists(ways_out, max_size=2).map(tuple),
)
moments = st.builds(
    Moment,
    at_seconds=st.floats(allow_nan=False, allow_infinity=False),
    phase=texts,
    model=counts,
    epoch=counts,
    step=counts,
    device_bytes=st.none() | counts,
    peak_bytes=st.none() | counts,
    host_bytes=counts,
    num_tensors=st.none() | counts,
)
sessions = st.builds(
    Session,
    measurement=st.builds(
        Measurement,
        target=texts,
        outcome=st.sampled_from(Outcome),
        reason=texts,
        seconds=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
        exit_code=st.integers(-64, 255),
    ),
    runs=st.lists(runs, max_size=1).map(tuple),
    autopsy=st.none() | autopsies,
    host_readings=st.lists(host_readings, max_size=2).map(tuple),
    restarts=st.lists(texts, max_size=2).map(tuple),
    notes=st.lists(texts, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(moments | sessions)
def test_a_session_survives_json(record: Record) -> None:
    assert Record.from_json(record.to_json()) == record


parts = st.builds(EstimatedPart, name=texts, num_bytes=counts, source=st.sampled_from(Source))
estimates = st.builds(
    Estimate,
    batch_size=counts,
    length=st.none() | counts,
    device=texts,
    peak_bytes=counts,
    low_bytes=counts,
    high_bytes=counts,
    parts=st.lists(parts, max_size=3).map(tuple),
    layers=st.lists(parts, max_size=3).map(tuple),
    num_parameters=counts,
    probes=st.lists(texts, max_size=2).map(tuple),
)


@settings(max_examples=25)
@given(estimates)
def test_an_estimate_survives_json(estimate: Estimate) -> None:
    assert Record.from_json(estimate.to_json()) == estimate


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 30)), max_size=60))
def test_an_allocator_counts_no_less_than_is_held_and_gets_all_back(requests: list[tuple[int, int]]) -> None:
    chunks = Chunks(2**28)
    held: dict[int, tuple[int | None, int]] = {}
    for size, slot in requests:
        if (start := held.pop(slot, (None, 0))[0]) is not None:
            chunks.give_back(start)
        held[slot] = (chunks.take(size), size)
        needed = sum(rounded(size) for _, size in held.values())
        assert needed <= chunks.held_bytes <= 2 * needed
    for start, _ in held.values():
        if start is not None:
            chunks.give_back(start)
    assert chunks.held_bytes == 0
    assert chunks.take(2**28) == 0


length_counts = st.dictionaries(st.integers(0, 60), st.integers(1, 30), min_size=1, max_size=9)


@given(length_counts, st.integers(1, 7))
def test_the_boundaries_are_the_best_of_all(counts: dict[int, int], num_buckets: int) -> None:
    found = best_boundaries(counts, num_buckets)
    *inner, last = sorted({max(1, length) for length in counts})
    every = (some for num in range(num_buckets) for some in combinations(inner, num))
    assert num_padded_steps(counts, found) == min(num_padded_steps(counts, (*some, last)) for some in every)
    assert len(found) <= num_buckets
    assert list(found) == sorted(set(found))


@given(length_counts, st.integers(1, 7), st.integers(1, 500))
def test_every_sequence_falls_in_one_batch_that_is_long_enough(
    counts: dict[int, int], num_buckets: int, tokens: int
) -> None:
    layout = lay_out(counts, buckets=num_buckets, tokens=tokens, batch_size=None, longer="error")
    in_order = sorted(length for length, num in counts.items() for _ in range(num))
    position = 0
    for slot in layout.slots:
        assert slot.start == position
        assert slot.size * slot.length <= tokens or slot.size == 1
        assert max(in_order[position : position + slot.size]) <= slot.length
        position += slot.size
    assert position == len(in_order)


@given(length_counts, st.integers(1, 40))
def test_random_batches_are_never_shorter_than_their_sequences(counts: dict[int, int], size: int) -> None:
    num, steps = sum(counts.values()), sum(length * num for length, num in counts.items())
    assert steps <= num_random_steps(counts, size) <= num * max(counts)
