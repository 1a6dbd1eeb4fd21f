"""The places of TensorFlow and Keras that are listened to while watching, in this one file.

Each is a method of a public class that is wrapped on the class while the context lasts: a `tf.function` that
is called or traced, an optimizer or a model that is called in a loop of one's own, a batch or an epoch that
Keras ends. `check_versions()` fails with the versions in its message when one of them has moved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import local
from typing import Any, Protocol

import keras
import tensorflow as tf
from tensorflow.core.config import flags as tf_flags
from tensorflow.python.eager import context as tf_context

from memfit.errors import SetupError

Function = type(tf.function(lambda: None))
FuncGraph = tf.__internal__.FuncGraph
BATCH_ENDS = {
    "on_train_batch_end": "train batch",
    "on_test_batch_end": "batch",
    "on_predict_batch_end": "batch",
}


# From TensorFlow's flags.h: a flag is what the variable of its name says, if there is one.
PUBLISHING_VARIABLE = "TF_FLAG_PUBLISH_FUNCTION_GRAPHS"


class Listener(Protocol):
    """Who is told what happens."""

    def on_step(self, kind: str, function: Any, arguments: Any) -> None:
        """A function, an optimizer, a model or a batch is done. `arguments` are of a call."""

    def on_trace(self, graph: Any, function: Any) -> None:
        """A graph is begun outside of any other; `function` is being called, or `None`."""

    def on_traced_call(self, function: Any, args: Any, kwargs: Any) -> None:
        """A function was called, and had to be traced for it."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keras has ended an epoch."""


def check_versions() -> None:
    """Raises a `SetupError` that names the versions when something is not where it was."""
    expected: dict[str, bool] = {
        "tf.function's __call__": "__call__" in vars(Function),
        "tf.function's experimental_get_tracing_count": hasattr(Function, "experimental_get_tracing_count"),
        "tf.function's python_function": hasattr(Function, "python_function"),
        "tf.__internal__.FuncGraph": "__init__" in vars(FuncGraph),
        "keras.optimizers.Optimizer.apply": callable(getattr(keras.optimizers.Optimizer, "apply", None)),
        "tensorflow Context.clear_kernel_cache": hasattr(tf_context.Context, "clear_kernel_cache"),
        "tensorflow flag publish_function_graphs": hasattr(tf_flags.config(), "publish_function_graphs"),
        "keras.callbacks.CallbackList": {*BATCH_ENDS, "on_epoch_end"}
        <= set(vars(keras.callbacks.CallbackList)),
    }
    missing = [name for name, is_there in expected.items() if not is_there]
    if missing:
        raise SetupError(
            f"memfit.watch does not know Keras {keras.__version__} with TensorFlow {tf.__version__}: "
            f"{', '.join(missing)} moved. It was built on Keras 3.15 with TensorFlow 2.21. Install those."
        )


def publish_no_graphs() -> None:
    """Keeps TensorFlow from leaving an object behind for each function that it makes ready to run.

    It hands the graphs of every function to a publisher and keeps that one for as long as the process lives.
    The publisher does nothing with them, unless a plug-in in C++ has put its own in its place. Who set the
    flag in the environment has decided.
    """
    if PUBLISHING_VARIABLE not in os.environ:
        tf_flags.config().publish_function_graphs.reset(False)


class _State:
    """What a thread is in the middle of: functions and models that are called, and how much was traced."""

    __slots__ = ("functions", "num_models", "num_traces")

    def __init__(self) -> None:
        self.functions: list[Any] = []
        self.num_traces = 0
        self.num_models = 0


class _Calls(local):
    """The state of each thread."""

    def __init__(self) -> None:
        self.state = _State()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tells a listener what happens in this process while the context lasts."""
    calls = _Calls()
    callbacks = keras.callbacks.CallbackList
    wrapped = [
        (Function, "__call__", _function_call(listener, calls)),
        (FuncGraph, "__init__", _graph_init(listener, calls)),
        (keras.optimizers.Optimizer, "apply", _optimizer_apply(listener, calls)),
        (keras.Model, "__call__", _model_call(listener, calls)),
        (callbacks, "on_epoch_end", _after(listener.on_epoch_end)),
        *((callbacks, name, _batch_end(listener, kind)) for name, kind in BATCH_ENDS.items()),
    ]
    originals = [(owner, name, vars(owner).get(name)) for owner, name, _ in wrapped]
    for owner, name, wrapper in wrapped:
        setattr(owner, name, wrapper(getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, original in originals:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


Method = Callable[..., Any]
Wrapper = Callable[[Method], Method]


def _function_call(listener: Listener, calls: _Calls) -> Wrapper:
    # The path of every step: names that are looked up once, here, are not looked up there.
    on_step, is_eager = listener.on_step, tf.executing_eagerly

    def wrap(original: Method) -> Method:
        @wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            state = calls.state  # Once: it is of this thread, and looking it up costs.
            if state.functions or not is_eager():  # Inside another one, or of TensorFlow 1.
                return original(self, *args, **kwargs)
            num_traces = state.num_traces
            state.functions.append(self)
            try:
                result = original(self, *args, **kwargs)
            finally:
                state.functions.pop()
            if state.num_traces != num_traces:
                listener.on_traced_call(self, args, kwargs)
            on_step("function", self, args)
            return result

        return call

    return wrap


def _graph_init(listener: Listener, calls: _Calls) -> Wrapper:
    def wrap(original: Method) -> Method:
        @wraps(original)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            is_outermost = tf.executing_eagerly()
            original(self, *args, **kwargs)
            if is_outermost:
                state = calls.state
                state.num_traces += 1
                listener.on_trace(self, state.functions[-1] if state.functions else None)

        return init

    return wrap


def _optimizer_apply(listener: Listener, calls: _Calls) -> Wrapper:
    def wrap(original: Method) -> Method:
        @wraps(original)
        def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if not calls.state.functions and tf.executing_eagerly():
                listener.on_step("optimizer", None, ())
            return result

        return apply

    return wrap


def _model_call(listener: Listener, calls: _Calls) -> Wrapper:
    def wrap(original: Method) -> Method:
        @wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            state = calls.state
            if state.functions or state.num_models or not tf.executing_eagerly():
                return original(self, *args, **kwargs)
            state.num_models += 1
            try:
                result = original(self, *args, **kwargs)
            finally:
                state.num_models -= 1
            listener.on_step("call", self, args)
            return result

        return call

    return wrap


def _batch_end(listener: Listener, kind: str) -> Wrapper:
    on_step = listener.on_step
    return _after(lambda *_: on_step(kind, None, ()))


def _after(tell: Callable[..., None]) -> Wrapper:
    def wrap(original: Method) -> Method:
        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            tell(*args)
            return result

        return method

    return wrap
