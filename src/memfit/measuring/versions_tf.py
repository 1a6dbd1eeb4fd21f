"""What is said when a private name of Keras or TensorFlow is not where it was.

Every folder that leans on such names has them in one file, with `check_versions()`, which asks here. So a
release that moves one of them is a sentence, and never a wrong gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from memfit.errors import SetupError


def check_expectations(who: str, expectations: Mapping[str, bool], *, otherwise: str = "") -> None:
    """Nothing, if all is as expected.

    Args:
        who: What leans on the names, with its verb: "memfit.fit does not know".
        expectations: Whether each name is as expected.
        otherwise: What else can be done, as the end of a sentence: "leave resume= out".

    Raises:
        SetupError: Names what has moved, and the versions.
    """
    missing = [name for name, is_there in expectations.items() if not is_there]
    if missing:
        raise SetupError(
            f"{who} Keras {keras.__version__} with TensorFlow {tf.__version__}: {', '.join(missing)} moved. "
            "It was built on Keras 3.15 with TensorFlow 2.21. Install those"
            f"{f', or {otherwise}' if otherwise else ''}."
        )


def takes(function: Callable[..., Any] | None, *names: str) -> bool:
    """Whether a function is there and has parameters of these names."""
    return function is not None and set(names) <= set(inspect.signature(function).parameters)
