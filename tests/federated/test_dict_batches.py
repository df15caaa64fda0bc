"""Clients whose items are dicts: the model's arguments by name, and "labels"."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from syft.federated.trainer import Trainer

torch.set_num_threads(1)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.last(x * scale.unsqueeze(-1))


def rows(seed: int, size: int = 10) -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x, scale = torch.randn(size, 3, generator=generator), torch.rand(size, generator=generator)
    return list(zip(x, scale, (x[:, 0] > 0).long(), strict=True))


def as_dicts(items: list[tuple[Tensor, Tensor, Tensor]]) -> list[dict[str, Tensor]]:
    # NB: in another order than the model's arguments
    return [{"labels": y, "scale": scale, "x": x} for x, scale, y in items]


def trained(clients: Any, evaluate: Any) -> tuple[dict[str, Tensor], Any]:
    torch.manual_seed(0)
    model = Scaled()
    metrics = {"hits": lambda output, target: (output.argmax(1) == target).float().mean()}
    trainer = Trainer(
        model, nn.CrossEntropyLoss(), clients, metrics=metrics, evaluate=evaluate, batch_size=4, seed=3
    )
    return model.state_dict(), trainer.fit(2).rounds[-1]


def test_dict_items_train_and_evaluate_as_tuples_do() -> None:
    tuples, by_tuples = trained({"a": rows(1), "b": rows(2, 7)}, rows(3))
    dicts, by_dicts = trained({"a": as_dicts(rows(1)), "b": as_dicts(rows(2, 7))}, as_dicts(rows(3)))
    assert by_dicts.accepted == ("a", "b") and not by_dicts.failures
    assert by_dicts.evaluation == by_tuples.evaluation and "hits" in by_dicts.evaluation
    assert by_dicts.training == by_tuples.training
    assert all(torch.equal(tuples[name], dicts[name]) for name in tuples)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda row: {"x": row["x"], "scale": row["scale"]},
            "has them as 'labels', and this one has 'x', 'scale'",
        ),
        (lambda row: {**row, "labels": "yes"}, "labels of a batch are one tensor"),
    ],
)
def test_a_dict_without_labels_is_named(change: Any, sentence: str) -> None:
    broken = [change(row) for row in as_dicts(rows(1))]
    trainer = Trainer(
        Scaled(), nn.CrossEntropyLoss(), {"a": as_dicts(rows(1)), "b": broken}, batch_size=4, min_clients=1
    )
    (report,) = trainer.fit(1).rounds
    assert report.accepted == ("a",) and sentence in report.failures[0].why
