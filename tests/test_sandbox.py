"""The sandbox: workers with data in one line, and search over all of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import syft as sy


@pytest.fixture
def names(hook: Any) -> Any:
    made: dict[str, Any] = {}
    yield made
    for worker in made.get("workers", []):
        worker.clear_objects()
        worker.remove_worker_from_local_worker_registry()


def test_the_sandbox_makes_the_documented_names(
    names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sy.create_sandbox(names)
    assert [w.id for w in names["workers"]] == ["bob", "theo", "jason", "alice", "andy", "jon"]
    assert names["bob"] is names["workers"][0]
    assert isinstance(names["grid"], sy.PrivateGridNetwork)
    assert names["hook"].local_worker is sy.local_worker
    assert "Done!" in capsys.readouterr().out


def test_every_worker_holds_a_part_and_the_parts_make_the_whole(names: dict[str, Any]) -> None:
    from sklearn.datasets import load_iris

    sy.create_sandbox(names, verbose=False)
    found = names["grid"].search("#iris", "#data")
    assert list(found) == ["bob", "theo", "jason", "alice", "andy", "jon"]
    parts = [pointers[0].copy().get() for pointers in found.values()]
    assert torch.equal(torch.cat(parts), torch.as_tensor(load_iris()["data"], dtype=torch.float32))


def test_search_wants_all_terms_and_leaves_out_workers_without_a_match(alice: Any, bob: Any) -> None:
    bob.load_data([torch.ones(1).tag("#a", "#b"), torch.zeros(1).tag("#a")])  # type: ignore[attr-defined]
    alice.load_data([torch.ones(1).tag("#b").describe("cats and dogs")])  # type: ignore[attr-defined]
    grid = sy.PrivateGridNetwork(alice, bob)
    assert {k: len(v) for k, v in grid.search("#a").items()} == {"bob": 2}
    assert {k: len(v) for k, v in grid.search("#a", "#b").items()} == {"bob": 1}
    assert {k: len(v) for k, v in grid.search("cats").items()} == {"alice": 1}
    assert grid.search("#c") == {}


def test_without_data_nothing_is_loaded(names: dict[str, Any]) -> None:
    sy.create_sandbox(names, verbose=False, download_data=False)
    assert all(len(worker._objects) == 0 for worker in names["workers"])


def test_a_missing_package_is_named(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(sy.exceptions.DependencyError, match="pip install scikit-learn"):
        sy.create_sandbox(names, verbose=False)
