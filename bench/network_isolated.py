"""What a process per user costs: the same work on a worker that is isolated and on one that is not, in turns.

Both deny by default. They run in processes of their own, with one thread each, and are reached over tcp.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from bench.harness import Figure, benchmark, side_by_side
from bench.mlp import mlp, sgd_step

ADDS = 1000
_IDLE = 20


@contextlib.contextmanager
def _worker(isolation: str, *more: str) -> Iterator[tuple[str, Any]]:
    options = [
        "--id",
        "bench_isolated",
        "--listen",
        "tcp://127.0.0.1:0",
        "--threads",
        "1",
        "--log-level",
        "error",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "syft", "worker", *options, "--isolation", isolation, *more],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    try:
        said = process.stdout.readline() if process.stdout is not None else ""
        yield said.rpartition(", process ")[0].rpartition(" at ")[2], process
    finally:
        process.terminate()
        process.communicate()


def _client(address: str) -> Any:
    import syft as sy
    from syft.workers.network.client_worker import NetworkClientWorker

    return NetworkClientWorker(sy.local_worker.hook, address, auto_add=False)


@benchmark
def network_isolated() -> list[Figure]:
    with (
        _worker("process") as (isolated_at, isolated_process),
        _worker("none") as (together_at, _),
        _client(isolated_at) as isolated,
        _client(together_at) as together,
    ):
        figures = [
            _compared("round trip", isolated.sync, together.sync),
            _compared("1000 chained pointer adds", _chain(isolated), _chain(together), 1.1),
            _compared("send().get(), 1e6 floats", _echo(isolated), _echo(together)),
            _compared("10 SGD steps, op by op", _steps(isolated), _steps(together), 1.1),
            _compared("10 steps of a training plan", _plan_steps(isolated), _plan_steps(together), 1.1),
            _start(isolated_at, together_at),
        ]
        isolated.sync()
        _tell_memory(isolated_at, isolated_process.pid)
    return [*figures, *_beside_trouble()]


def _compared(name: str, ours: Any, other: Any, most: float | None = None) -> Figure:
    mine, theirs = side_by_side(ours, other, rounds=15)
    target = "" if most is None else f"<= {most:g}x"
    return Figure(name, mine, theirs, "one process", target, None if most is None else mine <= most * theirs)


def _chain(client: Any) -> Any:
    held = torch.zeros(10).send(client)  # type: ignore[attr-defined]

    def run() -> None:
        x = held
        for _ in range(ADDS):
            x = x + 1
        x.get()

    return run


def _echo(client: Any) -> Any:
    x = torch.randn(1_000_000)
    return lambda: x.send(client).get()  # type: ignore[attr-defined]


def _steps(client: Any) -> Any:
    remote = mlp().send(client)  # type: ignore[operator]
    there = torch.randn(64, 784).send(client)  # type: ignore[attr-defined]
    wanted = torch.randint(10, (64,)).send(client)  # type: ignore[attr-defined]
    sgd = torch.optim.SGD(remote.parameters(), lr=0.1)

    def run() -> None:
        for _ in range(10):
            sgd_step(remote, sgd, there, wanted)
        client.sync()

    return run


def _plan_steps(client: Any) -> Any:
    import syft as sy

    model = mlp()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    there = torch.randn(64, 784).send(client)  # type: ignore[attr-defined]
    wanted = torch.randint(10, (64,)).send(client)  # type: ignore[attr-defined]
    kinds = [torch.float32, torch.int64]
    plan = sy.Plan.training(model, F.cross_entropy, sgd, [(-1, 784), (-1,)], kinds).send(client)

    def run() -> None:
        for _ in range(10):
            plan(there, wanted)
        client.sync()

    return run


def _start(isolated_at: str, together_at: str) -> Figure:
    """Connect, run a command, leave. The difference is the start of a process."""

    def visit(address: str) -> None:
        with _client(address) as client:
            client.sync()

    ours, other = side_by_side(lambda: visit(isolated_at), lambda: visit(together_at), rounds=15)
    return Figure(
        "session with its first command", ours, other, "one process", "<= 20 ms more", ours - other <= 0.02
    )


def _tell_memory(address: str, pid: int) -> None:
    """The proportional memory of idle sessions, each of which has run a command."""
    with contextlib.ExitStack() as stack:
        for _ in range(_IDLE):
            client = stack.enter_context(_client(address))
            (torch.ones(3).send(client) + 1).get()  # type: ignore[attr-defined]
        servers = _children(pid)
        sizes = [_proportional(child) for server in servers for child in _children(server)]
        print(
            f"memory of {len(sizes)} idle sessions: {statistics.median(sizes) / 1e6:.1f} MB each (proportional, median), "
            f"{max(sizes) / 1e6:.1f} MB at most; target <= 30 MB"
        )


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def _beside_trouble() -> list[Figure]:
    """Round trips of one user, alone and while another keeps a core busy without a pause."""
    with _worker("process") as (address, _), _client(address) as ann, _client(address) as eve:
        x = torch.ones(10).send(ann)  # type: ignore[attr-defined]
        alone = _trips(x)
        large = torch.randn(1500, 1500).send(eve)  # type: ignore[attr-defined]
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                (large @ large).sum().get()

        thread = threading.Thread(target=load)
        thread.start()
        time.sleep(0.5)
        beside = _trips(x)
        stop.set()
        thread.join()
    return [
        Figure(
            "median of get() beside a busy user",
            beside[len(beside) // 2],
            alone[len(alone) // 2],
            "alone",
            "",
            None,
        ),
        Figure(
            "p99 of get() beside a busy user",
            beside[-len(beside) // 100],
            alone[-len(alone) // 100],
            "alone",
            "",
            None,
        ),
    ]


def _trips(x: Any, count: int = 1000) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        (x * 2).get()
        times.append(time.perf_counter() - began)
    return sorted(times)
