"""Timing two things side by side and reporting their ratio.

Machines are noisy: both sides of a comparison are timed in turns in one run, the median of many short runs
is taken with its quartiles, and the ratio is the figure to look at.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

Run = Callable[[], Any]


class Timing(float):
    """The median of some turns, in seconds, which keeps their quartiles."""

    low: float
    high: float
    turns: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Timing:
        made = cls(statistics.median(times))
        made.low, _, made.high = (
            statistics.quantiles(times, n=4, method="inclusive") if times[1:] else times * 3
        )
        made.turns = len(times)
        return made

    def __truediv__(self, other: float) -> Any:
        """A fraction of the time keeps its spread; a ratio of two times is a number."""
        if isinstance(other, Timing):
            return float(self) / float(other)
        made = Timing(float(self) / other)
        made.low, made.high, made.turns = self.low / other, self.high / other, self.turns
        return made


@dataclass(frozen=True)
class Figure:
    """One line of the table. Times are seconds per call, or bytes where `unit` says so.

    `row` is the key of a row of `bench.targets`, which then says what is wanted; a figure without one says it here.
    `peers` are all contestants of that run; `other` is the best of them. `absent` says why another one is not among
    them. `details` are counted or measured beside the time.
    """

    name: str
    ours: float | None
    other: float | None = None
    against: str = ""
    target: str = ""
    met: bool | None = None
    row: str = ""
    peers: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    details: dict[str, float] = field(default_factory=dict)
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        """Ours over theirs, both of this run: below 1 we are faster."""
        return float(self.ours) / float(self.other) if self.ours is not None and self.other else None


def beside(
    row: str,
    ours: float,
    peers: dict[str, float],
    *,
    absent: dict[str, str] | None = None,
    details: dict[str, float] | None = None,
    unit: str = "s",
) -> Figure:
    """A row of `bench.targets`, beside the peer it names, or else the best of those who were there."""
    from bench.targets import TARGETS

    wanted = TARGETS[row].of
    best = wanted if wanted in peers else min(peers, key=lambda name: float(peers[name]), default="")
    figure = Figure(
        TARGETS[row].what,
        ours,
        peers.get(best),
        best,
        row=row,
        peers=peers,
        absent=absent or {},
        details=details or {},
        unit=unit,
    )
    judged = TARGETS[row].judged(figure)
    return replace(judged, met=None) if mode() == "tiny" else judged


# -- the registry ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Benchmark:
    """`run` yields figures. `rows` are the targets among them; `rank` orders a run; `limit` is in seconds."""

    name: str
    area: str
    run: Callable[[], Iterable[Figure]]
    rows: tuple[str, ...] = ()
    rank: int = 9
    limit: float = 120.0


BENCHMARKS: dict[str, Benchmark] = {}
Function = Callable[[], Iterable[Figure]]


@overload
def benchmark(function: Function) -> Function: ...
@overload
def benchmark(
    *, rows: tuple[str, ...] = (), rank: int = 9, limit: float = 120.0
) -> Callable[[Function], Function]: ...
def benchmark(function: Function | None = None, **options: Any) -> Any:
    def register(function: Function) -> Function:
        area = function.__module__.rpartition(".")[2]
        BENCHMARKS[function.__name__] = Benchmark(function.__name__, area, function, **options)
        return function

    return register if function is None else register(function)


def chosen(words: Sequence[str]) -> list[Benchmark]:
    """Those whose name, file or target rows contain any of the words (all without), the most important first."""
    found = [
        each
        for each in BENCHMARKS.values()
        if not words or any(word in text for word in words for text in (each.name, each.area, *each.rows))
    ]
    return sorted(found, key=lambda each: each.rank)


# -- timing ------------------------------------------------------------------------------------------------


def mode() -> str:
    """`full`, `quick` (fewer turns) or `tiny` (small sizes, two turns: shows that everything runs; nothing is judged)."""
    return os.environ.get("BENCH_MODE", "full")


def by_mode(full: Any, quick: Any, tiny: Any) -> Any:
    return {"full": full, "quick": quick, "tiny": tiny}[mode()]


def calls_per_run(run: Run, seconds: float | None = None) -> int:
    """How many calls fill a run. The first call fills caches, and is not counted."""
    wanted = by_mode(0.02, 0.01, 0.001) if seconds is None else seconds
    began = time.perf_counter()
    run()
    if time.perf_counter() - began > 1:
        return 1
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < wanted:
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


def side_by_side(*runs: Run, rounds: int = 25, seconds: float | None = None) -> list[Timing]:
    """The median seconds per call of each, timed in turns: `rounds` of them, or as many as fit into `seconds`."""
    rounds = by_mode(rounds, min(rounds, 9), 2)
    most = by_mode(20.0, 6.0, 1.0) if seconds is None else seconds
    counts = [calls_per_run(run) for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    began = time.perf_counter()
    for turn in range(rounds):
        for index, run in enumerate(runs):
            times[index].append(time_run(run, counts[index]))
        if turn and time.perf_counter() - began > most:
            break
    return [Timing.of(each) for each in times]
