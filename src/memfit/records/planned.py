"""What a step is made of, what can be done about it, and what was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from memfit.records.base import Record
from memfit.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentPart(Record):
    """Layers of a model that run over time together.

    Attributes:
        layers: Their names, from the inputs to the outputs.
        length: Time steps.
        state_bytes: What is kept of a step at a border: the states of all layers for the whole batch.
        tape_bytes: What the backward pass of a step needs, for the whole batch.
        is_closed_form: Whether the backward pass is written out; otherwise a tape records it, and what a
            step holds is taken for that of an LSTM of the same state.
    """

    layers: tuple[str, ...]
    length: int
    state_bytes: int
    tape_bytes: int
    is_closed_form: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthPart(Record):
    """What runs between two cuts through the depth of a model that follow each other.

    Attributes:
        layer: The layer that most of it belongs to.
        cut_bytes: All that crosses the cut behind it.
        new_bytes: What of that it has made itself.
        tape_bytes: What the backward pass needs of what it made.
        work_bytes: What comes and goes while it is walked back.
        seconds: How long it runs forward.
        again_seconds: How long it runs to make again what the backward pass needs, with both cuts kept.
    """

    layer: str
    cut_bytes: int
    new_bytes: int
    tape_bytes: int
    work_bytes: int
    seconds: float
    again_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPart(Record):
    """Arrays that a model is trained on, as far as the host's memory is concerned.

    Attributes:
        held_bytes: What plain Keras holds of them besides the arrays themselves.
        host_bytes: What the host may use.
    """

    held_bytes: int
    host_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Record):
    """What one training step is made of, as far as it is known.

    Attributes:
        batch_size: Examples in the step.
        recurrent: The parts that run over time.
        depth: The parts between cuts through the depth, from the inputs to the outputs.
        inputs: The arrays that it is trained on; `None` where there are none.
        lengths: Percentiles of the lengths of sequences, 50, 75, 90, 95 and 99, and last the greatest; empty
            if they are not known.
        tokens: The most steps of a batch by length, where these make as many batches; `None` if unknown.
    """

    batch_size: int
    recurrent: tuple[RecurrentPart, ...]
    depth: tuple[DepthPart, ...] = ()
    inputs: InputPart | None = None
    lengths: tuple[int, ...] = ()
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Record):
    """One way to use a strategy.

    Attributes:
        strategy: The strategy's name.
        value: What it is set to, such as the steps of a segment; `None` leaves the choice to the strategy.
    """

    strategy: str
    value: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Record):
    """What a setting does to a step, by arithmetic from a profile.

    Attributes:
        held_bytes: Activation bytes that the parts concerned hold at their peak.
        kept_bytes: What they would hold if everything were kept.
        num_recomputed_steps: Time steps that are computed again.
        num_steps: Time steps in all.
        recomputed_seconds: How long it takes to compute them, or parts in depth, again; `None` if unknown.
    """

    held_bytes: int
    kept_bytes: int
    num_recomputed_steps: int
    num_steps: int
    recomputed_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered(Record):
    """Something that a plan could have done.

    Attributes:
        what: In a few words, such as `"micro-batches of 8"`.
        peak_bytes: What it takes; `None` where that was not worth finding out.
        seconds: Its time a step, or `None`.
        verdict: Why it was taken or not.
    """

    what: str
    peak_bytes: int | None
    seconds: float | None
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """How a model is trained in less memory. Every field may be left out; an empty plan changes nothing.

    Attributes:
        micro_batch: The most examples under way at once; the optimizer still sees whole batches. `None`: all.
        time_segment: Steps of a time segment of RNNs (`memfit.checkpoint_time`); `None`: no segments.
        depth_limit: What activations may hold with depth checkpointing (`memfit.checkpoint_depth`):
            `"least"`, a share of plain Keras's such as `"40%"`, or bytes such as `"64MiB"`; `None`: none.
        evaluation_micro_batch: The most examples under way in validation, `evaluate` and `predict`; `None`:
            all.
        stream_window_bytes: Arrays are streamed by windows of so many bytes, in the place of Keras's copies
            (`memfit.stream`); `None`: they are not.
        batch_size: The batch that the plan was made for, which is then checked; `None` for any.
        num_parameters: The parameters of the model that it was made for, which is then checked; `None` for
            any.
        model_digest: What tells the model that it was made for from others of as many parameters, which is
            then checked; `None` for any.
        allow: What may be done although it changes the mathematics: `"split_batch_norm"`, `"truncate"`,
            `"truncate_front"`, `"truncate_gradients"`, `"bucketing"`.
        tokens: The most steps of a batch; batches are then made by length (`memfit.batch_by_length`). `None`:
            they stay as they are.
        gradient_window: Time steps that gradients go back through (truncated backpropagation through time),
            which is inexact; `None`: all of them.
        max_length: Steps that sequences are cut to, which is inexact; `None`: they are not cut.
        cut_from: Where they are cut: at their `"end"` or in `"front"`.
        lost_share: The share of all steps that is cut off, as far as the data was read; `None` if unknown.
        fallbacks: What to do when memory runs out, one after the other. After the last, micro-batches are
            halved.
        budget_bytes: What it was made to fit; `None` for a plan that was written by hand, and so on below.
        predicted_bytes: The peak of the device that was predicted from small batches.
        predicted_seconds: The time of a step that was predicted from small batches.
        rehearsed_bytes: The peak of a rehearsal: the largest batch, with nothing applied to the model.
        rehearsed_seconds: The time of that rehearsal.
        high_bytes: A limit under which it hardly runs out of memory, by the rehearsal; within the budget.
        considered: What else could be done, and why it is not.
        notes: What to know about it, a sentence each.

    Example:
    >>> Plan(micro_batch=8, time_segment=32).micro_batch
    8
    """

    micro_batch: int | None = None
    time_segment: int | None = None
    depth_limit: str | None = None
    evaluation_micro_batch: int | None = None
    stream_window_bytes: int | None = None
    batch_size: int | None = None
    num_parameters: int | None = None
    model_digest: str | None = None
    allow: tuple[str, ...] = ()
    tokens: int | None = None
    gradient_window: int | None = None
    max_length: int | None = None
    cut_from: str = "end"
    lost_share: float | None = None
    fallbacks: tuple[Plan, ...] = ()
    budget_bytes: int | None = None
    predicted_bytes: int | None = None
    predicted_seconds: float | None = None
    rehearsed_bytes: int | None = None
    rehearsed_seconds: float | None = None
    high_bytes: int | None = None
    considered: tuple[Considered, ...] = ()
    notes: tuple[str, ...] = ()

    def in_words(self, *, is_training: bool = True) -> str:
        """What is done, in a few words; with `is_training=False` in validation, `evaluate` and `predict`.

        Example:
        >>> Plan(micro_batch=8, time_segment=32).in_words()
        'micro-batches of 8, time segments of 32'
        """
        micro_batch = self.micro_batch if is_training else self.evaluation_micro_batch
        words = ["whole batches" if micro_batch is None else f"micro-batches of {micro_batch}"]
        if self.time_segment is not None:
            words.append(f"time segments of {self.time_segment}")
        if self.depth_limit is not None:
            words.append(f"depth limit {self.depth_limit}")
        if self.tokens is not None and is_training:
            words.append(f"batches by length of at most {self.tokens:,} steps")
        if self.gradient_window is not None and is_training:
            words.append(f"gradients cut every {self.gradient_window} steps")
        if self.max_length is not None and is_training:
            words.append(f"sequences cut to {self.max_length} steps")
        return ", ".join(words)

    def __str__(self) -> str:
        """A table of what is done, what it takes, and what else was considered."""
        rows = [("plan", self.in_words())]
        if self.evaluation_micro_batch is not None:
            rows.append(("in validation", self.in_words(is_training=False)))
        if self.batch_size is not None:
            rows.append(("batch", f"{self.batch_size} examples, as given"))
        if self.stream_window_bytes is not None:
            rows.append(("inputs", f"streamed by windows of {format_bytes(self.stream_window_bytes)}"))
        rows.append(("mathematics", f"changed: {', '.join(self.allow)}" if self.allow else "unchanged"))
        if self.max_length is not None:
            share = "an unknown share" if self.lost_share is None else f"{self.lost_share:.1%}"
            where = "in front" if self.cut_from == "front" else "at the end"
            rows.append(("lost", f"{share} of all steps: sequences are cut {where}, to {self.max_length}"))
        if self.budget_bytes is not None:
            rows.append(("budget", format_bytes(self.budget_bytes)))
        rows += [
            (name, f"{format_bytes(num_bytes)}, {format_seconds(seconds)} a step")
            for name, num_bytes, seconds in (
                ("predicted", self.predicted_bytes, self.predicted_seconds),
                ("rehearsed", self.rehearsed_bytes, self.rehearsed_seconds),
            )
            if num_bytes is not None and seconds is not None
        ]
        if self.high_bytes is not None:
            rows.append(("upper bound", format_bytes(self.high_bytes)))
        if self.fallbacks:
            rows.append(("if memory runs out", "; then ".join(each.in_words() for each in self.fallbacks)))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:{width}}  {text}" for name, text in rows]
        return "\n".join([*lines, *_considered_lines(self.considered), *(f"- {note}" for note in self.notes)])


def _considered_lines(considered: tuple[Considered, ...]) -> list[str]:
    """What was considered, as an aligned table with a line above."""
    cells = [
        (
            each.what,
            "" if each.peak_bytes is None else format_bytes(each.peak_bytes),
            "" if each.seconds is None else format_seconds(each.seconds),
            each.verdict,
        )
        for each in considered
    ]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [
        f"  {row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}" for row in cells
    ]
    return ["considered:", *lines]
