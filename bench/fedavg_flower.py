"""The same FedAvg task by hand, by us on each engine, and by Flower's simulation: first round and later ones.

Each in a process of its own, in turns, Flower and our Ray engine in environments of their own (`make peers`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.harness import Figure, Timing, benchmark, beside, by_mode
from bench.peer import ROOT, PeerAbsentError, python_of

LABELS = {
    "hand": "plain loop",
    "serial": "ours, serial",
    "threads": "ours, threads",
    "ray": "ours, Ray engine",
    "flower": "Flower's simulation",
}


def _seconds_of_rounds(python: str, how: str) -> list[float]:
    script = Path(__file__).with_name("fedavg_task.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    rounds = str(by_mode(15, 8, 2))
    command = [python, str(script), how, rounds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=90)
    if done.returncode:
        raise RuntimeError(f"{how} failed: {done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _turns(how: str, python: str, runs: dict[str, list[list[float]]], absent: dict[str, str]) -> None:
    try:
        runs.setdefault(how, []).append(_seconds_of_rounds(python, how))
    except (RuntimeError, subprocess.TimeoutExpired) as why:
        absent[LABELS[how]] = str(why).splitlines()[-1][:200]


@benchmark(rows=("fedavg_first", "fedavg_steady"), rank=2, limit=180)
def fedavg_beside_flower() -> Iterator[Figure]:
    pythons = {"hand": sys.executable, "serial": sys.executable, "threads": sys.executable}
    absent: dict[str, str] = {}
    for how, name in (("ray", "ray"), ("flower", "flower")):
        try:
            pythons[how] = python_of(name)
        except PeerAbsentError as why:
            absent[LABELS[how]] = str(why)
    runs: dict[str, list[list[float]]] = {}
    for _ in range(by_mode(2, 1, 1)):
        for how, python in pythons.items():
            if LABELS[how] not in absent:
                _turns(how, python, runs, absent)
    first = {how: Timing.of([run[0] for run in each]) for how, each in runs.items()}
    steady = {how: Timing.of([t for run in each for t in run[1:]]) for how, each in runs.items()}
    peers = [how for how in ("hand", "flower") if how in runs]
    for row, times in (("fedavg_first", first), ("fedavg_steady", steady)):
        beside_it = {LABELS[how]: times[how] for how in peers}
        yield beside(row, times["serial"], beside_it, absent=absent)
        for how in ("threads", "ray"):
            if how in times and peers:
                best = min(peers, key=lambda one: float(times[one]))
                name = f"FedAvg, {'first' if times is first else 'later'} rounds, {how}"
                yield Figure(name, times[how], times[best], LABELS[best])
