"""An ordinary Keras script: a two-layer LSTM learns to continue the text of Python's own manual.

It knows nothing of memfit. `memfit demo` runs it, and so can you: `python -m memfit.cli.demo_tf`.
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics

import keras
import numpy as np

NUM_CHARACTERS = 128
BATCH_SIZE = 16


def make_sequences(num_sequences: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the manual as character codes, and the same pieces one character later."""
    text = "\n".join(topics.values()).encode("ascii", errors="replace")
    codes = np.frombuffer(text, np.uint8)[: num_sequences * (length + 1)]
    pieces = codes.reshape(num_sequences, length + 1).astype(np.int32)
    return pieces[:, :-1], pieces[:, 1:]


def make_model() -> keras.Model:
    """Two layers of 256 units."""
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(NUM_CHARACTERS, 64),
            keras.layers.LSTM(256, return_sequences=True),
            keras.layers.LSTM(256, return_sequences=True),
            keras.layers.Dense(NUM_CHARACTERS),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=loss)
    return model


def main() -> None:
    """Trains for one step, or for as many as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=1500, help="characters a sequence")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="sequences a step")
    parser.add_argument("--steps", type=int, default=1, help="steps to train")
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    x, y = make_sequences(options.steps * options.batch_size, options.length)
    make_model().fit(x, y, batch_size=options.batch_size, verbose=2)


if __name__ == "__main__":
    main()
