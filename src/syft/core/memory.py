"""`Memory`: what was worked out before, kept to be found again; and `CACHES`, the one switch for all that is learnt.

NOTE [Right without]
Nothing depends on what is remembered: whatever is not found is worked out, with the same result. So all of it can be
turned off, to look for a fault or to compare: by the environment variable `SYFT_CACHES=off` for a process, by
`with CACHES.off():` for a while. Then no memory keeps anything, so every command takes the long way; workers keep no
graphs, no backward pass is learnt, and no tensor is handed over instead of copied.
tests/workers/test_caches.py runs programs both ways and compares results and stores.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from typing import Any, TypeVar

VARIABLE = "SYFT_CACHES"


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Memory(dict[_Key, _Value]):
    """Answers by question; empties itself when it is full, and keeps nothing while caches are off."""

    __slots__ = ("__weakref__", "limit")

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        CACHES.memories.append(weakref.ref(self, CACHES.memories.remove))

    def __setitem__(self, key: _Key, value: _Value) -> None:
        if CACHES.are_on:
            if len(self) >= self.limit:
                self.clear()
            super().__setitem__(key, value)


class _Caches:
    """Whether what was worked out before is used again."""

    def __init__(self) -> None:
        chosen = os.environ.get(VARIABLE) or "on"
        if chosen not in ("on", "off"):
            raise ValueError(
                f"The environment variable {VARIABLE} is {chosen!r}. Set it to on or off, or unset it."
            )
        self.are_on = chosen == "on"
        self.memories: list[weakref.ref[Memory[Any, Any]]] = []

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Inside, everything is worked out each time, in all threads of this process."""
        before, self.are_on = self.are_on, False
        try:
            for known in list(self.memories):
                memory = known()
                if memory is not None:
                    memory.clear()
            yield
        finally:
            self.are_on = before


CACHES = _Caches()
