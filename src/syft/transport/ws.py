"""ws://host:port and wss://host:port: WebSockets. The handshake is that of the library's state machines, without I/O.

A server takes only clients that name our subprotocol, and none that name an origin: browsers always do, so no web page
can talk to a worker of the person who visits it.
"""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from syft.transport.accepting import Arrival, SocketListener
from syft.transport.address import host_and_port
from syft.transport.base import Connection, FrameLimits, Listener
from syft.transport.errors import HandshakeRefused
from syft.transport.handshake import (
    client_context,
    describe,
    dial,
    http_refusal,
    peek,
    receive_by,
    send_by,
    server_context,
)
from syft.transport.tcp import bind, describe_connection, peer_name, real_address
from syft.transport.ws_frames import WebsocketConnection

SUBPROTOCOL = Subprotocol("syft.frames.1")
_MOST_HEAD_BYTES = 1 << 14
_quiet = logging.getLogger("syft.transport.websockets")
_quiet.setLevel(logging.WARNING)


@dataclass(frozen=True)
class WebsocketBackend:
    """`scheme` is ws or wss."""

    scheme: str
    is_encrypted: bool

    def connect(
        self, address: str, *, tls: ssl.SSLContext | None, timeout: float, limits: FrameLimits
    ) -> Connection:
        place = host_and_port(address)
        context = client_context(address, tls, self.is_encrypted)
        uri = WebSocketURI(self.is_encrypted, place.host, place.port, "/", "", None, None)
        after: list[bytes] = []
        sock = dial(
            address,
            place,
            context,
            timeout,
            lambda s, deadline: after.append(_ask(s, uri, address, deadline)),
        )
        connection = WebsocketConnection(sock, address, limits, after[0], is_client=True)
        return describe_connection(connection, sock)

    def listen(self, address: str, *, tls: ssl.SSLContext | None, limits: FrameLimits) -> Listener:
        context = server_context(address, tls, self.is_encrypted)
        sock = bind(address)

        def welcome(arrival: Arrival) -> Connection:
            _check_first_bytes(arrival, context is not None)
            if context is not None:
                arrival.start_tls(context)
            after = _answer(arrival.sock, arrival.peer, arrival.deadline)
            connection = WebsocketConnection(arrival.sock, arrival.peer, limits, after, is_client=False)
            return describe_connection(connection, arrival.sock, is_server=True)

        return SocketListener(
            sock, real_address(address, sock), limits, lambda name: peer_name(self.scheme, name), welcome
        )


PLAIN = WebsocketBackend("ws", is_encrypted=False)
ENCRYPTED = WebsocketBackend("wss", is_encrypted=True)


def _check_first_bytes(arrival: Arrival, is_encrypted: bool) -> None:
    """Tell a client that is at the wrong port so, in words it can read."""
    first = peek(arrival.sock, arrival.deadline)
    if not first:
        raise HandshakeRefused(f"{arrival.peer} closed the connection before it said anything.")
    looks = describe(first)
    if is_encrypted and looks != "speaks TLS":
        cure = "this port speaks TLS: connect with wss://."
    elif not is_encrypted and looks != "speaks HTTP":
        cure = "this port speaks WebSocket without TLS: connect with ws://."
    else:
        return
    send_by(arrival.sock, http_refusal(f"T{cure[1:]}"), arrival.deadline)
    raise HandshakeRefused(f"{arrival.peer} {looks}, and {cure}")


def _ask(sock: socket.socket, uri: WebSocketURI, address: str, deadline: float) -> bytes:
    """The opening handshake of a client; what was read after it."""
    protocol = ClientProtocol(uri, subprotocols=[SUBPROTOCOL], logger=_quiet)
    protocol.send_request(protocol.connect())
    send_by(sock, b"".join(protocol.data_to_send()), deadline)
    head, after = _read_head(sock, address, deadline)
    protocol.receive_data(head)
    while not protocol.events_received() and protocol.handshake_exc is None:
        # A refusal has a body, which says why.
        protocol.receive_data(after) if after else protocol.receive_eof()
        after = receive_by(sock, 4096, deadline) if after else b""
    fault = protocol.handshake_exc
    if isinstance(fault, InvalidStatus):
        said = (fault.response.body or b"").decode("utf-8", "replace").strip()[:300]
        status = fault.response.status_code
        # What stands before a worker answers so while the worker is away (502, 503): it may come back.
        raise HandshakeRefused(
            f"{address} refused the connection ({status}): {said}", is_definite=status < 500
        )
    if fault is not None or protocol.subprotocol != SUBPROTOCOL:
        raise HandshakeRefused(
            f"{address} is a WebSocket server, but not one of ours ({fault or 'no subprotocol'})."
        )
    return after


def _answer(sock: socket.socket, peer: str, deadline: float) -> bytes:
    """The opening handshake of a server; what was read after it."""
    protocol = ServerProtocol(origins=[None], subprotocols=[SUBPROTOCOL], logger=_quiet)
    head, after = _read_head(sock, peer, deadline)
    protocol.receive_data(head)
    for event in protocol.events_received():
        if isinstance(event, Request):
            protocol.send_response(protocol.accept(event))
    send_by(sock, b"".join(protocol.data_to_send()), deadline)
    if protocol.handshake_exc is not None:
        raise HandshakeRefused(
            f"{peer} did not open a WebSocket as a worker's client does: {protocol.handshake_exc}."
        )
    return after


def _read_head(sock: socket.socket, peer: str, deadline: float) -> tuple[bytes, bytes]:
    """An HTTP head with its empty line, and what came after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > _MOST_HEAD_BYTES:
            raise HandshakeRefused(f"{peer} sent more than {_MOST_HEAD_BYTES} bytes of headers.")
        more = receive_by(sock, 4096, deadline)
        if not more:
            raise HandshakeRefused(
                f"{peer} closed the connection in the middle of the opening handshake. Is it a WebSocket worker?",
                is_definite=False,
            )
        data += more
        if describe(data) != "speaks HTTP" and len(data) >= 4:
            raise HandshakeRefused(
                f"{peer} {describe(data)}, not WebSocket. Use the same kind of address at both ends."
            )
    head, separator, after = data.partition(b"\r\n\r\n")
    return head + separator, after
