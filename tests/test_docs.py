"""Every page of the documentation runs as it is written, block after block."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import forked
import forked_runs
from forked_runs import ROOT, WALL_SECONDS, run

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
NEEDS = {"ray": "ray"}  # page -> a package that is not among those for development
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if (package := NEEDS.get(page.stem)) is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    status, printed = run(tmp_path, "\n".join(blocks(page)))
    assert status == 0, printed


def test_a_page_that_fails_is_noticed(tmp_path: Path) -> None:
    status, printed = run(tmp_path, "print('so far')\nimport warnings\nwarnings.warn('old')")
    assert status == 1
    assert "so far" in printed and "UserWarning: old" in printed


ENDLESS = """
import subprocess, sys
worker = [sys.executable, "-m", "syft", "worker", "--id", "left", "--listen", "tcp://127.0.0.1:0", "--isolation", "none"]
started = subprocess.Popen(worker, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
assert started.stdout.readline().startswith("worker left ")
print(started.pid, flush=True)
import time
time.sleep(3600)
"""


def test_a_page_that_does_not_end_is_ended_with_what_it_started_and_takes_no_other_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = forked.start(
        "-c", "input(); print('still here')", stdin=forked.PIPE, stdout=forked.PIPE, text=True
    )
    wait = forked.Forked.wait

    def patient(process: forked.Forked, timeout: float | None = None) -> int:
        if timeout == WALL_SECONDS:
            said = tmp_path / "output"
            while not said.read_text().strip():
                time.sleep(0.05)
            raise subprocess.TimeoutExpired("page", WALL_SECONDS)
        return wait(process, timeout)

    monkeypatch.setattr(forked.Forked, "wait", patient)
    with pytest.raises(subprocess.TimeoutExpired):
        run(tmp_path, ENDLESS)
    worker = Path(f"/proc/{int((tmp_path / 'output').read_text())}")
    until = time.monotonic() + 60
    while worker.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not worker.exists()
    assert other.communicate("\n")[0] == "still here\n"


def test_a_page_that_computes_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_runs, "CPU_SECONDS", 1)
    assert run(tmp_path, "print('so far', flush=True)\nwhile True: pass") == (-signal.SIGXCPU, "so far\n")


def test_there_are_pages_with_code() -> None:
    assert sum(bool(blocks(page)) for page in PAGES) >= 6


def test_the_demo_runs_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syft", "demo"], capture_output=True, text=True, timeout=800, check=False
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
