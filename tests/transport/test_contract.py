"""What every transport promises, tried on all of them."""

from __future__ import annotations

import os
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stopwatch import Stopwatch
from syft import transport
from syft.transport import (
    CannotConnect,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    FrameLimits,
    FrameRefused,
    FrameTooLarge,
)

SOCKETS = ["unix", "tcp", "tls", "ws", "wss"]
SMALL = FrameLimits(max_frame_bytes=1000)


def _marked(schemes: list[str]) -> list[Any]:
    return [s if s == "inproc" else pytest.param(s, marks=pytest.mark.network) for s in schemes]


@pytest.fixture(params=_marked(["inproc", *SOCKETS]))
def wires(request: pytest.FixtureRequest, make_wires: Any) -> Any:
    return make_wires(request.param)


@pytest.fixture(params=_marked(SOCKETS))
def socket_wires(request: pytest.FixtureRequest, make_wires: Any) -> Any:
    return make_wires(request.param)


@pytest.fixture
def pair(wires: Any) -> tuple[Connection, Connection]:
    ends: tuple[Connection, Connection] = wires.pair()
    return ends


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start `work`; calling what is returned waits for it and gives its result, or raises what it raised."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return lambda: future.result(30)


def raw_socket(connection: Connection) -> socket.socket:
    """The socket of a connection whose handshake is done, to misuse it."""
    sock: socket.socket = connection._stream._socket  # type: ignore[attr-defined]
    sock.settimeout(5)
    return sock


def announcement(scheme: str, count: int) -> bytes:
    """The beginning of a frame of that many bytes, as a client sends it."""
    return (
        struct.pack("!BBQ4s", 0x82, 0xFF, count, b"mask")
        if scheme in ("ws", "wss")
        else struct.pack("<Q", count)
    )


# -- frames ----------------------------------------------------------------------------------------------


def test_frames_of_every_size_arrive_in_order_in_both_directions(pair: Any) -> None:
    sizes = [
        0,
        1,
        7,
        8,
        125,
        126,
        127,
        1000,
        65527,
        65528,
        65529,
        65535,
        65536,
        65537,
        1 << 20,
        (1 << 20) - 1,
        0,
        3,
    ]
    for ours, theirs in (pair, pair[::-1]):
        frames = [os.urandom(size) for size in sizes]
        sender = in_thread(lambda ours=ours, frames=frames: [ours.send([frame]) for frame in frames])
        for frame in frames:
            assert theirs.receive(10) == frame
        sender()


def test_twenty_megabytes_arrive_whole(pair: Any) -> None:
    ours, theirs = pair
    data = os.urandom(20_000_000)
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        sent = in_thread(lambda s=sender: s.send([data]))
        assert bytes(receiver.receive(20)) == data
        sent()


def test_who_looks_at_a_large_frame_while_it_arrives_sees_it_grow(socket_wires: Any) -> None:
    ours, theirs = socket_wires.pair()
    data = random.Random(4).randbytes(5_000_000)
    seen: list[tuple[memoryview, int, bool]] = []
    theirs.on_part = lambda frame, here: seen.append((frame, here, frame[:here] == data[:here]))
    sent = in_thread(lambda: [ours.send([b"small"]), ours.send([data[:7], data[7:]]), ours.send([b"small"])])
    assert theirs.receive(10) == b"small"
    assert not seen
    frame = theirs.receive(10)
    assert frame == data
    assert seen
    assert all(part is frame and is_right for part, _here, is_right in seen)
    counts = [here for _frame, here, _is_right in seen]
    assert counts == sorted(set(counts))
    assert theirs.receive(10) == b"small"
    assert len(counts) == len(seen)
    sent()


def test_who_has_to_wait_until_the_peer_reads_says_so_before(wires: Any) -> None:
    ours, theirs = wires.pair()
    told = threading.Event()
    ours.on_full = told.set
    ours.send([b"small"])
    assert theirs.receive(10) == b"small"
    assert not told.is_set()
    data = bytes(24_000_000)  # more than lies between the two ends
    sent = in_thread(lambda: ours.send([data]))
    assert told.wait(10) == ours.tells_when_full or not ours.tells_when_full
    assert theirs.receive(20) == data
    sent()


