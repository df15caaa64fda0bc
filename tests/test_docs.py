"""Every page of the documentation runs as it is written, block after block."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from forked_runs import ROOT, Runner, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
NEEDS = {"ray": "ray"}  # page -> a package that is not among those for development
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.stem)
def test_the_code_of_a_page_runs(page: Path, runner: Runner, tmp_path: Path) -> None:
    if (package := NEEDS.get(page.stem)) is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    status, printed = run(runner, tmp_path, "\n".join(blocks(page)))
    assert status == 0, printed


def test_a_page_that_fails_is_noticed(runner: Runner, tmp_path: Path) -> None:
    status, printed = run(runner, tmp_path, "print('so far')\nimport warnings\nwarnings.warn('old')")
    assert status == 1
    assert "so far" in printed and "UserWarning: old" in printed


def test_after_a_run_that_was_cut_short_the_next_one_has_a_runner_of_its_own(
    runner: Runner, tmp_path: Path
) -> None:
    with pytest.raises(json.JSONDecodeError):
        run(runner, tmp_path, "import os\nos.kill(os.getppid(), 9)")
    assert run(runner, tmp_path, "print('so far')") == (0, "so far\n")


def test_there_are_pages_with_code() -> None:
    assert sum(bool(blocks(page)) for page in PAGES) >= 6


def test_the_demo_runs_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syft", "demo"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "weights equal local training: True" in done.stdout
    assert "left behind on the worker: 0 objects" in done.stdout
    assert "may not get object" in done.stdout


def test_the_command_tells_its_version_and_refuses_nonsense() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "syft", "version"], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("resyft 0.")
    wrong = subprocess.run(
        [sys.executable, "-m", "syft", "dance"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "No such command" in wrong.stderr
