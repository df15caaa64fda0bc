"""Where its paper says that a strategy beats FedAvg, it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.federated.clients import DatasetClient, Work
from syft.federated.strategies import FedAdagrad, FedAdam, FedAvg, FedProx, FedYogi, Scaffold
from syft.federated.trainer import Trainer
from trainer_parts import Changed, scaled

MSE = nn.MSELoss()


def linear(features: int) -> nn.Linear:
    model = nn.Linear(features, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


# -- clients whose data differ, and many local steps -------------------------------------------------------


def heterogeneous() -> tuple[dict[str, TensorDataset], torch.Tensor]:
    """Least squares with inputs of another shape and answers of another truth at each client; the best weights."""
    random = torch.Generator().manual_seed(0)
    parts, normal, right = {}, torch.zeros(4, 4), torch.zeros(4, 1)
    for number in range(6):
        x = torch.randn(32, 4, generator=random) * torch.linspace(0.3, 1.5, 4).roll(number)
        y = x @ (torch.randn(4, 1, generator=random) * 3)
        parts[f"c{number}"] = TensorDataset(x, y)
        normal, right = normal + x.T @ x, right + x.T @ y
    return parts, torch.linalg.solve(normal, right).flatten()


def distance(strategy: Any, rounds: int) -> float:
    parts, best = heterogeneous()
    model = linear(4)
    trainer = Trainer(
        model, MSE, parts, strategy, epochs=10, batch_size=32, optimizer_args={"lr": 0.1}, seed=1
    )
    trainer.fit(rounds)
    return float((model.weight.detach().flatten() - best).norm())


def test_scaffold_finds_the_optimum_that_fedavg_drifts_away_from() -> None:
    drift = distance(FedAvg(), 30)
    assert drift > 0.3
    assert distance(Scaffold(), 30) < drift / 100


def test_fedprox_drifts_less_the_stronger_it_pulls() -> None:
    drift = distance(FedAvg(), 30)
    some, much = distance(FedProx(mu=1.0), 30), distance(FedProx(mu=5.0), 30)
    assert much < some < drift and much < drift / 2


# -- features of very different sizes, some of them rare ---------------------------------------------------


def ill_scaled() -> dict[str, TensorDataset]:
    """Large features that everybody has, and small ones, each of a few examples of one client, that matter too."""
    random = torch.Generator().manual_seed(0)
    scale = torch.tensor([1.0] * 4 + [0.1] * 4)
    truth = torch.tensor([[1.0, -1.0, 0.5, 2.0, 8.0, -8.0, 10.0, -6.0]]).T
    parts = {}
    for number in range(4):
        x = torch.randn(64, 8, generator=random)
        rare = torch.zeros(64, 4)
        rare[:16, number] = 1.0
        x[:, 4:] *= rare
        x = x * scale
        parts[f"c{number}"] = TensorDataset(x, x @ truth)
    return parts


def loss_after(strategy: Any, lr: float, rounds: int = 60) -> float:
    parts, model = ill_scaled(), linear(8)
    Trainer(model, MSE, parts, strategy, batch_size=64, optimizer_args={"lr": lr}, seed=1).fit(rounds)
    with torch.no_grad():
        losses = [MSE(model(part.tensors[0]), part.tensors[1]).item() for part in parts.values()]
    return sum(losses) / len(losses)


@pytest.mark.parametrize(
    "make",
    [lambda: FedAdam(0.3, tau=1e-4), lambda: FedYogi(0.3, tau=1e-4), lambda: FedAdagrad(1.0, tau=1e-4)],
)
def test_adaptive_strategies_learn_rare_small_features_sooner(make: Any) -> None:
    plain = min(loss_after(FedAvg(), lr) for lr in (0.1, 0.3, 0.8))
    assert loss_after(make(), 0.1) < plain / 3


# -- clients that lie --------------------------------------------------------------------------------------


def with_liars(strategy: Any, liars: int) -> float:
    """The distance to the truth after training with some clients that push the other way, hard."""
    random = torch.Generator().manual_seed(0)
    truth = torch.tensor([[1.0, -2.0, 3.0]]).T
    model = linear(3)
    work = Work(linear(3), MSE)
    clients: dict[str, Any] = {}
    for number in range(9):
        x = torch.randn(24, 3, generator=random)
        client = DatasetClient(TensorDataset(x, x @ truth + 0.1 * torch.randn(24, 1, generator=random)), work)
        clients[f"c{number}"] = Changed(client, scaled(-10.0)) if number < liars else client
    trainer = Trainer(model, MSE, clients, strategy, "serial", batch_size=8, seed=2)
    trainer.fit(15)
    return float((model.weight.detach().T - truth).norm())


@pytest.mark.parametrize("strategy", ["median", "krum", "multikrum", "trimmed_mean"])
def test_robust_strategies_learn_in_spite_of_liars(strategy: str) -> None:
    assert with_liars(FedAvg(), 1) > 1.0
    assert with_liars(strategy, 1) < 0.15


def test_what_learns_in_spite_of_liars_learns_without_them() -> None:
    assert with_liars("fedavg", 0) < 0.1 and with_liars("median", 0) < 0.1