def test_a_frame_of_many_parts_is_one_frame(pair: Any) -> None:
    ours, theirs = pair
    rng = random.Random(1)
    many: list[Any] = [rng.randbytes(rng.choice([0, 1, 3, 64, 5000])) for _ in range(2000)]
    many[::500] = [bytearray(100_000), memoryview(rng.randbytes(70_001)), rng.randbytes(16384), b""]
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        sent = in_thread(lambda s=sender: s.send(many))
        assert bytes(receiver.receive(10)) == b"".join(many)
        sent()
        sender.send([])
        sender.send([b"", bytearray(), memoryview(b"")])
        assert receiver.receive(5) == b""
        assert receiver.receive(5) == b""


def test_parts_may_be_views_of_numbers_of_any_shape(pair: Any) -> None:
    ours, theirs = pair
    matrix = memoryview(bytes(range(48))).cast("I", (3, 4))
    ours.send([matrix, memoryview(b"").cast("d")])
    assert theirs.receive(5) == bytes(range(48))


def test_what_is_received_is_writable_and_the_callers(pair: Any) -> None:
    ours, theirs = pair
    for size in (10, 65_000, 70_000, 3_000_000):
        mine = bytearray(b"a" * size)
        sent = in_thread(lambda mine=mine: ours.send([mine]))
        first = theirs.receive(10)
        sent()
        mine[0] = ord("z")
        sent = in_thread(lambda size=size: ours.send([b"b" * size]))
        second = theirs.receive(10)
        sent()
        view = memoryview(first)
        assert not view.readonly and view.contiguous and view.nbytes == size
        view[:3] = b"xyz"
        assert bytes(second) == b"b" * size
        assert bytes(view) == b"xyz" + b"a" * (size - 3)


def test_eight_threads_that_send_at_once_never_mix_their_frames(pair: Any) -> None:
    ours, theirs = pair
    sizes = [3, 500, 66_000, 300_000]

    def send(number: int) -> None:
        for count in range(20):
            size = sizes[(number + count) % 4]
            ours.send([bytes([number, count]), bytes([number]) * size, bytes([count]) * size])

    threads = [in_thread(lambda number=number: send(number)) for number in range(8)]
    counts = [0] * 8
    for _ in range(160):
        frame = bytes(theirs.receive(20))
        number, count = frame[0], frame[1]
        size = sizes[(number + count) % 4]
        assert count == counts[number], "the frames of one thread keep their order"
        assert frame[2:] == bytes([number]) * size + bytes([count]) * size
        counts[number] += 1
    for wait in threads:
        wait()


def test_both_ends_send_two_hundred_frames_at_once_without_a_deadlock(pair: Any) -> None:
    rng = random.Random(7)
    frames = [rng.randbytes(rng.choice([0, 10, 1000, 70_000, 400_000])) for _ in range(200)]
    senders = [in_thread(lambda end=end: [end.send([f]) for f in frames]) for end in pair]
    receivers = [in_thread(lambda end=end: [bytes(end.receive(30)) for _ in frames]) for end in pair]
    for wait in receivers:
        assert wait() == frames
    for wait in senders:
        wait()


def test_two_big_frames_cross_each_other(pair: Any) -> None:
    data = os.urandom(12_000_000)
    senders = [in_thread(lambda end=end: end.send([data])) for end in pair]
    receivers = [in_thread(lambda end=end: bytes(end.receive(30)) == data) for end in pair]
    assert [wait() for wait in receivers] == [True, True]
    for wait in senders:
        wait()


@pytest.mark.parametrize("wrong", [b"bytes", "text", [1, 2], ["text"], [None]])
def test_what_is_no_list_of_buffers_is_refused(pair: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"send\(\) takes"):
        pair[0].send(wrong)
    pair[0].send([b"still works"])
    assert pair[1].receive(5) == b"still works"


def test_a_view_with_gaps_is_refused(pair: Any) -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        pair[0].send([memoryview(b"abcdef")[::2]])


# -- what a connection says of itself --------------------------------------------------------------------


def test_a_connection_knows_its_peer(wires: Any, pair: Any) -> None:
    for end in pair:
        assert end.peer.startswith(f"{wires.scheme}://")
        assert end.is_local
        assert end.is_encrypted == (wires.scheme in ("tls", "wss"))
        assert end.peer_certificate_name is None
        assert wires.scheme in repr(end)


