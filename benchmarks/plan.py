"""`memfit.plan` against trying everything: the chosen plan is to fit, and to be as fast as any that does.

    make bench TARGET=plan                       all cases (about 15 minutes on two cores)
    make bench TARGET="plan lstm-half cnn"       some cases

Each case is a model, a batch and a budget, in a fresh process. The plan is made; then all combinations of
time segments, depth limits and micro-batches are run at the whole batch, one after the other, and the fastest
that stays within the budget is the best. Chosen and best are then run again, in turn, and the least of their
times are compared. Last, the chosen plan trains some steps in another fresh process, whose allocator is
limited to the budget.

Try-and-halve is the recipe that people use: run, wait for the out-of-memory, halve the batch, start again.
Its time is arithmetic: each failed try costs the 10 s that TensorFlow waits, and a step. It also changes the
training, which no plan does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import memfit
from benchmarks.estimate_models import CASES as MODELS
from memfit.units import format_bytes

NUM_STEPS, NUM_DUELS = 3, 3
WAIT_SECONDS = 10.0
TARGET = 1.10


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
    "language": Case(model="language-lstm", batch_size=64, share=0.6),
    "cnn": Case(model="cnn", batch_size=512, share=0.6),
    "resnet": Case(model="resnet", batch_size=64, share=0.7),
    "resnet-split": Case(model="resnet", batch_size=64, share=0.4, allow=("split_batch_norm",)),
    "transformer": Case(model="transformer", batch_size=128, share=0.5),
    "autoencoder": Case(model="autoencoder-dense", batch_size=1024, share=0.8),
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
        return {"error": str(error), "budget_bytes": budget_bytes}
    planning_seconds = time.perf_counter() - start
    chosen = memfit.Plan(
        micro_batch=plan.micro_batch, time_segment=plan.time_segment, depth_limit=plan.depth_limit
    )
    with bench(find_subject(model), batches, data, budget_bytes=budget_bytes) as tried:
        found: dict[memfit.Plan, Any] = {}
        for each in combinations(model, case, chosen):
            try:
                result = tried.rehearse(each, case.batch_size)
            except memfit.MemfitError:
                continue
            if result is not None:
                found[each] = result
        fitting = {each: result for each, result in found.items() if result.peak_bytes <= budget_bytes}
        best = min(fitting or found, key=lambda each: found[each].seconds)
        times: dict[memfit.Plan, list[float]] = {chosen: [], best: []}
        for _ in range(NUM_DUELS):
            for each in times:
                result = tried.rehearse(each, case.batch_size)
                assert result is not None
                times[each].append(result.seconds)
    halvings, size = 0, case.batch_size
    while size > 1 and _whole(found, case, size) > budget_bytes:
        size, halvings = size // 2, halvings + 1
    return {
        "budget_bytes": budget_bytes,
        "plan": plan.to_dict(),
        "planning_seconds": planning_seconds,
        "plain_seconds": plain.seconds,
        "chosen_seconds": min(times[chosen]),
        "chosen_bytes": found[chosen].peak_bytes,
        "best": best.in_words(),
        "best_seconds": min(times[best]),
        "num_tried": len(found),
        "num_halvings": halvings,
    }


def _whole(found: dict[memfit.Plan, Any], case: Case, size: int) -> int:
    """What the model takes as it is at a batch; that of a micro-batch is near enough."""
    micro_batch = None if size == case.batch_size else size
    result = found.get(memfit.Plan(micro_batch=micro_batch))
    return 0 if result is None else int(result.peak_bytes)


def combinations(model: Any, case: Case, chosen: memfit.Plan) -> list[memfit.Plan]:
    """All that there is to try, and what was chosen."""
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
    return list(dict.fromkeys([*(replace(way, micro_batch=size) for way in ways for size in sizes), chosen]))


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


def fresh(function: Callable[..., Any], *arguments: Any, limit: int | None = None) -> Any:
    """What a function returns in a fresh process."""
    measured = memfit.measure(function, *arguments, device_limit=limit, timeout_seconds=1800)
    if measured.outcome is not memfit.Outcome.OK:
        return {"error": f"{measured.outcome.value}: {measured.reason}", "budget_bytes": limit or 0}
    return measured.value


def show(name: str) -> tuple[float, bool]:
    """Prints one case, and returns its ratio and whether it stayed within its budget."""
    found = fresh(run_case, name)
    budget = format_bytes(found["budget_bytes"])
    if "error" in found:
        print(f"{name:16} {budget:>9}  {found['error'][:120]}", flush=True)
        return float("inf"), False
    trained = fresh(train_case, name, found["plan"], limit=found["budget_bytes"])
    plan = memfit.Plan.from_dict(found["plan"])
    ratio = found["chosen_seconds"] / found["best_seconds"]
    halving_seconds = found["num_halvings"] * (WAIT_SECONDS + found["plain_seconds"])
    incidents = trained.get("error") or "; ".join(trained["incidents"])
    peak = "" if "error" in trained else f"peak {format_bytes(trained['peak_bytes'])}"
    print(
        f"{name:16} {budget:>9}  {plan.in_words():44} {found['chosen_seconds']:6.3f} s, best of "
        f"{found['num_tried']}: {found['best']:44} {found['best_seconds']:6.3f} s, {ratio:5.2f}x  planned in "
        f"{found['planning_seconds']:4.1f} s (halving {halving_seconds:4.1f} s), {peak} {incidents}",
        flush=True,
    )
    return ratio, not incidents


def main(names: Sequence[str] = ()) -> None:
    """Prints all cases, or those named."""
    results = {name: show(name) for name in (names or CASES)}
    good = sum(ratio <= TARGET for ratio, _ in results.values())
    clean = sum(is_clean for _, is_clean in results.values())
    print(f"{good} of {len(results)} within {TARGET:.2f}x of the best; {clean} trained without an incident")
