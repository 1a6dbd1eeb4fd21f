"""What all tests share."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example may take is no law of ours, and on a busy machine any of them may take a second.
settings.register_profile("memfit", deadline=None)
settings.load_profile("memfit")


@pytest.fixture(scope="module", autouse=True)
def collect_only_what_is_new(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has Python look for garbage only among what a module's own tests made.

    TensorFlow, Keras and all that former tests left are a million objects: memfit collects garbage wherever
    it measures, and each time would take up to a second. What refers to a new object still keeps it.
    Not where garbage itself and who refers to what is tested: `gc` does not show what is frozen.
    """
    if "guarding" in Path(request.path).parts:
        gc.unfreeze()
    else:
        gc.collect()
        gc.freeze()
    yield
