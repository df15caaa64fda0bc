"""What is measured on, and whether it is quiet enough to say anything: facts, load, and a calibration loop.

Three looks, all of which have to pass: the load average before the first row; the share of the processors that others
use while this process sleeps; and a fixed loop, whose wall time should be its processor time, vary little between
turns, and take as long as it took when the run began.
"""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Load average for each core, above which a run does not begin.
MOST_LOAD = 0.6
#: Share of all processors that others may use.
MOST_OTHERS = 0.12
#: Wall time of the calibration loop over its processor time, quartile range over median, and time over that of the start.
MOST_STRETCH, MOST_SPREAD, MOST_DRIFT = 1.08, 0.15, 1.25


@dataclass(frozen=True)
class Look:
    """The machine at one moment. `others` is None where the system does not tell."""

    load: float
    cores: int
    others: float | None
    stretch: float
    spread: float
    loop_seconds: float

    def complaints(self, before: Look | None = None) -> list[str]:
        """Why the machine is too busy: nothing if it is not. Without `before` this is the first look of a run."""
        found = []
        if before is None and self.load > MOST_LOAD * self.cores:
            found.append(f"load average {self.load:.1f} on {self.cores} cores")
        if self.others is not None and self.others > MOST_OTHERS:
            found.append(f"others use {self.others:.0%} of the processors")
        if self.stretch > MOST_STRETCH:
            found.append(f"the calibration loop waits: {self.stretch:.2f} times its processor time")
        if self.spread > MOST_SPREAD:
            found.append(f"the calibration loop varies by {self.spread:.0%}")
        if before is not None and self.loop_seconds > MOST_DRIFT * before.loop_seconds:
            drift = self.loop_seconds / before.loop_seconds
            found.append(f"the calibration loop takes {drift:.2f} times as long as at the start")
        return found

    def as_json(self) -> dict[str, Any]:
        return {key: _rounded(value) for key, value in asdict(self).items()}


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def look(turns: int = 25) -> Look:
    others = _used_by_others(0.4)
    walls, stretches = [], []
    for _ in range(turns):
        wall, cpu = time.perf_counter(), time.thread_time()
        sum(number * number for number in range(60_000))
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        walls.append(wall)
        stretches.append(wall / max(cpu, 1e-9))
    low, middle, high = statistics.quantiles(walls, n=4)
    return Look(
        os.getloadavg()[0],
        os.cpu_count() or 1,
        others,
        statistics.median(stretches),
        (high - low) / middle,
        middle,
    )


def _used_by_others(seconds: float) -> float | None:
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None or after[1] <= before[1]:
        return None
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def _ticks() -> tuple[int, int] | None:
    """Idle and all ticks of the machine so far (Linux)."""
    try:
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None
    return numbers[3] + numbers[4], sum(numbers)


def facts() -> dict[str, Any]:
    """What a figure depends on and a reader cannot see."""
    import torch

    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_GB": _memory(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": 1,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _memory() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
    except (OSError, ValueError):
        return None
