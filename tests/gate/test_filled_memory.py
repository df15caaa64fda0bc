"""Filled memory: what is handed out does not depend on what its memory held before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parent / "filled_memory.py"


def _start(pattern: int, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "MALLOC_PERTURB_": str(pattern), "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        [sys.executable, str(_SCRIPT), *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _differences(*options: str, fill: bool = False) -> tuple[list[str], int]:
    """The calls whose digests differ in memory filled by other patterns, and how many were run.

    `fill`: also where torch fills what it allocates.
    """
    processes = [_start(85, *options), _start(170, *options)]
    if fill:
        processes.append(_start(0, *options, "--fill"))
    printed = [process.communicate()[0].splitlines() for process in processes]
    assert not any(process.returncode for process in processes)
    assert len({len(lines) for lines in printed}) == 1
    return [one for one, *others in zip(*printed, strict=True) if set(others) != {one}], len(printed[0])


@pytest.mark.timeout(1800)
def test_results_are_the_same_whatever_their_memory_held_before_and_memory_that_nobody_wrote_differs():
    """The latter shows that the processes would find out."""
    differences, count = _differences("1", "1", "40", "--canary")
    assert [line.split()[0] for line in differences] == ["canary"]
    assert count > 4001


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_results_are_the_same_whatever_their_memory_held_before_in_many_calls():
    differences, count = _differences("10", "300", "20000", fill=True)
    assert differences == []
    assert count > 300_000
