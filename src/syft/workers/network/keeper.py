"""`Keeper`: the thread behind a link. It sends what has waited too long, heartbeats, and sees a connection end.

It does not keep a link alive that nobody uses any more.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syft.workers.network.link_connection import LinkConnection

#: How often it looks at the connection in the time of a heartbeat.
LOOKS_PER_HEARTBEAT = 4
#: Commands that are collected wait this long for more.
_MOMENT = 0.003
#: After so many moments in which nothing waited for it, it looks this seldom, and sleeps when nothing went for so long.
_MOMENTS_AWAKE, _SELDOM, _LONG = 8, 0.025, 1.0


def is_keeper() -> bool:
    """Whether the thread at hand is that of a keeper: it holds the lock of a link, and must not hold it for long."""
    return _is_keeper.get()


class Keeper:
    """One per link; it starts with the first connection."""

    def __init__(self, link: LinkConnection) -> None:
        self._link = weakref.ref(link)
        self._state = _State()
        self._thread: threading.Thread | None = None
        _LINKS.add(link)

    def start(self) -> None:
        """Run, if it does not."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_keep, args=(self._link, self._state), daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        if self._state.sleeps:
            self._state.wake.set()


class _State:
    """What a keeper and its thread share.

    NOTE [Who wakes the keeper]
    To wake a thread takes longer than to collect a command. So the thread looks every few milliseconds while commands
    come, seldom if it finds none that waits, and only one for which none came has to be woken. It says so before it
    looks for the last time: a command that comes meanwhile is either found by that look, or wakes it.
    """

    __slots__ = ("sleeps", "wake")

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.sleeps = True


_is_keeper: ContextVar[bool] = ContextVar("syft_keeper", default=False)


def _keep(reference: weakref.ref[LinkConnection], state: _State) -> None:
    _is_keeper.set(True)
    pause, next_look, moments = 0.0, 0.0, 0
    while True:
        if moments:
            time.sleep(_MOMENT if moments > 1 else min(_SELDOM, pause))
        elif state.wake.wait(pause):
            state.sleeps, moments = False, _MOMENTS_AWAKE
            state.wake.clear()
            time.sleep(_MOMENT)
        link = reference()
        if link is None or link.is_closed:
            return
        pause = link.heartbeat / LOOKS_PER_HEARTBEAT
        if moments:
            moments = _MOMENTS_AWAKE if link.has_what_waits else max(1, moments - 1)
            if moments == 1 and link.is_quiet(_LONG):
                state.sleeps, moments = True, 0  # NOTE [Who wakes the keeper]
        if not moments or link.is_quiet(_MOMENT / 2):  # a frame that is being filled goes by itself
            link.send_what_waits(pause)
        now = time.monotonic()
        if now >= next_look:
            next_look = now + pause
            link.look_after_connection()
        pause = max(0.0, min(pause, next_look - time.monotonic()))
        del link


# -- forks -----------------------------------------------------------------------------------------------

#: Those of this process.
_LINKS: weakref.WeakSet[LinkConnection] = weakref.WeakSet()


def _after_fork() -> None:
    for link in list(_LINKS):
        link.forget_process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
