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


#: As an executor does: import, filter, and only then compute.
MASKED_SUM = """
import torch
from syft.federated.secure_aggregation import MaskedSum
from syft.isolation import limits, preloading
preloading.import_all(budgets=False)
limits.restrict(1 << 30, 64)
limits.filter_system_calls(limits.compiled_filter())
try:
    open("/proc/self/stat")
except PermissionError:
    updates = {name: torch.full((3,), 2.0) for name in "abc"}
    for signed in (False, True):
        print(MaskedSum(signed=signed).weighted_sum(updates, dict.fromkeys(updates, 1.0)).tolist())
"""


@pytest.mark.skipif(limits.compiled_filter() is None, reason="there is no filter of system calls here")
def test_a_masked_sum_is_made_with_system_calls_filtered() -> None:
    """Keys, seals and signatures import their library with first use, which an executor could not."""
    run = subprocess.run(
        [sys.executable, "-c", MASKED_SUM],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert run.stdout.split("\n")[:2] == ["[6.0, 6.0, 6.0]"] * 2, run.stderr


def test_a_machine_without_the_library_is_told_of_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    (fault,) = limits.faults()
    assert "not filtered" in fault and "resyft[isolation]" in fault
    assert limits.compiled_filter() is None
