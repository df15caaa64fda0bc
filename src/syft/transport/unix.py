"""unix:///path: length-prefixed frames over a Unix socket, which only its owner's processes can open."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import time

from syft.transport import prefixed
from syft.transport.accepting import Arrival, SocketListener
from syft.transport.address import split
from syft.transport.base import Connection, FrameLimits, Listener
from syft.transport.errors import CannotConnect, CannotListen
from syft.transport.handshake import client_context, shake_hands
from syft.transport.sockets import tune


def connect(address: str, *, tls: ssl.SSLContext | None, timeout: float, limits: FrameLimits) -> Connection:
    client_context(address, tls, is_encrypted=False)
    path = _path(address)
    deadline = time.monotonic() + timeout
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        tune(sock, is_local=True)
        sock.settimeout(timeout)
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise CannotConnect(f"Nobody answers at {address}: {error}. Is the worker running there?") from error

    def greet(sock: socket.socket) -> socket.socket:
        prefixed.greet(sock, address, deadline)
        return sock

    return _connection(shake_hands(sock, address, greet), address, limits)


def listen(address: str, *, tls: ssl.SSLContext | None, limits: FrameLimits) -> Listener:
    client_context(address, tls, is_encrypted=False)
    path = _path(address)
    _remove_stale(address, path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        tune(sock, is_local=True)
        sock.bind(path)
        # Nobody can connect before listen(), so nobody comes in before the mode is right.
        os.chmod(path, 0o600)
        mine = os.stat(path)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise CannotListen(f"listen({address!r}) failed: {error}.") from error

    def welcome(arrival: Arrival) -> Connection:
        prefixed.welcome(arrival.sock, arrival.peer, arrival.deadline)
        return _connection(arrival.sock, arrival.peer, limits)

    def remove() -> None:
        try:
            there = os.stat(path)
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                os.unlink(path)
        except OSError:
            pass

    return SocketListener(sock, address, limits, lambda _name: address, welcome, on_close=remove)


def _connection(sock: socket.socket, peer: str, limits: FrameLimits) -> Connection:
    connection = prefixed.PrefixedConnection(sock, peer, limits)
    connection.is_local = True
    return connection


def _path(address: str) -> str:
    _scheme, path = split(address)
    if not hasattr(socket, "AF_UNIX"):
        raise ValueError(f"{address!r}: this system has no Unix sockets. Use tcp://127.0.0.1:0.")
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError(
            f"The address {address!r} is not of the form unix:///path/of/a/file, with three slashes."
        )
    if len(os.fsencode(path)) > 100:
        raise ValueError(
            f"The path of {address!r} has more than 100 bytes, which is more than systems allow for a socket. Use a "
            "shorter one, e.g. under the system's folder for temporary files."
        )
    return path


def _remove_stale(address: str, path: str) -> None:
    """Remove what a dead process left. What answers, or is no socket, is left alone."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"listen({address!r}) failed: {error}.") from error
    if not is_socket:
        raise CannotListen(
            f"listen({address!r}): there is a file of another kind at that path. Choose another path."
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as error:
            raise CannotListen(
                f"listen({address!r}): there is a socket at that path and it cannot be asked whether it is in use "
                f"({error}). Choose another path, or remove it if nobody uses it."
            ) from error
    raise CannotListen(
        f"listen({address!r}): somebody listens there already. Choose another path, or stop it."
    )
