"""The programs in examples/2020 run as they are written, assert their outcome, and leave nothing on any worker."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from forked_runs import ROOT, run

PROGRAMS = sorted((ROOT / "examples/2020").glob("*.py"))

BEFORE = """
import warnings
warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
"""

#: After a program its names go, and with them its pointers. `clear()` must be the last use of a name of the module.
AFTER = """
def _objects_left():
    import gc, syft
    known = list(syft.local_worker._known_workers.values())
    globals().clear()
    gc.collect()
    return {worker.id: len(worker._objects) for worker in known if len(worker._objects)}
_left = _objects_left()
if _left: raise SystemExit(f"objects left on workers: {_left}")
"""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_a_program_of_2020_runs_unchanged(program: Path, tmp_path: Path) -> None:
    source = program.read_text()
    if "sklearn" in source and find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    status, printed = run(tmp_path, BEFORE + source + AFTER)
    assert status == 0, printed


def test_what_a_program_leaves_on_a_worker_is_noticed(tmp_path: Path) -> None:
    leaves = """
import syft as sy, torch
bob = sy.VirtualWorker(sy.TorchHook(torch), id="bob")
torch.ones(2).send(bob, garbage_collect_data=False)
"""
    status, printed = run(tmp_path, BEFORE + leaves + AFTER)
    assert status != 0 and "objects left on workers: {'bob': 1}" in printed


def test_there_are_thirty_programs() -> None:
    assert len(PROGRAMS) >= 30
