"""`memfit.release`: the memory of models that nobody uses any more, which TensorFlow would keep for ever."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import keras

from memfit.errors import MemfitWarning, UsageError
from memfit.guarding import internals_tf as internals
from memfit.guarding import session_tf as session
from memfit.measuring import device_tf
from memfit.rnn import internals_tf as gradients

FUNCTIONS = ("train_function", "test_function", "predict_function")


def release(*models: Any) -> int:
    """Frees what dead models still hold, and the traced functions of the models given.

    A model that was trained stays in memory for ever, with its weights and its optimizer's slots: TensorFlow
    keeps the gradients of its training function in a list that nothing is ever taken out of. `del model`,
    `keras.utils.clear_session()` and `gc.collect()` do not help. This does. Nothing that is still in use is
    touched: functions that were traced but not yet differentiated keep their gradients.

    TensorFlow's flag `publish_function_graphs` is put down, because it leaves some bytes for each function
    that is made ready to run; not if `TF_FLAG_PUBLISH_FUNCTION_GRAPHS` is in the environment.

    In a notebook, the frames of the last error let go of their variables, and a `MemfitWarning` says what is
    kept only by IPython's history of results.

    Args:
        *models: Models that stay alive, but whose functions for training, evaluation and prediction may go;
            Keras makes them again when they are needed. None are needed for models that are dead.

    Returns:
        Bytes of device memory that came free, on all devices together.

    Raises:
        UsageError: If something other than a Keras model was given.

    Example:
    ```python
    for fold in range(10):
        model = make_model()
        model.fit(*training_data(fold))
        scores.append(model.evaluate(*test_data(fold)))
        del model
        memfit.release()
    ```
    """
    internals.check_versions()
    gradients.check_versions()
    for model in models:
        if not isinstance(model, keras.Model):
            raise UsageError(
                f"memfit.release() takes Keras models, or nothing at all. Received: {model!r} "
                f"(a {type(model).__name__})."
            )
        for name in FUNCTIONS:
            setattr(model, name, None)
    before = _held_bytes()
    gradients.tie_gradients()
    session.forget_last_error()
    # Twice: what the first one frees may have been the last to hold what only the second can see.
    gc.collect()
    gc.collect()
    # What is used again is made ready again. From now on that leaves nothing.
    internals.publish_no_graphs()
    device_tf.forget_kernels()
    kept = session.told_outputs()
    if kept is not None:
        warnings.warn(kept, MemfitWarning, stacklevel=2)
    return max(0, before - _held_bytes())


def _held_bytes() -> int:
    return sum(each.current_bytes for each in device_tf.read_figures())
