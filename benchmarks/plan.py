"""`memfit.plan` against trying everything: the chosen plan is to fit, and to be as fast as any that does.

    make bench TARGET=plan                       all cases (about 20 minutes on two cores)
    make bench TARGET="plan lstm-half cnn"       some cases

Each case is a model, a batch and a budget, in a fresh process. The plan is made; then all combinations of
time segments, depth limits and micro-batches are run at the whole batch, one after the other. Those whose
peak is within the budget and that seem faster than the plan are its rivals: they are run again in turn with
it, and the least of their times count. A rival is feasible if it trains without an incident in fresh
processes whose allocator is limited to the budget, in each of three: one and the same plan may go well once
and run into holes the next time. The best is the fastest feasible one, or the plan itself, which trains as
often under that limit. What is timed runs alone; the trainings under a limit, of which only the bytes count,
come last, as many at once as there are cores.

A model that fits as it is runs as it is, by rule, whatever else would be faster. Where that is the plan, its
ratio to the best is printed like the others, and it is counted on its own.

Try-and-halve is the recipe that people use: run, wait for the out-of-memory, halve the batch, start again.
Its time is arithmetic: each failed try costs the 10 s that TensorFlow waits, and a step. It also changes the
training, which no plan does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import memfit
from benchmarks.estimate_models import CASES as MODELS
from memfit.units import format_bytes

NUM_STEPS, NUM_DUELS, NUM_TRAININGS = 3, 4, 3
DUEL_SECONDS = 0.5  # In each turn of a duel so long, or three steps, or ten.
# Rivals that are looked at again, and how much slower they may seem at first.
MOST_RIVALS, MARGIN = 6, 1.05
WAIT_SECONDS = 10.0
TARGET = 1.10
THE_PLAN = "the plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is to be planned.

    Args:
        model: One of the models that estimates are judged by.
        batch_size: The batch.
        share: The budget, as a share of what the model takes as it is.
        allow: What may be done although it changes the mathematics.
    """

    model: str
    batch_size: int
    share: float
    allow: tuple[str, ...] = ()


CASES = {
    "lstm-roomy": Case(model="lstm-long", batch_size=64, share=1.3),
    "lstm-half": Case(model="lstm-long", batch_size=64, share=0.5),
    "lstm-fifth": Case(model="lstm-long", batch_size=64, share=0.2),
    "gru": Case(model="gru-2", batch_size=128, share=0.5),
    "bidirectional": Case(model="bidirectional-lstm", batch_size=128, share=0.5),
    "encoder-decoder": Case(model="encoder-decoder", batch_size=64, share=0.6),
    "language": Case(model="language-lstm", batch_size=64, share=0.65),
    "cnn": Case(model="cnn", batch_size=512, share=0.6),
    "signals": Case(model="signals", batch_size=512, share=0.5),
    "unet": Case(model="unet", batch_size=64, share=0.6),
    "resnet": Case(model="resnet", batch_size=64, share=0.7),
    "resnet-split": Case(model="resnet", batch_size=64, share=0.4, allow=("split_batch_norm",)),
    "transformer": Case(model="transformer", batch_size=128, share=0.5),
    "autoencoder": Case(model="autoencoder-dense", batch_size=1024, share=0.95),
}


def make(case: Case) -> tuple[Any, Any]:
    """The model and its batch."""
    import keras

    keras.utils.set_random_seed(0)
    model, make_batch = MODELS[case.model].make()
    return model, make_batch(case.batch_size)


def run_case(name: str) -> dict[str, Any]:
    """Plans, tries everything, and compares, in this (fresh) process."""
    from memfit.estimating.batches_tf import describe
    from memfit.estimating.probing_tf import find_subject
    from memfit.planning.bench_tf import bench

    case = CASES[name]
    model, data = make(case)
    batches = describe(model, data, batch_size=case.batch_size)
    with bench(find_subject(model), batches, data, budget_bytes=2**62) as tried:
        plain = tried.rehearse(memfit.Plan(), case.batch_size)
    assert plain is not None
    del tried  # And with it all that it has traced, which would count as what else is on the device.
    budget_bytes = int(case.share * plain.peak_bytes)
    start = time.perf_counter()
    try:
        plan = memfit.plan(model, data, budget=budget_bytes, batch_size=case.batch_size, allow=case.allow)
    except memfit.BudgetError as error:
        with bench(find_subject(model), batches, data, budget_bytes=budget_bytes) as tried:
            found = _try_all(tried, model, case)
        fitting = [each for each, result in found.items() if result.peak_bytes <= budget_bytes]
        fitting.sort(key=lambda each: found[each].peak_bytes)
        rivals = [[each.to_dict(), found[each].seconds] for each in fitting[:MOST_RIVALS]]
        return {"refusal": str(error), "budget_bytes": budget_bytes, "rivals": rivals}
    planning_seconds = time.perf_counter() - start
    chosen = memfit.Plan(
        micro_batch=plan.micro_batch, time_segment=plan.time_segment, depth_limit=plan.depth_limit
    )
    with bench(find_subject(model), batches, data, budget_bytes=budget_bytes) as tried:
        found = _try_all(tried, model, case, chosen)
        times = _duel(tried, case, found, chosen, budget_bytes)
    halvings, size = 0, case.batch_size
    while size > 1 and _whole(found, case, size) > budget_bytes:
        size, halvings = size // 2, halvings + 1
    return {
        "budget_bytes": budget_bytes,
        "plan": plan.to_dict(),
        "planning_seconds": planning_seconds,
        "plain_seconds": plain.seconds,
        "chosen_seconds": min(times.pop(chosen)),
        "rivals": [[each.to_dict(), min(seconds)] for each, seconds in times.items()],
        "num_tried": len(found),
        "num_halvings": halvings,
    }


