"""Timing two things side by side and reporting their ratio.

Machines are noisy: both sides of a comparison are timed in turns in one run, the median of many short runs
is taken, and the ratio is the figure to look at.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = Callable[[], Any]


@dataclass(frozen=True)
class Figure:
    """One line of the table. Times are seconds per call."""

    name: str
    ours: float
    other: float | None
    against: str
    target: str
    met: bool | None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.other if self.other else None


BENCHMARKS: dict[str, Callable[[], list[Figure]]] = {}


def benchmark(function: Callable[[], list[Figure]]) -> Callable[[], list[Figure]]:
    BENCHMARKS[function.__name__] = function
    return function


def calls_per_run(run: Run, seconds: float = 0.02) -> int:
    """How many calls fill a run. The first call fills caches, and is not counted."""
    run()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        run()
        calls += 1
    return max(1, calls)


class TimedElsewhere:
    """A run in another process, which measures itself: `timed(calls)` is its seconds per call."""

    def __init__(self, timed: Callable[[int], float]) -> None:
        self.timed = timed

    def __call__(self) -> None:
        self.timed(1)


def time_run(run: Run, calls: int) -> float:
    if isinstance(run, TimedElsewhere):
        return run.timed(calls)
    started = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - started) / calls


def side_by_side(*runs: Run, rounds: int = 25) -> list[float]:
    """The median seconds per call of each, timed in turns."""
    counts = [calls_per_run(run) for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for index, run in enumerate(runs):
            times[index].append(time_run(run, counts[index]))
    return [statistics.median(t) for t in times]
