"""Remote execution in one process."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bench.harness import Figure, Run, benchmark, beside, side_by_side
from bench.mlp import mlp, sgd_step


def _worker(name: str) -> Any:
    import syft as sy

    return sy.VirtualWorker(id=name)


@benchmark(rows=("pointer_add",), rank=2)
def pointer_add() -> list[Figure]:
    bob = _worker("bench_add")
    x, y = torch.randn(10), torch.randn(10)
    p, q = x.send(bob), y.send(bob)  # type: ignore[attr-defined]
    plain, ours = side_by_side(lambda: x + y, lambda: p + q)
    return [beside("pointer_add", ours, {"plain torch": plain})]


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


@benchmark(rows=("sgd_in_process",), rank=2)
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
    return [beside("sgd_in_process", ours, {"local step": plain})]


# -- a worker that denies by default beside an open one ----------------------------------------------


def _adding(worker: Any) -> Run:
    x, y = torch.randn(10).send(worker), torch.randn(10).send(worker)  # type: ignore[attr-defined]
    return lambda: x + y


def _stepping(worker: Any, optimizer: Any = torch.optim.SGD) -> Run:
    model = mlp().send(worker)  # type: ignore[operator]
    data, target = torch.randn(64, 784).send(worker), torch.randint(10, (64,)).send(worker)  # type: ignore[attr-defined]
    steps = optimizer(model.parameters(), lr=0.001)
    return lambda: sgd_step(model, steps, data, target)


def _stepping_adam(worker: Any) -> Run:
    return _stepping(worker, torch.optim.Adam)


def _calling_a_plan(worker: Any) -> Run:
    import syft as sy

    plan = sy.func2plan(args_shape=[(-1, 784)])(mlp()).send(worker)
    data = torch.randn(64, 784).send(worker)  # type: ignore[attr-defined]

    def call() -> None:
        with torch.no_grad():
            plan(data)

    return call


def _stepping_lstm(worker: Any) -> Run:
    layer = torch.nn.LSTM(8, 16).send(worker)  # type: ignore[operator]
    data = torch.randn(5, 4, 8).send(worker)  # type: ignore[attr-defined]
    sgd = torch.optim.SGD(layer.parameters(), lr=0.001)

    def step() -> None:
        sgd.zero_grad()
        layer(data)[0].sum().backward()
        sgd.step()

    return step


@benchmark
def denying_worker() -> list[Figure]:
    """The same work on two workers of this process, in turns, for a user with a name."""
    import syft as sy
    from syft.policy.caller import speaking_for
    from syft.policy.permissions import Policy

    figures = []
    for name, made in (
        ("pointer + pointer", _adding),
        ("SGD step, MLP", _stepping),
        ("Adam step, MLP", _stepping_adam),
        ("call of a plan, MLP", _calling_a_plan),
        ("SGD step, LSTM", _stepping_lstm),
    ):
        workers = [
            sy.VirtualWorker(id="bench_open", auto_add=False),
            sy.VirtualWorker(id="bench_denying", auto_add=False, policy=Policy(allows_by_default=False)),
        ]
        with speaking_for("ann"):
            is_open, denying = side_by_side(*[made(worker) for worker in workers])
        reached = denying <= is_open / 0.8
        figures.append(
            Figure(f"denying worker: {name}", denying, is_open, "open worker", "<= 1.25x open", reached)
        )
    return figures
