"""`ThreadEngine`: clients side by side in this process. torch works outside Python's lock.

NOTE [Late results]
A thread cannot be ended from outside. A client that is overdue is given up: its slot goes to the next one, and
what it returns some day goes to the queue of a run that is over, which nobody reads. Until then it is busy, and
further tasks for it fail at once. The threads are daemons: a client that hangs for good does not keep the
program from ending.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from syft.federated.engines.base import Outcome, Task, attempt, failed, overdue, register_engine
from syft.federated.records import ClientFailure


@register_engine("threads")
class ThreadEngine:
    """Up to `max_workers` clients at a time (without: as many as there are processors; more if they mostly wait)."""

    def __init__(self, max_workers: int | None = None) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError(
                f"ThreadEngine needs one thread or more, got max_workers={max_workers}. Leave it out for "
                "as many as fit this machine."
            )
        self.max_workers = max_workers or os.cpu_count() or 1
        #: The last thread of each client. One that lives on after its run is a client that is busy.
        self._threads: dict[str, threading.Thread] = {}

    def run(self, tasks: Sequence[Task], deadline: float | None) -> Iterator[Outcome]:
        stream = self.stream(deadline)
        waiting = deque(tasks)
        while waiting or len(stream):
            while waiting and len(stream) < self.max_workers:
                stream.submit(waiting.popleft())
            yield stream.next()

    def stream(self, deadline: float | None, clock: float = 0.0) -> ThreadStream:
        return ThreadStream(self._threads, deadline)


class ThreadStream:
    """A thread for each task. How many there are at a time is for who submits them."""

    clock: float | None = None

    def __init__(self, threads: dict[str, threading.Thread], deadline: float | None) -> None:
        self._threads, self._deadline = threads, deadline
        self._done: queue.SimpleQueue[tuple[Task, Outcome]] = queue.SimpleQueue()
        self._running: dict[str, tuple[Task, float]] = {}
        self._ready: deque[Outcome] = deque()

    def __len__(self) -> int:
        return len(self._running) + len(self._ready)

    def submit(self, task: Task, until: float = 0.0) -> None:
        if self._is_busy(task.name):
            self._ready.append(_busy(task.name))
            return
        thread = threading.Thread(
            target=_work, args=(task, self._done), name=f"client {task.name}", daemon=True
        )
        self._threads[task.name] = thread
        self._running[task.name] = (task, time.monotonic())
        thread.start()

    def next(self) -> Outcome:
        while not self._ready:
            try:
                task, outcome = self._done.get(timeout=self._patience())
            except queue.Empty:
                # Only now: who is done in time is not late because others were looked at first.
                for name in self._late():
                    del self._running[name]
                    self._ready.append(overdue(name, self._deadline or 0.0))
                continue
            running, _ = self._running.get(task.name, (None, 0.0))
            if running is task:  # one that was given up is heard too late
                del self._running[task.name]
                self._threads[task.name].join()  # it has nothing left to do
                self._ready.append(outcome)
        return self._ready.popleft()

    def _is_busy(self, name: str) -> bool:
        thread = self._threads.get(name)
        return thread is not None and thread.is_alive()

    def _patience(self) -> float | None:
        if self._deadline is None:
            return None
        first = min(began for _, began in self._running.values())
        return max(0.0, first + self._deadline - time.monotonic())

    def _late(self) -> list[str]:
        now, deadline = time.monotonic(), self._deadline
        return [
            n for n, (_, began) in self._running.items() if deadline is not None and now - began >= deadline
        ]


def _work(task: Task, done: queue.SimpleQueue[tuple[Task, Outcome]]) -> None:
    try:
        outcome = attempt(task)
    except BaseException as error:  # noqa: BLE001  (a thread that ends without a word is waited for)
        outcome = failed(task.name, error)
    done.put((task, outcome))


def _busy(name: str) -> Outcome:
    why = "It is still at work on a round that no longer waits for it."
    return Outcome(name, ClientFailure(name, "busy", why))
