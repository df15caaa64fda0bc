"""`syft worker`s of one test, forked (see forked.py) and awaited together."""

from __future__ import annotations

from pathlib import Path

import forked


class Nursery:
    """Starts workers, and ends them all at its end."""

    def __init__(self) -> None:
        self._asked: list[forked.Forked] = []
        self._started: list[forked.Forked] = []

    def ask(self, *options: str) -> None:
        """Start a worker, and do not wait for it."""
        program = ("-m", "syft", "worker", "--threads", "1", "--log-level", "error", *options)
        self._asked.append(forked.start(*program, stdin=forked.DEVNULL, stdout=forked.PIPE, text=True))

    def wait(self, count: int) -> dict[str, int]:
        """The process of each of the `count` workers that were asked for, when they serve and know their peers."""
        found = {}
        assert len(self._asked) == count
        for worker in self._asked:
            assert worker.stdout is not None
            words = worker.stdout.readline().split()
            assert words[:1] == ["worker"], "a worker has ended"
            found[words[1]] = worker.pid
        self._started += self._asked
        self._asked.clear()
        return found

    def close(self) -> None:
        for worker in self._started + self._asked:
            worker.kill()
            worker.communicate()


def options_among(name: str, names: tuple[str, ...], folder: Path) -> list[str]:
    """What starts a worker that listens in a folder and knows the others there."""
    peers = [part for peer in names if peer != name for part in ("--peer", f"{peer}=unix://{folder}/{peer}")]
    return ["--id", name, "--listen", f"unix://{folder}/{name}", *peers]
