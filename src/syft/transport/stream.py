"""`ByteStream`: a non-blocking socket, plain or TLS, read and written by waiting for it. Knows no frames.

One thread may read while another writes. Nothing here closes the socket under a thread that uses it: `shutdown` wakes
both, and the connection calls `close` when they have left.

NOTE [Looking before sleeping]
A thread that sleeps in poll() is woken some 50 us after its data arrived, if its core went idle meanwhile, and what it
runs next is slow until the core is awake. `spin_seconds` makes `receive` look again and again for that long before it
sleeps. That costs a core while it looks, so it is done where it pays: a read looks only if the wait before it was no
longer than that, and if the other threads of this process hardly ran since the last one: they would need the interpreter,
which whoever looks takes again and again. After each look other processes may run, and if one does the read sleeps: a
system moves threads to a free core when they are woken, and two that look would share one for long. A peer that stays
away costs one look.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence

from syft.transport.base import Buffer, FrameLimits
from syft.transport.errors import ConnectionLost

#: The most buffers one sendmsg takes on any system we know is 1024.
_MOST_PARTS = 512
#: What both ends of a local connection ask the system to hold; see `bench/transport.py`. NB: it turns off the growing of
#: buffers that long distances need, so it is not asked for elsewhere.
LOCAL_BUFFER = 1 << 22
#: How often unread bytes are looked for when a socket is closed.
_MOST_LEFTOVERS = 64
#: What poll() says of a socket whose peer sends no more, where it can: to us, that the peer is gone.
_PEER_LEFT: int = getattr(select, "POLLRDHUP", 0)
_HAS_GATHERING = hasattr(socket.socket, "sendmsg")
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
#: Who was away for so long between two looks has lost the core to somebody, perhaps to the peer that is waited for.
_TAKEN_SECONDS = 50e-6
#: Other threads hardly ran if they took less than one of so many parts of the time.
_PARTS = 10
_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Pace:
    """How one frame gets on. Only time spent waiting for the peer counts."""

    __slots__ = ("_limits", "moved", "quiet", "waited")

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self.begin()

    def begin(self) -> None:
        self.moved = 0
        self.waited = self.quiet = 0.0

    def progress(self, count: int) -> None:
        self.moved += count
        self.quiet = 0.0

    def patience(self) -> float:
        """How many seconds more may pass without a byte."""
        return max(0.0, self._limits.stall_timeout - self.quiet)

    def wait(self, seconds: float, is_over: bool) -> str | None:
        """Note a wait, and whether bytes ended it; what is wrong, if it was too long."""
        self.waited += seconds
        self.quiet += seconds
        stall = self._limits.stall_timeout
        if self.quiet >= stall and not is_over:
            return f"nothing of a frame that was begun moved for {self.quiet:.3g} seconds (stall_timeout is {stall:g})"
        if self.waited > stall and self.moved < self._limits.min_rate * self.waited:
            return (
                f"a frame made {self.moved} bytes in {self.waited:.3g} seconds, less than {self._limits.min_rate:g} "
                "a second (min_rate)"
            )
        return None


class _Waiter:
    """Wait for one direction of one socket. For one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._events = -1
        self._poll = select.poll() if hasattr(select, "poll") else None

    def wait(self, writing: bool, seconds: float | None) -> bool:
        if self._poll is None:  # Windows
            mine = [self._socket]
            return any(select.select([] if writing else mine, mine if writing else [], mine, seconds))
        events = select.POLLOUT | _PEER_LEFT if writing else select.POLLIN
        if events != self._events:
            self._poll.register(self._socket, events)
            self._events = events
        ready = self._poll.poll(None if seconds is None else math.ceil(seconds * 1000))
        if ready and writing and ready[0][1] & _PEER_LEFT:
            # NB: a system that closed with nothing unread goes on to answer "no room yet" for a minute.
            raise BrokenPipeError(errno.EPIPE, "the other end was closed")
        return bool(ready)


