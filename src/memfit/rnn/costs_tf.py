"""What the recurrent parts of a model hold a time step: the arithmetic that a plan starts from.

The parts are those that `checkpoint_time` would run: stacks where it finds them, single layers elsewhere. The
model is looked at while a function is traced that never runs.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from memfit.records import Profile, RecurrentPart
from memfit.rnn.block_tf import Block
from memfit.rnn.borders_tf import cost_of
from memfit.rnn.cell_tf import CellBlock
from memfit.rnn.internals_tf import all_layers, functional_of
from memfit.rnn.paths_tf import closed_part, path_of
from memfit.rnn.stack_tf import find_stacks, parts_of


def profile_time(model: keras.layers.Layer, batch_size: int, length: int) -> Profile:
    """The recurrent parts of a built model, for a batch of sequences of one length.

    Args:
        model: A built model or layer.
        batch_size: Examples in a step.
        length: Time steps of every recurrent part.

    Returns:
        A `Profile` for the `time_checkpoint` strategy.
    """
    parts: list[RecurrentPart] = []

    def look() -> None:
        parts.extend(_parts(model, batch_size, length))

    tf.function(look, autograph=False).get_concrete_function()
    return Profile(batch_size=batch_size, recurrent=tuple(parts))


def _parts(model: keras.layers.Layer, batch_size: int, length: int) -> list[RecurrentPart]:
    layers = all_layers(model)
    found: list[RecurrentPart] = []
    taken: set[int] = set()
    for functional in {id(each): each for each in map(functional_of, layers) if each is not None}.values():
        for stack in find_stacks(functional):
            taken.update(map(id, stack.layers))
            like = stack.layers[0].input
            inputs = tf.zeros([batch_size, length, *like.shape[2:]], like.dtype)
            blocks = [part.block for part in parts_of(stack, inputs, training=True, is_masked=False)]
            names = tuple(layer.name for layer in stack.layers)
            found.append(_part(names, blocks, batch_size, length, is_closed_form=True))
    alone = (layer for layer in layers if isinstance(layer, keras.layers.RNN) and id(layer) not in taken)
    return [*found, *(_single(layer, batch_size, length) for layer in alone)]


def _single(layer: keras.layers.RNN, batch_size: int, length: int) -> RecurrentPart:
    states = layer.get_initial_state(batch_size)
    is_closed_form = path_of(layer).kind == "closed form"
    if is_closed_form:
        block: Block = closed_part(layer, states, training=False, is_masked=False).block
    else:
        block = CellBlock(
            cell=layer.cell, training=False, states=states, variables=(), output=tf.nest.flatten(states)[0]
        )
    return _part((layer.name,), [block], batch_size, length, is_closed_form=is_closed_form)


def _part(
    names: tuple[str, ...], blocks: list[Any], batch_size: int, length: int, *, is_closed_form: bool
) -> RecurrentPart:
    cost = cost_of(blocks)
    return RecurrentPart(
        layers=names,
        length=length,
        state_bytes=batch_size * cost.state_bytes,
        tape_bytes=batch_size * cost.tape_bytes,
        is_closed_form=is_closed_form,
    )
