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
        done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        waiting = deque(tasks)
        running: dict[str, tuple[threading.Thread, float]] = {}
        while waiting or running:
            while waiting and len(running) < self.max_workers:
                task = waiting.popleft()
                if self._is_busy(task.name):
                    yield _busy(task.name)
                    continue
                thread = threading.Thread(
                    target=_work, args=(task, done), name=f"client {task.name}", daemon=True
                )
                self._threads[task.name] = thread
                running[task.name] = (thread, time.monotonic())
                thread.start()
            if not running:
                continue
            try:
                outcome = done.get(timeout=_patience(running, deadline))
            except queue.Empty:
                # Only now: who is done in time is not late because others were looked at first.
                for name in _late(running, deadline):
                    del running[name]
                    yield overdue(name, deadline or 0.0)
                continue
            if outcome.name in running:  # one that was given up a moment ago is heard too late
                running.pop(outcome.name)[0].join()  # it has nothing left to do
                yield outcome

    def _is_busy(self, name: str) -> bool:
        thread = self._threads.get(name)
        return thread is not None and thread.is_alive()


def _work(task: Task, done: queue.SimpleQueue[Outcome]) -> None:
    try:
        outcome = attempt(task)
    except BaseException as error:  # noqa: BLE001  (a thread that ends without a word is waited for)
        outcome = failed(task.name, error)
    done.put(outcome)


def _patience(running: dict[str, tuple[threading.Thread, float]], deadline: float | None) -> float | None:
    if deadline is None:
        return None
    return max(0.0, min(began for _, began in running.values()) + deadline - time.monotonic())


def _late(running: dict[str, tuple[threading.Thread, float]], deadline: float | None) -> list[str]:
    now = time.monotonic()
    return [name for name, (_, began) in running.items() if deadline is not None and now - began >= deadline]


def _busy(name: str) -> Outcome:
    why = "It is still at work on a round that no longer waits for it."
    return Outcome(name, ClientFailure(name, "busy", why))
