"""`Lending`: a thread that waits for what one client sends reads that client's connection itself.

NOTE [Who reads]
Every connection has a thread that serves it. Where a program on shares waits for a frame of a peer, the frame would wake
that thread, which would wake the one that waits: two wake-ups and two changes of the interpreter's lock per round. So
when somebody has waited for this client lately, the serving thread lends the connection: it rests, and whoever waits
reads. It takes the connection back when nobody has read for `SECONDS`, when something comes that the serving thread has
to do, when the connection fails, or when it is called back by somebody who sends so much that the peer, who does the
same, has to read before more of it goes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: For so long a connection is lent to nobody.
SECONDS = 0.02


class Lending:
    """One per served connection. `take` reads one frame in so many seconds and does what it says; False: it is for the
    serving thread. !! TimeoutError, OSError
    """

    def __init__(self, take: Callable[[float], bool]) -> None:
        self._take = take
        #: Held by whoever reads while it is lent.
        self._reading = threading.Lock()
        self._changed = threading.Condition()
        self._is_lent = self._is_called_back = False
        self._wanted = self._used = 0.0
        #: What wakes those who wait until they can read.
        self.wakers: dict[int, Callable[[], None]] = {}

    @property
    def is_free(self) -> bool:
        """Whether whoever waits may read now."""
        return self._is_lent and not self._is_called_back and not self._reading.locked()

    # -- the serving thread ----------------------------------------------------------------------------

    def lend(self) -> None:
        """Between two frames: rest for as long as others read."""
        if time.monotonic() - self._wanted > SECONDS:
            return
        self._used = time.monotonic()
        self._is_called_back, self._is_lent = False, True
        self._wake()
        with self._changed:
            while not (self._is_due() and self._reading.acquire(blocking=False)):
                self._changed.wait(SECONDS)
            self._is_lent = False
            self._reading.release()

    def _is_due(self) -> bool:
        return self._is_called_back or time.monotonic() - self._used > SECONDS

    # -- those who wait --------------------------------------------------------------------------------

    def read(self, seconds: float) -> bool:
        """Read a frame, or wait so long for one; False: the serving thread reads, or somebody else."""
        self._wanted = time.monotonic()
        if not self._is_lent or self._is_called_back or not self._reading.acquire(blocking=False):
            return False
        try:
            if not self._is_lent:
                return False
            try:
                is_for_us = self._take(seconds)
            except TimeoutError:
                is_for_us = True
            self._used = time.monotonic()
            self._is_called_back = self._is_called_back or not is_for_us
            return True
        finally:
            self._reading.release()
            if self._is_called_back:
                with self._changed:
                    self._changed.notify_all()
            if self.wakers:
                self._wake()

    def call_back(self) -> None:
        """Let the serving thread read until somebody waits again."""
        self._wanted = 0.0
        if self._is_lent:
            with self._changed:
                self._is_called_back = True
                self._changed.notify_all()

    def _wake(self) -> None:
        for wake in list(self.wakers.values()):
            wake()
