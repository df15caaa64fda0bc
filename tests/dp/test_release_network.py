"""Releases over a connection: who is charged is who proved their name, and refusals arrive as themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from syft.exceptions import BudgetExceededError, GetNotPermittedError, ReleaseNotPermittedError
from syft.identity.tokens import TokenAuthority
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network
torch.set_num_threads(1)

PEOPLE = torch.randn(1000, 2, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def ann(hook: Any, me: Any, tmp_path: Path) -> Iterator[Any]:
    """Ann's connection to a worker with a data set and a budget for everybody."""
    authority = TokenAuthority.create(tmp_path / "keys")
    server = NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id="far",
        data=[PEOPLE.clone().tag("#people")],
        tokens=authority.verifier("far"),
    )
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
