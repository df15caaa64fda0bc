"""Remote execution in one process."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.harness import Figure, benchmark, side_by_side
from bench.mlp import mlp, sgd_step


def _worker(name: str) -> Any:
    import syft as sy

    return sy.VirtualWorker(id=name)


@benchmark
def pointer_add() -> list[Figure]:
    bob = _worker("bench_add")
    x, y = torch.randn(10), torch.randn(10)
    p, q = x.send(bob), y.send(bob)  # type: ignore[attr-defined]
    plain, ours = side_by_side(lambda: x + y, lambda: p + q)
    return [Figure("pointer + pointer", ours, plain, "plain torch", "<= 15 us", ours <= 15e-6)]


@benchmark
def send_and_get() -> list[Figure]:
    bob = _worker("bench_send")
    x, buffer = torch.randn(1_000_000), torch.empty(1_000_000)
    memcpy, clone, ours = side_by_side(lambda: buffer.copy_(x), lambda: x.clone(), lambda: x.send(bob).get())  # type: ignore[attr-defined]
    return [
        Figure(
            "send().get(), 1e6 floats",
            ours,
            memcpy,
            "one memcpy",
            "<= 2 memcpy + 100 us",
            ours <= 2 * memcpy + 1e-4,
        ),
        Figure("  the same", ours, clone, "one clone (fresh memory)", "", None),
    ]


@benchmark
def remote_sgd_step() -> list[Figure]:
    bob = _worker("bench_step")
    local = mlp()
    remote = copy.deepcopy(local).send(bob)  # type: ignore[operator]
    data, target = torch.randn(64, 784), torch.randint(10, (64,))
    remote_data, remote_target = data.send(bob), target.send(bob)  # type: ignore[attr-defined]
    local_sgd = torch.optim.SGD(local.parameters(), lr=0.1)
    remote_sgd = torch.optim.SGD(remote.parameters(), lr=0.1)
    plain, ours = side_by_side(
        lambda: sgd_step(local, local_sgd, data, target),
        lambda: sgd_step(remote, remote_sgd, remote_data, remote_target),
    )
    return [
        Figure(
            "SGD step, MLP 784-128-10, batch 64",
            ours,
            plain,
            "local step",
            "<= 1.8x local",
            ours <= 1.8 * plain,
        )
    ]
