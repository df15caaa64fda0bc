"""`syft new`: the project runs in one process and in several, by a change of one line, and learns the same."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import forked


@pytest.mark.network
def test_a_new_project_learns_the_same_in_one_process_and_in_four(here: Path, types: Any) -> None:
    assert "python train.py" in types("new", "trial")[1]
    assert types("new", "trial")[0] == 1
    program = here / "trial" / "train.py"
    text = program.read_text()
    assert text.count('WHERE = "virtual"') == 1
    losses = []
    for where in ("virtual", "processes"):
        program.write_text(text.replace('WHERE = "virtual"', f'WHERE = "{where}"'))
        done = forked.run(
            "train.py",
            forks=True,
            cwd=here / "trial",
            capture_output=True,
            text=True,
            timeout=800,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(here / "trial")},
        )
        assert done.returncode == 0, done.stderr
        assert "patients: 120 rows" in done.stdout
        found = re.search(r"loss of the clients: ([0-9.]+)", done.stdout)
        assert found
        losses.append(float(found[1]))
    assert losses[0] < 0.4 and abs(losses[0] - losses[1]) < 1e-4
