"""`ServerProcess`: a worker in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

from syft import serde
from syft.exceptions import WorkerUnreachableError


class ServerProcess:
    """Runs `syft worker` with these arguments, and hands it the data."""

    def __init__(self, arguments: list[str], data: list[Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "syft", "worker", "--data-on-stdin", "--log-level", "warning", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        stdin: Any = self._process.stdin
        stdin.write(serde.serialize(data))
        stdin.close()
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
        with contextlib.suppress(OSError):
            if self._process.stdout is not None:
                self._process.stdout.close()
