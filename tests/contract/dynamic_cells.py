"""Runs `memfit.dynamic_rnn` beside what it replaces, in a process of its own: legacy cells need a variable
that TensorFlow reads when it is imported. `everything` runs all of it, so that one process is enough."""

from typing import Any

NUM_STEPS, LENGTHS = 7, [5, 2, 6]


def everything() -> dict[str, Any]:
    """What each function below gives, by its name; the last leaves no eager execution behind."""
    functions = (compare_legacy_cells, traces_and_steps, refusals, compare_in_a_session)
    return {function.__name__: function() for function in functions}


def compare_legacy_cells() -> list[str]:
    """TensorFlow 1's cells against `tf.compat.v1.nn.dynamic_rnn`: outputs, states and all gradients."""
    import tensorflow as tf

    import memfit

    cells = tf.compat.v1.nn.rnn_cell
    kinds: dict[str, Any] = {
        "LSTM": lambda: cells.LSTMCell(8),
        "peepholes": lambda: cells.LSTMCell(8, use_peepholes=True, num_proj=3),
        "GRU": lambda: cells.GRUCell(8),
        "basic": lambda: cells.BasicRNNCell(8),
        "several": lambda: cells.MultiRNNCell([cells.LSTMCell(8), cells.GRUCell(4)]),
        "wrapped": lambda: cells.ResidualWrapper(cells.GRUCell(5)),
    }
    inputs = tf.random.stateless_normal([3, NUM_STEPS, 5], [1, 2])
    compared = []
    cases: list[tuple[str, Any, bool]] = [(name, LENGTHS, False) for name in kinds]
    cases += [("LSTM", None, False), ("LSTM", None, True), ("several", LENGTHS, True)]
    for name, lengths, time_major in cases:
        cell = kinds[name]()
        values = tf.transpose(inputs, [1, 0, 2]) if time_major else inputs
        options = {"sequence_length": lengths, "dtype": tf.float32, "time_major": time_major}
        expected = _results(tf.compat.v1.nn.dynamic_rnn, cell, values, options)
        found = _results(memfit.dynamic_rnn, cell, values, options)
        tf.nest.assert_same_structure(expected[1], found[1])
        _assert_close(expected, found)
        if name == "LSTM":
            _assert_close(expected, tf.function(_results)(memfit.dynamic_rnn, cell, values, options))
        compared.append(name)
    return compared


def compare_in_a_session() -> bool:
    """The same in a graph of TensorFlow 1, with placeholders of unknown length and batch."""
    import numpy as np
    import tensorflow as tf

    import memfit

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    results = []
    for function in (v1.nn.dynamic_rnn, memfit.dynamic_rnn):
        v1.reset_default_graph()
        inputs, lengths = v1.placeholder(tf.float32, [None, None, 5]), v1.placeholder(tf.int32, [None])
        initializer = v1.random_uniform_initializer(-0.3, 0.3, seed=3)
        cell = v1.nn.rnn_cell.LSTMCell(8, initializer=initializer)
        outputs, state = function(cell, inputs, sequence_length=lengths, dtype=tf.float32)
        loss = tf.reduce_sum(tf.sin(outputs)) + tf.reduce_sum(state.h)
        gradients = v1.gradients(loss, [inputs, *v1.trainable_variables()])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values = np.random.RandomState(0).randn(3, NUM_STEPS, 5)
            results.append(session.run([outputs, state, gradients], {inputs: values, lengths: LENGTHS}))
    _assert_close(*results)
    return True


def refusals() -> list[str]:
    """What is said of cells and arguments that cannot be right."""
    import tensorflow as tf

    import memfit

    cells = tf.compat.v1.nn.rnn_cell
    inputs = tf.zeros([2, 9, 3])

    class Bare:
        state_size = 3

        def __call__(self, inputs: Any, state: Any) -> tuple[Any, Any]:
            return inputs, state

    attempts: list[tuple[Any, dict[str, Any]]] = [
        (cells.DropoutWrapper(cells.LSTMCell(8), output_keep_prob=0.5), {}),
        (Bare(), {}),
        (object(), {}),
        (cells.LSTMCell(8), {"segment": 0}),
        (cells.LSTMCell(8), {"sequence_length": [[1]]}),
        (cells.LSTMCell(8), {"sequence_length": [1.5, 2.0]}),
    ]
    said = []
    for cell, options in attempts:
        try:
            memfit.dynamic_rnn(cell, inputs, **options)
        except memfit.UsageError as error:
            said.append(str(error))
    tf.compat.v1.disable_control_flow_v2()
    with tf.Graph().as_default():
        try:
            memfit.dynamic_rnn(cells.LSTMCell(8), tf.zeros([2, 9, 3]))
        except memfit.UsageError as error:
            said.append(str(error))
    tf.compat.v1.enable_control_flow_v2()
    return said


def traces_and_steps() -> list[int]:
    """How often a cell is traced in ten eager calls, and how many steps it runs of a long padded batch."""
    import keras
    import tensorflow as tf

    import memfit

    class CountingCell(keras.layers.Layer):
        state_size = output_size = 4

        def __init__(self) -> None:
            super().__init__()
            self.num_traces = self.num_steps = 0

        def call(self, inputs: Any, states: Any) -> Any:
            self.num_traces += 1
            counted = tf.numpy_function(self.count, [inputs], inputs.dtype)
            counted.set_shape(inputs.shape)
            return counted + states[0], [counted + states[0]]

        def count(self, inputs: Any) -> Any:
            self.num_steps += 1
            return inputs

    cell = CountingCell()
    for _ in range(10):
        outputs, state = memfit.dynamic_rnn(cell, tf.ones([2, 500, 4]), sequence_length=[3, 5])
    return [
        cell.num_traces,
        cell.num_steps,
        *(int(value) for value in state[:, 0]),
        int(tf.reduce_sum(outputs[:, 5:])),
        outputs.shape[1],
    ]


def _results(function: Any, cell: Any, inputs: Any, options: dict[str, Any]) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs, state = function(cell, inputs, **options)
        loss = tf.reduce_sum(tf.sin(outputs))
        for each in tf.nest.flatten(state):
            loss += tf.reduce_sum(tf.cos(each))
    return outputs, state, tape.gradient(loss, [inputs, *tape.watched_variables()])


def _assert_close(expected: Any, found: Any) -> None:
    import numpy as np
    import tensorflow as tf

    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
