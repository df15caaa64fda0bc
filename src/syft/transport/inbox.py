"""`Inbox`: what was read from a stream and not used yet, and frames that are half here.

Small frames are cut out of one kept buffer, which one read may fill with many of them. Large ones are read to where they
stay. Everything can be interrupted by a timeout and goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable

from syft.transport.base import PartListener
from syft.transport.memory import allocate
from syft.transport.stream import ByteStream, Pace

#: What one read takes at most, and the largest frame that is cut out of the kept buffer.
KEPT_BYTES = 1 << 16
_PIECE_BYTES = 1 << 18
#: How much comes between two calls of an `on_part`.
_PART_BYTES = 1 << 19

OnPiece = Callable[[memoryview, int], None]


class EndOfStream(Exception):
    """The peer sends no more. Never leaves this room."""


class Partial:
    """A large frame that is being read."""

    __slots__ = ("filled", "view")

    def __init__(self, count: int) -> None:
        self.view = allocate(count)
        self.filled = 0


class Inbox:
    """For one thread at a time. `pace` is that of the frame being read: `begin` it anew after each."""

    def __init__(self, stream: ByteStream, pace: Pace, first: bytes = b"") -> None:
        self._stream = stream
        self._pace = pace
        #: The buffer; what is in it and not used yet lies between `start` and `end`.
        self.data = self._view = memoryview(bytearray(KEPT_BYTES))
        self._view[: len(first)] = first
        self.start, self.end = 0, len(first)

    def need(self, count: int, deadline: float | None) -> None:
        """Wait until `count` bytes (at most KEPT_BYTES) are here. !! EndOfStream, TimeoutError, ConnectionLost."""
        while self.end - self.start < count:
            if self.start == self.end:
                self.start = self.end = 0
            elif self.start + count > KEPT_BYTES:
                rest = self.end - self.start
                self._view[:rest] = self._view[self.start : self.end]
                self.start, self.end = 0, rest
            begun = self._pace if self.end or self._pace.moved else None
            got = self._stream.read_some(self._view[self.end :], deadline, begun)
            if not got:
                raise EndOfStream
            self.end += got

    def take(self, count: int) -> bytearray:
        """The next `count` bytes, which are here, as memory of their own."""
        taken = bytearray(self._view[self.start : self.start + count])
        self.start += count
        return taken

    def fill(
        self,
        partial: Partial,
        deadline: float | None,
        on_piece: OnPiece | None = None,
        on_part: PartListener | None = None,
    ) -> None:
        """Read until a large frame is whole; a TimeoutError leaves it to be filled further.

        `on_piece` is called with each piece as it arrives, while it is in the processor's cache, and where it begins;
        `on_part` as that of a connection.
        """
        view, size = partial.view, len(partial.view)
        at_once = size if on_piece is None else _PIECE_BYTES
        told = partial.filled
        while partial.filled < size:
            begin = partial.filled
            here = self.end - self.start
            if here:
                got = min(here, size - begin, at_once)
                view[begin : begin + got] = self._view[self.start : self.start + got]
                self.start += got
            else:
                got = self._stream.read_some(view[begin : begin + at_once], deadline, self._pace)
                if not got:
                    raise EndOfStream
            if on_piece is not None:
                on_piece(view[begin : begin + got], begin)
            partial.filled += got
            if on_part is not None and partial.filled - told >= _PART_BYTES:
                told = partial.filled
                on_part(view, told)
