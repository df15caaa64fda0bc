"""Another system in a process of its own, stopped but when it is timed, so that it takes the cores from nobody.

A peer reads lines of JSON, `{"job": name, "calls": n}`, and answers each with a line, `{"seconds": s, ...}`. Its first
line is `{"ready": true}`. What it cannot do it answers with `{"failed": why}`. `make peers` makes the environments.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import TimedElsewhere

ROOT = Path(__file__).parents[1]


class PeerAbsentError(Exception):
    """It is not installed, did not start, or cannot do what was asked: the text says which."""

    peer: Peer | None = None


def environments() -> Path:
    return Path(os.environ.get("BENCH_PEERS", ROOT / ".peers"))


def python_of(name: str) -> str:
    """The interpreter of a peer's environment. Raises PeerAbsentError with what the installation said."""
    folder = environments() / name
    python, failed = folder / "bin" / "python", folder / "FAILED"
    if failed.exists():
        raise PeerAbsentError(f"could not be installed: {failed.read_text().strip()[-200:]}")
    if not python.exists():
        raise PeerAbsentError("not installed: make peers")
    return str(python)


class Peer:
    """The process and all that it starts."""

    def __init__(self, command: list[str], wait: float = 90.0, answer: float = 120.0) -> None:
        self._answer = answer
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        )
        try:
            self.greeting = self._read(wait)
        except PeerAbsentError:
            self.close()
            raise
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read(self, seconds: float) -> dict[str, Any]:
        stdout: Any = self._process.stdout
        until = time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise PeerAbsentError(f"no answer within {seconds:.0f} s")
            piece = os.read(stdout.fileno(), 65536)
            if not piece:
                raise PeerAbsentError("its process ended")
            line += piece
        answer: dict[str, Any] = json.loads(line.splitlines()[-1])
        if "failed" in answer:
            raise PeerAbsentError(str(answer["failed"])[:300])
        return answer

    def ask(self, job: str, calls: int = 1, **more: Any) -> dict[str, Any]:
        self._signal(signal.SIGCONT)
        try:
            stdin: Any = self._process.stdin
            stdin.write((json.dumps({"job": job, "calls": calls, **more}) + "\n").encode())
            stdin.flush()
            return self._read(self._answer)
        except OSError as failure:
            raise self._failed(PeerAbsentError(f"its process ended: {failure}")) from failure
        except PeerAbsentError as why:
            raise self._failed(why) from None
        finally:
            self._signal(signal.SIGSTOP)

    def _failed(self, why: PeerAbsentError) -> PeerAbsentError:
        why.peer = self
        return why

    def job(self, name: str) -> Job:
        return Job(self, name)

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not sent before it ended is not sent now
                    stream.close()


class Job(TimedElsewhere):
    """One of the things a peer can do."""

    def __init__(self, peer: Peer, name: str) -> None:
        super().__init__(lambda calls: float(peer.ask(name, calls)["seconds"]))
        self.peer = peer


@contextlib.contextmanager
def started(module: str, *words: str, name: str = "", **waits: float) -> Iterator[Peer]:
    """`python -m module words` in the environment `name`, or in this one."""
    python = python_of(name) if name else sys.executable
    peer = Peer([python, "-m", module, *words], **waits)
    try:
        yield peer
    finally:
        peer.close()


class Peers:
    """Those that could be started, by name, and why others could not."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.there: dict[str, Peer] = {}
        self.absent: dict[str, str] = {}

    def start(self, label: str, module: str, *words: str, name: str = "", **waits: float) -> None:
        try:
            self.there[label] = self._stack.enter_context(started(module, *words, name=name, **waits))
        except PeerAbsentError as why:
            self.absent[label] = str(why)


# -- the other side ----------------------------------------------------------------------------------------


def answer_jobs(answer: Any, **greeting: Any) -> None:
    """For a peer's script: answer every line with `answer(job, calls)`. What is printed elsewhere is not an answer."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"ready": True, **greeting}), file=out)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            said = answer(**asked)
        except Exception as failure:  # noqa: BLE001  (the other jobs are still wanted)
            said = {"failed": f"{type(failure).__name__}: {failure}"[:300]}
        print(json.dumps(said), file=out)
