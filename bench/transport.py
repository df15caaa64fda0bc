"""Frames between two processes, against bare sockets and against the websockets library, all in one run.

The other process echoes frames of up to 4 MB and answers longer ones with one byte. The bare sockets send a length
and then the data, and read into memory they keep, which is less than a transport has to do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.harness import Figure, benchmark, side_by_side

SMALL, MIDDLE, LARGE = 100, 4_000_000, 40_000_000
SCHEMES = ("unix", "tcp", "tls", "ws", "wss")
Exchange = Callable[[bytes], Any]


def _answer(data: Any) -> Any:
    return data if len(data) <= MIDDLE else b"!"


# -- the other process -----------------------------------------------------------------------------------


def _serve(folder: Path) -> None:
    """Listen in every way, print the addresses, and answer until this process's input ends."""
    from syft import transport

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")
    for scheme in SCHEMES:
        place = folder / "socket" if scheme == "unix" else "127.0.0.1:0"
        listener = transport.listen(f"{scheme}://{place}", tls=context if scheme in ("tls", "wss") else None)
        print(listener.address, flush=True)
        threading.Thread(target=_echo, args=(listener,), daemon=True).start()
    bare = socket.create_server(("127.0.0.1", 0))
    print(bare.getsockname()[1], flush=True)
    threading.Thread(target=_echo_bare, args=(bare,), daemon=True).start()
    from websockets.sync.server import serve

    with serve(_echo_websocket, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(server.socket.getsockname()[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
    os._exit(0)


def _echo(listener: Any) -> None:
    with contextlib.suppress(ConnectionError):
        connection = listener.accept()
        while True:
            connection.send([_answer(connection.receive())])


def _echo_bare(listening: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        end = _Bare(listening.accept()[0])
        while True:
            end.send(_answer(end.receive()))


def _echo_websocket(connection: Any) -> None:
    for message in connection:
        connection.send(_answer(message))


class _Bare:
    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.kept = memoryview(bytearray(LARGE))

    def send(self, data: Any) -> None:
        if len(data) < 65536:
            self.sock.sendall(struct.pack("<Q", len(data)) + data)
        else:
            self.sock.sendall(struct.pack("<Q", len(data)))
            self.sock.sendall(data)

    def receive(self) -> memoryview:
        header = self.sock.recv(8, socket.MSG_WAITALL)
        if not header:
            raise ConnectionError
        (length,) = struct.unpack("<Q", header)
        view, got = self.kept[:length], 0
        while got < length:
            got += self.sock.recv_into(view[got:])
        return view

    def exchange(self, data: bytes) -> None:
        self.send(data)
        self.receive()


# -- this process ----------------------------------------------------------------------------------------


def _certificate(folder: Path) -> None:
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))


@contextlib.contextmanager
def _exchanges(looking: tuple[float, ...] = ()) -> Iterator[dict[str, Exchange]]:
    """What sends a frame and waits for the answer, by name: every transport, `bare` and `websockets`."""
    from websockets.sync.client import connect

    from syft import transport

    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        _certificate(folder)
        child = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "bench.transport", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert child.stdin is not None
        assert child.stdout is not None
        stack.callback(child.stdin.close)
        trusted = ssl.create_default_context(cafile=str(folder / "server.pem"))
        exchanges: dict[str, Exchange] = {}
        for scheme in SCHEMES:
            address = child.stdout.readline().strip().replace("127.0.0.1", "localhost")
            tls = trusted if scheme in ("tls", "wss") else None
            connection = stack.enter_context(transport.connect(address, tls=tls))
            exchanges[scheme] = _exchange(connection, connection.spin_seconds)
            for seconds in looking:
                exchanges[f"{scheme} {seconds}"] = _exchange(connection, seconds)
        bare = socket.create_connection(("127.0.0.1", int(child.stdout.readline())))
        stack.callback(bare.close)
        exchanges["bare"] = _Bare(bare).exchange
        port = int(child.stdout.readline())
        raw = stack.enter_context(connect(f"ws://127.0.0.1:{port}", compression=None, max_size=None))
        exchanges["websockets"] = lambda data: (raw.send(data), raw.recv())
        yield exchanges


def _exchange(connection: Any, spin: float) -> Exchange:
    def run(data: bytes) -> None:
        connection.spin_seconds = spin
        connection.send([data])
        connection.receive()

    return run


def _compare(what: str, size: int, rounds: int) -> list[Figure]:
    data = os.urandom(size)
    with _exchanges() as exchanges:
        runs: list[Callable[[], Any]] = [lambda e=e: e(data) for e in exchanges.values()]  # type: ignore[misc]
        times = dict(zip(exchanges, side_by_side(*runs, rounds=rounds), strict=True))
    figures = []
    for scheme in SCHEMES:
        other = "websockets" if scheme in ("ws", "wss") else "bare"
        target = "<= 1.3x" if scheme == "ws" else ""
        against = "websockets.sync, plain" if other == "websockets" else "a bare TCP socket"
        met = times[scheme] <= 1.3 * times[other] if target else None
        figures.append(Figure(f"{scheme}: {what}", times[scheme], times[other], against, target, met))
    return figures


@benchmark
def transport_small() -> list[Figure]:
    return _compare("100 bytes there and back", SMALL, 25)


@benchmark
def transport_middle() -> list[Figure]:
    return _compare("4 MB there and back", MIDDLE, 15)


@benchmark
def transport_large() -> list[Figure]:
    return _compare("40 MB one way", LARGE, 9)


@benchmark
def transport_looking_before_sleeping() -> list[Figure]:
    """See NOTE [Looking before sleeping] in `syft/transport/stream.py`; only this end looks."""
    data, looking = os.urandom(SMALL), (0.0, 20e-6, 50e-6, 100e-6)
    with _exchanges(looking) as exchanges:
        runs: list[Callable[[], Any]] = [lambda e=exchanges[f"tcp {s}"]: e(data) for s in looking]  # type: ignore[misc]
        times = side_by_side(*runs)
    return [
        Figure(f"tcp: 100 bytes, looking {spin * 1e6:.0f} us", time, times[0], "not looking", "", None)
        for spin, time in zip(looking, times, strict=True)
        if spin
    ]


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
