"""Averages are weighted means, of buffers too; what may hide updates, and what may not."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.federated.aggregation import Aggregation, PlainSum, Privacy, Updates
from syft.federated.clients import DatasetClient, Work
from syft.federated.layout import Layout, read_state
from syft.federated.records import FitInstructions, FitResult
from syft.federated.trainer import Trainer
from trainer_parts import Fixed, classes, line, net, same, weights


def test_a_round_is_the_weighted_mean_of_the_clients_models_with_their_statistics() -> None:
    model, parts = net(), classes(rows=37)
    before = copy.deepcopy(model)
    trainer = Trainer(model, nn.CrossEntropyLoss(), parts, batch_size=10, seed=5)

    trained: dict[str, FitResult] = {}
    for name, part in parts.items():
        client = DatasetClient(part, Work(copy.deepcopy(before), nn.CrossEntropyLoss()))
        trainer.clients[name] = Spy(name, client, trained)
    trainer.fit(1)

    total = sum(len(part) for part in parts.values())
    for key, value in model.state_dict().items():
        states = [before.state_dict()[key] + trained[name].update[key] for name in parts]
        mean = sum(s.double() * len(parts[name]) / total for name, s in zip(parts, states, strict=True))
        if value.is_floating_point():
            assert torch.allclose(value.double(), mean, rtol=1e-5, atol=1e-6), key
        else:
            assert value.item() == round(mean.item())
    assert not torch.equal(model[1].running_mean, before[1].running_mean)


class Spy:
    def __init__(self, name: str, client: Any, results: dict[str, FitResult]) -> None:
        self.name, self.client, self.results = name, client, results

    def fit(self, instructions: FitInstructions) -> FitResult:
        kept = {key: tensor.clone() for key, tensor in instructions.state.items()}
        result = self.client.fit(instructions)
        assert same(kept, instructions.state), "a client wrote into what it was given"
        self.results[self.name] = result
        return result

    def evaluate(self, instructions: Any) -> Any:
        return self.client.evaluate(instructions)


def test_updates_are_not_written_into() -> None:
    vectors = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 6.0])}
    kept = {name: vector.clone() for name, vector in vectors.items()}
    assert PlainSum().weighted_sum(vectors, {"a": 1.0, "b": 3.0}).tolist() == [10.0, 20.0]
    assert same(vectors, kept)
    with pytest.raises(ValueError, match="no update"):
        PlainSum().weighted_sum({}, {})


def test_the_mean_of_two_clients_by_hand() -> None:
    model = line(1.0, 1.0)
    Trainer(model, nn.MSELoss(), {"a": Fixed(1.0, 0.0, examples=1), "b": Fixed(0.0, 4.0, examples=3)}).fit(1)
    assert weights(model) == [1.25, 4.0]  # 1 + (1*1 + 3*0)/4, 1 + (1*0 + 3*4)/4


class Odd(nn.Module):
    """State of every kind of number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.lean = nn.Parameter(torch.zeros(1, dtype=torch.float16))
        self.wave = nn.Parameter(torch.zeros(1, dtype=torch.complex64))
        self.register_buffer("big", torch.tensor(2**60))
        self.register_buffer("mask", torch.tensor([True, False, False]))
        self.register_buffer("small", torch.tensor([250], dtype=torch.uint8))
        self.register_buffer("passing", torch.zeros(1), persistent=False)


def test_integers_booleans_halves_and_complex_numbers_are_averaged_as_what_they_are() -> None:
    model = Odd()
    layout, state = Layout.of(model), read_state(model)
    assert [e.name for e in layout.entries] == ["weight", "lean", "wave", "big", "mask", "small"]
    after = copy.deepcopy(state)
    after["big"] += 3
    after["mask"] = torch.tensor([False, False, True])
    after["small"] -= 200
    after["wave"] += 2 + 4j
    update = layout.difference(after, state)
    vector = layout.flatten(update)
    assert vector.dtype is torch.float32 and vector.numel() == layout.size and layout.trainable == 5
    whole, most = layout.moved(state, vector), layout.moved(state, vector * 0.75)
    assert same(whole, after)
    assert most["big"].item() == 2**60 + 2  # 2.25, rounded
    assert most["mask"].tolist() == [False, False, True]
    assert most["small"].item() == 100 and most["small"].dtype is torch.uint8
    assert most["wave"].item() == 1.5 + 3j and most["lean"].dtype is torch.float16
    assert "passing" not in state and torch.equal(most["frozen"], torch.ones(2))


def test_tied_weights_are_counted_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert Layout.of(model).size == 9


@dataclass
class Half:
    """A secure aggregation that loses client `a` on the way, as far as the trainer can tell."""

    report: Any = None

    def weighted_sum(self, updates: Any, weights: Any) -> torch.Tensor:
        left = [name for name in updates if name != "a"]
        self.report = Lost(tuple(left), sum(weights[name] for name in left))
        return sum((updates[name] * weights[name] for name in left), torch.zeros(()))


@dataclass
class Lost:
    survivors: tuple[str, ...]
    weight: float


