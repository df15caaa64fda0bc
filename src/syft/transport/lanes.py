"""`InLane`, `OutLane`: the two ends of memory that two processes share, through which large frames go to the first.

NOTE [Lanes]
A large frame goes through sockets of one machine at 2 to 3 GB a second, and three times as fast through memory that
both processes see. So who has received a large frame from a peer on the same machine makes a lane, and offers it with
what it sends next: the number of its process, the number of the file there, the file's length, and random bytes that
stand in it. A peer who can open that file and finds the bytes in it writes its large frames there from then on, and
sends a byte over the socket for each piece that lies there. A peer who cannot goes on as before: it runs in another
container, or as another user, or at the other end of a tunnel.

- The file has no name, and is gone with the two processes. It is sealed: nobody can make it shorter under who looks
  into it.
- The receiver copies each piece before anybody looks at it. What the sender writes afterwards changes nothing.
- How far the receiver has read stands in the file. One that lies about it spoils what is sent to itself.
- The sender never waits for room. A frame that does not fit goes over the socket. Room comes back piece by piece.
- There are only so many lanes in a process, and none for those whose frames must be small until it is known who speaks.

Counts are written without a fence, which is right for processors that keep the order of what they write. There are no
lanes on others, nor on systems other than Linux.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import secrets
import stat
import struct
import sys
import threading
import weakref

from syft.transport.base import Buffer

#: What a lane holds at most.
RING_BYTES = 1 << 25
#: Frames of less go over the socket.
LEAST_BYTES = 1 << 18
#: What is copied at once, while the other end copies what came before.
PIECE_BYTES = 1 << 19
_MOST_LANES = 16
_HEAD_BYTES = 1 << 12
_FILE_BYTES = _HEAD_BYTES + RING_BYTES
_OFFER = struct.Struct("<IIQ16s")
OFFER_BYTES = _OFFER.size
_COUNT = slice(16, 24)
_PROCESSORS = ("x86_64", "AMD64")

_lanes_left = threading.Semaphore(_MOST_LANES)


def are_there() -> bool:
    """Whether this system has what lanes need."""
    return sys.platform == "linux" and hasattr(os, "memfd_create") and platform.machine() in _PROCESSORS


class _Lane:
    """A file that is mapped: a page with the token and the count of bytes that were read, and the ring."""

    def __init__(self, descriptor: int) -> None:
        self._mapping = mmap.mmap(descriptor, _FILE_BYTES)
        whole = memoryview(self._mapping)
        self._count, self._ring = whole[_COUNT].cast("Q"), whole[_HEAD_BYTES:]
        self._token = bytes(whole[:16])
        whole.release()
        #: Bytes that went through this end, and where the next ones lie.
        self._passed = self.position = 0

    def _next_place(self, count: int) -> memoryview:
        """Where the next bytes lie, up to the end of the ring."""
        place = self._ring[self.position : self.position + count]
        self._passed += len(place)
        self.position = (self.position + len(place)) % RING_BYTES
        return place

    def close(self) -> None:
        self._count.release()
        self._ring.release()
        # NB: the traceback of an interrupt may still hold a view. Then the mapping goes with it.
        with contextlib.suppress(BufferError):
            self._mapping.close()


class InLane(_Lane):
    """The end of the process that receives; it made the file."""

    def __init__(self) -> None:
        """!! OSError"""
        import fcntl

        if not _lanes_left.acquire(blocking=False):
            raise OSError(f"There are {_MOST_LANES} lanes in this process already.")
        descriptor = -1
        try:
            descriptor = os.memfd_create("syft-lane", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, _FILE_BYTES)
            os.pwrite(descriptor, secrets.token_bytes(16), 0)
            fcntl.fcntl(
                descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            )
            super().__init__(descriptor)
        except BaseException:
            _give_up(descriptor)
            raise
        self.offer = _OFFER.pack(os.getpid(), descriptor, _FILE_BYTES, self._token)
        self._end = weakref.finalize(self, _give_up, descriptor)

    def read_into(self, view: memoryview) -> None:
        """Copy the next bytes, which the peer says lie there."""
        begin = 0
        while begin < len(view):
            place = self._next_place(len(view) - begin)
            view[begin : begin + len(place)] = place
            begin += len(place)

    def give_back(self) -> None:
        """Tell the peer that what was read is room again."""
        self._count[0] = self._passed

    def close(self) -> None:
        super().close()
        self._end()


def _give_up(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
    _lanes_left.release()


class OutLane(_Lane):
    """The end of the process that sends."""

    def __init__(self, offer: bytes) -> None:
        """Open what a peer offers. !! OSError if that is not the file, or not to be had"""
        import fcntl

        process, number, length, token = _OFFER.unpack(offer)
        place = f"/proc/{process}/fd/{number}"
        # NB: looked at before it is opened, too, which a pipe or a device may notice.
        if not stat.S_ISREG(os.stat(place).st_mode):
            raise OSError(f"{place} is no file.")
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            if not found.st_size == length == _FILE_BYTES or found.st_uid != os.geteuid():
                raise OSError(f"{place} is no lane of this user's.")
            if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
                raise OSError(f"{place} is not sealed.")
            if not secrets.compare_digest(os.pread(descriptor, 16, 0), token):
                raise OSError(f"{place} is another lane.")
            super().__init__(descriptor)
        finally:
            os.close(descriptor)

    @property
    def room(self) -> int:
        """How many bytes can be written."""
        unread = self._passed - self._count[0]
        return RING_BYTES - unread if 0 <= unread <= RING_BYTES else 0

    def begin(self) -> int:
        """Where the next frame begins: at 0 if nothing is unread, because memory that was used last is the fastest."""
        if self.room == RING_BYTES:
            self.position = 0
        return self.position

    def write(self, data: Buffer) -> None:
        """Copy bytes there, for which there is room."""
        view = memoryview(data)
        while view:
            place = self._next_place(len(view))
            place[:] = view[: len(place)]
            view = view[len(place) :]
