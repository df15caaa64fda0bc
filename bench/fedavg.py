"""A round of FedAvg against the same work in a plain torch loop: 10 clients, 6000 samples, MLP 784-128-10."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bench.harness import Figure, benchmark, side_by_side

CLIENTS, SAMPLES, BATCH = 10, 6000, 64


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


@benchmark
def fedavg_round() -> list[Figure]:
    from syft.federated.trainer import Trainer

    x, y = torch.randn(SAMPLES, 784), torch.randint(0, 10, (SAMPLES,))
    parts = list(zip(x.chunk(CLIENTS), y.chunk(CLIENTS), strict=True))
    clients = {f"client {i}": TensorDataset(*part) for i, part in enumerate(parts)}
    model, loss = mlp(), nn.CrossEntropyLoss()

    def ours(engine: str) -> None:
        # A new trainer each time: its first round is all that is timed, with the making of it.
        trainer = Trainer(
            copy.deepcopy(model),
            loss,
            clients,
            "fedavg",
            engine,
            batch_size=BATCH,
            optimizer_args={"lr": 0.1},
        )
        trainer.fit(1)

    def plain() -> None:
        net = copy.deepcopy(model)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for data, target in parts:
            order = torch.randperm(len(data))
            for start in range(0, len(data), BATCH):
                rows = order[start : start + BATCH]
                optimizer.zero_grad()
                loss(net(data[rows]), target[rows]).backward()
                optimizer.step()

    def plain_in_order() -> None:
        net = copy.deepcopy(model)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for data, target in zip(x.split(BATCH), y.split(BATCH), strict=True):
            optimizer.zero_grad()
            loss(net(data), target).backward()
            optimizer.step()

    serial, threads, shuffled, in_order = side_by_side(
        lambda: ours("serial"), lambda: ours("threads"), plain, plain_in_order, rounds=15
    )
    return [
        Figure(
            f"FedAvg first round, {name}",
            mine,
            other,
            against,
            "<= 1.3x" if is_target else "",
            mine <= 1.3 * other if is_target else None,
        )
        for name, mine, other, against, is_target in (
            ("serial", serial, shuffled, "plain loop, same batches", True),
            ("threads", threads, shuffled, "plain loop, same batches", True),
            ("serial", serial, in_order, "plain loop, one unshuffled pass", False),
            ("threads", threads, in_order, "plain loop, one unshuffled pass", False),
        )
    ]
