"""What the filter of system calls leaves possible: every row of the table of operations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from syft.isolation import limits


@pytest.mark.slow
def test_every_row_of_the_table_runs_as_well_with_system_calls_filtered() -> None:
    """A row that imports something late would be refused in an executor: then `preloading` lacks it."""
    run = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "every_row.py")],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    found = json.loads(run.stdout)
    assert found["rows"] > 1000 and found["is_filtered"]
    assert found["differing"] == {}


def test_a_machine_without_the_library_is_told_of_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    (fault,) = limits.faults()
    assert "not filtered" in fault and "resyft[isolation]" in fault
    assert limits.compiled_filter() is None
