"""A folder to type commands in, and workers in processes of their own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from syft.cli import main


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def log_as_before(own_log: None) -> None:
    """For every test here."""


@pytest.fixture
def types(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`types("token", "new", "ana")`: a command, and its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, " ".join(err.split())

    return run


@pytest.fixture
def start_process(here: Path) -> Iterator[Callable[..., tuple[Any, str]]]:
    """`start_process(["--id", "x"])`: a `syft worker` process, and the first lines it prints.

    One process for all users unless the arguments say otherwise: a fork server takes seconds to start.
    """
    running: list[forked.Forked] = []

    def begin(arguments: list[str], log: Path | None = None, lines: int = 1) -> tuple[Any, str]:
        if "--isolation" not in arguments:
            arguments = [*arguments, "--isolation", "none"]
        with contextlib.ExitStack() as files:
            process = forked.start(
                *("-m", "syft", "worker", *arguments),
                stdout=forked.PIPE,
                stderr=forked.PIPE if log is None else files.enter_context(log.open("w")),
                text=True,
            )
        running.append(process)
        assert process.stdout is not None
        said = "".join(process.stdout.readline() for _ in range(lines))
        if not said:
            problem = process.communicate()[1] if log is None else log.read_text()
            raise AssertionError(f"syft worker {' '.join(arguments)} ended: {problem}")
        return process, said

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def start(start_process: Callable[..., tuple[Any, str]]) -> Callable[..., tuple[Any, str]]:
    """`start("--id", "x")`: a `syft worker` process, and its address."""

    def begin(*arguments: str) -> tuple[Any, str]:
        process, line = start_process(list(arguments))
        found = re.search(r"at (\S+?),", line)
        assert found, line
        return process, found.group(1)

    return begin