def _try_all(tried: Any, model: Any, case: Case, *chosen: memfit.Plan) -> dict[memfit.Plan, Any]:
    """What each combination takes at the whole batch, but for those that the model does not allow."""
    found = {}
    for each in dict.fromkeys([*combinations(model, case), *chosen]):
        try:
            result = tried.rehearse(each, case.batch_size, most_seconds=0.0)
        except memfit.MemfitError:
            continue
        if result is not None:
            found[each] = result
    return found


def _duel(
    tried: Any, case: Case, found: dict[memfit.Plan, Any], chosen: memfit.Plan, budget_bytes: int
) -> dict[memfit.Plan, list[float]]:
    """The times of the chosen plan and of its rivals, each run again in turn."""
    fitting = [each for each, result in found.items() if result.peak_bytes <= budget_bytes and each != chosen]
    fitting.sort(key=lambda each: found[each].seconds)
    fast = [each for each in fitting if found[each].seconds < MARGIN * found[chosen].seconds]
    times: dict[memfit.Plan, list[float]] = {each: [] for each in (chosen, *fast[:MOST_RIVALS])}
    for _ in range(NUM_DUELS):
        for each, seconds in times.items():
            result = tried.rehearse(each, case.batch_size, most_seconds=DUEL_SECONDS)
            assert result is not None
            seconds.append(result.seconds)
    return times


def _whole(found: dict[memfit.Plan, Any], case: Case, size: int) -> int:
    """What the model takes as it is at a batch; that of a micro-batch is near enough."""
    micro_batch = None if size == case.batch_size else size
    result = found.get(memfit.Plan(micro_batch=micro_batch))
    return 0 if result is None else int(result.peak_bytes)


