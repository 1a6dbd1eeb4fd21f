"""What can be done to train in less memory: one file an idea, all behind one protocol, listed here."""

from __future__ import annotations

from typing import Final

from memfit.strategies.bucketing import Bucketing
from memfit.strategies.depth_checkpoint import DepthCheckpoint
from memfit.strategies.micro_batch import MicroBatch
from memfit.strategies.protocol import Strategy
from memfit.strategies.stream_inputs import StreamInputs
from memfit.strategies.time_checkpoint import TimeCheckpoint
from memfit.strategies.truncate import Truncate

ALL: Final[tuple[Strategy, ...]] = (
    MicroBatch(),
    TimeCheckpoint(),
    DepthCheckpoint(),
    Bucketing(),
    StreamInputs(),
    Truncate(),
)
