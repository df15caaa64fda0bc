"""Secret sharing, all parties and the provider in one process (the lockstep driver), one thread.

The provider's work is done inside the time that is shown; `offline` says how much of it that was.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.harness import Figure, Run, benchmark, side_by_side


def _workers() -> Any:
    import syft as sy

    return [sy.VirtualWorker(id=f"bench_{name}") for name in ("alice", "bob", "provider")]


def _secret(tensor: torch.Tensor, base: int = 2, precision: int = 16) -> Any:
    alice, bob, provider = _workers()
    fixed: Any = tensor.fix_precision(base=base, precision_fractional=precision)  # type: ignore[attr-defined]
    return fixed.share(alice, bob, crypto_provider=provider)


def _figure(name: str, run: Run, plain: Run, target_ms: float) -> Figure:
    ours, other = side_by_side(run, plain, rounds=9)
    return Figure(name, ours, other, "plain torch", f"at most {target_ms:g} ms", ours <= target_ms * 1e-3)


@benchmark
def shared_relu() -> list[Figure]:
    few, many = torch.randn(10_000), torch.randn(1_000_000)
    small, large = _secret(few), _secret(many)
    return [
        _figure("relu on shares, 1e4", lambda: torch.relu(small), lambda: torch.relu(few), 10),
        _figure("relu on shares, 1e6", lambda: torch.relu(large), lambda: torch.relu(many), 400),
    ]


@benchmark
def shared_matmul() -> list[Figure]:
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    x, y = _secret(a), _secret(b)
    return [_figure("matmul on shares, 256", lambda: (x + 0) @ (y + 0), lambda: a @ b, 8)]


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
    plain_data, plain_target = torch.randn(64, 784), torch.rand(64, 10)
    local = copy.deepcopy(model)
    local_optimizer = torch.optim.SGD(local.parameters(), lr=0.05)
    model.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=provider)
    data = _secret(plain_data)
    target = _secret(plain_target)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def infer() -> Any:
        with torch.no_grad():
            return model(data + 0)

    def infer_locally() -> Any:
        with torch.no_grad():
            return local(plain_data)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(data + 0), target).backward()
        optimizer.step()

    def step_locally() -> None:
        local_optimizer.zero_grad()
        torch.nn.functional.mse_loss(local(plain_data), plain_target).backward()
        local_optimizer.step()

    return [
        _figure("MLP 784-128-64-10 on shares, batch 64", infer, infer_locally, 60),
        _figure("SGD step of it, mean squared error", step, step_locally, 200),
    ]
