"""Plans in one process: a call, a training step, and how long it takes to build one."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import torch
from torch.nn import functional as F

from bench.harness import Figure, benchmark, side_by_side


def _worker(name: str) -> Any:
    import syft as sy

    return sy.VirtualWorker(id=name)


def mlp(*sizes: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


@benchmark
def plan_call() -> list[Figure]:
    import syft as sy

    bob = _worker("bench_plan_call")
    model = mlp(784, 128, 64, 10)
    plan = sy.func2plan(args_shape=[(-1, 784)])(model)
    remote, replayed = plan.send(bob), plan.copy()
    data = torch.randn(64, 784)
    pointer = data.send(bob)  # type: ignore[attr-defined]
    with torch.no_grad():
        local, replay, ours = side_by_side(
            lambda: model(data), lambda: replayed(data), lambda: remote(pointer)
        )
    tracked, tracked_ours = side_by_side(lambda: model(data), lambda: remote(pointer))
    return [
        Figure("plan call, 3-layer MLP, batch 64", ours, local, "local call", "", None),
        Figure("  the same, replayed here", replay, local, "local call", "", None),
        Figure("  the same, with gradients", tracked_ours, tracked, "local call", "", None),
    ]


@benchmark
def training_plan_step() -> list[Figure]:
    import syft as sy

    bob = _worker("bench_training_plan")
    models = [mlp(784, 128, 10)]
    models += [copy.deepcopy(models[0]) for _ in range(2)]
    local, planned, pointed = models
    pointed.send(bob)  # type: ignore[operator]
    of_local, of_plan, of_pointers = (torch.optim.SGD(m.parameters(), lr=0.1) for m in models)
    data, target = torch.randn(64, 784), torch.randint(10, (64,))
    there, labels = data.send(bob), target.send(bob)  # type: ignore[attr-defined]
    plan = sy.Plan.training(
        planned, F.cross_entropy, of_plan, [(-1, 784), (-1,)], [torch.float32, torch.int64]
    )
    remote = plan.send(bob)

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    plain, pointers, ours = side_by_side(
        lambda: step(local, of_local, data, target),
        lambda: step(pointed, of_pointers, there, labels),
        lambda: remote(there, labels),
    )
    name = "training plan step, 784-128-10, batch 64"
    return [
        Figure(name, ours, plain, "local SGD step", "", None),
        Figure("  the same", ours, pointers, "op-by-op pointers", "", None),
    ]


@benchmark
def plan_build() -> list[Figure]:
    import syft as sy

    model = mlp(*[256] * 21)
    data = torch.randn(5, 256)
    forward, ours = side_by_side(lambda: model(data), lambda: sy.func2plan(args_shape=[(-1, 256)])(model))
    return [Figure("plan build, 20-layer net", ours, forward, "one forward pass", "< 50 ms", ours < 0.05)]