def test_port_zero_becomes_a_real_port(socket_wires: Any) -> None:
    listener = socket_wires.listen()
    assert listener.address.startswith(f"{socket_wires.scheme}://")
    assert not listener.address.endswith(":0")
    assert transport.is_loopback(listener.address)


# -- waiting and closing ---------------------------------------------------------------------------------


def test_a_timeout_loses_nothing(pair: Any) -> None:
    ours, theirs = pair
    with pytest.raises(TimeoutError):
        theirs.receive(0)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        theirs.receive(0.1)
    assert 0.09 < time.monotonic() - started < 2
    ours.send([b"first"])
    ours.send([b"second"])
    assert theirs.receive(5) == b"first"
    assert theirs.receive(0) == b"second"


def test_a_frame_that_comes_byte_by_byte_survives_many_timeouts(socket_wires: Any) -> None:
    ours, theirs = socket_wires.pair()
    sock, data, key = raw_socket(ours), os.urandom(70_000), b"mask"
    payload = data
    if socket_wires.scheme in ("ws", "wss"):
        payload = bytes(byte ^ key[i % 4] for i, byte in enumerate(data))
    frame = announcement(socket_wires.scheme, len(data)) + payload
    timeouts = 0
    for cut in [*range(20), 30, 5000, 5001, 65_000, 66_001, len(frame)]:
        sock.sendall(frame[:cut])
        frame = frame[cut:]
        if not frame:
            break
        with pytest.raises(TimeoutError):
            theirs.receive(0.01)
        timeouts += 1
    assert timeouts > 5
    sock.sendall(frame)
    assert bytes(theirs.receive(5)) == data


def test_close_wakes_a_receiver_at_both_ends(pair: Any) -> None:
    ours, theirs = pair
    here, there = in_thread(ours.receive), in_thread(theirs.receive)
    time.sleep(0.1)
    ours.close()
    with pytest.raises(ConnectionClosed, match="at this end"):
        here()
    with pytest.raises(ConnectionClosed, match="closed the connection"):
        there()
    assert ours.closed and theirs.closed
    for end in pair:
        with pytest.raises(ConnectionClosed):
            end.send([b"late"])
        with pytest.raises(ConnectionClosed):
            end.receive(1)


def test_close_wakes_a_blocked_sender(pair: Any) -> None:
    ours, _theirs = pair

    def flood() -> None:
        while True:
            ours.send([bytes(1_000_000)])

    sender = in_thread(flood)
    time.sleep(0.3)
    ours.close()
    with pytest.raises(ConnectionClosed):
        sender()


def test_a_sender_is_woken_when_the_peer_closes(pair: Any) -> None:
    ours, theirs = pair

    def flood() -> None:
        while True:
            ours.send([bytes(1_000_000)])

    sender = in_thread(flood)
    time.sleep(0.3)
    theirs.close()
    with pytest.raises(ConnectionError):
        sender()


def test_close_is_idempotent_and_may_come_from_everywhere_at_once(pair: Any) -> None:
    receivers = [in_thread(end.receive) for end in pair]
    closers = [in_thread(end.close) for end in (*pair, *pair, *pair)]
    for wait in closers:
        wait()
    for end in pair:
        end.close()
        assert end.closed
    for wait in receivers:
        with pytest.raises(ConnectionClosed):
            wait()


def test_what_was_sent_before_the_close_still_arrives(pair: Any) -> None:
    ours, theirs = pair
    theirs.send([b"never read by ours"])
    frames = [b"one", bytes(100_000), b"three"]
    for frame in frames:
        ours.send([frame])
    ours.close()
    for frame in frames:
        assert bytes(theirs.receive(5)) == frame
    with pytest.raises(ConnectionClosed):
        theirs.receive(5)


def test_with_closes(wires: Any) -> None:
    with wires.listen() as listener:
        with wires.connect(listener) as ours:
            theirs = wires.keep(listener.accept(5))
        assert ours.closed
    with pytest.raises(ConnectionClosed):
        theirs.receive(5)
    with pytest.raises(ConnectionClosed, match="listener"):
        listener.accept(5)


def test_closing_a_listener_wakes_accept_and_leaves_connections_alone(wires: Any) -> None:
    listener = wires.listen()
    ours = wires.connect(listener)
    theirs = wires.keep(listener.accept(5))
    waiting = in_thread(listener.accept)
    time.sleep(0.05)
    listener.close()
    listener.close()
    with pytest.raises(ConnectionClosed):
        waiting()
    ours.send([b"still here"])
    assert theirs.receive(5) == b"still here"
    with pytest.raises(CannotConnect, match="Nobody"):
        wires.connect(listener)