def combinations(model: Any, case: Case) -> list[memfit.Plan]:
    """All that there is to try."""
    import keras

    from memfit.splitting.checking_tf import why_not_train

    has_rnn = any(isinstance(layer, keras.layers.RNN) for layer in model._flatten_layers())
    ways = [memfit.Plan()]
    if has_rnn:
        ways += [memfit.Plan(time_segment=segment) for segment in (32, 64, 128)]
    else:
        ways += [memfit.Plan(depth_limit=limit) for limit in ("75%", "50%", "least")]
    sizes: list[int | None] = [None]
    if not why_not_train(model, case.allow):
        sizes += [case.batch_size // parts for parts in (2, 4, 8, 16)]
    return [replace(way, micro_batch=size) for way in ways for size in sizes]


def train_case(name: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Some steps by a plan, in this (fresh) process under a hard limit."""
    import warnings

    case = CASES[name]
    model, (x, y) = make(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", memfit.MemfitWarning)
        run = memfit.fit(
            model,
            x,
            y,
            plan=memfit.Plan.from_dict(plan),
            batch_size=case.batch_size,
            epochs=NUM_STEPS,
            verbose=0,
        )
    return {
        "incidents": [each.what for each in run.incidents],
        "peak_bytes": max(each or 0 for each in run.peak_bytes),
    }


def train_often(name: str, plan: dict[str, Any], budget_bytes: int) -> dict[str, Any]:
    """The first training under a limit that has an incident, or else the one with the highest peak."""
    trained: list[dict[str, Any]] = []
    for _ in range(NUM_TRAININGS):
        trained.append(fresh(train_case, name, plan, limit=budget_bytes))
        if _incidents(trained[-1]):
            return trained[-1]
    return max(trained, key=lambda each: int(each["peak_bytes"]))


def fresh(function: Callable[..., Any], *arguments: Any, limit: int | None = None) -> Any:
    """What a function returns in a fresh process."""
    measured = memfit.measure(function, *arguments, device_limit=limit, timeout_seconds=1800)
    if measured.outcome is not memfit.Outcome.OK:
        return {"error": f"{measured.outcome.value}: {measured.reason}", "budget_bytes": limit or 0}
    return measured.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a case went.

    Args:
        words: What there is to say of it, some lines.
        ratio: The time of the plan over that of the best.
        is_clean: Whether it trained under its budget without an incident.
        is_as_it_is: Whether the plan leaves the model as it is.
        is_refused: Whether there is no plan, and rightly: nothing else trains under the budget either.
    """

    words: str
    ratio: float = float("inf")
    is_clean: bool = False
    is_as_it_is: bool = False
    is_refused: bool = False


def judge(name: str, found: dict[str, Any]) -> Result:
    """Trains the plan of a case and its faster rivals under the limit."""
    budget = format_bytes(found["budget_bytes"])
    if "error" in found:
        return Result(words=f"{name}: {budget}: {found['error'][:160]}")
    if "refusal" in found:
        best, _, failed = find_best(name, found | {"chosen_seconds": float("inf")})
        is_right = best == THE_PLAN
        tried = f"{len(failed)} that peaked below it failed under it" if is_right else f"but {best} trains"
        words = f"{name}: {budget}: {found['refusal'][:160]}\n  refused; {tried}"
        return Result(words=words, is_refused=is_right)
    plan = memfit.Plan.from_dict(found["plan"])
    trained = train_often(name, found["plan"], found["budget_bytes"])
    best, best_seconds, failed = find_best(name, found)
    ratio = found["chosen_seconds"] / best_seconds
    halving_seconds = found["num_halvings"] * (WAIT_SECONDS + found["plain_seconds"])
    words = (
        f"{name}: {budget}: {plan.in_words()}, {found['chosen_seconds']:.3f} s\n"
        f"  {ratio:.2f}x of the best of {found['num_tried']}: {best}, {best_seconds:.3f} s"
        + (f" ({len(failed)} faster did not train within the budget: {'; '.join(failed)})" if failed else "")
        + f"\n  planned in {found['planning_seconds']:.1f} s (halving {halving_seconds:.1f} s), "
        + f"upper bound {format_bytes(plan.high_bytes or 0)}, {_told(trained)}"
    )
    is_as_it_is = plan.in_words() == memfit.Plan().in_words()
    return Result(words=words, ratio=ratio, is_clean=not _incidents(trained), is_as_it_is=is_as_it_is)


def find_best(name: str, found: dict[str, Any]) -> tuple[str, float, list[str]]:
    """The fastest that trains within the budget: in words, its seconds, and what was faster and did not."""
    failed: list[str] = []
    for values, seconds in sorted(found["rivals"], key=lambda rival: rival[1]):
        if seconds >= found["chosen_seconds"]:
            break
        rival = replace(memfit.Plan.from_dict(values), budget_bytes=found["budget_bytes"])
        _tell(f"{name}: trying {rival.in_words()} under the limit")
        if not _incidents(train_often(name, rival.to_dict(), found["budget_bytes"])):
            return rival.in_words(), seconds, failed
        failed.append(rival.in_words())
    return THE_PLAN, found["chosen_seconds"], failed


def _incidents(trained: dict[str, Any]) -> str:
    return str(trained.get("error") or "; ".join(trained["incidents"]))


def _told(trained: dict[str, Any]) -> str:
    peak = "" if "error" in trained else f"trained, peak {format_bytes(trained['peak_bytes'])} "
    return f"{peak}{_incidents(trained)[:200]}"


def main(names: Sequence[str] = ()) -> None:
    """Prints all cases, or those named."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise SystemExit(f"there is no case {unknown[0]!r}. Choose from: {', '.join(CASES)}.")
    start, found = time.perf_counter(), {}
    for place, name in enumerate(names or CASES, 1):
        _tell(f"[{place} of {len(names or CASES)}] {name}: planning, and trying all combinations")
        found[name] = fresh(run_case, name)
    results: dict[str, Result] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, result in zip(found, pool.map(judge, found, found.values()), strict=True):
            results[name] = result
            print(result.words, flush=True)
    _summarise(results)
    print(f"{(time.perf_counter() - start) / 60:.0f} minutes")


def _summarise(results: dict[str, Result]) -> None:
    planned = {name: each for name, each in results.items() if not each.is_refused}
    good = sum(each.ratio <= TARGET for each in planned.values())
    by_rule = [name for name, each in planned.items() if each.is_as_it_is and each.ratio > TARGET]
    clean = sum(each.is_clean for each in planned.values())
    print(f"\n{good} of {len(planned)} within {TARGET:.2f}x of the best feasible plan")
    if len(planned) < len(results):
        refused = ", ".join(name for name in results if name not in planned)
        print(f"refused, and nothing that was tried trains within the budget: {refused}")
    if by_rule:
        print(f"slower by rule, since the model fits as it is: {', '.join(by_rule)}")
    slow = [name for name, each in planned.items() if each.ratio > TARGET and name not in by_rule]
    print(f"target {TARGET:.2f}x: {'NOT MET by ' + ', '.join(slow) if slow else 'met'}")
    print(f"{clean} of {len(planned)} trained without an incident: {_met(clean == len(planned))}")


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"
