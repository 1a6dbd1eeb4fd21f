"""Fails loudly when a private name of TensorFlow or Keras moves."""

import keras
import pytest
from tensorflow.python.framework import func_graph

from memfit.depth import internals_tf
from memfit.errors import SetupError


def test_everything_is_where_it_was() -> None:
    internals_tf.check_versions()


def test_what_is_said_when_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(func_graph, "func_graph_from_py_func")
    with pytest.raises(SetupError, match=rf"Keras {keras.__version__}.*func_graph_from_py_func moved"):
        internals_tf.check_versions()
