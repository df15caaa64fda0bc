"""Clients, models and data that the tests of the federated Trainer share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.federated.records import EvaluateInstructions, EvaluateResult, FitInstructions, FitResult


def line(*weights: float) -> nn.Linear:
    """A model of a few weights without a bias, so that a step fits on a sheet of paper."""
    model = nn.Linear(len(weights), 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights]))
    return model


def weights(model: nn.Module) -> list[float]:
    return [round(value, 6) for value in model.get_parameter("weight").detach().flatten().tolist()]


def points(*pairs: tuple[float, float]) -> TensorDataset:
    """(x, y) pairs for `line(w)`."""
    data = torch.tensor(pairs, dtype=torch.float32)
    return TensorDataset(data[:, :1], data[:, 1:])


class Fixed:
    """A client that always moves by the same update."""

    def __init__(self, *update: float, examples: int = 1, steps: int = 1) -> None:
        self.update, self.examples, self.steps = update, examples, steps

    def fit(self, instructions: FitInstructions) -> Any:
        return FitResult(
            instructions.round,
            {"weight": torch.tensor([self.update])},
            self.examples,
            self.steps,
            {"loss": float(self.update[0])},
        )

    def evaluate(self, instructions: EvaluateInstructions) -> Any:
        return EvaluateResult(instructions.round, self.examples, {"loss": self.update[0]})


class Changed:
    """Another client, whose result is changed on the way."""

    def __init__(self, client: Any, change: Any) -> None:
        self.client, self.change = client, change

    def fit(self, instructions: FitInstructions) -> Any:
        return self.change(self.client.fit(instructions))

    def evaluate(self, instructions: EvaluateInstructions) -> Any:
        return self.change(self.client.evaluate(instructions))


def scaled(factor: float) -> Any:
    """A change for `Changed`: the update times a factor."""

    def change(result: FitResult) -> FitResult:
        return replace(result, update={name: t * factor for name, t in result.update.items()})

    return change


def classes(seed: int = 0, clients: int = 5, rows: int = 40, features: int = 6) -> dict[str, TensorDataset]:
    """A classification task in parts, of sizes that differ."""
    generator = torch.Generator().manual_seed(seed)
    parts = {}
    for number in range(clients):
        x = torch.randn(rows + 3 * number, features, generator=generator)
        parts[f"client {number}"] = TensorDataset(x, (x[:, 0] + x[:, 1] > 0).long())
    return parts


def net(seed: int = 0, features: int = 6) -> nn.Module:
    """With everything that is hard to repeat: dropout, and statistics that are kept."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(features, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 2)
        )


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Counting:
    """A privacy that says nothing of its charges: it is told of each round instead."""

    rounds = 0

    def clip(self, update: torch.Tensor) -> torch.Tensor:
        return update

    def noise(self, total: torch.Tensor, n_clients: int) -> torch.Tensor:
        return total

    def round_done(self) -> None:
        self.rounds += 1
