"""Arrays batched by length as a plan says, for `memfit.fit`."""

from __future__ import annotations

from typing import Any

import keras

from memfit.data.batching import most_size_for
from memfit.data.layout import BATCH_SIZE, NUM_BUCKETS
from memfit.data.masking_tf import padding_value_of
from memfit.data.pipeline_tf import batches_by_length
from memfit.data.weighing_tf import is_summed
from memfit.errors import UsageError
from memfit.records import Plan
from memfit.training import resuming_internals_tf as internals
from memfit.training.mapped_tf import MappedArrays


def take_buckets(
    model: Any, x: Any, y: Any, arguments: dict[str, Any], plan: Plan
) -> tuple[Any, Any, dict[str, Any]]:
    """`x`, `y` and the other arguments of `fit`, of which training data is a set of batches by length.

    Raises:
        UsageError: If the data is in batches already.
    """
    if plan.tokens is None:
        return x, y, arguments
    rest = dict(arguments)
    weights = rest.pop("sample_weight", None)
    if isinstance(x, MappedArrays):
        x, y, weights = x.x, x.y, x.sample_weight
    if not internals.is_array_like((x, y, weights)):
        raise UsageError(
            f"the plan makes batches by length, but x is a {type(x).__name__}. Pass arrays or ragged "
            "tensors, or make the batches where the data is made: memfit.batch_by_length(data, tokens=...)."
        )
    share = rest.pop("validation_split", None)
    if share and rest.get("validation_data") is None:
        (x, y, weights), rest["validation_data"] = internals.split_arrays((x, y, weights), share)
    class_weight = rest.pop("class_weight", None)
    if class_weight is not None:  # Keras takes no others beside the weights of batches.
        weights = internals.weights_of_classes(y, weights, class_weight)
    batch_size = rest.pop("batch_size", None)
    if batch_size is not None:
        rest.setdefault("validation_batch_size", batch_size)
    is_shuffled = rest.get("shuffle", True)
    rest["shuffle"] = False
    batches = batches_by_length(
        tuple(_as_tuples(part) for part in (x, y, weights) if part is not None),
        tokens=plan.tokens,
        batch_size=None,
        buckets=NUM_BUCKETS,
        longer="own_bucket",
        seed=0 if is_shuffled else None,
        is_weighed=not is_summed(model),
        padding_value=padding_value_of(model),
        labels_per_step=_has_steps(model),
        tell=lambda _: None,
        most_size=most_size_for(batch_size or BATCH_SIZE),
    )
    return batches, None, rest


def _as_tuples(part: Any) -> Any:
    """Keras takes a list for several inputs; here it would be one of sequences."""
    return tuple(part) if isinstance(part, list) else part


def _has_steps(model: Any) -> bool | None:
    """Whether labels have a value a step, by the outputs of the model; `None` where it does not say."""
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or ())
    if not outputs:
        return None
    return any(len(each.shape) > 1 and each.shape[1] is None for each in outputs)
