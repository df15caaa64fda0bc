"""`Watcher`: the thread that looks after the sessions of a server.

It ends those whose clients have vanished, and those that run something for too long, shows clients that wait that the
worker lives, and lets the worker keep its house. Nothing that it does waits for a client.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from syft.exceptions import ConnectionRefusedByWorkerError, SyftError
from syft.workers.network.sessions import ServerSession

if TYPE_CHECKING:
    from syft.workers.network.server import Server

logger = logging.getLogger("syft.worker")

#: How often it looks in the time of a heartbeat, or of the shortest time that an operation may take.
_LOOKS = 4
_SHORTEST_PAUSE = 0.02


class Watcher:
    """One per server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        settings = server.settings
        #: Seconds between two rounds, in which everything is looked at.
        self._round = max(_SHORTEST_PAUSE, min(settings.heartbeat, settings.grace or 1.0) / _LOOKS)
        #: Seconds between two looks at what is running.
        self._pause = self._round
        self._stirred = threading.Event()

    def stir(self) -> None:
        """Make a round now."""
        self._stirred.set()

    def expect(self, seconds_per_operation: float | None) -> None:
        """Somebody came whose operations may take so long: look often enough from now on."""
        if seconds_per_operation is not None and seconds_per_operation < _LOOKS * self._round:
            self.stir()

    def run(self) -> None:
        """Until the server stops."""
        server = self._server
        next_round = 0.0
        while not server.is_stopping:
            if self._stirred.wait(self._pause):
                self._stirred.clear()
                next_round = 0.0
            if time.monotonic() >= next_round:
                next_round = time.monotonic() + self._round
                self._make_round()
            now = time.monotonic()
            for session in server.sessions():
                try:
                    self._look_after(session, now)
                except OSError:
                    pass  # its own thread finds out
                except SyftError:
                    logger.exception("%s: while looking after a session", server.worker.id)

    def _make_round(self) -> None:
        server = self._server
        try:
            server.keep_house()
        except Exception:
            logger.exception("%s: while keeping house", server.worker.id)
        limits = {server.settings_of(session.user).seconds_per_operation for session in server.sessions()}
        shortest = min((seconds for seconds in limits if seconds is not None), default=None)
        pause = self._round if shortest is None else min(self._round, shortest / _LOOKS)
        self._pause = max(_SHORTEST_PAUSE, pause)

    def _look_after(self, session: ServerSession, now: float) -> None:
        server = self._server
        connection, running, busy_since = session.connection, session.running, session.busy_since
        if connection is None:
            server.end_if_vanished(session, now)
            return
        if running is not None and not session.ended:
            began, message = running
            most = server.settings_of(session.user).seconds_per_operation
            if most is not None and now - began > most:
                # torch cannot be interrupted; what the operation makes is freed with the session, when it is done.
                error = ConnectionRefusedByWorkerError(
                    f"The worker ended the session: {_named(message)} ran for more than {most:g} s. Ask for less at "
                    "once, or ask its owner for more time (seconds_per_operation)."
                )
                server.dismiss(session, error, "operation")
                return
        if busy_since is not None and now - busy_since > server.settings.heartbeat / 2:
            server.show_life(session, connection)


def _named(message: Any) -> str:
    return str(getattr(message, "cmd_name", None) or type(message).__name__)[:100]
