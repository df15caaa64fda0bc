"""Differential privacy: PATE's analysis, and a step of private training against opacus."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.harness import Figure, benchmark, side_by_side


@benchmark
def dp_pate() -> list[Figure]:
    from syft.dp import gnmax, pate

    random = np.random.default_rng(0)
    truth = random.integers(0, 10, 1000)
    preds = np.where(random.random((100, 1000)) < 0.7, truth, random.integers(0, 10, (100, 1000)))
    asked, tensor = np.arange(1000), torch.from_numpy(preds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = side_by_side(
            lambda: pate.perform_analysis(preds, asked, 0.1),
            lambda: pate.perform_analysis_torch(tensor, asked, 0.1),
            lambda: pate.analyse(preds, asked, 0.1),
            lambda: gnmax.analyse(preds, asked, 40.0),
            lambda: gnmax.release(preds, asked, 40.0, order=20.0),
            rounds=7,
        )
    names = ("numpy", "torch", "with smooth sensitivity", "GNMax, all orders", "GNMax, released")
    return [
        Figure(
            f"PATE 100 x 1000 x 10, {name}",
            ours,
            None,
            "2.3 s (2020)",
            target,
            ours <= 0.05 if target else None,
        )
        for name, ours, target in zip(names, times, ("<= 50 ms", "<= 50 ms", "", "", ""), strict=True)
    ]


def _models() -> dict[str, tuple[Any, torch.Tensor]]:
    def conv() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(),
            nn.Linear(32, 10),
        )  # fmt: skip

    def wide() -> nn.Module:
        return nn.Sequential(
            nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
        )

    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.mid, self.out = nn.Embedding(2000, 32), nn.Linear(32, 64), nn.Linear(64, 10)
            self.norm = nn.LayerNorm(64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(torch.relu(self.norm(self.mid(self.table(x)))).mean(1))

    return {
        "MLP 784-256-256-10": (wide, torch.randn(128, 784)),
        "CNN on 28 x 28": (conv, torch.randn(128, 1, 28, 28)),
        "embedding, 32 words": (Text, torch.randint(0, 2000, (128, 32))),
    }


@benchmark
def dp_sgd_step() -> list[Figure]:
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    from syft.dp.dpsgd import make_private

    figures = []
    loss_fn = nn.CrossEntropyLoss()
    for name, (make, x) in _models().items():
        y = torch.randint(0, 10, (len(x),))
        loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
        model = make()
        ours = make_private(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loader, loss_fn=loss_fn, noise_multiplier=1.0
        )

        def our_step(ours: Any = ours, x: torch.Tensor = x, y: torch.Tensor = y) -> None:
            ours.loader.outstanding = len(x)
            ours.step(x, y)

        other = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrapped, optimizer, _ = PrivacyEngine().make_private(
                module=other,
                optimizer=torch.optim.SGD(other.parameters(), lr=0.1),
                data_loader=loader,
                noise_multiplier=1.0,
                max_grad_norm=1.0,
                poisson_sampling=False,
            )

            def their_step(
                model: Any = wrapped, optimizer: Any = optimizer, x: torch.Tensor = x, y: torch.Tensor = y
            ) -> None:
                loss_fn(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()

            mine, theirs = side_by_side(our_step, their_step, rounds=9)
        figures.append(
            Figure(f"DP-SGD, {name}", mine, theirs, "opacus, plain noise", "<= 1x", mine <= theirs)
        )
    return figures