def test_an_aggregation_that_loses_clients_divides_by_who_stayed_and_the_report_tells() -> None:
    model = line(0.0)
    clients = {"a": Fixed(100.0, examples=9), "b": Fixed(1.0, examples=1), "c": Fixed(2.0, examples=3)}
    history = Trainer(model, nn.MSELoss(), clients, aggregation=Half()).fit(1)
    assert weights(model) == [1.75]
    (report,) = history.rounds
    assert report.accepted == ("b", "c") and report.examples == 4
    assert [(f.client, f.kind) for f in report.failures] == [("a", "dropped")]


@pytest.mark.parametrize("strategy", ["median", "trimmed_mean", "krum", "multikrum", "scaffold"])
def test_strategies_that_need_single_updates_refuse_a_sum_that_hides_them(strategy: str) -> None:
    clients = {name: Fixed(1.0) for name in "abcdefg"}
    with pytest.raises(ValueError, match=r"needs every client's update by itself, and Half shows"):
        Trainer(line(0.0), nn.MSELoss(), clients, strategy, aggregation=Half())
    with pytest.raises(ValueError, match=r"and Doubled shows the server nothing but a sum"):
        Trainer(line(0.0), nn.MSELoss(), clients, strategy, privacy=Doubled())


def test_hidden_updates_are_not_handed_out_either() -> None:
    updates = Updates({"a": torch.ones(1)}, {"a": FitResult(1, {}, 1, 1)}, Half())
    with pytest.raises(ValueError, match="update by itself"):
        updates.single()


@pytest.mark.parametrize(("total", "told"), [(None, "NoneType"), (torch.ones(3), "(3,)")])
def test_an_aggregation_that_returns_something_else_is_named(total: Any, told: str) -> None:
    class Wrong:
        def weighted_sum(self, updates: Any, weights: Any) -> Any:
            return total

    model = line(1.0)
    trainer = Trainer(model, nn.MSELoss(), {"a": Fixed(1.0)}, aggregation=Wrong())
    with pytest.raises(ValueError, match=r"Wrong.weighted_sum returned") as raised:
        trainer.fit(1)
    assert told in str(raised.value) and weights(model) == [1.0] and len(trainer.history) == 0


class Doubled:
    """Clips to 1, and "noise" that can be recognised."""

    def __init__(self) -> None:
        self.clipped: list[list[float]] = []
        self.asked: list[int] = []
        self.rounds = 0

    def clip(self, update: torch.Tensor) -> torch.Tensor:
        self.clipped.append(update.tolist())
        return update.clamp(-1, 1)

    def noise(self, total: torch.Tensor, n_clients: int) -> torch.Tensor:
        self.asked.append(n_clients)
        return total + 0.5

    def round_done(self) -> None:
        self.rounds += 1


def test_privacy_clips_each_blurs_the_sum_and_hides_what_clients_report() -> None:
    model, privacy = line(0.0), Doubled()
    clients = {"a": Fixed(8.0, examples=9), "b": Fixed(0.5, examples=1)}
    trainer = Trainer(model, nn.MSELoss(), clients, privacy=privacy)
    history = trainer.fit(2)
    assert weights(model) == [2.0]  # (1 + 0.5 + 0.5) / 2, twice: all clients weigh alike
    assert privacy.clipped[:2] == [[8.0], [0.5]] and privacy.asked == [2, 2] and privacy.rounds == 2
    assert all(report.training == {} and report.examples is None for report in history.rounds)
    with pytest.raises(ValueError, match="without noise"):
        trainer.evaluate_clients()


def test_what_is_no_aggregation_or_no_privacy_is_refused() -> None:
    assert isinstance(PlainSum(), Aggregation) and isinstance(Doubled(), Privacy)
    for wrong in ({"aggregation": PlainSum}, {"aggregation": 3}, {"privacy": Doubled}, {"privacy": "much"}):
        with pytest.raises(TypeError, match=r"weighted_sum|clip, noise and round_done"):
            Trainer(line(0.0), nn.MSELoss(), {"a": Fixed(1.0)}, **wrong)


@pytest.mark.parametrize(("stated", "is_used"), [(100, True), (101, False), (10**9, False)])
def test_a_client_that_states_more_examples_than_the_cap_is_not_used(stated: int, is_used: bool) -> None:
    class Boasting:
        def fit(self, instructions: Any) -> Any:
            update = {name: torch.ones_like(value) for name, value in instructions.state.items()}
            return FitResult(instructions.round, update, stated, 1)

        def evaluate(self, instructions: Any) -> None:
            return None

    model = nn.Linear(1, 1)
    honest = TensorDataset(torch.zeros(3, 1), torch.zeros(3, 1))
    trainer = Trainer(
        model,
        nn.MSELoss(),
        {"a": honest, "b": Boasting()},
        aggregation=PlainSum(max_weight=100),
        engine="serial",
    )
    (report,) = trainer.fit(1).rounds
    assert report.accepted == (("a", "b") if is_used else ("a",))
    if not is_used:
        assert f"It states {stated} examples" in report.failures[0].why and "100" in report.failures[0].why


@pytest.mark.parametrize("wrong", [0, -1, 0.5, math.nan, True, "many", None])
def test_a_cap_that_is_no_number_of_examples_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_weight of 1 or more"):
        PlainSum(max_weight=wrong)
