"""Where the tensors that this thread makes are made: here, or at a worker (`syft.tensors.made_at`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch


class Place(threading.local):
    """One per thread.

    at               the worker at which new tensors are made; None: here
    takes_constants  whether small local tensors that meet pointers there are sent along
    is_fixed         models that were sent do not change it; so it is while a plan is traced
    """

    at: Any = None
    takes_constants = False
    is_fixed = False

    def __init__(self) -> None:
        #: The open blocks of `with worker:`, the innermost last.
        self.blocks: list[Any] = []


PLACE = Place()


@contextlib.contextmanager
def made_here(is_fixed: bool = False) -> Iterator[None]:
    """Inside, tensors are made here, whatever the blocks around it say."""
    before = PLACE.at, PLACE.takes_constants, PLACE.is_fixed
    PLACE.at, PLACE.takes_constants, PLACE.is_fixed = None, False, is_fixed
    try:
        yield
    finally:
        PLACE.at, PLACE.takes_constants, PLACE.is_fixed = before


class _WithoutValues:
    """A context that tells the code inside, by `torch.compiler.is_compiling()`, that values cannot be looked at.

    Libraries ask that before they look: whether a mask is all ones, whether there is padding. The answer is one for the
    whole process (torch's own is, too), so it is counted who needs it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before = False

    def __enter__(self) -> None:
        with self._lock:
            if self._count == 0:
                self._before = torch.compiler._is_compiling_flag
                torch.compiler._is_compiling_flag = True
            self._count += 1

    def __exit__(self, *_exception: object) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                torch.compiler._is_compiling_flag = self._before


WITHOUT_VALUES = _WithoutValues()
