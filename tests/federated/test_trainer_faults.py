"""Clients that fail in every way: the round goes on with the others, and the report says who and why."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.federated.callbacks import Callback
from syft.federated.clients import DatasetClient, Work
from syft.federated.local_training import OPTIMIZERS, optimizer_name
from syft.federated.records import EvaluateResult, FitResult
from syft.federated.rounds import NotEnoughClientsError
from syft.federated.trainer import Trainer
from trainer_parts import Changed, Fixed, classes, line, net, scaled, weights

MSE = nn.MSELoss()


def raising(result: FitResult) -> Any:
    raise LookupError("the   disk\nis gone")


def with_update(**tensors: Any) -> Any:
    return lambda result: replace(result, update=tensors)


BAD: dict[str, tuple[Any, str, str]] = {
    "raises": (raising, "error", "LookupError: the disk is gone"),
    "nothing": (lambda result: None, "nothing", "fit() returned nothing"),
    "something else": (lambda result: {"weight": 1}, "malformed", "returned a dict and not a FitResult"),
    "NaN": (
        with_update(weight=torch.tensor([[float("nan")]])),
        "not finite",
        "'weight' of the update is NaN",
    ),
    "infinite": (with_update(weight=torch.tensor([[-float("inf")]])), "not finite", "'weight'"),
    "huge": (with_update(weight=torch.tensor([[3e38]])), "not finite", "a sum cannot hold"),
    "wrong shape": (
        with_update(weight=torch.zeros(1, 2)),
        "malformed",
        "'weight' has the shape (1, 2) instead of (1, 1)",
    ),
    "flat": (with_update(weight=torch.zeros(1)), "malformed", "the shape (1,) instead of (1, 1)"),
    "no key": (with_update(), "malformed", "'weight' is missing"),
    "one key more": (
        with_update(weight=torch.zeros(1, 1), bias=torch.zeros(1)),
        "malformed",
        "'bias' is not in the model",
    ),
    "no tensor": (with_update(weight=[[1.0]]), "malformed", "is a list and not a plain tensor"),
    "complex": (with_update(weight=torch.ones(1, 1) * 1j), "malformed", "complex64"),
    "no dict": (lambda result: replace(result, update=[1.0]), "malformed", "is a list and not a dict"),
    "no examples": (lambda result: replace(result, num_examples=0), "malformed", "num_examples=0"),
    "half an example": (lambda result: replace(result, num_examples=0.5), "malformed", "num_examples=0.5"),
    "too many examples": (lambda result: replace(result, num_examples=1 << 60), "malformed", "whole numbers"),
    "no steps": (lambda result: replace(result, steps=0), "malformed", "steps=0"),
    "old": (
        lambda result: replace(result, round=result.round - 1),
        "stale",
        "of round 0 and this is round 1",
    ),
    "bad metrics": (lambda result: replace(result, metrics={"loss": "low"}), "malformed", "metrics"),
}


@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize("fault", BAD)
def test_the_round_goes_on_with_the_rest(fault: str, engine: str) -> None:
    change, kind, told = BAD[fault]
    model = line(0.0)
    clients = {"a": Fixed(1.0), "bad": Changed(Fixed(700.0, examples=5), change), "c": Fixed(3.0)}
    (report,) = Trainer(model, MSE, clients, engine=engine).fit(1).rounds
    assert weights(model) == [2.0]
    assert report.accepted == ("a", "c") and report.selected == ("a", "bad", "c")
    (failure,) = report.failures
    assert (failure.client, failure.kind) == ("bad", kind) and told in failure.why
    assert "bad" in str(report) and report.training == {"loss": 2.0}


def test_all_kinds_of_faults_at_once_and_a_client_that_recovers() -> None:
    class Recovering(Fixed):
        def fit(self, instructions: Any) -> Any:
            if instructions.round < 3:
                raise ConnectionError("no line")
            return super().fit(instructions)

    model = line(0.0)
    clients: dict[str, Any] = {name: Changed(Fixed(9.0), change) for name, (change, _, _) in BAD.items()}
    clients |= {"good": Fixed(1.0), "back again": Recovering(3.0)}
    trainer = Trainer(model, MSE, clients, engine="threads")
    history = trainer.fit(3)
    assert weights(model) == [4.0]  # 1, 1, (1 + 3) / 2
    assert [len(report.failures) for report in history.rounds] == [len(BAD) + 1, len(BAD) + 1, len(BAD)]
    assert [number for number, _ in history.failures()["back again"]] == [1, 2]


def test_a_model_that_explodes_is_reported_as_such() -> None:
    parts = classes(clients=3)
    work = Work(net(), nn.CrossEntropyLoss())
    wild = Changed(DatasetClient(parts["client 0"], work), scaled(float("inf")))
    trainer = Trainer(
        net(), nn.CrossEntropyLoss(), {**parts, "client 0": wild}, batch_size=10, engine="serial"
    )
    (report,) = trainer.fit(1).rounds
    assert [(f.client, f.kind) for f in report.failures] == [("client 0", "not finite")]


def test_too_few_leave_the_model_as_it_was_and_a_second_try_asks_others() -> None:
    model = line(5.0)
    clients: dict[str, Any] = {f"bad {i}": Changed(Fixed(1.0), raising) for i in range(8)}
    clients |= {f"good {i}": Fixed(1.0) for i in range(8)}
    asked: list[tuple[str, ...]] = []

    class Watch(Callback):
        def on_round_start(self, trainer: Trainer, round: int, chosen: tuple[str, ...]) -> None:
            assert round == 1
            asked.append(chosen)

    trainer = Trainer(
        model, MSE, clients, clients_per_round=6, min_clients=4, seed=0, callbacks=[Watch()], engine="serial"
    )
    with pytest.raises(NotEnoughClientsError, match=r"min_clients is 4.*LookupError") as raised:
        trainer.fit(1)
    error = raised.value
    assert weights(model) == [5.0] and len(trainer.history) == 0
    assert error.round == 1 and error.accepted < 4 and len(error.failures) == 6 - error.accepted
    for _ in range(50):
        with contextlib.suppress(NotEnoughClientsError):
            trainer.fit(1)
            break
    assert weights(model) == [6.0] and len(set(asked)) == len(asked) > 1


def test_what_cannot_be_trained_on_is_named_before_anything_starts() -> None:
    loss = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match=r"Client 'b': The data set is empty"):
        Trainer(net(), loss, {"b": TensorDataset(torch.ones(0, 6), torch.ones(0))})
    with pytest.raises(TypeError, match=r"Client 'b': A client's data is a torch Dataset"):
        Trainer(net(), loss, {"b": iter([1])})
    with pytest.raises(TypeError, match=r"A client's name is a string; 3 is a int"):
        Trainer(net(), loss, {3: classes()["client 0"]})
    with pytest.raises(TypeError, match=r"Clients are a FederatedDataset, a dict"):
        Trainer(net(), loss, [classes()["client 0"]])
    with pytest.raises(ValueError, match="no client"):
        Trainer(net(), loss, {})
    with pytest.raises(ValueError, match="no trainable parameter"):
        Trainer(nn.ReLU(), loss, classes())


def test_batches_that_are_no_pairs_are_a_failure_with_advice() -> None:
    parts = {"one": TensorDataset(torch.ones(4, 1)), "two": TensorDataset(torch.ones(4, 1), torch.ones(4, 1))}
    (report,) = Trainer(line(0.0), MSE, parts).fit(1).rounds
    assert "A batch is inputs and a target; this one is a list of 1" in report.failures[0].why


def test_nothing_is_left_of_a_small_data_set_when_the_last_batch_is_dropped() -> None:
    parts = {"few": TensorDataset(torch.ones(4, 1), torch.ones(4, 1))}
    with pytest.raises(NotEnoughClientsError, match="4 examples make none of 8"):
        Trainer(line(0.0), MSE, parts, batch_size=8, drop_last=True).fit(1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"optimizer": "LBFGS"}, "'LBFGS' is not known. Name one of"),
        ({"optimizer": "__class__"}, "is not known"),
        ({"optimizer_args": {"speed": 3}}, "unexpected keyword argument 'speed'"),
        ({"optimizer_args": {"lr": -1.0}}, "Invalid learning rate"),
        ({"fraction": 0.0}, "fraction=0.0"),
        ({"fraction": 0.5, "clients_per_round": 2}, "Give one of them"),
        ({"clients_per_round": 9}, "there are 5 clients"),
        ({"min_clients": 4, "clients_per_round": 3}, "a round asks 3"),
        ({"deadline": 0}, "deadline=0"),
        ({"checkpoint_every": 0}, "checkpoint_every=0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        Trainer(net(), nn.CrossEntropyLoss(), classes(), **options)
    assert told in str(raised.value)


def test_evaluations_of_clients_are_checked_like_their_training() -> None:
    clients = {
        "a": Fixed(1.0, examples=1),
        "b": Fixed(5.0, examples=3),
        "nothing": Changed(Fixed(9.0), lambda result: None),
        "odd": Changed(Fixed(9.0), lambda result: EvaluateResult(result.round, 3, {"loss": "none"})),
        "old": Changed(Fixed(9.0), lambda result: replace(result, round=7)),
        "raises": Changed(Fixed(9.0), raising),
        "other": Changed(Fixed(9.0), lambda result: FitResult(0, {}, 1, 1)),
    }
    found = Trainer(line(0.0), MSE, clients).evaluate_clients()
    assert found.metrics == {"loss": 4.0} and set(found.by_client) == {"a", "b"}
    assert {f.client: f.kind for f in found.failures} == {
        "nothing": "nothing",
        "odd": "malformed",
        "old": "stale",
        "raises": "error",
        "other": "malformed",
    }


@pytest.mark.parametrize("given", ["SGD", "sgd", "Sgd", torch.optim.SGD])
def test_an_optimizer_is_a_name_in_any_case_or_a_class(given: Any) -> None:
    assert optimizer_name(given) == "SGD"


def test_every_known_optimizer_is_found_by_name_and_class_and_no_other() -> None:
    for name, cls in OPTIMIZERS.items():
        assert optimizer_name(name.lower()) == optimizer_name(cls) == name

    class SGD(torch.optim.SGD):
        """Not what clients would make."""

    for unknown in (torch.optim.LBFGS, SGD, int, "", "s g d"):
        with pytest.raises(ValueError, match="is not known"):
            optimizer_name(unknown)  # type: ignore[arg-type]
    for wrong in (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), None, 3):
        with pytest.raises(TypeError, match="a name or a class"):
            optimizer_name(wrong)  # type: ignore[arg-type]
