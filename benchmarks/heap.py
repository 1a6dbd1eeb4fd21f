"""What glibc's `malloc` has given out and not got back: bytes that are really held, to the byte.

A process's resident memory also has what was given back and is not used again yet, in pages.
"""

from __future__ import annotations

import ctypes

# The fields of glibc's `struct mallinfo2`, from malloc.h.
_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),  # hblkhd: in mappings of their own.
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),  # uordblks: in arenas.
)


class _Figures(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _FIELDS)


def held_bytes() -> int:
    """Bytes that `malloc` has given out."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Figures
    figures = ask()
    return int(figures.uordblks + figures.hblkhd)
