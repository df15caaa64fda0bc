"""Whether the worker behind a link is there, for those who compute with it and with others.

NOTE [Parties]
Whoever waits for one party of a computation has to hear when another one dies. Inside `among_parties(look)` a link that
lost its connection tries for its `peer_patience` only, and whoever waits for a reply calls `look()` every now and then,
which raises if another party is gone. A process that was killed is noticed by its connection, which the
system ends; a machine that went silent by its heartbeats. Knows links by name only.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from syft.core import worker_lock
from syft.exceptions import SyftError

if TYPE_CHECKING:
    from syft.workers.network.link_connection import LinkConnection

#: How often those who wait look whether the others are there.
LOOK_SECONDS = 0.25
#: How long one who asks waits for peers that a worker was started with and is not connected to yet.
_INTRODUCTION_SECONDS = 5.0
#: How long a party may be out of reach if nobody says otherwise.
PEER_PATIENCE = 1.0


def _nobody() -> None:
    """There is nobody else to look for."""


# NB: a class, because parties send often, and a generator costs more.
class among_parties:
    """See NOTE [Parties].

    Ctrl-C may come inside `__enter__` or `__exit__`, so that the block is left and its mark stays. So a mark counts only
    while the function that entered it runs.
    """

    __slots__ = ("_entered_by", "_outer", "look")

    def __init__(self, look: Callable[[], None] = _nobody) -> None:
        self.look = look

    def __enter__(self) -> None:
        self._outer, self._entered_by = _entered(), sys._getframe(1)
        _parties.set(self)

    def __exit__(self, *_exception: object) -> None:
        _parties.set(self._outer)

    def is_over(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self._entered_by:
            frame = frame.f_back
        return frame is None


_parties: ContextVar[among_parties | None] = ContextVar("syft_parties", default=None)


def _entered() -> among_parties | None:
    """The innermost block that this thread is in."""
    found = _parties.get()
    if found is not None and found.is_over():
        while found is not None and found.is_over():
            found = found._outer
        _parties.set(found)
    return found


def current_look() -> Callable[[], None] | None:
    """What to call while waiting for a reply; None: nobody asked for that."""
    found = _entered()
    return None if found is None or found.look is _nobody else found.look


def patience_with(link: LinkConnection) -> float:
    """Seconds to try to reach a worker again, for whoever calls now."""
    return link.patience if _entered() is None else min(link.patience, link.peer_patience)


class Condition(NamedTuple):
    """How a worker is: whether it has been out of reach for as long as parties wait, and of which session we know."""

    is_missing: bool
    session: str | None
    peer_patience: float


class ExpectedPeers(set[str]):
    """The names of peers that the owner of a worker is about to introduce it to."""


def await_introduction(worker: Any, name: Any) -> None:
    """Wait a moment for a peer that the owner of a worker is about to introduce it to."""
    until = time.monotonic() + _INTRODUCTION_SECONDS
    while name not in worker._known_workers and name in worker.extension(ExpectedPeers):
        if time.monotonic() > until:
            return
        with worker_lock.released():
            time.sleep(0.02)


class Presence:
    """What is known about whether a worker is there. One per link."""

    __slots__ = ("_link", "_missing_since", "told")

    def __init__(self, link: LinkConnection) -> None:
        self._link = link
        self._missing_since: float | None = None
        #: How often a caller was told that something is wrong with this worker, or with one that it computes with.
        self.told = 0

    def absence(self) -> float:
        """Seconds for which there has been no connection; 0: there is one. Tries once to make one, and does not wait."""
        link = self._link
        link.look_for_end()
        if link.is_connected:
            self._missing_since = None
            return 0.0
        if self._missing_since is None:
            self._missing_since = time.monotonic()
        with contextlib.suppress(OSError, SyftError):
            link.try_to_reconnect()
        if link.is_connected:
            self._missing_since = None
            return 0.0
        return time.monotonic() - self._missing_since

    def condition(self) -> Condition:
        """How the worker is. Does not wait."""
        is_missing = self.absence() > self._link.peer_patience
        welcome = self._link.welcome
        return Condition(is_missing, None if welcome is None else welcome.session, self._link.peer_patience)
