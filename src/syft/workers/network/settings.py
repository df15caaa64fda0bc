"""`ServerSettings`: what a server expects of its clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server expects of its clients.

    heartbeat              seconds; a client that is silent for three of them is cut off
    grace                  seconds after which what a vanished client held is freed
    max_message            bytes of one message, however many chunks it comes in
    max_sessions           sessions at once, of all users
    max_sessions_per_user  sessions at once, of one user
    seconds_per_operation  after which a session is ended for what it runs; None: no limit
    """

    heartbeat: float = 10.0
    grace: float = 60.0
    max_message: int = 4 << 30
    max_sessions: int = 1_024
    max_sessions_per_user: int = 128
    seconds_per_operation: float | None = None
