"""Fails loudly when a private name of TensorFlow or Keras moves."""

import keras
import pytest

from memfit.errors import SetupError
from memfit.rnn import internals_tf


def test_everything_is_where_it_was() -> None:
    internals_tf.check_versions()


def test_what_is_said_when_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(keras.layers.RNN, "inner_loop")
    with pytest.raises(SetupError, match=rf"Keras {keras.__version__}.*RNN.inner_loop moved"):
        internals_tf.check_versions()
