"""`allocate`: memory for a frame, and the mappings that are kept for the next one.

NOTE [Memory of large frames]: a peer that announces a gigabyte and sends nothing must not make us commit one.
`bytearray(n)` writes zeros into all of it. An anonymous mapping costs nothing until it is written to, a page at a
time, and with huge pages it is also quicker to fill (40 MB over loopback: 1.2 GB/s into a bytearray, 3 GB/s into a
mapping).

NOTE [Kept mappings]: pages that are touched for the first time cost more than the bytes that come into them (4 MB over
loopback and back: 5 ms into fresh mappings, 2.3 ms into kept ones). So a mapping is kept, up to a bound, when the last
who looks into it has gone. Everybody looks into it by way of one object, its lease: a view, an array or a tensor holds
it, and what is made from those holds them. When the lease goes, nobody is left.

What is handed out may hold what somebody else had sent, so it is for those alone who write to every byte of it before
they show it to anybody: a frame that stays partial is never shown. A lease ends where its frame ends, and what lies
behind it in the mapping cannot be reached through it.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import deque
from collections.abc import Sequence

from syft.transport.base import Buffer
from syft.transport.errors import FrameRefused

_MAPPED_FROM = 1 << 20
#: A system with huge pages puts a mapping of whole ones where they fit.
_HUGE_PAGE = 1 << 21
_GRAIN = 1 << 16
#: A mapping is at most this part of its frame longer than it.
_SPARE_PART = 4
#: What is kept in all; see `Mappings`.
_KEPT_BYTES = 64 << 20


def _with_spare(count: int) -> int:
    """The length of a mapping for so many bytes: of a few lengths, so that it fits the next frame, too."""
    huge = -(-count // _HUGE_PAGE) * _HUGE_PAGE
    return huge if huge - count <= count // _SPARE_PART else -(-count // _GRAIN) * _GRAIN


class Mappings:
    """Mappings that nobody looks into, `most_bytes` of them: the oldest go first.

    NB: a lease may end in any thread at any point, also within a method of this. There is no lock here: the
    operations of a deque are whole.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._free: deque[mmap.mmap] = deque()

    @property
    def free_bytes(self) -> int:
        """Of the mappings that wait for a frame."""
        return sum(map(len, self._free.copy()))

    def lease(self, count: int) -> memoryview | None:
        """So many bytes of a kept mapping, to be overwritten; None if none fits. See NOTE [Kept mappings]."""
        most = max(_with_spare(count), count + count // _SPARE_PART)
        for _ in range(len(self._free)):
            try:
                mapping = self._free.pop()  # the newest: the processor may know it still
            except IndexError:
                return None
            if count <= len(mapping) <= most:
                return self._leased(mapping, count)
            self._free.appendleft(mapping)
        return None

    def new(self, count: int) -> memoryview:
        """So many bytes of a new mapping, which is kept afterwards if there is room. !! OSError, and the like"""
        mapping = _mapping(_with_spare(count))
        return (
            self._leased(mapping, count) if len(mapping) <= self._most_bytes else memoryview(mapping)[:count]
        )

    def _leased(self, mapping: mmap.mmap, count: int) -> memoryview:
        lease = (ctypes.c_ubyte * len(mapping)).from_buffer(mapping)
        weakref.finalize(lease, self._keep, mapping).atexit = False
        return memoryview(lease).cast("B")[:count]

    def _keep(self, mapping: mmap.mmap) -> None:
        self._free.append(mapping)
        self.trim(self._most_bytes)

    def trim(self, most_bytes: int = 0) -> None:
        """Give what is beyond so many bytes back to the system."""
        while self.free_bytes > most_bytes:
            try:
                self._free.popleft()
            except IndexError:
                return


def _mapping(length: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, length)
    mapping = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without them
            pass
    return mapping


#: Those of this process.
KEPT = Mappings(_KEPT_BYTES)


def allocate(count: int) -> memoryview:
    """Writable memory, committed as it is written to if there is much of it. !! FrameRefused

    Write to all of it before anybody sees it: see NOTE [Kept mappings].
    """
    if count < _MAPPED_FROM:
        return memoryview(bytearray(count))
    kept = KEPT.lease(count)
    if kept is not None:
        return kept
    try:
        return KEPT.new(count)
    except (OSError, OverflowError, ValueError) as error:
        raise FrameRefused(f"There is no memory for a frame of {count} bytes ({error}).") from error


def joined(parts: Sequence[Buffer], count: int) -> bytearray | memoryview:
    """A copy of the parts, `count` bytes together, in one piece."""
    if count < _MAPPED_FROM:
        return bytearray().join(parts)
    memory, position = allocate(count), 0
    for part in parts:
        memory[position : position + len(part)] = part
        position += len(part)
    return memory
