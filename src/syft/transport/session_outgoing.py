"""What a server sends over one connection: frames in chunks, refusals, and the last words to somebody who was refused."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Any

from syft.transport import Connection
from syft.transport import session_frames as frames
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind

#: How long a client that was refused has to read why.
DISMISSAL_SECONDS = 5.0


def send(connection: Connection, head: Head, payload: list[Any]) -> None:
    """!! OSError"""
    for frame in frames.encode_all(head, payload):
        connection.send(frame)


def try_send(connection: Connection, head: Head, payload: Iterable[Any] = ()) -> None:
    """Send to somebody who may have gone."""
    with contextlib.suppress(OSError):
        send(connection, head, list(payload))


def refuse(connection: Connection, error: Exception) -> None:
    """Tell a client why it is refused."""
    refusal = handshake.Refusal(type(error).__name__, str(error))
    try_send(connection, Head(Kind.REFUSAL), [handshake.encode(refusal)])


def hear_out(connection: Connection) -> None:
    """Read what somebody still sends who was refused, or they would not read why."""
    until = time.monotonic() + DISMISSAL_SECONDS
    with contextlib.suppress(OSError):
        while (left := until - time.monotonic()) > 0:
            connection.receive(timeout=left)
