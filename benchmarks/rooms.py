"""What the upper bounds of estimates stand on: whether real steps fail where replayed ones find no place.

    make bench TARGET=rooms                     everything (about half an hour on two cores)
    make bench TARGET="rooms unet CNN"          some models or families
    make bench TARGET="rooms 4"                 4 models of all, evenly spread

Recorded steps are replayed under limits, on paper. Then real steps of Keras's `model.fit` run in fresh
processes under limits around the room in which most walks find a place for every buffer. Steps that
ask for most of their bytes in loops over time are left out: their upper bound does not look at rooms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks.estimate import Progress, choose, fresh, keeps_cap
from benchmarks.estimate_models import CASES
from memfit.units import format_bytes

FACTORS = (0.90, 0.97, 1.01)


def find_rooms(name: str, batches: Sequence[int]) -> list[list[int] | None]:
    """The estimated peak of a model and its room at some batches; `None` for a step that loops over time."""
    import keras

    from memfit.estimating.batches_tf import describe
    from memfit.estimating.prediction import WALKED_SHARE, is_looping
    from memfit.estimating.probing_tf import find_subject, measure_growth
    from memfit.estimating.rooms import random_walks, room_for

    keras.utils.set_random_seed(0)
    model, make = CASES[name].make()
    described = describe(model, make(64), batch_size=batches[0])
    growth = measure_growth(find_subject(model), described)
    recordings = growth.spans[-1].recordings
    found: list[list[int] | None] = []
    for batch in batches:
        resting = growth.resting(batch, described.length)
        walks = random_walks(recordings, batch, resting, growth.updated)
        peak = int(median(peak for walk in walks for peak in walk.peaks()))
        is_left_out = is_looping(recordings[0], batch)
        found.append(None if is_left_out else [peak, room_for(walks, peak // 2, share=WALKED_SHARE)])
    return found


def main(words: Sequence[str] = ()) -> None:
    """Prints how many real runs failed, by limit over room."""
    names, start = choose(words), time.perf_counter()
    rooms: dict[tuple[str, int], list[int]] = {}
    progress = Progress(len(names))
    for name in names:
        found = fresh(find_rooms, name, CASES[name].batches)
        rooms |= {(name, batch): each for batch, each in zip(CASES[name].batches, found, strict=True) if each}
        progress.tell(f"{name}: replayed")
    kept = _try_all(rooms)
    for (name, batch), (peak, room) in rooms.items():
        marks = " ".join("ok" if kept[name, batch, factor] else "--" for factor in FACTORS)
        print(f"{name:26} {batch:5}  room {room / peak:4.2f}x of the estimated peak  {marks}")
    print("\nlimit over the room of most walks, and runs that failed")
    for factor in FACTORS:
        num_failed = sum(not kept[*case, factor] for case in rooms)
        print(f"  {factor:4.2f}  {num_failed:3} of {len(rooms)}")
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes")


def _try_all(rooms: Mapping[tuple[str, int], Sequence[int]]) -> dict[tuple[str, int, float], bool]:
    """Whether real steps go well under limits around their rooms, some at once."""
    tasks = [(*case, factor) for factor in FACTORS for case in rooms]
    progress = Progress(len(tasks))

    def run(task: tuple[str, int, float]) -> bool:
        name, batch, factor = task
        limit = int(factor * rooms[name, batch][1])
        is_kept = keeps_cap(name, batch, limit)
        progress.tell(f"{name} {batch}: {'went well' if is_kept else 'FAILED'} under {format_bytes(limit)}")
        return is_kept

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        return dict(zip(tasks, pool.map(run, tasks), strict=True))
    finally:
        pool.shutdown(cancel_futures=True)
