"""Whether memory stays flat while a model is trained: on pointers, and on shares."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from bench.harness import Figure, benchmark, beside, by_mode


def resident() -> int:
    """Bytes of this process that are in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak_after() -> Callable[[], int]:
    """Counts from here: what is returned tells the most bytes in memory since (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")

    def peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024

    return peak


def _grown(step: Callable[[], Any], workers: list[Any]) -> tuple[int, dict[str, float]]:
    """Bytes and objects between a tenth of the steps and all of them; the first ones fill caches."""
    steps = by_mode(1000, 1000, 20)
    for _ in range(steps // 10):
        step()
    gc.collect()
    before, held = resident(), _held(workers)
    for _ in range(steps):
        step()
    gc.collect()
    after = resident()
    return max(0, after - before), {"objects left": _held(workers) - held, "steps": steps}


def _held(workers: list[Any]) -> int:
    return sum(len(worker._objects) for worker in workers)


@benchmark(rows=("memory_pointers", "memory_shares"), rank=3, limit=120)
def memory_of_training() -> list[Figure]:
    import syft as sy

    names = ("alice", "bob", "carol")
    alice, bob, carol = workers = [sy.VirtualWorker(id=f"bench_memory_{name}") for name in names]
    torch.manual_seed(0)

    def stepping(model: Any, data: Any, target: Any) -> Callable[[], Any]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            F.mse_loss(model(data), target).backward()
            optimizer.step()

        return step

    def mlp() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def shared(value: Any) -> Any:
        return value.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=carol)

    data: Any = torch.randn(8, 20)
    target: Any = torch.randn(8, 2)
    on_pointers = stepping(mlp().send(bob), data.send(bob), target.send(bob))
    figures = []
    grown, counts = _grown(on_pointers, workers)
    figures.append(beside("memory_pointers", grown, {}, details=counts, unit="B"))
    grown, counts = _grown(stepping(shared(mlp()), shared(data), shared(target)), workers)
    figures.append(beside("memory_shares", grown, {}, details=counts, unit="B"))
    return figures
