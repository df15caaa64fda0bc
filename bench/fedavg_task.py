"""One FedAvg task, trained by hand, by us, or by Flower: 10 clients, 6000 samples, MLP 784-128-10, one local epoch.

A script for `fedavg_flower`, and for any Python that has torch: `python fedavg_task.py flower 6` prints the seconds of
each round as JSON; the first one begins after the imports, before anything of the framework has been made. It imports
nothing of `bench`, since Flower is in an environment of its own.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import os
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

CLIENTS, SAMPLES, BATCH, LR = 10, 6000, 64, 0.1
LOSS = nn.CrossEntropyLoss()


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


@functools.cache
def parts() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, 784, generator=generator)
    y = torch.randint(0, 10, (SAMPLES,), generator=generator)
    return list(zip(x.chunk(CLIENTS), y.chunk(CLIENTS), strict=True))


def train(model: nn.Module, data: Tensor, target: Tensor) -> None:
    """One epoch in a random order."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for rows in torch.randperm(len(data)).split(BATCH):
        optimizer.zero_grad()
        LOSS(model(data[rows]), target[rows]).backward()
        optimizer.step()


# -- three ways to do it: each returns the times at which rounds were done ----------------------------------------


def by_hand(rounds: int) -> list[float]:
    model, ends = mlp(), []
    for _ in range(rounds):
        total = {name: torch.zeros_like(t) for name, t in model.state_dict().items()}
        for data, target in parts():
            local = copy.deepcopy(model)
            train(local, data, target)
            for name, tensor in local.state_dict().items():
                total[name] += tensor / CLIENTS
        model.load_state_dict(total)
        ends.append(time.perf_counter())
    return ends


def ours(rounds: int, engine: str) -> list[float]:
    from torch.utils.data import TensorDataset

    from syft.federated import Callback, Trainer

    ends: list[float] = []

    class Watch(Callback):
        def on_round_end(self, trainer: Any, report: Any) -> None:
            ends.append(time.perf_counter())

    clients = {f"client {i}": TensorDataset(*part) for i, part in enumerate(parts())}
    trainer = Trainer(
        mlp(),
        LOSS,
        clients,
        engine=engine,
        batch_size=BATCH,
        optimizer_args={"lr": LR},
        callbacks=[Watch()],
    )
    history = trainer.fit(rounds)
    if failed := [failure for report in history.rounds for failure in report.failures]:
        raise RuntimeError(f"A failing round is not a fast one: {failed[0]}")
    return ends


def flower(rounds: int) -> list[float]:
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    ends: list[float] = []
    whole = [0]
    client, server = ClientApp(), ServerApp()

    @client.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = mlp()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data, target = parts()[int(context.node_config["partition-id"])]
        train(model, data, target)
        content = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(data)}),
        }
        return Message(content=RecordDict(content), reply_to=message)

    class Counted(FedAvg):
        """A round in which clients fail is over soon, and goes on without a word."""

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            replies = list(replies)
            errors = [each for each in replies if each.has_error()]
            if errors or len(replies) != CLIENTS:
                raise RuntimeError(f"Of {len(replies)} clients, {len(errors)} failed.")
            whole[0] += 1
            return super().aggregate_train(server_round, replies)

    def watch(number: int, arrays: Any) -> MetricRecord:
        if number:
            ends.append(time.perf_counter())
        return MetricRecord({"round": number})

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = Counted(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(mlp().state_dict()),
            num_rounds=rounds,
            evaluate_fn=watch,
        )

    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=backend)
    if whole[0] != rounds:
        raise RuntimeError(f"Of {rounds} rounds, {whole[0]} were whole.")
    return ends


def main(how: str, rounds: int) -> None:
    torch.set_num_threads(1)
    train(mlp(), *parts()[0])  # torch itself has a first time, too
    if how in ("serial", "threads", "ray"):
        import syft.federated.trainer  # noqa: F401
    elif how == "flower":
        import flwr.serverapp.strategy
        import flwr.simulation  # noqa: F401
    began = time.perf_counter()
    ends = {
        "hand": by_hand,
        "serial": lambda count: ours(count, "serial"),
        "threads": lambda count: ours(count, "threads"),
        "ray": lambda count: ours(count, "ray"),
        "flower": flower,
    }[how](rounds)
    print(json.dumps([end - start for start, end in zip([began, *ends], ends, strict=False)]))


if __name__ == "__main__":
    # By its own name, so that other processes can import what they are sent by name.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], os.environ.get("PYTHONPATH", "")])
    import fedavg_task

    fedavg_task.main(sys.argv[1], int(sys.argv[2]))
