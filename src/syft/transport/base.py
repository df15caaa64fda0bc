"""What every transport is: connections that move frames, listeners that accept them, and the limits of both.

A frame is a row of bytes that arrives whole or not at all. Nothing here knows what is in it. Imports only `errors`.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

Buffer = bytes | bytearray | memoryview
#: Told of everybody who was turned away: (their address, why, as a sentence).
RefusalListener = Callable[[str, str], None]
#: Told how far a large frame has come: (its memory, the bytes that are here).
PartListener = Callable[[memoryview, int], None]
#: Told of a whole frame: its memory.
FrameListener = Callable[[memoryview], None]

logger = logging.getLogger("syft.transport")


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What a peer may ask of this end. Every limit is checked before anything is allocated.

    max_frame_bytes    of one frame, in either direction
    max_first_bytes    of a frame that a listener's connection takes while nobody has raised its `max_frame_bytes`: for
                       those who want to know who speaks before they take more; None: no less than later
    handshake_timeout  seconds until a new connection has to have said what it is
    stall_timeout      seconds in which not a byte of a frame that was begun moves
    min_rate           bytes per second that a frame must make on average, after its first `stall_timeout` seconds
    max_handshakes     handshakes going on at once in a listener; the oldest has to go when one more comes
    max_waiting        connections that nobody has accepted yet; further ones wait in the system's queue

    Only time spent waiting for the peer counts: a frame may lie here half read for as long as one likes.
    """

    max_frame_bytes: int = 1 << 30
    handshake_timeout: float = 10.0
    stall_timeout: float = 60.0
    min_rate: float = 1024.0
    max_handshakes: int = 64
    max_waiting: int = 128
    max_first_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in (
            "max_frame_bytes",
            "handshake_timeout",
            "stall_timeout",
            "max_handshakes",
            "max_waiting",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"FrameLimits({name}={getattr(self, name)!r}): it has to be above 0.")
        if self.max_first_bytes is not None and not self.max_first_bytes > 0:
            raise ValueError(f"FrameLimits(max_first_bytes={self.max_first_bytes!r}): it has to be above 0.")
        if not self.min_rate >= 0:
            raise ValueError(
                f"FrameLimits(min_rate={self.min_rate!r}): it is a number of bytes per second; 0 allows any."
            )


DEFAULT_LIMITS = FrameLimits()


def first_limit(limits: FrameLimits) -> int:
    """The largest frame that a listener's connection takes at first."""
    most = limits.max_frame_bytes
    return most if limits.max_first_bytes is None else min(most, limits.max_first_bytes)


class Connection(abc.ABC):
    """Two ends, frames in order in both directions. Every method may be called from any thread."""

    #: Where the other end is, for people to read.
    peer: str = ""
    #: Whose certificate a client showed, if it was asked for one and it was verified (mutual TLS).
    peer_certificate_name: str | None = None
    #: Until when that certificate is valid, in seconds since 1970.
    peer_certificate_expires: float | None = None
    is_encrypted: bool = False
    #: Both ends are on this machine.
    is_local: bool = False
    #: The largest frame that is taken. It may be changed at any time, and counts for frames that have not begun.
    max_frame_bytes: int
    #: Seconds to look again and again before going to sleep in `receive`; see NOTE [Looking before sleeping].
    spin_seconds: float = 0.0
    #: Called within `receive`, now and then, while a large frame arrives: whoever has to look at every byte does it while
    #: the rest is under way. Nobody else sees what is here yet, and it may turn out to be all that comes.
    on_part: PartListener | None = None
    #: Called within `receive` in the place of `on_part`, with a large frame that came through memory which both
    #: processes see, and not over a line that could damage it.
    on_copied: FrameListener | None = None
    #: Called within `send` before it waits for the peer to read, if `tells_when_full`: who has to read as well lets
    #: somebody do it.
    on_full: Callable[[], None] | None = None
    tells_when_full: bool = False

    @abc.abstractmethod
    def send(self, parts: Sequence[Buffer]) -> None:
        """Send ONE frame: the parts one after the other. The parts may be changed again once this returns.

        Frames of several threads are sent one after the other. It blocks while the peer does not read; !! ConnectionLost
        if nothing moves for `stall_timeout`, FrameTooLarge before anything is sent.
        """

    @abc.abstractmethod
    def receive(self, timeout: float | None = None) -> bytearray | memoryview:
        """The next frame, whole, in writable memory that is the caller's.

        !! TimeoutError after `timeout` seconds (a half received frame is kept for the next call), ConnectionClosed,
        ConnectionLost.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End the connection, at once, from any thread, as often as one likes. Blocked calls return with an error.

        Frames that `send` has returned for are delivered if the peer is there and reads.
        """

    @property
    @abc.abstractmethod
    def closed(self) -> bool:
        """Whether nothing can be sent any more, because this end closed or because the end of the connection was seen."""

    @property
    def progress(self) -> int:
        """Changes while parts of a frame arrive that is not whole yet: who sends slowly is not silent."""
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.peer}{' closed' if self.closed else ''}>"


class Listener(abc.ABC):
    """A place where connections arrive."""

    #: As others can connect to it: with the port that was chosen if 0 was asked for.
    address: str = ""
    #: Called, from a thread of the listener, for everybody who was turned away, with their address and the reason.
    on_refused: RefusalListener | None = None

    @abc.abstractmethod
    def accept(self, timeout: float | None = None) -> Connection:
        """The next connection whose handshake succeeded. !! TimeoutError; ConnectionClosed once this is closed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Accept no more. Connections that were accepted live on, those nobody took are closed."""

    def refuse(self, peer: str, reason: str) -> None:
        """Say that somebody was turned away."""
        logger.info("%s: %s was refused: %s", self.address, peer, reason)
        if self.on_refused is not None:
            self.on_refused(peer, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"
