"""Large frames between processes of one user go through shared memory where that can be had."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from syft import transport
from syft.transport import ConnectionLost, lanes, prefixed
from syft.transport.lanes import LEAST_BYTES, PIECE_BYTES, RING_BYTES, InLane, OutLane

pytestmark = pytest.mark.skipif(not lanes.are_there(), reason="there are no lanes on this system")

WORD = 1 << 63
MB = 1 << 20


@pytest.fixture(params=["tcp", "unix"])
def pair(make_wires: Any, request: Any) -> Any:
    return make_wires(request.param).pair()


def pattern(length: int, seed: int = 1) -> bytes:
    return (bytes(range(seed, 252)) * (length // (252 - seed) + 1))[:length]


def across(sender: Any, receiver: Any, data: bytes, parts: int = 1) -> int:
    """Send a frame and see that it arrives; how many bytes of it went over the socket."""
    step = max(1, -(-len(data) // parts))
    pieces = [data[i : i + step] for i in range(0, len(data), step)]
    counted, write = [0], sender._stream.write

    def count(buffers: list[Any], pace: Any) -> None:
        counted[0] += sum(map(len, buffers))
        write(buffers, pace)

    sender._stream.write = count
    try:
        thread = threading.Thread(target=sender.send, args=(pieces,))
        thread.start()
        assert receiver.receive(20) == data
        thread.join(60)
        assert not thread.is_alive()
    finally:
        del sender._stream.write
    return counted[0]


def open_lane(sender: Any, receiver: Any) -> None:
    """What makes a lane: a large frame, and something that goes back."""
    assert across(sender, receiver, pattern(LEAST_BYTES)) > LEAST_BYTES
    across(receiver, sender, b"thanks")


def open_lanes() -> int:
    return lanes._MOST_LANES - lanes._lanes_left._value


def test_the_second_large_frame_goes_through_memory_in_both_directions(pair: Any) -> None:
    ours, theirs = pair
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        open_lane(sender, receiver)
        for length in (LEAST_BYTES, PIECE_BYTES, PIECE_BYTES + 1, 3_333_333, RING_BYTES):
            for parts in (1, 7):
                assert across(sender, receiver, pattern(length, parts), parts) < 100
        assert across(sender, receiver, pattern(LEAST_BYTES - 1)) >= LEAST_BYTES - 1
        assert across(sender, receiver, b"small") == 5 + 8


def test_a_frame_that_does_not_fit_goes_over_the_socket(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    assert across(ours, theirs, pattern(RING_BYTES + 1)) > RING_BYTES
    size = 3 * RING_BYTES // 8
    three = [pattern(size, seed) for seed in (1, 2, 3)]
    sent = []

    def send() -> None:
        for data in three:
            ours.send([data])
            sent.append(ours._out_lane.room)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join(0.5)  # the third waits for somebody who reads, as without a lane
    assert sent[:2] == [RING_BYTES - size, RING_BYTES - 2 * size]
    assert [theirs.receive(10) == data for data in three] == [True] * 3
    thread.join(60)
    assert ours._out_lane.room == RING_BYTES


def test_frames_that_wait_lie_one_after_the_other_and_around_the_end(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    waiting: deque[bytes] = deque()
    for number in range(1, 40):
        data = pattern(LEAST_BYTES + RING_BYTES // 76 * (number % 17), number)
        if ours._out_lane.room < len(data) or number % 5 == 0:
            while waiting:
                assert theirs.receive(5) == waiting.popleft()
        ours.send([data])
        waiting.append(data)
        if number % 3 == 0:
            assert theirs.receive(5) == waiting.popleft()
    while waiting:
        assert theirs.receive(5) == waiting.popleft()
    assert theirs._in_lane._passed > 2 * RING_BYTES
    ours.send([pattern(MB)])
    assert ours._out_lane.position == MB  # from the beginning, when nothing was unread
    assert theirs.receive(5) == pattern(MB)


def test_who_is_told_of_frames_that_came_through_memory_is_told_of_no_others(pair: Any) -> None:
    ours, theirs = pair
    copied: list[memoryview] = []
    parts: list[int] = []
    theirs.on_copied, theirs.on_part = copied.append, lambda _frame, here: parts.append(here)
    open_lane(ours, theirs)
    assert not copied
    parts.clear()
    ours.send([pattern(MB)])
    frame = theirs.receive(10)
    assert len(copied) == 1 and copied[0] is frame and frame == pattern(MB)
    assert not parts
    across(ours, theirs, pattern(RING_BYTES + 1))  # it does not fit
    across(ours, theirs, b"small")
    assert len(copied) == 1 and parts


def test_what_the_sender_writes_later_changes_nothing(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    data = pattern(MB)
    ours.send([data])
    frame = theirs.receive(10)
    ours._out_lane._ring[:] = bytes(RING_BYTES)
    assert frame == data


def test_a_timeout_in_the_middle_loses_nothing(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    data = pattern(3 * PIECE_BYTES)
    lane = ours._out_lane
    ours._stream.write([struct.pack("<Q", WORD | 4 | len(data) << 8)], ours._out_pace)
    lane.write(data)
    for _ in range(2):
        ours._stream.write([b"\x01"], ours._out_pace)
        with pytest.raises(TimeoutError):
            theirs.receive(0.05)
    ours._stream.write([b"\x01"], ours._out_pace)
    assert theirs.receive(5) == data


def test_frames_that_were_sent_before_the_close_still_arrive(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    ours.send([pattern(MB)])
    ours.close()
    assert theirs.receive(5) == pattern(MB)
    with pytest.raises(transport.ConnectionClosed):
        theirs.receive(5)


def test_nothing_is_left_of_a_lane(make_wires: Any) -> None:
    before, maps = open_lanes(), Path("/proc/self/maps")
    files = len(os.listdir("/proc/self/fd"))
    wires = make_wires("tcp")
    for _ in range(3):
        ours, theirs = wires.pair()
        open_lane(ours, theirs)
        open_lane(theirs, ours)
        assert open_lanes() == before + 2 and "syft-lane" in maps.read_text()
        ours.close()
        with pytest.raises(transport.ConnectionClosed):
            theirs.receive(5)
        theirs.close()
        assert open_lanes() == before
    wires.close()
    assert "syft-lane" not in maps.read_text()
    assert len(os.listdir("/proc/self/fd")) <= files


def test_there_are_only_so_many(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_lanes_left", threading.Semaphore(0))
    ours, theirs = pair
    across(ours, theirs, pattern(MB))
    across(theirs, ours, b"thanks")
    assert across(ours, theirs, pattern(MB)) > MB


def test_two_processes(make_wires: Any, run_python: Any) -> None:
    listener = make_wires("tcp").listen()
    run_python(
        """
        with transport.connect(sys.argv[1]) as connection:
            while True:
                connection.send([bytes(connection.receive(20))[::-1]])
        """,
        listener.address,
    )
    with listener.accept(10) as connection:
        for number in range(1, 20):
            data = pattern(number * 300_000, number)
            connection.send([data])
            assert connection.receive(20) == data[::-1]
        assert connection._in_lane is not None and connection._in_lane._passed > 10 * MB
        assert connection._out_lane is not None


# -- who gets none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tls", "ws", "wss"])
def test_other_transports_have_none(make_wires: Any, scheme: str) -> None:
    ours, theirs = make_wires(scheme).pair()
    before = open_lanes()
    for _ in range(2):
        across(ours, theirs, pattern(MB))
        across(theirs, ours, b"thanks")
    assert open_lanes() == before and getattr(ours, "_out_lane", None) is None


def test_a_peer_elsewhere_gets_none_and_offers_in_vain(make_wires: Any) -> None:
    ours, theirs = make_wires("tcp").pair()
    ours.is_local = theirs.is_local = False
    across(ours, theirs, pattern(MB))
    assert theirs._in_lane is None and not theirs._offer
    ours._stream.write([struct.pack("<Q", WORD | 3) + bytes(lanes.OFFER_BYTES)], ours._out_pace)
    with pytest.raises(ConnectionLost, match="out of place"):
        theirs.receive(5)


def offer_of(process: int, number: int, token: bytes, length: int = lanes._FILE_BYTES) -> bytes:
    return lanes._OFFER.pack(process, number, length, token)


def test_an_offer_that_leads_elsewhere_is_not_taken(pair: Any, tmp_path: Path) -> None:
    """And what it leads to is left as it was."""
    ours, theirs = pair
    mine, token = os.getpid(), bytes(16)
    plain = open(tmp_path / "plain", "w+b")  # noqa: SIM115
    plain.truncate(lanes._FILE_BYTES)
    unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, lanes._FILE_BYTES)
    short = os.memfd_create("short", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(short, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    read_end, write_end = os.pipe()
    lane = InLane()
    wrong = [
        offer_of(mine, plain.fileno(), token),
        offer_of(mine, unsealed, token),
        offer_of(mine, short, token),
        offer_of(mine, short, token, 0),
        offer_of(mine, read_end, token),
        offer_of(mine, 10_000, token),
        offer_of(2**22 + 5, 0, token),
        offer_of(1, 0, token),
        offer_of(mine, lane._end.peek()[2][0], token),  # ours, and not known to them
        bytes(lanes.OFFER_BYTES),
    ]
    for offer in wrong:
        with pytest.raises(OSError):  # noqa: PT011
            OutLane(offer)
        theirs._stream.write([struct.pack("<Q", WORD | 3) + offer], theirs._out_pace)
    theirs.send([b"hello"])
    assert ours.receive(5) == b"hello" and ours._out_lane is None
    assert across(ours, theirs, pattern(MB)) > MB
    assert os.pread(unsealed, lanes._FILE_BYTES, 0) == bytes(lanes._FILE_BYTES) == plain.read()
    lane.close()
    plain.close()
    for number in (unsealed, short, read_end, write_end):
        os.close(number)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_taken() -> None:
    lane = InLane()
    OutLane(lane.offer).close()
    os.fchown(lane._end.peek()[2][0], 12345, -1)  # type: ignore[index]
    with pytest.raises(OSError, match="no lane of this user's"):
        OutLane(lane.offer)
    lane.close()


@pytest.mark.parametrize(
    "said",
    [
        struct.pack("<Q", WORD | 4 | MB << 8),  # there is no lane yet
        struct.pack("<Q", WORD | 5),
        struct.pack("<Q", WORD | 0xFF),
        struct.pack("<Q", 2 * WORD - 1),
    ],
)
def test_words_out_of_place_end_the_connection(pair: Any, said: bytes) -> None:
    ours, theirs = pair
    ours._stream.write([said], ours._out_pace)
    with pytest.raises(ConnectionLost, match="out of place"):
        theirs.receive(5)


@pytest.mark.parametrize(
    "said",
    [
        struct.pack("<Q", WORD | 4),  # of nothing
        struct.pack("<Q", WORD | 4 | (RING_BYTES + 1) << 8),
        struct.pack("<Q", WORD | 4 | MB << 8 | RING_BYTES << 35),  # begins beyond the end
        struct.pack("<Q", WORD | 4 | MB << 8 | ((1 << 27) - 1) << 35),
        struct.pack("<QB", WORD | 4 | MB << 8, 2),  # what is no sign of a piece
    ],
)
def test_frames_that_no_lane_holds_end_the_connection(pair: Any, said: bytes) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    ours._stream.write([said], ours._out_pace)
    with pytest.raises(ConnectionLost, match="out of place"):
        theirs.receive(5)


def test_a_second_offer_ends_the_connection(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    theirs._stream.write([struct.pack("<Q", WORD | 3) + theirs._in_lane.offer], theirs._out_pace)
    with pytest.raises(ConnectionLost, match="out of place"):
        ours.receive(5)


def test_a_frame_in_a_lane_is_no_longer_than_others_may_be(pair: Any) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    theirs.max_frame_bytes = MB
    ours.send([bytes(MB + 1)])
    with pytest.raises(ConnectionLost, match=f"announced a frame of {MB + 1} bytes"):
        theirs.receive(5)
    with pytest.raises(ConnectionLost, match="longer than it takes"):
        ours.receive(5)


@pytest.mark.parametrize("count", [1, 2**63, 2**64 - 1 - MB])
def test_a_receiver_that_lies_about_what_it_has_read_is_sent_no_more_that_way(pair: Any, count: int) -> None:
    ours, theirs = pair
    open_lane(ours, theirs)
    across(ours, theirs, pattern(MB))
    theirs._in_lane._count[0] = MB + count
    assert ours._out_lane.room == 0
    assert across(ours, theirs, pattern(MB)) > MB


def test_a_peer_that_is_killed_in_the_middle_is_noticed(make_wires: Any, run_python: Any) -> None:
    listener = make_wires("unix").listen()
    process = run_python(
        """
        import os, struct
        connection = transport.connect(sys.argv[1])
        connection.send([bytes(1 << 20)])
        connection.receive(10)
        connection._stream.write([struct.pack("<Q", (1 << 63) | 4 | (1 << 20) << 8) + b"\\x01"], connection._out_pace)
        os.kill(os.getpid(), 9)
        """,
        listener.address,
    )
    with listener.accept(10) as connection:
        connection.receive(10)
        connection.send([b"go on"])
        with pytest.raises(ConnectionLost, match="in the middle of a frame"):
            connection.receive(10)
    process.wait(60)


def test_strangers_of_the_version_without_lanes_are_told(make_wires: Any) -> None:
    listener = make_wires("tcp").listen()
    host, port = listener.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as stranger:
        stranger.sendall(struct.pack("<4sBB2x", prefixed.MAGIC, 1, 0))
        assert stranger.recv(8)[5] == prefixed.OTHER_VERSION
