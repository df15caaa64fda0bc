"""What users do often, for the audit log: counted, and one line for each user, kind and stretch of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds that a line of the audit log stands for.
WINDOW = 60.0
#: Lines are written early when so many users did something: each session without a name is a new one.
_MOST_COUNTED = 10_000


class Activity:
    """Counts. `due()` gives (user, kind, how many, seconds) when a stretch of time has ended, and begins a new one."""

    def __init__(self, window: float = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._clock = window, clock
        self._lock = threading.Lock()
        self._counts: dict[tuple[str | None, str], int] = {}
        self._began = clock()

    def count(self, kind: str, user: str | None, number: int = 1) -> None:
        with self._lock:
            if not self._counts:
                self._began = self._clock()
            self._counts[user, kind] = self._counts.get((user, kind), 0) + number

    def due(self, all_of_it: bool = False) -> list[tuple[str | None, str, int, float]]:
        with self._lock:
            seconds = self._clock() - self._began
            if not self._counts or not (
                all_of_it or seconds >= self._window or len(self._counts) >= _MOST_COUNTED
            ):
                return []
            counts, self._counts = self._counts, {}
        return [(user, kind, number, seconds) for (user, kind), number in counts.items()]
