"""The sentences: what leaks, in plain words, and what to change. Pure."""

from __future__ import annotations

from memfit.records import Growth, Leak
from memfit.units import format_bytes, format_place

Place = tuple[str, int] | None


def rate(number: float | None, per_epoch: float | None, unit: str) -> str:
    """`", +400 an epoch"`, or per step where no epochs were seen."""
    if per_epoch is not None and per_epoch >= 1:
        return f", {per_epoch:+,.0f} an epoch"
    if number is None or number <= 0:
        return ""
    return f", {number:+,.2g} a {unit}" if number < 10 else f", {number:+,.0f} a {unit}"


def at(place: Place) -> str:
    """`" in train.py:42"`."""
    return "" if place is None else f" in {format_place(*place)}"


def _leak(kind: str, name: str, place: Place, num: int, sentence: str, fix: str, **fields: object) -> Leak:
    file, line = (None, None) if place is None else place
    values: dict[str, object] = {"num_bytes": None, "growth": None, "growth_per_epoch": None} | fields
    return Leak(kind=kind, name=name, file=file, line=line, num=num, sentence=sentence, fix=fix, **values)  # type: ignore[arg-type]


def kept(
    name: str,
    place: Place,
    what: str,
    num: int,
    num_bytes: int,
    *,
    growth: float,
    per_epoch: float | None,
    unit: str,
) -> Leak:
    """Tensors or arrays in a container."""
    sentence = (
        f"`{name}`{at(place)} holds {num:,} {what}, {format_bytes(num_bytes)}{rate(growth, per_epoch, unit)}."
    )
    fix = (
        "Keep numbers instead: float(loss), or .numpy() of what is small; or keep only the last few."
        if what == "tensors"
        else "Read them again when they are needed, keep only the last few, or write them to a file."
    )
    return _leak(
        "kept",
        name,
        place,
        num,
        sentence,
        fix,
        num_bytes=num_bytes,
        growth=growth,
        growth_per_epoch=per_epoch,
    )


def shown(num: int, num_bytes: int, *, growth: float, unit: str) -> Leak:
    """Results of cells, which IPython keeps."""
    sentence = (
        f"`Out`, in which IPython keeps what cells have shown, holds {num:,} tensors or arrays, "
        f"{format_bytes(num_bytes)}{rate(growth, None, unit)}."
    )
    fix = "End the last line of a cell with a semicolon; type `%reset -f out` to let go of what is kept."
    return _leak("kept", "Out", None, num, sentence, fix, num_bytes=num_bytes, growth=growth)


_RETRACED = {
    "tensor": (
        "has another shape or type each time",
        "Decorate with @tf.function(reduce_retracing=True), or give an input_signature with None there; "
        "or pad to a few lengths: memfit.batch_by_length.",
    ),
    "object": ("is a new object each time", "Make it once, before the loop."),
    "structure": (
        "has another number of elements each time",
        "Stack them to one tensor, or always pass as many.",
    ),
}


def retraced(name: str, place: Place, num: int, culprit: tuple[str, str] | None, growth: float) -> Leak:
    """One function that is traced again and again."""
    sentence = f"`{name}`{at(place)} traced {num:,} times"
    fix = "Look at what its arguments are; only tensors of one shape and type can change without a new trace."
    if culprit is not None:
        argument, kind = culprit
        how, fix = _RETRACED.get(
            kind,
            (
                f"is a {kind} that changes",
                f"Pass it as a tensor, tf.constant({argument}), or let it be a tf.Variable.",
            ),
        )
        sentence += f"; its argument `{argument}` {how}"
    return _leak("retraced", name, place, num, f"{sentence}. Each trace stays in memory.", fix, growth=growth)


def rebuilt_function(name: str, place: Place, num: int, growth: float) -> Leak:
    """A `tf.function` that is made in a loop."""
    sentence = f"`{name}`{at(place)} is a new tf.function each time: it was made and traced {num:,} times."
    return _leak(
        "rebuilt_function", name, place, num, sentence, "Make it once, before the loop.", growth=growth
    )


