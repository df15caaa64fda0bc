"""Clients that come and go between rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy
from syft.dp.federated import ClientPrivacy
from syft.federated import Buffered, Callback, MaskedSum, NotEnoughClientsError, Scaffold, Trainer
from syft.federated.layout import read_state
from syft.federated.records import FitInstructions
from trainer_parts import Fixed, classes, line, net, same, weights

torch.set_num_threads(1)


def trainer(clients: Any, model: nn.Module | None = None, **options: Any) -> Trainer:
    settings: dict[str, Any] = {"seed": 3, "engine": "serial", **options}
    return Trainer(line(0.0) if model is None else model, nn.MSELoss(), clients, **settings)


class Sees(Fixed):
    """Notes the models that it is sent."""

    def __init__(self, *update: float) -> None:
        super().__init__(*update)
        self.seen: list[float] = []

    def fit(self, instructions: FitInstructions) -> Any:
        self.seen.append(instructions.state["weight"].item())
        return super().fit(instructions)


def test_who_comes_begins_with_the_model_of_that_round_and_who_left_is_not_asked() -> None:
    late = Sees(1.0)
    some = trainer({"a": Fixed(1.0), "b": Fixed(3.0)})
    some.fit(2)
    assert some.add_clients({"c": late}) == ("c",)
    some.remove_clients("a")
    some.fit(3)
    assert [report.accepted for report in some.history.rounds] == [("a", "b")] * 2 + [("b", "c")]
    assert late.seen == [4.0] and weights(some.model) == [6.0]


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fedadam"])
def test_a_training_with_clients_added_before_the_first_round_is_that_with_all_of_them(strategy: str) -> None:
    data = classes()
    whole = Trainer(net(), nn.CrossEntropyLoss(), data, strategy, seed=1)
    first = dict(list(data.items())[3:])
    parts = Trainer(net(), nn.CrossEntropyLoss(), first, strategy, seed=1)
    parts.add_clients(dict(list(data.items())[:3]))
    whole.fit(2), parts.fit(2)
    assert same(read_state(whole.model), read_state(parts.model))


def test_a_fraction_is_of_those_who_are_there() -> None:
    some = trainer({name: Fixed(1.0) for name in "abcd"}, fraction=0.5)
    some.fit(1)
    some.add_clients({name: Fixed(1.0) for name in "efgh"})
    some.fit(2)
    some.remove_clients("a", "b", "c", "d", "e", "f")
    some.fit(3)
    assert [len(report.selected) for report in some.history.rounds] == [2, 4, 1]


def test_a_number_of_clients_is_asked_as_long_as_there_are_so_many() -> None:
    some = trainer({name: Fixed(1.0) for name in "abcd"}, clients_per_round=3, min_clients=2)
    some.fit(1)
    some.remove_clients("a", "b")
    some.fit(2)
    some.remove_clients("c")
    with pytest.raises(NotEnoughClientsError, match="min_clients is 2"):
        some.fit(3)
    some.remove_clients("d")
    with pytest.raises(NotEnoughClientsError):
        some.fit(3)
    some.add_clients({name: Fixed(1.0) for name in "wxyz"})
    some.fit(3)
    assert [len(report.accepted) for report in some.history.rounds] == [3, 2, 3]


def test_scaffold_forgets_who_left_and_its_mean_is_of_those_who_are_there() -> None:
    strategy = Scaffold()
    some = Trainer(line(0.0), nn.MSELoss(), {"a": Fixed(1.0), "b": Fixed(3.0)}, strategy, seed=1)
    some.fit(1)
    memory = strategy.state()
    mean = (memory["client/a"] + memory["client/b"]) / 2
    assert torch.allclose(memory["c"], mean)
    some.remove_clients("a")
    assert set(strategy.state()) == {"c", "client/b"}
    assert torch.equal(strategy.state()["c"], memory["client/b"])
    some.add_clients({"c": Fixed(0.0), "d": Fixed(0.0)})
    assert torch.allclose(strategy.state()["c"], memory["client/b"] / 3)
    some.fit(2)
    assert set(strategy.state()) == {"c", "client/b", "client/c", "client/d"}


def test_layers_of_its_own_leave_with_a_client() -> None:
    def data(shift: float) -> TensorDataset:
        x = torch.linspace(-1, 1, 8).reshape(-1, 1)
        return TensorDataset(x, x + shift)

    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1))
    some = Trainer(model, nn.MSELoss(), {"a": data(5.0), "b": data(-5.0)}, local=["1"], epochs=20, seed=1)
    some.fit(2)
    own = some.evaluate_clients().by_client["a"].metrics["loss"]
    some.remove_clients("a")
    some.add_clients({"a": data(5.0)})
    new = some.evaluate_clients().by_client["a"].metrics["loss"]
    assert own < 0.5 and new > 10  # it begins with the layers that the model came with


def test_settings_of_a_client_come_and_go_with_it() -> None:
    class Told(Fixed):
        epochs: list[int] = []

        def fit(self, instructions: FitInstructions) -> Any:
            self.epochs.append(instructions.epochs)
            return super().fit(instructions)

    some = trainer({"a": Fixed(1.0)})
    some.add_clients({"b": Told(1.0)}, client_settings={"b": {"epochs": 7}})
    some.fit(1)
    some.remove_clients("b")
    some.add_clients({"b": Told(1.0)})
    some.fit(2)
    assert Told.epochs == [7, 1]
    with pytest.raises(ValueError, match="not among its clients"):
        some.add_clients({"c": Fixed(1.0)}, client_settings={"a": {"epochs": 7}})
    assert sorted(some.clients) == ["a", "b"]


def test_workers_of_this_process_come_too(hook: Any) -> None:
    alice, bob = sy.VirtualWorker(hook, id="coming 1"), sy.VirtualWorker(hook, id="coming 2")
    parts = classes(clients=2)
    alice.add_dataset(parts["client 0"], "scans")
    bob.add_dataset(parts["client 1"], "scans", least_in_sum=2)
    some = Trainer(net(), nn.CrossEntropyLoss(), [alice], dataset_key="scans", seed=1)
    some.fit(1)
    some.add_clients([bob])
    (failure,) = some.fit(2).rounds[-1].failures
    assert failure.client == "coming 2" and "only in a secure sum of 2" in failure.why


def test_a_client_comes_in_a_callback_and_not_in_the_middle_of_a_round() -> None:
    class Registry(Callback):
        def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
            with pytest.raises(RuntimeError, match=r"in the middle of a round. Call it before fit"):
                trainer.add_clients({"x": Fixed(1.0)})

        def on_round_end(self, trainer: Trainer, report: Any) -> None:
            trainer.add_clients({f"new {report.round}": Fixed(1.0)})

    history = trainer({"a": Fixed(1.0)}, callbacks=[Registry()]).fit(3)
    assert [len(report.accepted) for report in history.rounds] == [1, 2, 3]


def test_asynchronous_rounds_drop_what_leaves_and_ask_who_comes() -> None:
    seconds = {"a": 1.0, "b": 2.5, "c": 1.0}
    left, new = Fixed(100.0), Sees(1.0)
    schedule = Buffered(1, 2, duration=lambda name, _round: seconds[name])
    some = trainer({"a": Fixed(1.0), "b": left}, schedule=schedule)
    some.fit(1)  # b is at work
    some.remove_clients("b")
    some.add_clients({"b": Sees(1.0), "c": new})
    some.fit(6)
    assert weights(some.model)[0] <= 6.0 and new.seen[0] == 1.0
    assert {name for report in some.history.rounds for name in report.accepted} >= {"a", "c"}
    assert all(report.staleness.keys() == set(report.accepted) for report in some.history.rounds)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.add_clients({"a": Fixed(1.0)}), "there is a client of that name"),
        (lambda t: t.add_clients({}), "There is no client to train"),
        (lambda t: t.add_clients({"x": 3}), "Client 'x'"),
        (lambda t: t.remove_clients("x"), "'x', which is not a client. There are 'a', 'b'"),
        (lambda t: t.add_clients({"c": Fixed(1.0)}), "ClientPrivacy was made for clients=2"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(change: Any, told: str) -> None:
    some = trainer({"a": Fixed(1.0), "b": Fixed(1.0)}, privacy=ClientPrivacy(1.0, 1.0, clients=2))
    with pytest.raises((ValueError, TypeError), match=told):
        change(some)
    assert list(some.clients) == ["a", "b"] and some.per_round == 2


def test_masked_sums_are_of_those_who_are_there() -> None:
    some = trainer({name: Fixed(1.0) for name in "abc"}, aggregation=MaskedSum(clip=16.0))
    some.fit(1)
    some.add_clients({"d": Fixed(5.0)})
    some.remove_clients("a")
    some.fit(2)
    assert some.aggregation.report.survivors == ("b", "c", "d")  # type: ignore[attr-defined]
    assert weights(some.model) == [pytest.approx(1 + 7 / 3, abs=1e-5)]
