"""Of what the fullest moment of a step is made.

Variables and inputs are arithmetic. Of the buffers that are held in that moment, those that grow with the
batch are activations, and belong to the layer in the name of their op; those that do not and were made in the
backward pass are gradients; the rest are temporaries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from memfit.estimating.prediction import Growth, Prediction, total
from memfit.records import EstimatedPart, Source

ACTIVATIONS = "activations"


def step_parts(
    growth: Growth, prediction: Prediction, batch_size: int, length: int | None
) -> tuple[EstimatedPart, ...]:
    """The parts of a training step's peak, which add up to it."""
    inputs = [size.at(batch_size, length) for size in growth.inputs]
    resting = {
        "weights": total(growth.weights),
        "optimizer slots": total(growth.slots),
        "metrics": total(growth.metrics),
        "inputs": total(inputs),
    }
    left = max(0, prediction.peak_bytes - sum(resting.values()))
    held = Counter({ACTIVATIONS: 0, "gradients": 0, "temporaries": 0})
    for buffer, size in prediction.peak.held:
        held[_kind(buffer.op, size, buffer.num_bytes)] += size
    return tuple(
        [_part(name, size, Source.DERIVED) for name, size in resting.items()]
        + [_part(name, size, Source.MEASURED) for name, size in _filled(held, left).items()]
    )


def layer_parts(
    prediction: Prediction, layers: Collection[str], parts: Iterable[EstimatedPart]
) -> tuple[EstimatedPart, ...]:
    """The activations by layer, largest first, which add up to that part."""
    whole = sum(part.num_bytes for part in parts if part.name == ACTIVATIONS)
    scopes = scopes_of((buffer.op for buffer, _ in prediction.peak.held), layers)
    held: Counter[str] = Counter()
    for buffer, size in prediction.peak.held:
        if _kind(buffer.op, size, buffer.num_bytes) == ACTIVATIONS:
            held[layer_of(buffer.op, scopes)] += size
    shares = _scaled(held, whole) if held else {}
    ranked = sorted(shares.items(), key=lambda each: (-each[1], each[0]))
    return tuple(_part(name, size, Source.MEASURED) for name, size in ranked if size)


def scopes_of(ops: Iterable[str], layers: Iterable[str]) -> dict[str, str]:
    """Which layer each word in the names of ops stands for.

    TensorFlow adds numbers to names that it has seen, and so does Keras, so `lstm_1` may be the first or the
    second LSTM. A layer's own name counts unless a shorter one has taken it.

    Example:
    >>> scopes_of(["model_1/lstm_1/MatMul", "model_1/lstm_1_2/MatMul"], ["lstm", "lstm_1"])
    {'lstm_1': 'lstm', 'lstm_1_2': 'lstm_1'}
    """
    words = {word for op in ops for word in op.split("/")}
    found: dict[str, str] = {}
    for layer in sorted(layers, key=lambda name: (len(name), name)):
        pattern = re.compile(rf"{re.escape(layer)}(_\d+)?")
        own = sorted((word for word in words if pattern.fullmatch(word)), key=lambda word: (len(word), word))
        word = next((word for word in own if word not in found), None)
        if word is not None:
            found[word] = layer
    return found


def layer_of(op: str, scopes: Mapping[str, str]) -> str:
    """The innermost layer in the name of an op.

    Example:
    >>> layer_of("gradient_tape/model_1/lstm_1/while/MatMul", {"lstm_1": "lstm"})
    'lstm'
    """
    return next((scopes[word] for word in reversed(op.split("/")) if word in scopes), "other")


def _kind(op: str, size: int, recorded: int) -> str:
    if size > recorded:
        return ACTIVATIONS
    return "gradients" if "gradient_tape" in op or "gradients" in op else "temporaries"


def _filled(held: Counter[str], whole: int) -> dict[str, int]:
    """Parts of a whole: activations take what the others leave, and the allocator's slack with it."""
    others = {name: size for name, size in held.items() if name != ACTIVATIONS}
    if sum(others.values()) > whole:
        return _scaled(held, whole)
    return {ACTIVATIONS: whole - sum(others.values())} | others


def _scaled(held: Counter[str], whole: int) -> dict[str, int]:
    """Shares of a whole in proportion; the allocator's slack goes with the buffers."""
    known = sum(held.values())
    if not known:
        return dict.fromkeys(held, 0) | ({next(iter(held)): whole} if held else {})
    shares = {name: size * whole // known for name, size in held.items()}
    largest = max(shares, key=lambda name: shares[name])
    shares[largest] += whole - sum(shares.values())
    return shares


def _part(name: str, num_bytes: int, source: Source) -> EstimatedPart:
    return EstimatedPart(name=name, num_bytes=num_bytes, source=source)
