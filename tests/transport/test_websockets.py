"""ws:// against the websockets library at the other end, which knows the protocol better than we do."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve
from websockets.typing import Subprotocol

from stopwatch import Stopwatch
from syft import transport
from syft.transport import ConnectionClosed, ConnectionLost, FrameLimits, FrameRefused, HandshakeRefused
from syft.transport.ws import SUBPROTOCOL

pytestmark = pytest.mark.network


@contextlib.contextmanager
def library_client(listener: Any, **options: Any) -> Iterator[Any]:
    # The library's end waits for an answer to its goodbye, and ours only gives one while it receives.
    options = (
        dict(subprotocols=[SUBPROTOCOL], compression=None, max_size=None, proxy=None, close_timeout=0.2)
        | options
    )
    with connect(listener.address, **options) as client:
        yield client


@contextlib.contextmanager
def library_server(handler: Callable[[Any], None], **options: Any) -> Iterator[str]:
    options = dict(subprotocols=[SUBPROTOCOL], compression=None, max_size=None) | options
    with serve(handler, "127.0.0.1", 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def wires(make_wires: Any) -> Any:
    return make_wires("ws")


SIZES = [0, 1, 125, 126, 65519, 65535, 65536, 1_000_001, 3_000_000]


def test_the_librarys_client_is_served(wires: Any) -> None:
    listener = wires.listen()
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        for size in SIZES:
            data = os.urandom(size)
            client.send(data)
            assert bytes(server.receive(10)) == data
            server.send([data[: size // 3], data[size // 3 :]])
            assert client.recv(10) == data


def test_the_librarys_server_is_a_fine_peer(wires: Any) -> None:
    def echo(connection: Any) -> None:
        for message in connection:
            connection.send(message)

    with library_server(echo) as address:
        ours = wires.keep(transport.connect(address))
        for size in SIZES:
            data = os.urandom(size)
            ours.send([data[: size // 3], data[size // 3 :]])
            assert bytes(ours.receive(10)) == data
        ours.close()


def test_messages_in_fragments_with_pings_between_them_are_put_together(wires: Any) -> None:
    listener = wires.listen()
    pieces = [b"one", b"", os.urandom(100_000), b"four"]
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        pongs = []

        def pinging() -> Iterator[bytes]:
            for piece in pieces:
                yield piece
                pongs.append(client.ping())

        client.send(pinging())
        client.send(b"whole")
        assert bytes(server.receive(5)) == b"".join(pieces)
        assert server.receive(5) == b"whole"
        assert all(pong.wait(60) for pong in pongs)


def test_fragments_together_may_not_pass_the_limit(wires: Any) -> None:
    listener = wires.listen(FrameLimits(max_frame_bytes=1000))
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        client.send([bytes(400)] * 3)
        with pytest.raises(FrameRefused, match="1200 bytes; the limit here is 1000"):
            server.receive(5)
        with pytest.raises(ConnectionClosedError, match="1009"):
            client.recv(5)


def test_text_is_refused(wires: Any) -> None:
    listener = wires.listen()
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        client.send("text")
        with pytest.raises(FrameRefused, match="only binary"):
            server.receive(5)
        with pytest.raises(ConnectionClosedError, match="1002"):
            client.recv(5)


def test_closing_is_clean_in_both_directions(wires: Any) -> None:
    listener = wires.listen()
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        client.close()
        with pytest.raises(ConnectionClosed):
            server.receive(5)
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        server.close()
        assert list(client) == []
    with library_client(listener) as client:
        server = wires.keep(listener.accept(5))
        client.close(4001, "enough")
        with pytest.raises(ConnectionLost, match="4001, 'enough'"):
            server.receive(5)


def test_a_web_page_cannot_connect(wires: Any) -> None:
    listener = wires.listen()
    refused: list[str] = []
    listener.on_refused = lambda _peer, why: refused.append(why)
    with pytest.raises(InvalidStatus, match="403"), library_client(listener, origin="https://evil.example"):
        pass
    for subprotocols in (None, [Subprotocol("chat")]):
        with pytest.raises(InvalidStatus, match="400"), library_client(listener, subprotocols=subprotocols):
            pass
    deadline = time.monotonic() + 60
    while len(refused) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "rigin" in refused[0] and "subprotocol" in refused[1]


def test_a_websocket_server_of_another_kind_is_refused(wires: Any) -> None:
    with (
        library_server(lambda connection: None, subprotocols=None) as address,
        pytest.raises(HandshakeRefused, match="not one of ours"),
    ):
        transport.connect(address)
    with (
        library_server(lambda connection: None, subprotocols=[Subprotocol("chat")]) as address,
        pytest.raises(HandshakeRefused, match=r"refused the connection.*subprotocol"),
    ):
        transport.connect(address)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack("!BB", 0x82, 5) + b"hello", "not masked"),
        (struct.pack("!BB4s", 0xC2, 0x80, b"mask"), "no WebSocket frame"),
        (struct.pack("!BB4s", 0x83, 0x80, b"mask"), "no WebSocket frame"),
        (struct.pack("!BB4s", 0x80, 0x80, b"mask"), "out of order"),
        (struct.pack("!BBH4s", 0x89, 0xFE, 126, b"mask") + bytes(126), "control frame that is too long"),
        (struct.pack("!BB4s", 0x09, 0x80, b"mask"), "control frame"),
        (struct.pack("!BB4s", 0x02, 0x80, b"mask") * 2, "out of order"),
    ],
    ids=["unmasked", "reserved", "opcode", "continuation", "long ping", "ping in parts", "two beginnings"],
)
def test_frames_that_break_the_protocol_end_the_connection(wires: Any, frame: bytes, why: str) -> None:
    ours, theirs = wires.pair()
    ours._stream._socket.sendall(frame)
    with pytest.raises(FrameRefused, match=why):
        theirs.receive(5)
    with pytest.raises(ConnectionLost, match="1002"):
        ours.receive(5)


def test_pings_never_keep_a_receiver_from_its_timeout(wires: Any) -> None:
    ours, theirs = wires.pair()
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            ours._control(9, b"x" * 100)

    thread = threading.Thread(target=flood)
    thread.start()
    clock = Stopwatch()
    with pytest.raises(TimeoutError):
        theirs.receive(0.3)
    assert clock.seconds < 3
    stop.set()
    thread.join()
    ours.send([b"data"])
    assert theirs.receive(5) == b"data"


def test_an_idle_connection_is_pinged_and_lives_on(wires: Any) -> None:
    ours, theirs = wires.pair(here=FrameLimits(stall_timeout=0.2), there=FrameLimits(stall_timeout=0.2))
    pings = []
    for end in (ours, theirs):
        end._stream.idle_seconds = 0.05
        ping = end._ping
        end._stream.on_idle = lambda ping=ping: (pings.append(1), ping())

    def wait() -> None:
        with pytest.raises(TimeoutError):
            ours.receive(0.8)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.raises(TimeoutError):
        theirs.receive(0.8)
    waiting.join()
    assert len(pings) >= 4
    ours.send([b"still here"])
    assert theirs.receive(5) == b"still here"
