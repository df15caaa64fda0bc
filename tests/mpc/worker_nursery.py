"""Starts `syft worker`s quickly: run as a program, it imports everything once, and forks a process for each.

It reads the arguments of one worker per line, in JSON. What the workers print goes to its standard output. It ends, and
its workers with it, when its standard input does.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


class Nursery:
    """The program below, and who waits for its workers."""

    def __init__(self) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def ask(self, *options: str) -> None:
        """Start a worker, and do not wait for it."""
        assert self._program.stdin is not None
        print(
            json.dumps(["worker", "--threads", "1", "--log-level", "error", *options]),
            file=self._program.stdin,
        )
        self._program.stdin.flush()

    def wait(self, count: int) -> dict[str, int]:
        """The process of each of the next `count` workers that serve, and know their peers."""
        assert self._program.stdout is not None
        found = {}
        while len(found) < count:
            line = self._program.stdout.readline()
            assert line, "the nursery has ended"
            words = line.split()
            if words[:1] == ["worker"]:
                found[words[1]] = int(words[words.index("process") + 1].rstrip(","))
        return found

    def close(self) -> None:
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.close()
        self._program.wait(20)
        self._program.stdout.close()


def options_among(name: str, names: tuple[str, ...], folder: Path) -> list[str]:
    """What starts a worker that listens in a folder and knows the others there."""
    peers = [part for peer in names if peer != name for part in ("--peer", f"{peer}=unix://{folder}/{peer}")]
    return ["--id", name, "--listen", f"unix://{folder}/{name}", *peers]


def _serve(arguments: list[str]) -> Any:
    from syft.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR1)  # says where it is, when a test hangs
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os._exit(main(arguments))


def _main() -> None:
    import torch

    import syft
    import syft.cli
    import syft.identity.tokens
    import syft.isolation.broker
    import syft.isolation.sealed
    import syft.mpc.methods
    import syft.policy.audit
    import syft.serde.data_files
    import syft.workers.network.server_worker  # noqa: F401
    from syft.core import first_use

    torch.set_num_threads(1)
    first_use.prepare()  # what the first worker of a process would import: a second of processor time each
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _serve(json.loads(line))
        children.append(child)
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


if __name__ == "__main__":
    _main()
