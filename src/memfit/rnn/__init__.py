"""The recurrent engine: the gradients of plain Keras from the states at segment borders.

`segments` decides where the borders are (pure). `engine_tf` runs any list of time-local blocks by those
segments. Each block is one file: `lstm_tf`, `gru_tf`, `simple_tf` in closed form, `cell_tf` for any other
cell, `pointwise_tf` for what surrounds them. `layer_tf` and `stack_tf` put the engine under Keras layers
and models, and take it out again.
"""
