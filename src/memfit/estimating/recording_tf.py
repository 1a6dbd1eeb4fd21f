"""Records what a step takes from the device's allocator, buffer by buffer, with TensorFlow's own profiler.

Only the CPU's best-fit allocator and those of GPUs tell of every buffer.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from memfit.errors import SetupError
from memfit.estimating.internals_tf import read_profile
from memfit.estimating.timeline import Event, Timeline, timeline_of
from memfit.measuring.noise import quiet

BIRTH: Final = "MemoryAllocation"
DEATH: Final = "MemoryDeallocation"
# The profiler calls an op by its name and its kind: `sequential/dense/MatMul:MatMul`.
OP: Final = re.compile(r"[^:\s]+:\w+")
FIELDS: Final = ("allocator_name", "addr", "requested_bytes", "tf_op")
# Level 2 is the lowest that tells of allocations.
OPTIONS: Final = tf.profiler.experimental.ProfilerOptions(
    host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
)


def record_step(step: Callable[[], Any], *, is_gpu: bool = False) -> Timeline:
    """What a call takes from the allocator of the CPU, or of the GPUs.

    Raises:
        SetupError: If TensorFlow's profiler is in use, or tells nothing.
    """
    with tempfile.TemporaryDirectory() as folder, quiet():
        try:
            tf.profiler.experimental.start(folder, OPTIONS)
        except tf.errors.AlreadyExistsError:
            raise SetupError(
                "TensorFlow's profiler is in use, and memfit needs it to see what a step holds. Stop it "
                "first: tf.profiler.experimental.stop()"
            ) from None
        try:
            result = step()
            tf.nest.map_structure(lambda leaf: leaf.numpy(), result)
        finally:
            tf.profiler.experimental.stop()
        events = [
            event for path in Path(folder).rglob("*.xplane.pb") for event in _events(path, is_gpu=is_gpu)
        ]
    return timeline_of(events)


def _events(path: Path, *, is_gpu: bool) -> Iterator[Event]:
    space = read_profile(path.read_bytes())
    for plane in space.planes:
        kinds = {BIRTH: True, DEATH: False}
        wanted = {
            key: kinds[value.name] for key, value in plane.event_metadata.items() if value.name in kinds
        }
        if not wanted:
            continue
        fields = {value.name: key for key, value in plane.stat_metadata.items()}
        texts = {key: value.name for key, value in plane.stat_metadata.items()}
        allocator, address, requested, op = map(fields.get, FIELDS)
        ops = {key for key, value in plane.event_metadata.items() if OP.fullmatch(value.name)}
        for thread, line in enumerate(plane.lines):
            start, since = line.timestamp_ns * 1000, None
            for event in sorted(line.events, key=attrgetter("offset_ps")):
                if event.metadata_id in ops:
                    since = start + event.offset_ps
                is_birth = wanted.get(event.metadata_id)
                if is_birth is None:
                    continue
                stats = {stat.metadata_id: stat for stat in event.stats}
                if _text(stats.get(allocator), texts).startswith("GPU") != is_gpu:
                    continue
                yield Event(
                    at=start + event.offset_ps,
                    is_birth=is_birth,
                    address=_number(stats.get(address)),
                    num_bytes=_number(stats.get(requested)),
                    op=_text(stats.get(op), texts) if is_birth else "",
                    thread=thread,
                    since=since,
                )


def _number(stat: Any) -> int:
    return 0 if stat is None else int(stat.int64_value or stat.uint64_value)


def _text(stat: Any, texts: dict[int, str]) -> str:
    if stat is None:
        return ""
    return str(texts.get(stat.ref_value, "") if stat.ref_value else stat.str_value)
