"""The sandbox and the search over a grid as programs of 2020 use them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft import sandbox
from syft.identity.tokens import TokenAuthority
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker


@pytest.fixture
def names(hook: Any) -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = {}
    yield made
    for worker in made.get("workers", []):
        worker.clear_objects()
        worker.remove_worker_from_local_worker_registry()


def test_boston_is_there_and_says_that_it_is_synthetic(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sy.create_sandbox(names)
    said = capsys.readouterr().out
    assert "scikit-learn no longer ships the original" in said and "#boston is a SYNTHETIC" in said
    assert "#diabetes" in said
    found = names["grid"].search("#boston", "#data")
    assert list(found) == ["bob", "theo", "jason", "alice", "andy", "jon"]
    assert sum(len(parts[0]) for parts in found.values()) == 506
    assert all(parts[0].shape[1] == 13 for parts in found.values())
    first = found["alice"][0]
    assert {"#synthetic", "#housing"} <= set(first.tags) and first.description.startswith(
        "SYNTHETIC stand-in"
    )
    assert "SYNTHETIC" in repr(first)
    assert names["grid"].search("#boston", "#synthetic", "#target").keys() == found.keys()
    assert len(names["grid"].search("#diabetes", "#data")["bob"]) == 1, "descriptions name no other data set"
    assert names["grid"].search("#diabetes", "#data")["bob"][0].shape[1] == 10


def test_quietly_the_log_says_so(
    names: dict[str, Any], caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    with caplog.at_level(logging.INFO, logger="syft.sandbox"):
        sy.create_sandbox(names, verbose=False)
    assert "SYNTHETIC" in caplog.text and capsys.readouterr().out == ""


def test_the_synthetic_rows_are_the_same_each_time_and_can_be_learnt_from() -> None:
    data, prices, _about = sandbox._synthetic_boston()
    again = sandbox._synthetic_boston()
    assert torch.equal(data, again[0]) and torch.equal(prices, again[1])
    assert data.shape == (506, 13) and prices.shape == (506,) and bool(data.isfinite().all())
    assert (data[:, 3].unique().tolist(), data.dtype, prices.dtype) == ([0, 1], torch.float32, torch.float32)
    columns = torch.cat([(data - data.mean(0)) / data.std(0), torch.ones(506, 1)], dim=1)
    fitted = columns @ torch.linalg.lstsq(columns, prices.unsqueeze(1)).solution
    unexplained = (fitted.squeeze() - prices).var() / prices.var()
    assert 0.05 < unexplained < 0.4, "a line fits, and not too well"


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_the_boston_tutorial_runs_as_written(names: dict[str, Any]) -> None:
    sy.create_sandbox(names, verbose=False)
    grid, th = names["grid"], names["th"]
    torch.manual_seed(0)
    boston_data = grid.search("#boston", "#data")
    boston_target = grid.search("#boston", "#target")
    n_features = boston_data["alice"][0].shape[1]
    model = th.nn.Linear(n_features, 1)
    datasets = []
    for worker in boston_data:
        dataset = sy.BaseDataset(boston_data[worker][0], boston_target[worker][0])
        datasets.append(dataset)
    dataset = sy.FederatedDataset(datasets)
    assert dataset.workers == ["bob", "theo", "jason", "alice", "andy", "jon"] and len(dataset) == 506
    optimizers = {worker: th.optim.Adam(params=model.parameters(), lr=1e-2) for worker in dataset.workers}
    train_loader = sy.FederatedDataLoader(dataset, batch_size=32, shuffle=False, drop_last=False)
    losses = []
    for _epoch in range(8):
        loss_accum = 0.0
        for data, target in train_loader:
            model.send(data.location)
            optimizer = optimizers[data.location.id]
            optimizer.zero_grad()
            pred = model(data)
            loss = ((pred.view(-1) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
            model.get()
            loss_accum += float(loss.get())
        losses.append(loss_accum)
    assert losses[-1] < losses[0] / 2


def test_the_hook_of_the_sandbox_makes_everything_but_the_data(names: dict[str, Any], capsys: Any) -> None:
    assert sandbox.hook(names) is names["hook"]
    assert names["bob"].id == "bob" and len(names["bob"]._objects) == 0 and capsys.readouterr().out == ""


# -- search ------------------------------------------------------------------------------------------------


def test_a_search_without_terms_returns_everything(alice: Any, bob: Any) -> None:
    kept = torch.ones(3).send(bob)
    bob.load_data([torch.zeros(2).tag("#a"), sy.BaseDataset(torch.ones(4, 1), torch.ones(4))])  # type: ignore[attr-defined]
    grid = sy.PrivateGridNetwork(alice, bob)
    found = grid.search()
    assert list(found) == ["bob"] and len(found["bob"]) == 3
    assert {pointer.id_at_location for pointer in found["bob"]} == set(bob._objects)
    del found
    assert len(bob._objects) == 3, "what a search found is not deleted with its pointer"
    del kept


@pytest.mark.network
def test_over_a_network_it_is_everything_that_one_may_see(hook: Any, me: Any, tmp_path: Any) -> None:
    authority = TokenAuthority.create(tmp_path / "keys")
    with NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="hospital", tokens=authority.verifier("hospital")
    ) as hospital:
        hospital.load_data([torch.ones(2).tag("#open")])  # type: ignore[attr-defined]
        ann, eve = (
            connect(hospital.address, token=authority.issue(name, 600), auto_add=False)
            for name in ("ann", "eve")
        )
        with ann, eve:
            anns = torch.zeros(3).tag("#anns").send(ann)  # type: ignore[attr-defined]
            ann.sync()
            seen = [
                {t for p in sy.PrivateGridNetwork(w).search()["hospital"] for t in p.tags} for w in (ann, eve)
            ]
            assert seen == [{"#open", "#anns"}, {"#open"}]
            del anns
