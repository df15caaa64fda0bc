"""Releases over a connection: who is charged is who proved their name, and refusals arrive as themselves."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from network.served import Served
from syft.dp.worker_budgets import BudgetBook, Limit
from syft.exceptions import (
    BudgetExceededError,
    GetNotPermittedError,
    NetworkError,
    ReleaseNotPermittedError,
)
from syft.identity.tokens import TokenAuthority
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network
torch.set_num_threads(1)

PEOPLE = torch.randn(1000, 2, generator=torch.Generator().manual_seed(2))


def with_people(hook: Any, authority: TokenAuthority) -> NetworkServerWorker:
    """A worker with a data set that wants tokens."""
    data = [PEOPLE.clone().tag("#people")]
    return NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="far", data=data, tokens=authority.verifier("far")
    )


@pytest.fixture
def ann(hook: Any, me: Any, tmp_path: Path) -> Iterator[Any]:
    """Ann's connection to a worker with a data set and a budget for everybody."""
    authority = TokenAuthority.create(tmp_path / "keys")
    server = with_people(hook, authority)
    server.set_budget(dataset="#people", epsilon=3.0, delta=1e-6)
    with server:
        client = connect(server.address, token=authority.issue("ann", 600))
        yield client
        client.close()


def test_a_release_over_a_connection_is_charged_to_who_proved_their_name(ann: Any) -> None:
    data = ann.search("#people")[0]
    with pytest.raises(GetNotPermittedError):
        data.copy().get()
    mean = ann.release(data, "mean", 1.0, user="eve", bounds=(-3, 3))
    assert torch.allclose(mean, PEOPLE.double().mean(0), atol=0.3)
    weights = torch.eye(2).send(ann)
    assert ann.release((data @ weights)[:, 0] > 0, "count", 1.0) == pytest.approx(500, abs=80)
    state = ann.budget("eve", "#people")
    assert (state.user, state.spent) == ("ann", 2.0)
    assert [release.mechanism for release in state.releases] == ["mean", "count"]
    with pytest.raises(BudgetExceededError, match="epsilon 1 of 3 left") as refused:
        ann.release(data, "mean", 1.5, user="eve", bounds=(-3, 3))
    assert refused.value.left == 1.0
    with pytest.raises(ReleaseNotPermittedError, match="Release the data set itself"):
        ann.release(data.mean(0), "mean", 0.5, bounds=(-3, 3))
    with pytest.raises(ValueError, match="lower first"):
        ann.release(data, "mean", 0.5, bounds=(3, -3))


def test_a_user_cannot_set_a_budget(ann: Any) -> None:
    with pytest.raises(ReleaseNotPermittedError, match="for the owner, where the worker runs"):
        ann.set_budget(dataset="#people", epsilon=100.0)
    with pytest.raises(ReleaseNotPermittedError, match="for the owner, where the worker runs"):
        ann.keep_budgets("book")
    assert ann.budget("ann", "#people").epsilon == 3.0


def test_a_user_need_not_say_who_they_are_to_be_told_their_budget(ann: Any) -> None:
    data = ann.search("#people")[0]
    ann.release(data, "mean", 1.0, bounds=(-3, 3))
    for state in (ann.budget("#people"), ann.budget(data), ann.budget(None, "#people")):
        assert (state.user, state.spent, state.left) == ("ann", 1.0, 2.0)
    assert ann.budget(user="eve", dataset="#people").user == "ann"
    with pytest.raises(TypeError, match="not by a NoneType"):
        ann.budget("ann", None)


def test_who_may_not_fetch_is_told_of_releases_where_there_are_budgets(ann: Any, hook: Any) -> None:
    for refused in (ann.search("#people")[0], ann.search("#people")[0].mean(0)):
        with pytest.raises(
            GetNotPermittedError, match=r"worker\.release\(data, 'mean'.*worker\.budget\(dataset\)"
        ):
            refused.get()
    data = [torch.ones(3).tag("#x")]
    with NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="strict", data=data) as without_budgets:
        with connect(without_budgets.address, auto_add=False) as client:
            with pytest.raises(GetNotPermittedError) as error:
                client.search("#x")[0].get()
    assert "release" not in str(error.value)


def test_a_hundred_clients_race_for_the_last_of_a_budget(hook: Any, me: Any, tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path / "keys")
    server = with_people(hook, authority)
    server.keep_budgets(BudgetBook.create(tmp_path / "budgets"))
    server.set_budget(dataset="#people", epsilon=1.0)
    server.set_budget(dataset="#people", epsilon=1.0, together=True)
    begin, said = threading.Barrier(100), list[Any]()

    def race(client: Any) -> None:
        (data,) = client.search("#people")
        begin.wait(60)
        try:
            said.append(client.release(data, "mean", 1.0, bounds=(-3.0, 3.0)))
        except BudgetExceededError as error:
            said.append(error)

    with server, contextlib.ExitStack() as clients:
        connected = [
            clients.enter_context(
                connect(server.address, token=authority.issue(f"user {n}", 600), auto_add=False)
            )
            for n in range(100)
        ]
        threads = [threading.Thread(target=race, args=(client,)) for client in connected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    assert len(said) == 100
    assert len([answer for answer in said if not isinstance(answer, BudgetExceededError)]) == 1


def test_kill_9_of_a_serving_process_gives_no_uncharged_answer(hook: Any, me: Any, tmp_path: Path) -> None:
    book = BudgetBook.create(tmp_path / "budgets")
    book.set_limit("#rows", Limit(1e6, 0.0))
    moments, answers, kills = random.Random(5), 0, 4
    with Served(id="far", rows=[0.0, 1.0, 2.0], budgets=str(book.path)) as served:
        for number in range(kills):
            with connect(served.address, auto_add=False, patience=0.2) as client:
                (data,) = client.search("#rows")
                client.release(data, "count", 1.0)
                answers += 1
                timer = threading.Timer(moments.uniform(0.02, 0.4), served.process.kill)
                timer.start()
                with contextlib.suppress(NetworkError):
                    while True:
                        client.release(data, "count", 1.0)
                        answers += 1
                timer.join()
            served.kill()
            if number < kills - 1:
                served.restart()
    charged = BudgetBook(book.path).state("#rows", "anonymous:").spent
    assert answers <= charged <= answers + kills
    assert answers > 2 * kills