class ByteStream:
    """See the top of this file. Deadlines are times of `time.monotonic`."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._peer = peer
        self._reader, self._writer = _Waiter(sock), _Waiter(sock)
        # OpenSSL's state is not for two threads at once. Its calls do not block here, so the lock is held briefly.
        self._tls = threading.Lock() if isinstance(sock, ssl.SSLSocket) else None
        self.spin_seconds = 0.0
        #: Whether the last wait was one that looking would have spared.
        self._waits_are_short = True
        #: When a thread came here last, which one, and what the others of this process had run until then.
        self._before = 0.0, 0, 0.0
        #: Called from a waiting reader when nothing came for `idle_seconds`.
        self.on_idle: Callable[[], None] | None = None
        self.idle_seconds = math.inf
        #: Called by a writer before it waits for room.
        self.on_full: Callable[[], None] | None = None

    # -- reading -----------------------------------------------------------------------------------

    def read_some(self, view: memoryview, deadline: float | None, pace: Pace | None) -> int:
        """Wait for bytes and put them into `view`; how many, 0 at the end. `pace` is that of a frame that was begun."""
        looks_until, now = -1.0, 0.0  # it is not known yet whether it is worth it
        while True:
            writing = False
            try:
                if self._tls is None:
                    count = self._socket.recv_into(view)
                else:
                    with self._tls:
                        count = self._socket.recv_into(view)
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            except ssl.SSLWantWriteError:
                writing = True
            except OSError as error:
                raise ConnectionLost(f"The connection to {self._peer} was lost: {error}.") from error
            else:
                if pace is not None:
                    pace.progress(count)
                return count
            before, now = now, time.monotonic()
            if looks_until < 0.0:
                before, looks_until = now, self._looks_until(now, deadline)
            if now < looks_until and now - before < _TAKEN_SECONDS and not writing:
                _let_others_run()
                continue
            looks_until = 0.0
            self._wait(self._reader, writing, deadline, pace, self.idle_seconds)

    def _looks_until(self, now: float, deadline: float | None) -> float:
        """Until when to look for something to read; 0: not at all. See NOTE [Looking before sleeping]."""
        if not (self.spin_seconds > 0.0 and self._waits_are_short and _CORES > 1 and self._is_alone(now)):
            return 0.0
        until = now + self.spin_seconds
        return until if deadline is None else min(until, deadline)

    def _is_alone(self, now: float) -> bool:
        """Whether the other threads of this process hardly ran since this one was here last."""
        me, others = threading.get_ident(), time.process_time() - time.thread_time()
        (then, who, before), self._before = self._before, (now, me, others)
        return who == me and (others - before) * _PARTS < now - then

    # -- writing -----------------------------------------------------------------------------------

    def write(self, parts: list[Buffer], pace: Pace) -> None:
        """Write all of the parts, none of which is empty."""
        if self._tls is not None or not _HAS_GATHERING:
            for part in parts:
                self._write_one(memoryview(part), pace)
            return
        index = 0
        while index < len(parts):
            try:
                count = self._socket.sendmsg(parts[index : index + _MOST_PARTS])
            except BlockingIOError:
                self._wait_for_room(True, pace)
                continue
            except OSError as error:
                raise self._send_failed(error) from error
            pace.moved += count  # `progress`, without a call
            pace.quiet = 0.0
            while count:
                size = len(parts[index])
                if count < size:
                    parts[index] = memoryview(parts[index])[count:]
                    break
                count -= size
                index += 1

    def _write_one(self, view: memoryview, pace: Pace) -> None:
        while view:
            count, reading = self._try_send(view)
            if count:
                pace.progress(count)
                view = view[count:]
            else:
                self._wait_for_room(not reading, pace)

    def _wait_for_room(self, writing: bool, pace: Pace) -> None:
        if self.on_full is not None:
            self.on_full()
        self._wait(self._writer, writing, None, pace)

    def try_write(self, data: Buffer) -> int:
        """Write what goes without waiting; how many bytes did."""
        return self._try_send(data)[0]

    def _try_send(self, data: Buffer) -> tuple[int, bool]:
        """(bytes sent, whether it waits for something to read)."""
        try:
            if self._tls is None:
                return self._socket.send(data), False
            with self._tls:
                return self._socket.send(data), False
        except (BlockingIOError, ssl.SSLWantWriteError):
            return 0, False
        except ssl.SSLWantReadError:
            return 0, True
        except OSError as error:
            raise self._send_failed(error) from error

    def _send_failed(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"The connection to {self._peer} ended while a frame was sent: {error}.")

    # -- waiting and ending ------------------------------------------------------------------------

    def _wait(
        self,
        waiter: _Waiter,
        writing: bool,
        deadline: float | None,
        pace: Pace | None,
        idle: float = math.inf,
    ) -> None:
        started = time.monotonic()
        seconds = math.inf if deadline is None else max(0.0, deadline - started)
        if pace is not None:
            seconds = min(seconds, pace.patience())
        try:
            is_ready = waiter.wait(writing, None if seconds == idle == math.inf else min(seconds, idle))
        except BrokenPipeError as error:
            raise self._send_failed(error) from error
        now = time.monotonic()
        if not writing and (is_ready or now - started >= self.spin_seconds):
            self._waits_are_short = now - started < self.spin_seconds
        fault = None if pace is None else pace.wait(now - started, is_ready)
        if fault is not None:
            raise ConnectionLost(f"The connection to {self._peer} was given up: {fault}.")
        if is_ready:
            return
        if deadline is not None and now >= deadline:
            raise TimeoutError(f"No whole frame came from {self._peer} in the time given.")
        if idle <= seconds and self.on_idle is not None:
            self.on_idle()

    def shutdown(self) -> None:
        """End both directions; whoever waits is woken."""
        try:
            # NB: SSLSocket.shutdown would drop its TLS state under a thread that reads, which then reads ciphertext.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """NB: TCP takes back what it has not delivered yet if it is closed with something unread: that is read first."""
        try:
            for _ in range(_MOST_LEFTOVERS):
                if not socket.socket.recv(self._socket, 1 << 16):
                    break
        except OSError:
            pass
        self._socket.close()


def coalesce(parts: Sequence[Buffer], small: int = 16384) -> list[Buffer]:
    """The parts, with neighbours that are small joined, and without empty ones: copying a little beats many buffers."""
    joined: list[Buffer] = []
    run: list[Buffer] = []
    length = 0
    for part in parts:
        size = len(part)
        if size < small:
            run.append(part)
            length += size
            if length < 4 * small:
                continue
        if length:
            joined.append(b"".join(run))
        run, length = [], 0
        if size >= small:
            joined.append(part)
    if length:
        joined.append(b"".join(run))
    return joined
