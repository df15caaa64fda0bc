"""Time that a busy machine does not stretch, for tests of what is told at once."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


class Stopwatch:
    """Stands still while threads of this process, and of those with these pids, wait for a processor.

    On a machine that has nothing else to do it is a clock. Where Linux's /proc is missing it is one everywhere.
    """

    def __init__(self, *pids: int) -> None:
        self._tasks = [Path(f"/proc/{pid}/task") for pid in ("self", *pids)]
        self._waited, self._began = self._waits(), time.monotonic()

    @property
    def seconds(self) -> float:
        wall, waited = time.monotonic() - self._began, self._waits()
        return wall - sum(max(0.0, now - self._waited.get(task, 0.0)) for task, now in waited.items())

    def _waits(self) -> dict[Path, float]:
        """How long each thread has waited for a processor since it began."""
        found = {}
        for tasks in self._tasks:
            with contextlib.suppress(OSError):
                for task in tasks.iterdir():
                    with contextlib.suppress(OSError):  # a thread that has just ended
                        found[task] = int((task / "schedstat").read_text().split()[1]) / 1e9
        return found