def test_nobody_connects_is_a_timeout(wires: Any) -> None:
    with pytest.raises(TimeoutError, match="Nobody connected"):
        wires.listen().accept(0.05)


def test_a_connection_that_nobody_accepted_is_closed_with_the_listener(wires: Any) -> None:
    listener = wires.listen()
    ours = wires.connect(listener)
    time.sleep(0.1)
    listener.close()
    with pytest.raises(ConnectionError):
        ours.receive(5)


def test_sixty_four_connections_at_once(wires: Any) -> None:
    listener = wires.listen()
    clients = [in_thread(lambda: wires.connect(listener)) for _ in range(64)]
    servers = [wires.keep(listener.accept(20)) for _ in range(64)]
    connected = [wait() for wait in clients]
    for number, client in enumerate(connected):
        client.send([b"%d" % number])
    for server in servers:
        server.send([b"for ", server.receive(5)])
    assert [bytes(client.receive(5)) for client in connected] == [b"for %d" % n for n in range(64)]


# -- peers that go away, or misbehave --------------------------------------------------------------------


def test_a_killed_peer_is_noticed_at_once(socket_wires: Any, run_python: Any) -> None:
    listener = socket_wires.listen()
    process = run_python(
        """
        import ssl
        tls = ssl.create_default_context(cafile=sys.argv[2]) if sys.argv[1].startswith(("tls", "wss")) else None
        connection = transport.connect(sys.argv[1], tls=tls)
        connection.send([b"here"])
        connection.receive()
        """,
        listener.address,
        str(socket_wires.certificates.ca),
    )
    server = socket_wires.keep(listener.accept(20))
    assert server.receive(5) == b"here"
    waiting = in_thread(server.receive)
    time.sleep(0.05)
    process.kill()
    clock = Stopwatch()
    with pytest.raises(ConnectionLost, match="without a goodbye"):
        waiting()
    assert clock.seconds < 2
    assert server.closed


