"""The memory of NVIDIA GPUs without TensorFlow, as `nvidia-smi` reports it.

No GPU has run this code: it follows `nvidia-smi --help-query-gpu`, and its tests run a stand-in command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from memfit.units import MIB

QUERY: Final = ("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
TIMEOUT_SECONDS: Final = 10


def memory_bytes() -> tuple[int, ...]:
    """The memory of each GPU that TensorFlow may see, in bytes; empty without a GPU."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    try:
        answer = subprocess.run(
            (command, *QUERY), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(
        int(total) * MIB
        for index, uuid, total in (map(str.strip, line.split(",")) for line in answer.splitlines())
        if total.isdigit() and _is_visible(index, uuid)
    )


def _is_visible(index: str, uuid: str) -> bool:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return True
    chosen = [choice.strip() for choice in visible.split(",")]
    return index in chosen or any(choice and uuid.startswith(choice) for choice in chosen)
