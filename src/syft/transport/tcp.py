"""tcp://host:port and tls://host:port: length-prefixed frames over TCP, plain or in TLS."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any

from syft.transport import prefixed
from syft.transport.accepting import Arrival, SocketListener
from syft.transport.address import HostPort, host_and_port, is_loopback_host, split
from syft.transport.base import Connection, FrameLimits, Listener
from syft.transport.errors import CannotListen, HandshakeRefused
from syft.transport.handshake import (
    client_certificate_expiry,
    client_certificate_name,
    client_context,
    describe,
    dial,
    http_refusal,
    peek,
    send_by,
    server_context,
)
from syft.transport.sockets import SocketConnection, tune


@dataclass(frozen=True)
class TcpBackend:
    """`scheme` is tcp or tls."""

    scheme: str
    is_encrypted: bool

    def connect(
        self, address: str, *, tls: ssl.SSLContext | None, timeout: float, limits: FrameLimits
    ) -> Connection:
        place = host_and_port(address)
        context = client_context(address, tls, self.is_encrypted)
        sock = dial(
            address, place, context, timeout, lambda s, deadline: prefixed.greet(s, address, deadline)
        )
        return describe_connection(prefixed.PrefixedConnection(sock, address, limits), sock)

    def listen(self, address: str, *, tls: ssl.SSLContext | None, limits: FrameLimits) -> Listener:
        context = server_context(address, tls, self.is_encrypted)
        sock = bind(address)

        def welcome(arrival: Arrival) -> Connection:
            if context is not None:
                first = peek(arrival.sock, arrival.deadline)
                if first[:1] != b"\x16":
                    if first[:4] == prefixed.MAGIC:
                        send_by(arrival.sock, prefixed.preamble(prefixed.SPEAKS_TLS), arrival.deadline)
                    elif describe(first) == "speaks HTTP":
                        words = http_refusal("This port speaks TLS: connect with tls://.")
                        send_by(arrival.sock, words, arrival.deadline)
                    raise HandshakeRefused(
                        f"{arrival.peer} {describe(first) if first else 'said nothing'}, and this port speaks TLS: "
                        "connect with tls://."
                    )
                arrival.start_tls(context)
            prefixed.welcome(arrival.sock, arrival.peer, arrival.deadline)
            connection = prefixed.PrefixedConnection(arrival.sock, arrival.peer, limits)
            return describe_connection(connection, arrival.sock, is_server=True)

        return SocketListener(
            sock, real_address(address, sock), limits, lambda name: peer_name(self.scheme, name), welcome
        )


PLAIN = TcpBackend("tcp", is_encrypted=False)
ENCRYPTED = TcpBackend("tls", is_encrypted=True)


# -- what ws:// needs as well ----------------------------------------------------------------------------


def bind(address: str) -> socket.socket:
    """A listening socket at scheme://host:port. !! CannotListen."""
    place = host_and_port(address)
    try:
        family = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.create_server((place.host, place.port), family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        raise CannotListen(
            f"listen({address!r}) failed: {error}. Choose an address of this machine, and another port if that one is "
            "taken (0 takes a free one)."
        ) from error
    # Accepted sockets inherit what a connection's window is computed from, which is too late to change afterwards.
    tune(sock, is_local=is_loopback_host(sock.getsockname()[0]))
    return sock


def real_address(address: str, sock: socket.socket) -> str:
    """The address that was asked for, with the port that was chosen.

    NB: with its own host, not the number it stands for: certificates are made for names.
    """
    scheme, _rest = split(address)
    return f"{scheme}://{HostPort(host_and_port(address).host, sock.getsockname()[1])}"


def peer_name(scheme: str, name: Any) -> str:
    return f"{scheme}://{HostPort(name[0], name[1])}"


def describe_connection(
    connection: SocketConnection, sock: socket.socket, is_server: bool = False
) -> Connection:
    """Note on a connection what its socket knows."""
    connection.is_encrypted = isinstance(sock, ssl.SSLSocket)
    connection.is_local = is_loopback_host(sock.getpeername()[0])
    if is_server:
        connection.peer_certificate_name = client_certificate_name(sock)
        connection.peer_certificate_expires = client_certificate_expiry(sock)
    return connection
