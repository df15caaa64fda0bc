"""`SerialEngine`: one client after the other, in the calling thread."""

from __future__ import annotations

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
            started = time.monotonic()
            outcome = attempt(task)
            late = deadline is not None and time.monotonic() - started > deadline
            yield overdue(task.name, deadline) if late and deadline is not None else outcome
