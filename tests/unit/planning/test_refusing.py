"""What is said when nothing fits."""

import pytest

from memfit.planning.refusing import refusal
from memfit.planning.search import Candidate, Law, Try, Variant
from memfit.units import MIB

TIGHTEST = Candidate(
    variant=Variant(
        name="",
        num_measures=0,
        law=Law((Try(num_examples=1, peak_bytes=100 * MIB, seconds=1.0),)),
    ),
    micro_batch=1,
    peak_bytes=100 * MIB,
    seconds=1.0,
)
PARTS = {"weights": 10 * MIB, "optimizer slots": 20 * MIB, "gradients": 10 * MIB}


@pytest.mark.parametrize(
    ("budget_mib", "why_not_split", "length", "helps"),
    [
        (80, "", 600, 'budget="107MiB"; or sequences of at most 347 steps.'),
        (30, "", 600, 'budget="107MiB"; or a smaller model, or an optimizer with fewer slots.'),
        (80, 'say allow="split_batch_norm".', None, 'budget="107MiB"; or allow="split_batch_norm".'),
    ],
)
def test_it_says_what_would_help(budget_mib: int, why_not_split: str, length: int | None, helps: str) -> None:
    error = refusal(
        words="micro-batches of 1",
        tightest=TIGHTEST,
        parts=PARTS,
        budget_bytes=budget_mib * MIB,
        why_not_split=why_not_split,
        length=length,
    )
    said = str(error)
    assert f"nothing fits {budget_mib}.0 MiB: the tightest plan, micro-batches of 1, needs about 107" in said
    assert "activations and the rest 60.0 MiB, optimizer slots 20.0 MiB" in said
    assert said.endswith(helps)
    assert error.exit_code == 3
