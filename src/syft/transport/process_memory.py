"""Giving memory back to the system: an allocator keeps what was freed in small pieces, for the next who comes."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

from syft.transport.memory import KEPT


def _trimmer() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library than glibc
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


_trim = _trimmer()


def give_back() -> None:
    """Return what is free to the system, where that can be asked for. Takes milliseconds: not for every object."""
    gc.collect()
    KEPT.trim()
    if _trim is not None:
        _trim(0)
