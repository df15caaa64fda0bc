"""`Executors`: the executors of a broker, one per user; and one of them, as the broker sees it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from syft.exceptions import ConnectionRefusedByWorkerError, WorkerUnreachableError
from syft.isolation import records
from syft.isolation.channel import Channel, ChannelClosed
from syft.isolation.fork_server_client import ForkServerClient
from syft.isolation.progress import SLOTS, Progress

#: Of an executor's messages to the broker.
MOST_PAYLOAD = 8 << 30
_CONTROL_SECONDS = 15.0
_EXIT_SECONDS = 1.0

#: A fork server that ends is started anew, so many times within so many seconds.
MOST_DEATHS, DEATHS_SECONDS = 3, 60.0
_TOO_MANY = (
    f"it ended {MOST_DEATHS} times before, within {DEATHS_SECONDS:g} s, and is not started again: no new session can be "
    "served. Restart the worker"
)

_SIGNALS = {
    signal.SIGSEGV: "it crashed (segmentation fault)",
    signal.SIGABRT: "it crashed (abort)",
    signal.SIGBUS: "it crashed (bus error)",
    signal.SIGFPE: "it crashed (arithmetic error)",
    signal.SIGILL: "it crashed (illegal instruction)",
    signal.SIGKILL: "it was killed (by the system, when memory runs out)",
}


class Executor:
    """One process for one user.

    given     ids of objects that it was given, or gave to the broker: it hears when they change
    tickets   what leads to its groups
    """

    def __init__(self, number: int, user: str, control: Channel, progress: Progress) -> None:
        self.number, self.user, self.control, self.progress = number, user, control, progress
        self.began = time.time()
        self.sessions = 0
        self.is_ended = False
        self.why: str | None = None  #: why it was killed, or ended
        self.rules_version = -1
        self.computes_releases = False
        self.knows_budgets = False
        #: What the owner approved and is about to be charged; data sets by name, as an approval lets it train on them.
        self.approved: Any = None
        self.trains_on: dict[str, Any] = {}
        self.given: set[Any] = set()
        self.to_forget: list[Any] = []
        self.groups: dict[Any, list[bytes]] = {}
        self.objects = self.nbytes = 0
        self._asking = threading.Lock()
        self._slots = list(range(SLOTS))
        self.exited = threading.Event()

    def open_lane(self, record: Any) -> Channel:
        """A lane of its own, for a session or a peer. !! ChannelClosed"""
        ours, its = Channel.pair()
        with its, self._asking:
            self.control.send(record, (), [its.fileno()])
        return Channel(ours, records.FromLane, MOST_PAYLOAD)

    def ask(self, record: Any) -> tuple[Any, bytearray, list[int]]:
        """Ask on the control lane. !! ChannelClosed, TimeoutError"""
        with self._asking:
            self.control.send(record)
            return self.control.receive(_CONTROL_SECONDS)

    def take_slot(self) -> int:
        if not self._slots:
            raise ConnectionRefusedByWorkerError(
                f"User {self.user!r} has {SLOTS} sessions in one process, as many as it takes. Close some."
            )
        return self._slots.pop()

    def give_slot(self, slot: int) -> None:
        self._slots.append(slot)


class Executors:
    """By user. Starts one when its user comes, and ends it with their last session."""

    def __init__(
        self,
        hello: Callable[[str, bool], records.Hello],
        on_exit: Callable[[Executor, str, bool], None],
        on_death: Callable[[str], None],
        budgets: bool,
        module: str = "syft.isolation.forkserver",
    ) -> None:
        self._hello, self._on_exit, self._on_death = hello, on_exit, on_death
        self._by_user: dict[str, Executor] = {}
        self._by_number: dict[int, Executor] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._options = budgets, module
        self._deaths: deque[float] = deque(maxlen=MOST_DEATHS)
        self._is_closed = False
        self.server = self._start_server()

    def _start_server(self) -> ForkServerClient:
        return ForkServerClient(self._exited, self._server_died, *self._options)

    def _server_died(self, how: str) -> None:
        """Its executors have ended with it. Another takes its place, unless it is the one too many.

        NB: runs on the thread that listened to the dead one, before anybody who waits for that is woken.
        """
        with self._lock:
            numbers, now = list(self._by_number), time.monotonic()
            is_last = len(self._deaths) == MOST_DEATHS and now - self._deaths[0] < DEATHS_SECONDS
            self._deaths.append(now)
            if self._is_closed:
                return
            if not is_last:
                self.server = self._start_server()
        self._on_death(
            f"the fork server has ended ({how}); " + (_TOO_MANY if is_last else "another is started")
        )
        for number in numbers:
            self._exited(number, signal.SIGKILL, 0, "the process that it was forked from has ended")

    def wait_until_ready(self) -> None:
        """Until one can be started; also if the fork server ends meanwhile. !! WorkerUnreachableError"""
        while True:
            server = self.server
            try:
                return server.wait_until_ready()
            except WorkerUnreachableError:
                if self.server is server:
                    raise

    def all(self) -> list[Executor]:
        with self._lock:
            return list(self._by_user.values())

    def of(self, user: str) -> Executor:
        """The executor of a user, which has one session more from now on. !! ConnectionRefusedByWorkerError"""
        self.wait_until_ready()
        with self._lock:
            found = self._by_user.get(user)
            if found is None or found.is_ended:
                found = self._start(user)
            found.sessions += 1
            return found

    def for_release(self, user: str) -> Executor:
        """A process for one release of a user's; `leave` ends it. !! ConnectionRefusedByWorkerError"""
        self.wait_until_ready()
        with self._lock:
            executor = self._start(user, computes_releases=True)
            executor.sessions = 1
            return executor

    def _start(self, user: str, computes_releases: bool = False) -> Executor:
        number = next(self._numbers)
        ours, its = Channel.pair()
        memory = Progress.new_memory()
        try:
            executor = Executor(number, user, Channel(ours, records.FromLane, MOST_PAYLOAD), Progress(memory))
            self._by_number[number] = executor
            self.server.fork(number, its, memory)
            executor.control.send(self._hello(user, computes_releases))
        except ChannelClosed as error:
            ours.close()
            self._by_number.pop(number, None)
            raise ConnectionRefusedByWorkerError(
                f"No process could be started for the session: {error}"
            ) from error
        finally:
            its.close()
            os.close(memory)
        executor.computes_releases = computes_releases
        if not computes_releases:
            self._by_user[user] = executor
        return executor

    def leave(self, executor: Executor) -> None:
        """A session of it has ended."""
        with self._lock:
            executor.sessions -= 1
            if executor.sessions > 0:
                return
            self._forget(executor)
        executor.why = executor.why or "its last session has ended"
        with contextlib.suppress(OSError):
            executor.control.close()  # it ends by itself, or
        self.server.kill(executor.number)

    def kill(self, executor: Executor, why: str) -> None:
        """End it, whatever it is doing. Returns at once."""
        executor.why = executor.why or why
        executor.is_ended = True
        self.server.kill(executor.number)

    def why_ended(self, executor: Executor) -> str:
        """In words; waits a moment for the fork server to say it."""
        executor.exited.wait(_EXIT_SECONDS)
        return executor.why or "it ended"

    def _exited(self, number: int, ended_by: int, status: int, why: str | None = None) -> None:
        with self._lock:
            executor = self._by_number.pop(number, None)
            if executor is None:
                return
            self._forget(executor)
            was_expected = executor.why is not None
            if executor.why is None:
                how = _SIGNALS.get(signal.Signals(ended_by)) if ended_by in signal.valid_signals() else None
                executor.why = (
                    why
                    or how
                    or (f"signal {ended_by} ended it" if ended_by else f"it ended, status {status}")
                )
        executor.exited.set()
        with contextlib.suppress(OSError):
            executor.control.close()
        self._on_exit(executor, executor.why, was_expected)

    def _forget(self, executor: Executor) -> None:
        executor.is_ended = True
        if self._by_user.get(executor.user) is executor:
            del self._by_user[executor.user]

    def pid_of(self, executor: Executor) -> int | None:
        return self.server.pids.get(executor.number)

    def close(self) -> None:
        for executor in self.all():
            executor.why = executor.why or "the worker is shutting down"
        with self._lock:
            self._is_closed = True
        self.server.close()


__all__ = ["Executor", "Executors"]
