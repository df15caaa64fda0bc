"""Rooms that are imported when they are needed: the tables they fill, and the moment they are asked for.

`import syft` imports nothing but a table of names. A table of a lower room that upper rooms fill (how types travel,
what handles a message) is a `FilledLater`: a key that it lacks loads the rest of the library, once, and is looked up
again.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: What loads everything else; `syft/__init__.py` adds it, and the first use takes it out.
REST: list[Callable[[], None]] = []


_LOADING = threading.RLock()
#: The thread that loads, while one does.
_LOADER: list[int] = []
#: Seconds to wait for it. Longer, and it may itself wait for a module that this thread is in the middle of importing.
_PATIENCE = 60.0


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Inside, Python looks for no garbage: modules are none, and to walk all that torch has made takes 0.1 to 0.2 s."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load_rest() -> bool:
    """Import the rooms that have not been imported, or wait while another thread does. True: look again."""
    me = threading.get_ident()
    if not REST and (not _LOADER or me in _LOADER):
        return False
    if not _LOADING.acquire(timeout=_PATIENCE):
        return False
    try:
        if not REST:
            return True  # another thread was faster
        load = REST.pop()
        _LOADER.append(me)
        try:
            with importing():
                load()
        except BaseException:
            REST.append(load)
            raise
        finally:
            _LOADER.remove(me)
        return True
    finally:
        _LOADING.release()


class FilledLater(dict[K, V]):
    """A table that rooms above fill. Found entries cost what they cost in any dict."""

    def __missing__(self, key: K) -> V:
        if load_rest() and key in self:
            return self[key]
        raise KeyError(key)

    def find(self, key: K) -> V | None:
        """The entry, or None if no room has one."""
        found = self.get(key)
        return self.get(key) if found is None and load_rest() else found
