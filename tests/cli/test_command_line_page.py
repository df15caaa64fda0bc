"""docs/command_line.md, typed in as it stands: every command of its console blocks runs, and says what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syft.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """(command, what the page says it says), in order."""
    found = []
    for block in BLOCK.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _end, said = part.partition("\n")
            found.append((command, said))
    return found


def is_as_said(said: str, expected: str) -> bool:
    """Line by line, without blanks that only align; `...` stands for anything."""
    pattern = ".*".join(map(re.escape, _unaligned(expected).split("...")))
    return re.fullmatch(pattern, _unaligned(said), re.DOTALL) is not None


def _unaligned(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())


class Terminal:
    """Understands as much of a shell as the page uses. Ports are chosen anew, and shown as on the page."""

    def __init__(self, begin: Callable[..., Any], env: pytest.MonkeyPatch, capsys: Any) -> None:
        self._begin, self._env, self._capsys = begin, env, capsys
        self._worker: Any = None
        self._ports: dict[str, str] = {}

    def type(self, command: str) -> str:
        for file in re.findall(r"\$\(cat (\S+?)\)", command):
            command = command.replace(f"$(cat {file})", Path(file).read_text().strip())
        for shown, real in self._ports.items():
            command = command.replace(f":{shown}", f":{real}")
        words = shlex.split(command)
        if words[:2] == ["syft", "worker"]:
            said = self._start(words[2:])
        elif words[0] == "syft":
            said = self._run(words[1:])
        elif words[0] == "export":
            self._env.setenv(*words[1].split("=", 1))
            said = ""
        elif words[0] == "curl":  # which is not everywhere
            said = urllib.request.urlopen(words[-1], timeout=120).read().decode()
        else:
            said = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True).stdout
        for shown, real in self._ports.items():
            said = said.replace(f":{real}", f":{shown}")
        return re.sub(r"process \d+", "process 1", said)

    def _run(self, words: list[str]) -> str:
        into = Path(words[-1]) if ">" in words else None
        status = main(words[: words.index(">")] if into else words)
        out, err = self._capsys.readouterr()
        assert status == (1 if "Error" in err else 0), err
        if into is None:
            return f"{out}{err}"
        into.write_text(out)
        return str(err)

    def _start(self, words: list[str]) -> str:
        if self._worker is not None:  # Ctrl-C in its terminal
            self._worker.terminate()
            assert self._worker.wait(timeout=800) == 0
        log = Path(words[-1]) if "2>" in words else None
        words = words[: words.index("2>")] if log else words
        has_metrics = "--metrics-port" in words
        if has_metrics:
            words[words.index("--metrics-port") + 1] = "0"
        scheme = "wss://localhost" if "--tls" in words else "ws://127.0.0.1"
        self._worker, lines = self._begin([*words, "--listen", f"{scheme}:0"], log, 1 + has_metrics)
        found = re.findall(r":(\d+)[,/]", lines)
        self._ports = dict(zip(["8777", "9100"], found, strict=False))
        return str(lines)


@pytest.mark.network
def test_every_command_of_the_page_does_what_the_page_says(
    here: Path, hook: Any, me: Any, start_process: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.delenv("SYFT_TOKEN", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal(start_process, monkeypatch, capsys)
    typed = commands()
    for command, expected in typed:
        said = terminal.type(command)
        expected = re.sub(r"process \d+", "process 1", expected)
        assert not expected or is_as_said(said, expected), f"$ {command}\n{said}\nis not\n{expected}"
    groups = {" ".join(shlex.split(command)[:2]) for command, _ in typed}
    assert groups >= {f"syft {name}" for name in ("cert", "token", "budget", "worker", "status", "search")}


def test_a_difference_would_be_noticed() -> None:
    assert is_as_said(" a   1 s \n b", "a ... s\nb\n")
    assert not is_as_said("a 1 s\nc", "a ... s\nb")
    assert not is_as_said("a", "a\nb")
