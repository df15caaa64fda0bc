"""Frames between processes: one small interface, one file per transport, chosen by the scheme of an address.

    inproc://name       two threads of one process
    unix:///path        two processes of one machine
    tcp://host:port     tls://host:port (encrypted), both with length-prefixed frames
    ws://host:port      wss://host:port (encrypted), both WebSocket (RFC 6455)

    with transport.listen("tcp://127.0.0.1:0") as listener:
        client = transport.connect(listener.address)
        server = listener.accept()
        client.send([b"a frame", b" in two parts"])
        server.receive()

Knows no tensors and no messages. Imports the standard library, websockets, and `syft.exceptions`.
"""

from __future__ import annotations

from syft.transport import inproc, tcp, unix, ws
from syft.transport.address import is_loopback
from syft.transport.base import DEFAULT_LIMITS, Buffer, Connection, FrameLimits, Listener
from syft.transport.errors import (
    CannotConnect,
    CannotListen,
    ConnectionClosed,
    ConnectionLost,
    FrameRefused,
    FrameTooLarge,
    HandshakeRefused,
    TransportError,
)
from syft.transport.registry import Backend, connect, known_schemes, listen, register

__all__ = [
    "DEFAULT_LIMITS",
    "Backend",
    "Buffer",
    "CannotConnect",
    "CannotListen",
    "Connection",
    "ConnectionClosed",
    "ConnectionLost",
    "FrameLimits",
    "FrameRefused",
    "FrameTooLarge",
    "HandshakeRefused",
    "Listener",
    "TransportError",
    "connect",
    "is_loopback",
    "known_schemes",
    "listen",
    "register",
]

register("inproc", inproc)
register("unix", unix)
register("tcp", tcp.PLAIN)
register("tls", tcp.ENCRYPTED)
register("ws", ws.PLAIN)
register("wss", ws.ENCRYPTED)
