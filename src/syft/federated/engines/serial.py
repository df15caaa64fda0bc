"""`SerialEngine`: one client after the other, in the calling thread."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence

from syft.federated.engines.base import Outcome, Task, attempt, overdue, register_engine


@register_engine("serial")
class SerialEngine:
    """For debugging, and for models so small that threads would wait for each other.

    A client that took longer than its deadline is not used, but nobody interrupts one that hangs.
    """

    def run(self, tasks: Sequence[Task], deadline: float | None) -> Iterator[Outcome]:
        for task in tasks:
            yield _timed(task, deadline)

    def stream(self, deadline: float | None, clock: float = 0.0) -> SimulatedStream:
        return SimulatedStream(deadline, clock)


class SimulatedStream:
    """Tasks side by side in simulated time. Each runs here, alone, when it would be done."""

    def __init__(self, deadline: float | None, clock: float) -> None:
        self.clock: float | None = clock
        self._deadline = deadline
        self._begun = 0
        self._waiting: list[tuple[float, int, Task]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, task: Task, until: float = 0.0) -> None:
        self._begun += 1  # of those that are done at the same time, the first comes first
        heapq.heappush(self._waiting, (until, self._begun, task))

    def next(self) -> Outcome:
        self.clock, _, task = heapq.heappop(self._waiting)
        return _timed(task, self._deadline)


def _timed(task: Task, deadline: float | None) -> Outcome:
    started = time.monotonic()
    outcome = attempt(task)
    late = deadline is not None and time.monotonic() - started > deadline
    return overdue(task.name, deadline) if late and deadline is not None else outcome