def test_a_frame_that_is_cut_off_is_not_delivered(socket_wires: Any) -> None:
    for size in (50, 200_000):
        ours, theirs = socket_wires.pair()
        sock = raw_socket(ours)
        sock.sendall(announcement(socket_wires.scheme, size) + bytes(size // 2))
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
        with pytest.raises(ConnectionLost, match="in the middle of a frame"):
            theirs.receive(5)
        with pytest.raises(ConnectionLost):
            theirs.receive(5)


def test_a_frame_beyond_the_limit_is_not_sent(wires: Any) -> None:
    ours, theirs = wires.pair(here=SMALL)
    with pytest.raises(FrameTooLarge, match=r"1001 bytes.*1000"):
        ours.send([bytes(1000), b"!"])
    ours.send([bytes(999), b"!"])
    assert len(theirs.receive(5)) == 1000


def test_a_frame_beyond_the_receivers_limit_ends_the_connection_with_a_sentence_at_both_ends(
    wires: Any,
) -> None:
    ours, theirs = wires.pair(there=SMALL)
    ours.send([b"fine"])
    try:
        ours.send([bytes(1001)])
    except ConnectionLost as error:
        assert "longer than it takes" in str(error)  # noqa: PT017
    assert theirs.receive(5) == b"fine"
    with pytest.raises(FrameRefused, match="announced a frame of 1001 bytes; the limit here is 1000"):
        theirs.receive(5)
    with pytest.raises(ConnectionLost, match="longer than it takes"):
        ours.receive(5)


def test_a_huge_announcement_is_refused_before_anything_is_allocated(socket_wires: Any) -> None:
    ours, theirs = socket_wires.pair()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    raw_socket(ours).sendall(announcement(socket_wires.scheme, (1 << 62) + 5))
    with pytest.raises(FrameRefused, match="announced a frame of"):
        theirs.receive(5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_an_allowed_announcement_commits_no_memory_until_the_bytes_come(socket_wires: Any) -> None:
    ours, theirs = socket_wires.pair()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    raw_socket(ours).sendall(announcement(socket_wires.scheme, 1_000_000_000) + bytes(1000))
    with pytest.raises(TimeoutError):
        theirs.receive(0.2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_peer_that_stops_in_the_middle_of_a_frame_is_given_up(socket_wires: Any) -> None:
    ours, theirs = socket_wires.pair(there=FrameLimits(stall_timeout=0.3))
    with pytest.raises(TimeoutError):  # no frame was begun: nothing stalls
        theirs.receive(0.5)
    raw_socket(ours).sendall(announcement(socket_wires.scheme, 100_000) + bytes(10))
    for _ in range(2):  # the wait is counted over all calls
        with pytest.raises(TimeoutError):
            theirs.receive(0.1)
    with pytest.raises(ConnectionLost, match="stall_timeout"):
        theirs.receive(5)


def test_a_peer_that_sends_drop_by_drop_is_given_up(socket_wires: Any) -> None:
    ours, theirs = socket_wires.pair(there=FrameLimits(stall_timeout=0.3, min_rate=1000))
    sock = raw_socket(ours)
    sock.sendall(announcement(socket_wires.scheme, 100_000))

    def drip() -> None:
        try:
            for _ in range(100):
                sock.sendall(b"!")
                time.sleep(0.05)
        except OSError:
            pass

    dripping = in_thread(drip)
    clock = Stopwatch()
    with pytest.raises(ConnectionLost, match="min_rate"):
        theirs.receive(5)
    assert clock.seconds < 2
    theirs.close()
    dripping()


def test_a_peer_that_does_not_read_is_given_up(wires: Any) -> None:
    ours, _theirs = wires.pair(here=FrameLimits(stall_timeout=0.3))

    def flood() -> None:
        while True:
            ours.send([bytes(4_000_000)])

    clock = Stopwatch()
    with pytest.raises(ConnectionLost, match="stall_timeout"):
        flood()
    assert clock.seconds < 10
    assert ours.closed
    with pytest.raises(ConnectionError):
        ours.send([b"no more"])


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        bytes(64),
        b"\xff" * 64,
    ],
    ids=["http", "tls", "zeros", "ones"],
)
def test_garbage_is_refused_with_a_sentence_and_disturbs_nobody(socket_wires: Any, garbage: bytes) -> None:
    listener = socket_wires.listen(FrameLimits(handshake_timeout=1.0))
    refused: list[tuple[str, str]] = []
    said = threading.Event()
    listener.on_refused = lambda peer, why: (refused.append((peer, why)), said.set())[0]
    with open_socket(listener.address) as stranger:
        stranger.sendall(garbage)
        assert said.wait(60)
        stranger.settimeout(5)
        try:
            while stranger.recv(1000):
                pass
        except ConnectionResetError:
            pass
    assert len(refused) == 1
    assert refused[0][0].startswith(f"{socket_wires.scheme}://")
    assert refused[0][1].endswith(".")
    assert_serves(socket_wires, listener)


def test_slow_handshakes_do_not_hold_up_others(socket_wires: Any) -> None:
    listener = socket_wires.listen(FrameLimits(handshake_timeout=0.6, max_handshakes=4))
    refused: list[str] = []
    listener.on_refused = lambda _peer, why: refused.append(why)
    silent = [socket_wires.keep(open_socket(listener.address)) for _ in range(10)]
    silent[-1].sendall(
        b"G" if socket_wires.scheme == "ws" else b"\x16" if "s" in socket_wires.scheme[1:] else b"\x8b"
    )
    clock = Stopwatch()
    assert_serves(socket_wires, listener)
    assert clock.seconds < 0.5
    deadline = time.monotonic() + 60
    while len(refused) < 10 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(refused) == 10
    assert sum("too many others" in why for why in refused) >= 6
    assert sum("within 0.6 seconds" in why for why in refused) >= 2


def test_connecting_to_somebody_silent_ends(socket_wires: Any) -> None:
    family = socket.AF_UNIX if socket_wires.scheme == "unix" else socket.AF_INET
    with socket.socket(family) as silent:
        silent.bind(str(socket_wires.folder / "silent") if family == socket.AF_UNIX else ("127.0.0.1", 0))
        silent.listen()
        place = silent.getsockname()
        address = (
            f"unix://{place}" if family == socket.AF_UNIX else f"{socket_wires.scheme}://127.0.0.1:{place[1]}"
        )
        tls = socket_wires.certificates.client() if socket_wires.scheme in ("tls", "wss") else None
        clock = Stopwatch()
        with pytest.raises(CannotConnect, match="did not finish the handshake"):
            transport.connect(address, tls=tls, timeout=0.3)
        assert clock.seconds < 3


def test_whatever_bytes_come_the_receiver_gets_frames_or_a_connection_error(socket_wires: Any) -> None:
    rng = random.Random(11)
    listener = socket_wires.listen(FrameLimits(max_frame_bytes=100_000))
    ends = []
    for _ in range(40 if socket_wires.scheme in ("tls", "wss") else 150):
        client = socket_wires.connect(listener)
        server = listener.accept(5)
        data = bytearray()
        for _ in range(rng.randrange(1, 6)):
            size = rng.choice([0, 1, 100, 130, 70_000])
            if socket_wires.scheme in ("ws", "wss"):
                data += struct.pack(
                    "!BBH4s", rng.choice([0x82, 0x02, 0x80, 0x89, 0x88]), 0xFE, size & 0xFFFF, b"mask"
                )
            else:
                data += struct.pack("<Q", size)
            data += rng.randbytes(size)
        for _ in range(rng.randrange(4)):
            data[rng.randrange(min(len(data), 64))] = rng.randrange(256)
        try:
            raw_socket(client).sendall(data)
        except OSError:
            pass
        client.close()
        try:
            while True:
                assert len(server.receive(5)) <= 100_000
        except ConnectionError as error:
            ends.append(type(error).__name__)
        assert server.closed
    assert len(set(ends)) >= 2, "some were refused and some just ended"


def test_a_listener_takes_little_until_it_is_told_to_take_more(wires: Any) -> None:
    limits = FrameLimits(max_frame_bytes=1_000_000, max_first_bytes=70_000)
    ours, theirs = wires.pair(here=limits, there=limits)
    assert (ours.max_frame_bytes, theirs.max_frame_bytes) == (1_000_000, 70_000)
    sent = in_thread(lambda: ours.send([bytes(70_000)]))
    assert len(theirs.receive(5)) == 70_000
    sent()
    sent = in_thread(lambda: theirs.send([bytes(200_000)]))
    assert len(ours.receive(5)) == 200_000, "the end that connected is not concerned"
    sent()
    theirs.max_frame_bytes = 1_000_000
    sent = in_thread(lambda: ours.send([bytes(900_000)]))
    assert len(theirs.receive(5)) == 900_000
    sent()
    ours, theirs = wires.pair(there=limits)

    def say_much() -> None:
        ours.send([bytes(70_001)])
        ours.receive(5)

    told = in_thread(say_much)
    with pytest.raises(FrameRefused, match="announced a frame of 70001 bytes; the limit here is 70000"):
        theirs.receive(5)
    with pytest.raises(ConnectionLost):
        told()


def test_the_first_limit_is_checked_before_anything_is_allocated(socket_wires: Any) -> None:
    listener = socket_wires.listen(FrameLimits(max_first_bytes=1000))
    ours = socket_wires.connect(listener)
    raw_socket(ours).sendall(announcement(socket_wires.scheme, 1 << 29))
    theirs = socket_wires.keep(listener.accept(5))
    with pytest.raises(FrameRefused, match="the limit here is 1000 "):
        theirs.receive(5)
    assert theirs._partial is None


def test_nothing_is_left_behind(wires: Any) -> None:
    def count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = count()
    listener = wires.listen()
    for number in range(60):
        ours = wires.connect(listener)
        theirs = listener.accept(5)
        ends = [ours, theirs]
        busy = [in_thread(lambda end=end: end.receive()) for end in ends]
        busy += [in_thread(lambda end=end: [end.send([bytes(300_000)]) for _ in range(50)]) for end in ends]
        closers = [in_thread(end.close) for end in ends[: 1 + number % 2]]
        for wait in (*closers, *busy):
            try:
                wait()
            except ConnectionError:
                pass
        ours.close()
        theirs.close()
    listener.close()
    deadline = time.monotonic() + 60
    while count() != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert count() <= before


def open_socket(address: str) -> socket.socket:
    """A socket to a listener, without any handshake."""
    if address.startswith("unix://"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address.removeprefix("unix://"))
        return sock
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))


def assert_serves(wires: Any, listener: Any) -> None:
    ours = wires.connect(listener)
    theirs = wires.keep(listener.accept(5))
    ours.send([b"hello"])
    assert theirs.receive(5) == b"hello"
