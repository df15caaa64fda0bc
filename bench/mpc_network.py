"""Two holders and a provider, each in a process of its own on this machine, one torch thread each: for benchmarks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

NAMES = ("alice", "bob", "carol")

_PARTY = """
import json, sys, torch, syft as sy
from syft.mpc.kernels import keep_freed_memory
torch.set_num_threads(1)
keep_freed_memory()
hook = sy.TorchHook(torch)
worker = sy.NetworkServerWorker(hook, sys.argv[2], id=sys.argv[1]).start(block=False)
print(worker.address, flush=True)
for name, address in json.loads(sys.stdin.readline()).items():
    worker.add_worker(sy.connect(address, name, hook=hook, auto_add=False))
print("introduced", flush=True)
sys.stdin.read()
"""


class Trio:
    """Three processes, and a client of theirs."""

    def __init__(self, addresses: dict[str, str]) -> None:
        import syft as sy

        self.processes = {
            name: subprocess.Popen(
                [sys.executable, "-P", "-c", _PARTY, name, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name, address in addresses.items()
        }
        found = {name: self._line(name) for name in NAMES}
        for name in NAMES:
            self._stdin(name).write(json.dumps({n: a for n, a in found.items() if n != name}) + "\n")
            self._stdin(name).flush()
        for name in NAMES:
            self._line(name)
        self.members = [sy.connect(found[name], name, auto_add=False) for name in NAMES]

    def _stdin(self, name: str) -> Any:
        return self.processes[name].stdin

    def _line(self, name: str) -> str:
        stdout: Any = self.processes[name].stdout
        return str(stdout.readline()).strip()

    def share(self, tensor: torch.Tensor) -> Any:
        *holders, provider = self.members
        fixed: Any = tensor.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
        return fixed.share(*holders, crypto_provider=provider)

    def wait(self) -> None:
        for member in self.members:
            member.sync()

    def cpu_seconds(self) -> list[float]:
        """Processor time of each party so far, where the system tells it by nanoseconds (Linux)."""
        return [_cpu_seconds(self.processes[name].pid) for name in NAMES]

    def close(self) -> None:
        for member in self.members:
            member.close()
        for name, process in self.processes.items():
            self._stdin(name).close()
            process.wait(20)


def _cpu_seconds(pid: int) -> float:
    spent = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            spent += int(task.read_text().split()[0])
    return spent * 1e-9


@contextlib.contextmanager
def trio(scheme: str) -> Iterator[Trio]:
    with tempfile.TemporaryDirectory(prefix="syft") as folder:
        places = {"tcp": "tcp://127.0.0.1:0", "unix": f"unix://{folder}/NAME"}
        made = Trio({name: places[scheme].replace("NAME", name) for name in NAMES})
        try:
            yield made
        finally:
            made.close()
