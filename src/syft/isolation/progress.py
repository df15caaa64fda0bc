"""`Progress`: a page of memory in which an executor notes what each of its sessions is running, and the broker reads it.

The executor may write anything into it. It can only make the broker believe that it goes on; a frame has a time of its
own (`IsolatedSession.running`).
"""

from __future__ import annotations

import mmap
import os
import struct

_SLOT = 128
_NUMBER = struct.Struct("<Q")
SLOTS = mmap.PAGESIZE // _SLOT
_LONGEST_NAME = _SLOT - _NUMBER.size


class Progress:
    """The page, as one of both sees it."""

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_SHARED)

    @staticmethod
    def new_memory() -> int:
        descriptor = os.memfd_create("progress", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return descriptor

    def note(self, slot: int, number: int, name: bytes) -> None:
        at = slot * _SLOT
        self._page[at + _NUMBER.size : at + _SLOT] = name[:_LONGEST_NAME].ljust(_LONGEST_NAME, b"\0")
        _NUMBER.pack_into(self._page, at, number)

    def read(self, slot: int) -> tuple[int, str]:
        """The number of the command that was begun last in a slot, and what it is called."""
        at = slot * _SLOT
        name = bytes(self._page[at + _NUMBER.size : at + _SLOT]).rstrip(b"\0")
        shown = "".join(c for c in name.decode("ascii", "replace") if c.isprintable())
        return _NUMBER.unpack_from(self._page, at)[0], shown

    def close(self) -> None:
        self._page.close()
