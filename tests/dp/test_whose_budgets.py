"""Whose data set a budget is for, and whose budget is charged: tags of users and new names for nobody do not help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from syft.dp.accounting import Pure
from syft.dp.release_training import train_privately
from syft.dp.worker_budgets import NAMELESS, BudgetBook, Charge, Limit
from syft.exceptions import BudgetExceededError, ReleaseNotPermittedError
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

torch.set_num_threads(1)

PATIENTS = torch.rand(300, 3, generator=torch.Generator().manual_seed(5)) * 100


def put(worker: Any, values: torch.Tensor, tag: str) -> Any:
    return values.private_tensor(allowed_users=("owner",)).tag(tag).send(worker, user="owner")


@pytest.fixture
def server(hook: Any, me: Any) -> Iterator[Any]:
    made = NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="far", data=[PATIENTS.clone().tag("#patients")])
    made.set_budget(dataset="#patients", epsilon=1.0, delta=1e-6)
    with made:
        yield made


# -- whose data set ------------------------------------------------------------------------------------------


@pytest.mark.network
def test_what_a_user_tagged_like_a_data_set_does_not_become_one(server: Any) -> None:
    client = connect(server.address, auto_add=False)
    patients = client.search("#patients")[0]
    mine = torch.zeros(10_000, 1).tag("#patients").send(client)
    mine.add_(patients[0:1, 0:1])  # one record in every row
    server.set_budget(dataset="#patients", user="ann", epsilon=2.0, delta=1e-6)
    with pytest.raises(ReleaseNotPermittedError, match="not released"):
        client.release(mine, "mean", 0.01, bounds=(0, 100))
    for computed in (False, True):
        with pytest.raises(ValueError, match="not put there by its owner"):
            server.set_budget(dataset=mine.child.id_at_location, name="x", epsilon=1.0, computed=computed)
    other = torch.zeros(5, 1).tag("#other").send(client)
    assert client.search("#other") and other is not None
    with pytest.raises(ValueError, match="is no data set"):
        server.set_budget(dataset="#other", epsilon=1.0)
    client.close()


def test_what_was_computed_becomes_a_data_set_only_if_its_owner_vouches_for_it(bob: Any) -> None:
    data = put(bob, torch.arange(12.0).reshape(4, 3), "#data")
    bob.set_budget(dataset="#data", epsilon=10.0)
    repeated = (data[0:1].expand(4, 3) * 1).tag("#data")
    bob.set_budget(dataset="#data", epsilon=20.0)
    with pytest.raises(ReleaseNotPermittedError):
        bob.release(repeated, "mean", 1.0, user="ann", bounds=(0, 12))
    with pytest.raises(ValueError, match="computed=True"):
        bob.set_budget(dataset=repeated, name="repeated", epsilon=1.0)
    bob.set_budget(dataset=repeated, name="repeated", epsilon=1.0, computed=True)
    bob.release(repeated, "mean", 1.0, user="ann", bounds=(0, 12))


def test_mistakes_of_the_owner_are_sentences_without_values(bob: Any) -> None:
    put(bob, torch.arange(4.0), "#data").child.garbage_collect_data = False
    for wrong in ({"name": 5}, {"user": 5}, {"name": ""}, {"user": ""}):
        with pytest.raises(TypeError, match="a text of one letter or more"):
            bob.set_budget(dataset="#data", epsilon=1.0, **wrong)
    for dataset in (torch.full((3,), 77.125), [1], None, True):
        with pytest.raises(TypeError, match="a tag, a pointer to it or its id") as refused:
            bob.set_budget(dataset=dataset, epsilon=1.0)
        assert "77" not in str(refused.value)
    with pytest.raises(TypeError, match="BudgetBook or the path"):
        bob.keep_budgets(5)


# -- whose budget --------------------------------------------------------------------------------------------


@pytest.mark.network
def test_connections_without_a_name_share_one_budget(server: Any) -> None:
    first, second = (connect(server.address, auto_add=False) for _ in range(2))
    assert first.user != second.user
    first.release(first.search("#patients")[0], "mean", 0.75, bounds=(0, 100), user=first.user)
    with pytest.raises(BudgetExceededError, match=r"epsilon 0\.25 of 1 left"):
        second.release(second.search("#patients")[0], "mean", 0.75, bounds=(0, 100), user=second.user)
    for client in (first, second):
        state = client.budget(client.user, "#patients")
        assert (state.user, state.spent, len(state.releases)) == (NAMELESS, 0.75, 1)
        client.close()
    server.set_budget(dataset="#patients", user=NAMELESS, epsilon=2.0, delta=1e-6)
    third = connect(server.address, auto_add=False)
    assert third.budget(None, "#patients").left == 1.25
    third.close()


def test_a_book_of_before_counts_what_was_charged_to_names_of_connections(tmp_path: Path) -> None:
    book = BudgetBook.create(tmp_path / "book")
    book.set_limit("ages", Limit(1.0, 0.0))
    book.charge(["ages"], "anonymous:1", Charge("mean", Pure(0.5), 0.5))
    with book._transaction() as connection:
        connection.execute("UPDATE releases SET user = 'anonymous:0123'")
    assert book.state("ages", "anonymous:2").spent == 0.5
    assert len(book.state("ages", "anonymous:2").releases) == 1
    assert book.state("ages", "anonymous").spent == 0.0
    with pytest.raises(BudgetExceededError):
        book.charge(["ages"], "anonymous:3", Charge("mean", Pure(0.6), 0.6))


# -- charged only if it can be done --------------------------------------------------------------------------

LINEAR = nn.Sequential(nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("options", "model", "sentence"),
    [
        ({"max_grad_norm": 1e300}, LINEAR, "max_grad_norm"),
        ({"max_grad_norm": 1e-30, "lr": 1e25}, LINEAR, "max_grad_norm"),
        ({"max_grad_norm": "x"}, LINEAR, "max_grad_norm"),
        ({"lr": float("nan")}, LINEAR, "lr=nan"),
        ({"lr": float("inf")}, LINEAR, "lr=inf"),
        ({"momentum": float("inf")}, LINEAR, "momentum"),
        ({"epochs": "1"}, LINEAR, "epochs='1'"),
        ({"epochs": 1.5}, LINEAR, r"epochs=1\.5"),
        ({"batch_size": 2.5}, LINEAR, r"batch_size=2\.5"),
        ({"epsilon": "a"}, LINEAR, "epsilon='a'"),
        ({"epsilon": 5000}, LINEAR, "epsilon=5000"),
        ({"epsilon": 10**400}, LINEAR, "epsilon=1000"),
        ({"delta": 1e-300}, LINEAR, "less than a number can be"),
        ({"user": 5}, LINEAR, "named by a text"),
        ({"loss": None}, LINEAR, "There are"),
        ({}, nn.Sequential(nn.Linear(3, 2)).requires_grad_(False), "no parameter to train"),
        ({}, nn.Sequential(nn.ReLU()), "no parameter to train"),
        ({}, nn.Sequential(nn.Linear(3, 2)).double(), r"float64.*float32"),
        ({}, nn.Sequential(nn.Linear(4, 2)), "shapes cannot be multiplied"),
        ({}, nn.Sequential(nn.Conv2d(3, 1, 1)), "cannot be trained"),
        ({"loss": "mse"}, LINEAR, "target"),
        ({}, abs, "as a model"),
    ],
)
def test_a_training_that_cannot_be_done_is_not_charged(
    bob: Any, options: dict[str, Any], model: Any, sentence: str
) -> None:
    pytest.importorskip("dp_accounting")
    x, y = put(bob, torch.randn(40, 3), "#x"), put(bob, torch.zeros(40).long(), "#y")
    for pointer in (x, y):
        bob.set_budget(dataset=pointer, epsilon=1e6, delta=0.5)
    settings: dict[str, Any] = dict(
        loss="cross_entropy", user="ann", epsilon=1.0, delta=1e-5, epochs=1, batch_size=10, lr=0.1
    )
    with pytest.raises((ValueError, TypeError), match=sentence):
        train_privately(x, y, model, **settings | options)
    with pytest.raises(ValueError, match="no records"):
        train_privately(x[:0], y[:0], LINEAR, **settings)
    assert bob.budget("ann", "#x").releases == ()


@pytest.mark.network
def test_one_record_is_not_read_by_gradients_too_small_to_square(server: Any) -> None:
    pytest.importorskip("dp_accounting")
    client = connect(server.address, auto_add=False)
    one = client.search("#patients")[0][7:8]
    model = nn.Sequential(nn.Linear(3, 1, bias=False))
    nn.init.zeros_(model[0].weight)
    settings: dict[str, Any] = dict(loss="mse", user=None, epsilon=0.1, delta=5e-7, epochs=1, batch_size=1)
    trained = train_privately(
        one * 1e-25, one[:, :1] * 0 - 0.5, model, lr=1e25, max_grad_norm=1e-6, **settings
    )
    assert client.budget(None, "#patients").spent == pytest.approx(0.1)
    assert (
        float(trained[0].weight.detach().abs().max()) > 1e15
    )  # noise for the bound, and nothing of the record
    client.close()
