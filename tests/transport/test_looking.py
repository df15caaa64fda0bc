"""NOTE [Looking before sleeping]: what a read does while nothing is there yet."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from syft.transport import stream as streams
from syft.transport.stream import ByteStream


class _Reader:
    """A stream, and how often a read of it looked and slept."""

    def __init__(self, sock: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = ByteStream(sock, "the peer")
        self.stream.spin_seconds = 5.0
        self.looks = self.sleeps = 0
        wait = self.stream._reader.wait

        def noted(writing: bool, seconds: float | None) -> bool:
            self.sleeps += 1
            return wait(writing, seconds)

        def looked() -> None:
            self.looks += 1

        monkeypatch.setattr(self.stream._reader, "wait", noted)
        monkeypatch.setattr(streams, "_let_others_run", looked)

    def read(self, timeout: float | None = 20.0) -> tuple[bytes, bool, bool]:
        """What came, whether it looked, and whether it slept."""
        self.looks = self.sleeps = 0
        into = bytearray(8)
        deadline = None if timeout is None else time.monotonic() + timeout
        count = self.stream.read_some(memoryview(into), deadline, None)
        return bytes(into[:count]), self.looks > 0, self.sleeps > 0


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[_Reader, Any]]:
    """A reader, and what sends to it a moment later, by a thread that sleeps meanwhile."""
    monkeypatch.setattr(streams, "_CORES", 2)
    monkeypatch.setattr(streams, "_TAKEN_SECONDS", 5.0)  # other processes may have the core
    mine, others = socket.socketpair()
    timers: list[threading.Timer] = []

    def send(data: bytes, later: float = 0.05) -> None:
        timers.append(threading.Timer(later, others.sendall, (data,)))
        timers[-1].start()

    with mine, others:
        reader = _Reader(mine, monkeypatch)
        send(b"first")
        reader.read()  # nobody knows yet what the other threads do
        yield reader, send
        for timer in timers:
            timer.join()


def _calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the other threads take no time, whatever else it has to do."""
    monkeypatch.setattr(streams.time, "process_time", streams.time.thread_time)


def test_what_comes_soon_is_found_by_looking(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, send = ends
    _calm(monkeypatch)
    for word in (b"a", b"b", b"c"):
        send(word)
        assert reader.read()[0] == word
    send(b"d")
    assert reader.read() == (b"d", True, False)


def test_who_waited_for_long_does_not_look_until_a_wait_is_short(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, send = ends
    _calm(monkeypatch)
    reader.stream.spin_seconds = 0.01
    send(b"a", 0.3)
    assert reader.read()[2]
    send(b"b", 0.3)
    assert reader.read() == (b"b", False, True)
    reader.stream.spin_seconds = 5.0
    send(b"c")
    assert reader.read() == (b"c", False, True)
    send(b"d")
    assert reader.read() == (b"d", True, False)


def test_nobody_looks_longer_than_they_would_wait(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, send = ends
    _calm(monkeypatch)
    for timeout in (0.0, 0.05):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            reader.read(timeout)
        assert time.monotonic() - began < 2.0
    send(b"a")
    assert reader.read() == (b"a", True, False)  # a wait that was not ended says nothing


def test_nobody_looks_while_other_threads_need_the_interpreter(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, send = ends
    own, now = time.thread_time, time.monotonic
    for share, looks in ((0.5, False), (0.01, True), (0.2, False)):
        monkeypatch.setattr(streams.time, "process_time", lambda s=share: own() + s * now())
        for _ in range(2):  # the first finds out how it is now
            send(b"a")
            found = reader.read()
        assert found == (b"a", looks, not looks)


def test_nobody_looks_who_has_one_core_or_was_not_asked_to(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, send = ends
    _calm(monkeypatch)
    for cores, seconds in ((1, 5.0), (2, 0.0)):
        monkeypatch.setattr(streams, "_CORES", cores)
        reader.stream.spin_seconds = seconds
        send(b"a")
        assert reader.read() == (b"a", False, True)


def test_who_lost_the_core_while_looking_sleeps(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, send = ends
    _calm(monkeypatch)
    monkeypatch.setattr(streams, "_TAKEN_SECONDS", 0.005)
    monkeypatch.setattr(streams, "_let_others_run", lambda: time.sleep(0.01))
    send(b"a")
    assert reader.read() == (b"a", False, True)
