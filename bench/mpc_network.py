"""Secrets among two holders and a provider, each in a process of its own on this machine, one torch thread each.

A time ends when every party has done its part, the provider's dealing included (`ahead`: dealt before). Beside each
figure stand what the parties counted: rounds, bytes that a holder sent, the provider's seconds and bytes.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from bench.harness import Figure, benchmark

NAMES = ("alice", "bob", "carol")
_REPEATS = 7

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


def _figure(
    parties: Trio,
    group: Any,
    name: str,
    run: Callable[[], Any],
    target_ms: float | None,
    is_ahead: bool = False,
) -> Figure:
    from syft.mpc.network import outline

    taken: list[Any] = []
    plain = outline.outline_of
    if is_ahead:
        from syft.mpc.network import driver

        def noted(*args: Any) -> Any:
            found = plain(*args)
            taken.extend(found.kinds)
            return found

        driver.outline_of = noted  # type: ignore[assignment]
        run()
        driver.outline_of = plain
    for _ in range(2):
        run()
    parties.wait()
    group.reset_costs()
    times = []
    before = parties.cpu_seconds()
    for _ in range(_REPEATS):
        if is_ahead:
            group.provide(*taken)
            parties.wait()
        started = time.perf_counter()
        run()
        parties.wait()
        times.append(time.perf_counter() - started)
    cpu = [(b - a) / _REPEATS * 1e3 for a, b in zip(before, parties.cpu_seconds(), strict=True)]
    online, offline = group.online, group.offline
    print(
        f"    {name}: {online.rounds / _REPEATS:g} rounds, {max(online.bytes_sent) / _REPEATS / 1e6:.3g} MB sent by a "
        f"holder, busy {online.seconds / _REPEATS * 1e3:.3g} ms; provider {offline.seconds / _REPEATS * 1e3:.3g} ms, "
        f"{offline.bytes / _REPEATS / 1e6:.3g} MB; "
        f"processor time of the parties {' '.join(f'{one:.0f}' for one in cpu)} ms"
    )
    ours = statistics.median(times)
    if target_ms is None:
        return Figure(name, ours, None, "", "", None)
    return Figure(name, ours, None, "", f"<= {target_ms:g} ms", ours <= target_ms * 1e-3)


def _cases(parties: Trio) -> Iterator[tuple[str, Callable[[], Any], float | None]]:
    large, other = parties.share(torch.randn(1_000_000)), parties.share(torch.randn(1_000_000))
    yield "x < 0, 1e6", lambda: large < 0, 180
    yield "relu, 1e6", lambda: torch.relu(large), 200
    yield "mul, 1e6", lambda: large * other, 97 / 2
    a, b = parties.share(torch.randn(512, 512)), parties.share(torch.randn(512, 512))
    yield "matmul, 512", lambda: a @ b, 64 / 2
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(784, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )
    *holders, provider = parties.members
    model.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)
    data = parties.share(torch.randn(128, 784))

    def infer() -> Any:
        with torch.no_grad():
            return model(data)

    yield "MLP 784-128-128-10, batch 128", infer, 30
    yield "CNN of TARGETS, batch 1", _cnn(parties), 40
    many = parties.share(torch.randn(100_000))
    yield "exp, 1e5", lambda: torch.exp(many), 76 / 5
    yield "sigmoid, 1e5", lambda: torch.sigmoid(many), 320 / 5
    rows = parties.share(torch.randn(32, 10))
    yield "softmax, 32x10", lambda: torch.softmax(rows, 1), 45.9
    one = parties.share(torch.randn(1))
    yield "relu, 1 element", lambda: torch.relu(one), None


def _cnn(parties: Trio) -> Callable[[], Any]:
    torch.manual_seed(1)
    convolutions = (torch.nn.Conv2d(1, 20, 5), torch.nn.Conv2d(20, 50, 5))
    first, second = ((c, torch.nn.ReLU(), torch.nn.MaxPool2d(2)) for c in convolutions)
    rest = torch.nn.Flatten(), torch.nn.Linear(800, 500), torch.nn.ReLU(), torch.nn.Linear(500, 10)
    model: Any = torch.nn.Sequential(*first, *second, *rest)
    *holders, provider = parties.members
    model.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)
    picture = parties.share(torch.randn(1, 1, 28, 28))

    def infer() -> Any:
        with torch.no_grad():
            return model(picture)

    return infer


def _measured(scheme: str, is_ahead: bool = False) -> list[Figure]:
    from syft.mpc.group import Group

    with trio(scheme) as parties:
        *holders, provider = parties.members
        group = Group.of(holders, provider)
        label = f"{scheme}, ahead" if is_ahead else scheme
        return [
            _figure(parties, group, f"{name} ({label})", run, target, is_ahead)
            for name, run, target in _cases(parties)
        ]


@benchmark
def mpc_network_tcp() -> list[Figure]:
    return _measured("tcp")


@benchmark
def mpc_network_unix() -> list[Figure]:
    return _measured("unix")


@benchmark
def mpc_network_ahead() -> list[Figure]:
    return _measured("unix", is_ahead=True)
