"""The same FedAvg task by hand, by us on each engine, and by Flower's simulation: first round and steady ones.

Each in a process of its own, in turns. Flower wants an environment of its own; name its Python:

    python -m venv /somewhere/flower && /somewhere/flower/bin/pip install torch 'flwr[simulation]'
    FLOWER_PYTHON=/somewhere/flower/bin/python make bench ARGS=flower
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from bench.harness import Figure, benchmark

ROUNDS, TURNS = 15, 3


def _seconds_of_rounds(python: str, how: str) -> list[float]:
    script = Path(__file__).with_name("fedavg_task.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, str(script), how, str(ROUNDS)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{how} failed: {done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


@benchmark
def fedavg_beside_flower() -> list[Figure]:
    flower = os.environ.get("FLOWER_PYTHON")
    if not flower:
        print(
            "FedAvg beside Flower is left out: set FLOWER_PYTHON to a Python that has flwr[simulation] and torch."
        )
        return []
    pythons = {"hand": sys.executable, "serial": sys.executable, "threads": sys.executable}
    if find_spec("ray") is not None:
        pythons["ray"] = sys.executable
    pythons["flower"] = flower
    runs: dict[str, list[list[float]]] = {how: [] for how in pythons}
    for _ in range(TURNS):
        for how, python in pythons.items():
            runs[how].append(_seconds_of_rounds(python, how))
    first = {how: statistics.median(run[0] for run in each) for how, each in runs.items()}
    steady = {how: statistics.median(t for run in each for t in run[1:]) for how, each in runs.items()}
    lines = []
    for how in pythons:
        name = {"hand": "a plain loop", "flower": "Flower"}.get(how, f"ours, {how}")
        for label, times in (("first round", first), ("steady round", steady)):
            lines.append(Figure(f"FedAvg {label}, {name}", times[how], times["flower"], "Flower", "", None))
    return lines
