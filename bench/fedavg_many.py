"""A round of FedAvg with 1000 clients on each engine, beside FedAvg by hand in plain torch.

60 samples each, batches of 20, MLP 784-128-10: a client is three steps, so this measures what a client costs beside
its training. Ray's start, and the first round, which takes the data to it, are told apart.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bench.harness import Figure, benchmark, by_mode, time_run

CLIENTS, ROWS, BATCH, LR = 1000, 60, 20, 0.1


def _by_hand(model: nn.Module, loss: nn.Module, clients: dict[str, TensorDataset]) -> None:
    total = {name: torch.zeros_like(t) for name, t in model.state_dict().items()}
    for dataset in clients.values():
        data, target = dataset.tensors
        local = copy.deepcopy(model)
        optimizer = torch.optim.SGD(local.parameters(), lr=LR)
        for rows in torch.randperm(ROWS).split(BATCH):
            optimizer.zero_grad()
            loss(local(data[rows]), target[rows]).backward()
            optimizer.step()
        for name, tensor in local.state_dict().items():
            total[name] += tensor / CLIENTS
    model.load_state_dict(total)


@benchmark(limit=600.0)
def fedavg_ten_to_ten_thousand() -> Iterator[Figure]:
    """A round with more and more clients of one tenth of the rows on each engine: what one of them costs.

    Processor time of this process and of all that it started, the least of two rounds, and memory that this process
    has more than before there were clients, data included.
    """
    from syft.federated.engines import RayEngine
    from syft.federated.trainer import Trainer

    loss = nn.CrossEntropyLoss()
    engines: dict[str, Any] = {"serial": "serial", "threads": "threads"}
    if find_spec("ray") is not None:
        engines["ray"] = RayEngine()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as Ray's actors have; more wait for each other in models as small as this
    first = {"a": TensorDataset(torch.randn(ROWS, 64), torch.randint(0, 10, (ROWS,)))}
    Trainer(nn.Linear(64, 10), loss, first).fit(
        1
    )  # what torch loads for its first optimizer is nobody's cost
    try:
        for name, engine in engines.items():
            for count in by_mode((10, 100, 1000, 10_000), (10, 1000), (10,)):
                gc.collect()
                before = _memory()
                x, y = torch.randn(count, ROWS // 10, 64), torch.randint(0, 10, (count, ROWS // 10))
                clients = {f"client {i}": TensorDataset(x[i], y[i]) for i in range(count)}
                trainer = Trainer(nn.Linear(64, 10), loss, clients, engine=engine, batch_size=BATCH)
                trainer.fit(1)
                times = []
                for rounds in (2, 3):
                    began = _processor_time()
                    trainer.fit(rounds)
                    times.append(_processor_time() - began)
                if len(trainer.history.rounds[-1].accepted) < count:
                    raise RuntimeError(f"A failing round is not a fast one: {trainer.history.rounds[-1]}")
                memory = {"bytes a client": (_memory() - before) / count}
                yield Figure(f"{count} clients, one of them, {name}", min(times) / count, details=memory)
    finally:
        torch.set_num_threads(threads)
        if "ray" in engines:
            engines["ray"].close()


def _memory() -> int:
    """Bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _processor_time() -> float:
    """Seconds of this process, and of those that it started and that live."""
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            times[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    mine.discard(os.getpid())
    return time.process_time() + sum(times[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")


@benchmark
def fedavg_thousand_clients() -> list[Figure]:
    from syft.federated.engines import RayEngine, SerialEngine, ThreadEngine
    from syft.federated.trainer import Trainer

    x = torch.randn(CLIENTS, ROWS, 784)
    y = torch.randint(0, 10, (CLIENTS, ROWS))
    clients = {f"client {i}": TensorDataset(x[i], y[i]) for i in range(CLIENTS)}
    model, loss = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), nn.CrossEntropyLoss()

    def ready(engine: Any) -> Trainer:
        options = {"lr": LR}
        return Trainer(
            copy.deepcopy(model), loss, clients, engine=engine, batch_size=BATCH, optimizer_args=options
        )

    def one_more(trainer: Trainer) -> float:
        seconds = time_run(lambda: trainer.fit(trainer.round + 1), 1)
        if failed := trainer.history.rounds[-1].failures:
            raise RuntimeError(f"A failing round is not a fast one: {failed[0]}")
        return seconds

    engines: dict[str, Any] = {"serial": SerialEngine(), "threads": ThreadEngine()}
    if find_spec("ray") is None:
        print("The Ray engine is left out: pip install 'resyft[ray]', or `make ray`.")
    else:
        engines["ray"] = RayEngine()
    figures = []
    try:
        if "ray" in engines:
            started = time.perf_counter()
            small = {"a": TensorDataset(torch.ones(2, 1), torch.ones(2, 1))}
            Trainer(nn.Linear(1, 1), nn.MSELoss(), small, engine=engines["ray"]).fit(1)
            figures.append(
                Figure("Ray's start and its actors'", time.perf_counter() - started, None, "", "", None)
            )
        trainers = {name: ready(engine) for name, engine in engines.items()}
        first = {name: one_more(trainer) for name, trainer in trainers.items()}
        steady: dict[str, list[float]] = {name: [] for name in ("hand", *trainers)}
        for _ in range(5):
            steady["hand"].append(time_run(lambda: _by_hand(model, loss, clients), 1))
            for name, trainer in trainers.items():
                steady[name].append(one_more(trainer))
    finally:
        if "ray" in engines:
            engines["ray"].close()
    hand = sorted(steady["hand"])[2]
    for name in trainers:
        against = "FedAvg by hand"
        figures.append(Figure(f"1000 clients, first round, {name}", first[name], hand, against, "", None))
        figures.append(
            Figure(f"1000 clients, steady round, {name}", sorted(steady[name])[2], hand, against, "", None)
        )
    return figures
