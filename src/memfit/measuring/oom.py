"""What an out-of-memory looks like: as an exception, as a line of TensorFlow's log, as neither.

By type first: TensorFlow raises `ResourceExhaustedError` for memory, but also for a full disk, for too
many open files and for messages that are too large, so the words must be about memory, too. On a GPU,
data that finds no room may surface as an `InternalError`. This file recognises; it decides nothing.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from typing import Final

from memfit.records import Request
from memfit.units import parse_bytes

# TensorFlow's own words, seen in versions 2.20 and 2.21 (allocator, kernels, XLA, GPU copies).
_ABOUT_MEMORY: Final = re.compile(
    r"\bOOM\b|out of memory|(?:failed|unable|trying) to allocate|allocate (?:\d|memory|request)",
    re.IGNORECASE,
)
_GPU_COPY: Final = "Dst tensor is not initialized"
_ALLOCATOR_LINE: Final = re.compile(
    r"Allocator \((?P<allocator>\S+)\) ran out of memory trying to allocate (?P<size>[\d.]+ ?[KMGTP]?i?B)"
    r"(?: \(rounded to (?P<rounded>\d+)\))?(?: ?requested by op (?P<op>\S+))?"
)
_SHAPE: Final = re.compile(r"tensor with shape\[(?P<shape>[\d,]*)\]")
_TYPE: Final = re.compile(r"and type (?P<type>\w+)")
_TYPE_BYTES: Final = {
    **dict.fromkeys(("double", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float", "int32", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
}
_DEVICE: Final = re.compile(r"device:(?P<device>[A-Z]+:\d+)")
_WRAPPING: Final = re.compile(r"^(?:StatefulPartitionedCall/)*(?:.*/body/_\d+/)?(?:_Mkl)?")
_OP: Final = re.compile(r"\[Op:(?P<op>[^\]]+)\]|Node: '(?P<node>[^']+)'")


def is_device_oom(error: BaseException) -> bool:
    """Whether `error`, or what caused it, is a device that ran out of memory."""
    return any(map(_is_one_device_oom, _chain(error)))


def is_host_oom(error: BaseException) -> bool:
    """Whether `error`, or what caused it, is Python that got no memory from the host."""
    return any(isinstance(cause, MemoryError) for cause in _chain(error))


def read_log_line(line: str) -> Request | None:
    """The failed request that a line of TensorFlow's log tells of, or `None`.

    Example:
    >>> request = read_log_line(
    ...     "W0000 bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
    ...     "15.26MiB (rounded to 16000000)requested by op _MklMatMul"
    ... )
    >>> request.num_bytes, request.op, request.device
    (16000000, 'MatMul', 'GPU:0')
    """
    match = _ALLOCATOR_LINE.search(line)
    if match is None:
        return None
    return Request(
        num_bytes=int(match["rounded"]) if match["rounded"] else parse_bytes(match["size"]),
        op=_plain_op(match["op"]),
        device=_device_of(match["allocator"]),
    )


def read_error(error: BaseException) -> Request:
    """The failed request that an out-of-memory exception tells of, as far as it does."""
    text = "\n".join(str(cause) for cause in _chain(error))
    shape, device, op = _SHAPE.search(text), _DEVICE.search(text), _OP.search(text)
    sizes = tuple(int(n) for n in shape["shape"].split(",") if n) if shape else None
    kind = _TYPE.search(text)
    type_bytes = _TYPE_BYTES.get(kind["type"]) if kind else None
    return Request(
        num_bytes=math.prod(sizes) * type_bytes if sizes is not None and type_bytes is not None else None,
        op=_plain_op(op["op"] or op["node"]) if op else None,
        shape=sizes,
        device=device["device"] if device else None,
    )


def _is_one_device_oom(error: BaseException) -> bool:
    errors = getattr(sys.modules.get("tensorflow"), "errors", None)
    if errors is None:
        return False
    if isinstance(error, errors.InternalError):
        return _GPU_COPY in str(error)
    is_exhausted = isinstance(error, errors.ResourceExhaustedError)
    return is_exhausted and _ABOUT_MEMORY.search(str(error)) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and what it was raised from. What it merely interrupted does not count."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _plain_op(op: str | None) -> str | None:
    """The op under the name that a user knows, without the wrappings of oneDNN, functions and loops."""
    return _WRAPPING.sub("", op) if op else None


def _device_of(allocator: str) -> str | None:
    if allocator.startswith("GPU_"):
        return "GPU:" + allocator.split("_")[1]
    return "CPU:0" if "cpu" in allocator.lower() else None