def rebuilt_model(
    name: str, place: Place, num: int, caller: Place, num_bytes: int | None, growth: float
) -> Leak:
    """Models that were trained in a loop, and that TensorFlow keeps."""
    size = "" if num_bytes is None else f", about {format_bytes(num_bytes)} each"
    sentence = (
        f"`{name}`{at(place)} is made and trained anew: {num:,} times so far{at(caller)}. TensorFlow keeps "
        f"the old ones in its registry of gradients, with weights and optimizer{size}, also after "
        "clear_session()."
    )
    fix = f"Type `del {name}; memfit.release()` at the end of each turn, which frees them."
    total = None if num_bytes is None else num * num_bytes
    return _leak("rebuilt_model", name, place, num, sentence, fix, num_bytes=total, growth=growth)


def rebuilt_dataset(name: str, place: Place, num: int, growth: float) -> Leak:
    """A data pipeline that is built in a loop."""
    sentence = f"the data pipeline `{name}`{at(place)} is built and traced anew: {num:,} times so far."
    fix = "Build it once, before the loop over epochs, and iterate over it again; .repeat() if need be."
    return _leak("rebuilt_dataset", name, place, num, sentence, fix, growth=growth)


def lengths(name: str, place: Place, num: int, growth: Growth) -> Leak:
    """Native caches that grow with each new shape."""
    sentence = (
        f"`{name}`{at(place)} was called with {num:,} different shapes, and memory grows by "
        f"{format_bytes(round(growth.slope))} a call that no Python object explains: TensorFlow's libraries "
        "keep what they prepared for each shape."
    )
    fix = (
        "Pad to a few lengths (memfit.batch_by_length), or set TF_ENABLE_ONEDNN_OPTS=0 before TensorFlow is "
        "imported."
    )
    return _leak("lengths", name, place, num, sentence, fix, growth=growth.slope)


def eager_call(name: str, place: Place, num: int, num_bytes: int) -> Leak:
    """A functional model that is called outside of a `tf.function`."""
    sentence = (
        f"`{name}`{at(place)} is called outside of a tf.function, {num:,} times so far. Each call keeps all "
        f"intermediate results until it ends: {format_bytes(num_bytes)}."
    )
    fix = f"Call it in a tf.function, or type {name}.predict_on_batch(x)."
    return _leak("eager_call", name, place, num, sentence, fix, num_bytes=num_bytes)


def pipeline(name: str, place: Place, method: str, num_bytes: int | None, growth: Growth, unit: str) -> Leak:
    """A cache or a shuffle buffer that fills the host's memory."""
    end = "nobody knows where it ends"
    if num_bytes is not None:
        end = f"it will stop at about {format_bytes(num_bytes)}"
    sentence = (
        f"`{name}`{at(place)}: {method}() is filling the host's memory, {format_bytes(round(growth.slope))} "
        f"a {unit}; {end}, and {format_bytes(growth.room or 0)} is left."
    )
    fix = {
        "cache": "Give it a file, .cache('name'), or leave it out; put it before what makes elements larger.",
        "shuffle": "Make its buffer smaller, and shuffle names or indices before what loads them.",
    }[method]
    return _leak("pipeline", name, place, 1, sentence, fix, num_bytes=num_bytes, growth=growth.slope)


def objects(name: str, num: int, growth: float, unit: str) -> Leak:
    """Python objects of one type."""
    sentence = f"there are {num:,} objects of type `{name}`{rate(growth, None, unit)}."
    return _leak("objects", name, None, num, sentence, "Look for who keeps them.", growth=growth)


def native(growth: Growth, ruled_out: str, unit: str) -> Leak:
    """Growth that nothing explains."""
    where = "the host's memory" if growth.series == "host" else growth.series
    sentence = (
        f"{where} grows by {format_bytes(round(growth.slope))} a {unit}, and no Python object explains it. "
        f"Ruled out: {ruled_out}."
    )
    fix = (
        "Look at what is not Python: extensions, decoders of images or video, drivers. Leave parts of the "
        "loop out until it stops; or run each piece in a process of its own."
    )
    return _leak("native", "", None, 0, sentence, fix, growth=growth.slope)


def when_it_ends(growth: Growth, unit: str) -> str:
    """`"CPU:0 grows by 1.00 MiB a step and is full in about 2,300 steps"`."""
    where = "the host" if growth.series == "host" else growth.series
    text = f"{where} grows by {format_bytes(round(growth.slope))} a {unit}"
    left = growth.num_left()
    if left is None:
        return text
    return f"{text} and is full in about {_rounded(left):,} {unit}s"


def _rounded(number: int) -> int:
    """Two digits are all that a rate can promise."""
    digits = max(0, len(str(number)) - 2)
    return round(number, -digits)
