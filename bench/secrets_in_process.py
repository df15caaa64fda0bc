"""Secret sharing, all parties and the provider in one process (the lockstep driver), one thread.

The provider's work is done inside the time that is shown; `offline` says how much of it that was.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from bench.harness import Figure, benchmark


def _timed(run: Callable[[], Any], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def _workers() -> Any:
    import syft as sy

    return [sy.VirtualWorker(id=f"bench_{name}") for name in ("alice", "bob", "provider")]


def _secret(tensor: torch.Tensor, base: int = 2, precision: int = 16) -> Any:
    alice, bob, provider = _workers()
    fixed: Any = tensor.fix_precision(base=base, precision_fractional=precision)  # type: ignore[attr-defined]
    return fixed.share(alice, bob, crypto_provider=provider)


def _figure(name: str, run: Callable[[], Any], target_ms: float, repeats: int = 9) -> Figure:
    ours = _timed(run, repeats)
    return Figure(name, ours, None, "", f"<= {target_ms:g} ms", ours <= target_ms * 1e-3)


@benchmark
def shared_relu() -> list[Figure]:
    small, large = _secret(torch.randn(10_000)), _secret(torch.randn(1_000_000))
    return [
        _figure("relu on shares, 1e4", lambda: torch.relu(small), 10),
        _figure("relu on shares, 1e6", lambda: torch.relu(large), 400, repeats=3),
    ]


@benchmark
def shared_matmul() -> list[Figure]:
    x, y = _secret(torch.randn(256, 256)), _secret(torch.randn(256, 256))
    return [_figure("matmul on shares, 256", lambda: x @ y, 8)]


@benchmark
def shared_mlp() -> list[Figure]:
    alice, bob, provider = _workers()
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(
        torch.nn.Linear(784, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )
    plain_data = torch.randn(64, 784)
    model.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=provider)
    data = _secret(plain_data)
    target = _secret(torch.nn.functional.one_hot(torch.randint(10, (64,)), 10).float())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def infer() -> Any:
        with torch.no_grad():
            return model(data)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data), target).backward()
        optimizer.step()

    return [
        _figure("MLP 784-128-64-10 on shares, batch 64", infer, 60),
        _figure("SGD step of it, mean squared error", step, 200, repeats=5),
    ]
