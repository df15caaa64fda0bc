"""Clients that are not alike: settings of their own, part of the work, figures by group."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from syft.federated import MaskedSum, Trainer
from syft.federated.layout import read_state
from syft.federated.network_clients import NetworkClient
from syft.federated.records import FitInstructions
from trainer_parts import Fixed, line, points

torch.set_num_threads(1)
MSE = nn.MSELoss()


class Telling(Fixed):
    def __init__(self) -> None:
        super().__init__(1.0)
        self.told: list[FitInstructions] = []

    def fit(self, instructions: FitInstructions) -> Any:
        self.told.append(instructions)
        return super().fit(instructions)


def test_a_client_trains_with_its_own_settings_and_the_others_with_the_trainers() -> None:
    clients = {name: Telling() for name in "abc"}
    own = {"a": {"epochs": 5}, "b": {"batch_size": 2, "optimizer_args": {"lr": 0.5}}}
    Trainer(line(0.0), MSE, clients, client_settings=own, epochs=2, batch_size=8).fit(1)
    found = {
        n: (c.told[0].epochs, c.told[0].batch_size, c.told[0].optimizer_args) for n, c in clients.items()
    }
    assert found == {"a": (5, 8, {"lr": 0.1}), "b": (2, 2, {"lr": 0.5}), "c": (2, 8, {"lr": 0.1})}


def test_own_settings_move_the_model_as_a_trainer_with_them_would() -> None:
    data = points((1.0, 3.0), (2.0, 5.0), (-1.0, 0.0))
    alone = Trainer(line(0.0), MSE, {"a": data}, epochs=4, optimizer_args={"lr": 0.05}, seed=2)
    own = {"a": {"epochs": 4, "optimizer_args": {"lr": 0.05}}}
    told = Trainer(line(0.0), MSE, {"a": data}, client_settings=own, seed=2)
    alone.fit(2), told.fit(2)
    assert torch.equal(read_state(alone.model)["weight"], read_state(told.model)["weight"])


@pytest.mark.parametrize(
    ("settings", "options", "error", "sentence"),
    [
        ([("a", 1)], {}, TypeError, "dict of dicts"),
        ({"a": 3}, {}, TypeError, "dict of dicts"),
        ({"z": {"epochs": 1}}, {}, ValueError, "'z', which is not among"),
        ({"a": {"seed": 1}}, {}, ValueError, "'seed' for 'a'"),
        ({"a": {"epochs": 0}}, {}, ValueError, "whole number of 1 or more"),
        ({"a": {"optimizer_args": {"speed": 1}}}, {}, ValueError, "speed"),
        ({"a": {"optimizer_args": {"lr": 1.0}}}, {"strategy": "scaffold"}, ValueError, "one learning rate"),
    ],
)
def test_settings_that_are_none_are_refused(settings: Any, options: Any, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        Trainer(
            line(0.0),
            MSE,
            {"a": points((1.0, 1.0)), "b": points((1.0, 1.0))},
            client_settings=settings,
            **options,
        )


def test_workers_of_a_masked_sum_are_told_the_same() -> None:
    class Far(NetworkClient):
        def __init__(self) -> None: ...

    with pytest.raises(ValueError, match="only if all of them are told the same"):
        Trainer(
            line(0.0),
            MSE,
            {"a": Far(), "b": Far()},
            aggregation=MaskedSum(),
            client_settings={"a": {"epochs": 2}},
        )


class Slow(Dataset[Any]):
    """A tenth of a second for each row."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, row: int) -> Any:
        time.sleep(0.1)
        return torch.ones(1), torch.ones(1)


def test_a_slow_client_sends_what_it_has_when_its_time_is_nearly_up() -> None:
    clients = {"slow": Slow(), "fast": points((1.0, 1.0))}
    told: dict[str, Any] = {"batch_size": 1, "optimizer_args": {"lr": 0.01}, "deadline": 1.5}
    part = Trainer(line(0.0), MSE, clients, partial=True, **told)
    (report,) = part.fit(1).rounds
    assert report.accepted == ("fast", "slow") and not report.failures
    # 50 rows weigh fifty times as much as one; a dozen of their steps were done.
    assert 0.1 < read_state(part.model)["weight"].item() < 0.4
    whole = Trainer(line(0.0), MSE, clients, **told)
    (report,) = whole.fit(1).rounds
    assert report.accepted == ("fast",) and report.failures[0].kind in ("timeout", "error")
    with pytest.raises(ValueError, match="without a deadline"):
        Trainer(line(0.0), MSE, clients, partial=True)


def test_figures_by_group_are_weighted_by_examples() -> None:
    def rows(target: float, count: int) -> TensorDataset:
        return points(*[(1.0, target)] * count)

    class Lost(Fixed):
        def evaluate(self, instructions: Any) -> Any:
            return None

    clients = {"a": rows(1.0, 1), "b": rows(2.0, 3), "c": rows(3.0, 2), "d": Lost(1.0)}
    found = Trainer(line(0.0), MSE, clients).evaluate_clients(
        groups={"north": ["a", "b"], "all": ["a", "b", "c", "d"], "lost": ["d"]}
    )
    assert found.by_group["north"] == {"loss": pytest.approx((1.0 + 3 * 4.0) / 4)}
    assert found.by_group["all"] == found.metrics and found.by_group["lost"] == {}
    assert found.by_client["c"].metrics == {"loss": pytest.approx(9.0)}
    for groups, error, sentence in (
        ({"north": "ab"}, TypeError, "dict of lists"),
        (["a"], TypeError, "dict of lists"),
        ({"north": ["z"]}, ValueError, "'z', which is not a client"),
    ):
        with pytest.raises(error, match=sentence):
            Trainer(line(0.0), MSE, clients).evaluate_clients(groups=groups)  # type: ignore[arg-type]
