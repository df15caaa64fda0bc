"""Differential privacy: PATE's analysis, and a step of private training against opacus."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bench.harness import Figure, Run, benchmark, beside, side_by_side
from bench.memory import peak_after, resident


@benchmark(rows=("pate_numpy", "pate_torch"), rank=3)
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
    names = ("with smooth sensitivity", "GNMax, all orders", "GNMax, released")
    figures = [beside(row, ours, {}) for row, ours in zip(("pate_numpy", "pate_torch"), times, strict=False)]
    return figures + [
        Figure(f"PATE 100 x 1000 x 10, {name}", ours) for name, ours in zip(names, times[2:], strict=True)
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

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down, self.out = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.Linear(256, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out((x + self.down(torch.relu(self.up(x)))).mean(1))

    return {
        "MLP 784-256-256-10": (wide, torch.randn(128, 784)),
        "CNN on 28 x 28": (conv, torch.randn(128, 1, 28, 28)),
        "embedding, 32 words": (Text, torch.randint(0, 2000, (128, 32))),
        "sequences 32 x 256": (Sequence, torch.randn(32, 32, 256)),
    }


def _opacus_step(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, mode: str, is_secure: bool = False
) -> Run:
    """A step of opacus on the same batch. "hooks" is what it does unless told otherwise.

    `is_secure`: with the noise of its `secure_mode`, which like ours does not tell by its rounding what it was added
    to. NB: not by PrivacyEngine(secure_mode=True), which needs torchcsprng, and that has no release for this torch. So
    what is drawn here still comes from torch's generator, which is faster than one of cryptography.
    """
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
    optimizer.secure_mode = is_secure

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


@benchmark(rank=5)
def dp_sgd_step() -> Iterator[Figure]:
    for name, (make, x) in _models().items():
        y = torch.randint(0, 10, (len(x),))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = _our_step(make(), x, y)
            mine, theirs = side_by_side(ours, _opacus_step(make(), x, y, "hooks"), rounds=9)
            others = [_opacus_step(make(), x, y, "ghost", is_secure) for is_secure in (False, True)]
            again, ghost, secure = side_by_side(ours, *others, rounds=9)
        what = f"DP-SGD, {name}"
        for own, other, against in (
            (mine, theirs, "opacus"),
            (again, ghost, "opacus, ghost clipping"),
            (again, secure, "opacus, ghost clipping, secure noise"),
        ):
            yield Figure(what, own, other, against, "at most 1 times", own <= other)


@benchmark(rank=5)
def dp_sgd_memory() -> Iterator[Figure]:
    """What three steps take beside what was there before them: peaks of processes of their own."""
    for name in _models():
        ours, hooks, ghost = (_peak_of(name, contestant) for contestant in ("ours", "hooks", "ghost"))
        for theirs, against in ((hooks, "opacus"), (ghost, "opacus, ghost clipping")):
            what = f"DP-SGD, {name}, memory of steps"
            yield Figure(what, ours, theirs, against, "at most 1 times", ours <= theirs, unit="B")


def _peak_of(model: str, contestant: str) -> float:
    code = f"from bench.dp import tell_peak; tell_peak({model!r}, {contestant!r})"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def tell_peak(model: str, contestant: str) -> None:
    """In a process of its own: the most memory that three steps take, in bytes, beyond what models and data take."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, (make, x) in _models().items():
        y = torch.randint(0, 10, (len(x),))
        if name == model:
            made = make()
            step = _our_step(made, x, y) if contestant == "ours" else _opacus_step(made, x, y, contestant)
    small = nn.Sequential(nn.Linear(2, 2))
    few = torch.randn(4, 2), torch.randint(0, 2, (4,))
    # NB: what is imported or cached at the first step of any model is no memory of this one.
    (_our_step(small, *few) if contestant == "ours" else _opacus_step(small, *few, contestant))()
    before, peak = resident(), peak_after()
    for _ in range(3):
        step()
    print(peak() - before)


@benchmark(rank=5)
def dp_ftrl_step() -> Iterator[Figure]:
    """DP-FTRL beside DP-SGD: the noise of earlier steps is remembered and taken off."""
    from syft.dp.ftrl import make_private_ftrl

    make, x = _models()["MLP 784-256-256-10"]
    y = torch.randint(0, 10, (len(x),))
    for mechanism, bands in (("tree", None), ("banded", 8)):
        model = make()
        training = make_private_ftrl(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            DataLoader(TensorDataset(x.repeat(64, 1), y.repeat(64)), batch_size=len(x)),
            loss_fn=nn.CrossEntropyLoss(),
            epochs=10_000,
            noise_multiplier=1.0,
            mechanism=mechanism,
            bands=bands,
            restart=mechanism == "tree",
        )

        def step(training: Any = training) -> None:
            training.loader.outstanding, training.loader.drawn = len(x), training.steps + 1
            training.step(x, y)

        ours, plain = side_by_side(step, _our_step(make(), x, y), rounds=9)
        what = f"DP-FTRL, MLP 784-256-256-10, {mechanism}{'' if bands is None else f' of {bands}'}"
        yield Figure(what, ours, plain, "DP-SGD here", "", None)
