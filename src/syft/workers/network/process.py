"""`ServerProcess`: a worker in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

from syft import serde
from syft.exceptions import WorkerUnreachableError


class ServerProcess:
    """Runs `syft worker` with these arguments, and hands it the data.

    The process serves while its standard input is open: it ends with this process, also when this one is killed. It has
    a session of its own, so that an interrupt of a notebook's cell, or Ctrl-C, does not reach it.
    """

    def __init__(self, arguments: list[str], data: list[Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "syft", "worker", "--data-on-stdin", "--log-level", "warning", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        stdin: Any = self._process.stdin
        written = serde.serialize(data)
        stdin.write(len(written).to_bytes(8, "big"))
        stdin.write(written)
        stdin.flush()
        self.addresses = self._wait_for_addresses()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait_for_addresses(self) -> list[str]:
        """The worker says where it listens on the first line of its output."""
        said = self._process.stdout.readline().decode() if self._process.stdout else ""
        # NB: from the end, since the id, which comes first, may be any text.
        named, _at, addresses = said.rpartition(", process ")[0].rpartition(" at ")
        if not named.startswith("worker "):
            self.stop()
            raise WorkerUnreachableError(
                f"The process of the worker ended with status {self._process.returncode} before it served. Its standard "
                "error says why."
            )
        return addresses.split()

    def stop(self) -> None:
        """Ask the process to end, and see that it does."""
        self._process.terminate()
        try:
            self._process.wait(timeout=15.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
