"""A federated epoch beside the plain torch loop over the same batches: 6000 rows, batch 64, ten workers in process."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from bench import federated_floor as floor
from bench.harness import Figure, benchmark, beside, side_by_side
from bench.mlp import mlp, sgd_step

ROWS, BATCH, WORKERS = 6000, 64, 10
PART = ROWS // WORKERS


@benchmark(rows=("epoch_loop", "epoch_fit"), rank=2)
def federated_epoch() -> list[Figure]:
    import syft as sy

    torch.manual_seed(0)
    data, target = torch.randn(ROWS, 784), torch.randint(10, (ROWS,))
    workers = [sy.VirtualWorker(id=f"bench_fed_{number}") for number in range(WORKERS)]
    dataset = TensorDataset(data, target)
    loader = sy.FederatedDataLoader(dataset.federate(workers), batch_size=BATCH)  # type: ignore[attr-defined]
    for worker, part in zip(workers, torch.arange(ROWS).split(PART), strict=True):
        worker.add_dataset(sy.BaseDataset(data[part], target[part]), "rows")

    plain_model, torch_model, loop_model, stay_model, floor_model, fit_model = (mlp() for _ in range(6))
    plain_sgd = torch.optim.SGD(plain_model.parameters(), lr=0.1)
    torch_sgd = torch.optim.SGD(torch_model.parameters(), lr=0.1)
    loop_sgd = torch.optim.SGD(loop_model.parameters(), lr=0.1)
    stay_sgd = torch.optim.SGD(stay_model.parameters(), lr=0.1)
    floor_sgd = torch.optim.SGD(floor_model.parameters(), lr=0.1)
    torch_loader = DataLoader(dataset, batch_size=BATCH)

    def plain() -> None:
        """Slices of tensors: the fastest loop there is, and the same batches as the federated ones."""
        for start in range(0, ROWS, PART):
            for first in range(start, start + PART, BATCH):
                last = min(first + BATCH, start + PART)
                sgd_step(plain_model, plain_sgd, data[first:last], target[first:last])

    def with_data_loader() -> None:
        for batch, labels in torch_loader:
            sgd_step(torch_model, torch_sgd, batch, labels)

    def documented_loop() -> None:
        for batch, labels in loader:
            loop_model.send(batch.location)  # type: ignore[operator]
            sgd_step(loop_model, loop_sgd, batch, labels)
            loop_model.get()  # type: ignore[operator]

    def floor_of_the_loop() -> None:
        for start in range(0, ROWS, PART):
            for first in range(start, start + PART, BATCH):
                last = min(first + BATCH, start + PART)
                batch, labels = floor.rows(data, first, last), floor.rows(target, first, last)
                floor.send(floor_model)
                sgd_step(floor_model, floor_sgd, batch, labels)
                floor.get(floor_model)

    def model_moves_once_per_worker() -> None:
        for batch, labels in loader:
            if stay_model.location is not batch.location:
                stay_model.move(batch.location) if stay_model.location else stay_model.send(batch.location)  # type: ignore[operator]
            sgd_step(stay_model, stay_sgd, batch, labels)
        stay_model.get()  # type: ignore[operator]

    def fit_there() -> None:
        model: Any = fit_model
        for worker in workers:
            config = sy.TrainConfig(
                model, torch.nn.functional.cross_entropy, batch_size=BATCH, shuffle=False
            ).send(worker)
            worker.fit("rows")
            model = config.get().model

    base, torch_way, loop, least, moved, fit = side_by_side(
        plain,
        with_data_loader,
        documented_loop,
        floor_of_the_loop,
        model_moves_once_per_worker,
        fit_there,
        rounds=7,
    )
    against = "plain loop over slices"
    return [
        beside("epoch_loop", loop, {"plain loop": base}),
        beside("epoch_fit", fit, {"plain loop": base}),
        Figure("federated epoch, documented loop", loop, torch_way, "plain loop, DataLoader", "", None),
        Figure("federated epoch, documented loop", loop, least, "the same with bare wrappers", "", None),
        Figure("federated epoch, bare wrappers", least, base, against, "", None),
        Figure("federated epoch, model moves once per worker", moved, base, against, "", None),
        Figure("an epoch in plain torch, DataLoader", torch_way, base, against, "", None),
    ]
