"""Mutated frames reach the decoder and the session behind it: each is answered or refused, and nothing else happens.

The million: `pytest -m slow tests/network/test_fuzz.py`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import forked


def fuzz(seed: int, count: int, seconds: float) -> dict[str, Any]:
    here = Path(__file__)
    paths = os.pathsep.join((str(here.parents[1]), os.environ.get("PYTHONPATH", "")))
    done = forked.run(
        *(str(here.with_name("fuzzing.py")), str(seed), str(count)),
        capture_output=True,
        timeout=seconds,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert sum(found["fates"].values()) >= count
    assert found["forbidden"] == []
    assert found["grown_kb"] < 200 << 10
    return found


def test_mutated_frames_are_answered_or_refused() -> None:
    found = fuzz(seed=1, count=4_000, seconds=250)
    fates = found["fates"]
    # It is no use if everything is refused at the door.
    for fate in ("refused", "failed", "answered", "greeted"):
        assert fates[fate] > 15, fates
    assert fates["part"] > 300 and found["assembled"] > 60, found


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10, 15))
def test_a_million_mutated_frames(seed: int) -> None:
    fuzz(seed, count=200_000, seconds=3500)
