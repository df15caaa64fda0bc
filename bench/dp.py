"""Differential privacy: PATE's analysis, and a step of private training against opacus."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bench.harness import Figure, Run, benchmark, side_by_side


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
            lambda: gnmax.release(preds, asked, 40.0, order=20.0, num_classes=10),
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


def _opacus_step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, mode: str) -> Run:
    """A step of opacus on the same batch. "hooks" is what it does unless told otherwise."""
    from opacus import PrivacyEngine

    criterion = nn.CrossEntropyLoss()
    wrapped, optimizer, *more = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    loss_fn: Any = more[0] if mode == "ghost" else criterion

    def step() -> None:
        loss_fn(wrapped(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _our_step(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Run:
    from syft.dp.dpsgd import make_private

    training = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(TensorDataset(x, y), batch_size=len(x)),
        loss_fn=nn.CrossEntropyLoss(),
        noise_multiplier=1.0,
    )

    def step() -> None:
        training.loader.outstanding = len(x)
        training.step(x, y)

    return step


@benchmark
def dp_sgd_step() -> list[Figure]:
    figures = []
    for name, (make, x) in _models().items():
        y = torch.randint(0, 10, (len(x),))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = _our_step(make(), x, y)
            mine, theirs = side_by_side(ours, _opacus_step(make(), x, y, "hooks"), rounds=9)
            again, ghost = side_by_side(ours, _opacus_step(make(), x, y, "ghost"), rounds=9)
        figures += [
            Figure(f"DP-SGD, {name}", mine, theirs, "opacus, plain noise", "<= 1x", mine <= theirs),
            Figure(f"DP-SGD, {name}", again, ghost, "opacus, ghost clipping", "", None),
        ]
    return figures
