"""The memory of large frames: used again, never while somebody looks into it, and never seen before it is overwritten."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np
import pytest

from syft.transport import ConnectionLost, memory
from syft.transport.memory import KEPT, Mappings, allocate, joined

MB = 1 << 20


def place(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


@pytest.fixture
def mappings() -> Mappings:
    return Mappings(most_bytes=16 * MB)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Any:
    gc.collect()
    KEPT.trim()
    yield
    KEPT.trim()


# -- used again ------------------------------------------------------------------------------------------


def test_memory_that_nobody_looks_into_is_used_again() -> None:
    first = allocate(4_000_192)
    where = place(first)
    del first
    assert KEPT.free_bytes >= 4_000_192
    assert place(allocate(4_000_192)) == where
    assert place(allocate(3_900_000)) == where  # a frame of about the same length, too


def test_a_frame_does_not_take_much_more_memory_than_it_has(mappings: Mappings) -> None:
    del [mappings.new(12 * MB)][0]
    assert mappings.free_bytes
    assert mappings.lease(2 * MB) is None
    assert mappings.lease(13 * MB) is None
    for count in (MB, MB + 1, 2 * MB + 1, 5 * MB - 7, 33 * MB):
        assert count <= memory._with_spare(count) <= count * 5 // 4 + (1 << 16)


def test_what_is_leased_has_the_length_that_was_asked_for(mappings: Mappings) -> None:
    long = mappings.new(4 * MB)
    long[:] = b"x" * len(long)
    del long
    short = mappings.lease(4 * MB - 100_000)
    assert short is not None
    assert len(short) == short.nbytes == 4 * MB - 100_000
    assert not short.readonly
    assert len(np.frombuffer(short, dtype=np.uint8)) == len(short)


def test_no_more_is_kept_than_the_bound_and_the_oldest_goes_first(mappings: Mappings) -> None:
    leases = [mappings.new(6 * MB) for _ in range(4)]
    places = [place(lease) for lease in leases]
    while leases:
        del leases[0]
        assert mappings.free_bytes <= 16 * MB
    kept = [mappings.lease(6 * MB), mappings.lease(6 * MB)]
    assert sorted(place(lease) for lease in kept if lease is not None) == sorted(places[2:])
    assert mappings.lease(6 * MB) is None


def test_what_is_larger_than_the_bound_is_never_kept(mappings: Mappings) -> None:
    large = mappings.new(20 * MB)
    assert len(large) == 20 * MB
    del large
    assert mappings.free_bytes == 0


def test_what_is_kept_can_be_given_back_to_the_system() -> None:
    allocate(3 * MB)
    assert KEPT.free_bytes
    KEPT.trim()
    assert KEPT.free_bytes == 0


# -- never while somebody looks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view[100:2_000_000],
        lambda view: view[64:].toreadonly(),
        lambda view: view[: 2 * MB].cast("d"),
        lambda view: np.frombuffer(view[64:], dtype=np.uint8),
        lambda view: np.frombuffer(view, dtype=np.uint8)[5:].reshape(-1)[::2],
        lambda view: np.asarray(view)[7:],
        lambda view: memoryview(np.frombuffer(view, dtype=np.uint8)[3:])[1:],
        lambda view: ctypes.c_ubyte.from_buffer(view, 500),
        lambda view: iter([view]),
    ],
)
def test_memory_is_not_handed_out_while_somebody_looks_into_it(look: Any) -> None:
    view = allocate(2 * MB)
    where = place(view)
    looking = look(view)
    del view
    gc.collect()
    assert KEPT.free_bytes == 0
    assert place(allocate(2 * MB)) != where
    KEPT.trim()
    del looking
    gc.collect()
    assert place(allocate(2 * MB)) == where


def test_threads_never_have_the_same_memory_at_once() -> None:
    faults: list[str] = []

    def work(mark: int) -> None:
        for turn in range(60):
            count = 2 * MB + (turn * 37 + mark) % 5 * 50_000
            view = allocate(count)
            mine = np.frombuffer(view, dtype=np.uint8)
            mine[:] = mark
            other = allocate(2 * MB)
            other[:8] = bytes([mark + 100] * 8)
            if mine.min() != mark or mine.max() != mark:
                faults.append(f"{mark} at {turn}")

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert 0 < KEPT.free_bytes <= memory._KEPT_BYTES


# -- never seen before it is overwritten -----------------------------------------------------------------


def test_joined_parts_lie_in_a_row_and_what_was_there_before_is_gone() -> None:
    before = allocate(2 * MB)
    before[:] = b"s" * len(before)
    del before
    parts = [b"a" * 10, bytearray(b"b" * MB), memoryview(b"c" * (MB - 20)), b"d" * 10]
    assert bytes(joined(parts, 2 * MB)) == b"".join(parts)
    assert joined([b"a", b"b"], 2) == b"ab"


@pytest.mark.network
@pytest.mark.parametrize("scheme", ["tcp", "ws", "unix"])
def test_a_frame_that_stays_partial_shows_nothing_of_the_one_before(make_wires: Any, scheme: str) -> None:
    wires = make_wires(scheme)
    ours, theirs = wires.pair()
    secret = b"secret! " * (3 * MB // 8)
    sender = threading.Thread(target=ours.send, args=([secret],))
    sender.start()
    received = theirs.receive(10)
    sender.join()
    assert received == secret
    where = place(received)
    del received

    other, reader = wires.pair()
    sock = other._stream._socket
    sock.setblocking(True)
    if scheme == "ws":
        sock.sendall(b"\x82\xff" + len(secret).to_bytes(8, "big") + bytes(4) + bytes(MB))
    else:
        sock.sendall(len(secret).to_bytes(8, "little") + bytes(MB))
    other.close()
    with pytest.raises(ConnectionLost):
        reader.receive(10)
    reader.close()
    del other, reader

    sender = threading.Thread(target=ours.send, args=([bytes(len(secret))],))
    sender.start()
    received = theirs.receive(10)
    sender.join()
    assert place(received) == where, "the memory was not used again, so this shows nothing"
    assert received == bytes(len(secret))
