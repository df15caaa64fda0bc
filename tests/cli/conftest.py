"""A folder to type commands in, and workers in processes of their own."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syft.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """What the command does to the log ends with the test."""
    log = logging.getLogger("syft")
    before = log.handlers[:], log.level
    yield
    log.handlers[:], log.level = before


@pytest.fixture
def types(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`types("token", "new", "ana")`: a command, and its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, " ".join(err.split())

    return run


@pytest.fixture
def start(here: Path) -> Iterator[Callable[..., tuple[Any, str]]]:
    """`start("--id", "x")`: a `syft worker` process, and its address."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> tuple[Any, str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "syft", "worker", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        running.append(process)
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        found = re.search(r"at (\S+?),", line)
        assert found, (line, process.stderr.read())
        return process, found.group(1)

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
