"""Partitions: every row once, by seed, and as uneven as asked for."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

import syft as sy
from syft.exceptions import DependencyError
from syft.federated import (
    label_table,
    partition_dirichlet,
    partition_iid,
    partition_shards,
    plot_label_distribution,
    subsets,
)
from syft.federated.partition import count_labels

LABELS = torch.arange(10).repeat_interleave(100)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def each_once(parts: Any, count: int) -> bool:
    return sorted(row for part in parts for row in part) == list(range(count))


@given(count=st.integers(1, 60), k=st.integers(1, 12), seed=st.integers(0, 1000), alpha=st.floats(0.01, 50))
def test_every_row_is_in_exactly_one_part(count: int, k: int, seed: int, alpha: float) -> None:
    k = min(k, count)
    labels = np.arange(count) % 4
    for parts in (
        partition_iid(count, k, generator=seeded(seed)),
        partition_dirichlet(labels, k, alpha, generator=seeded(seed)),
        partition_shards(labels, k, max(1, count // k // 2), generator=seeded(seed)),
    ):
        assert len(parts) == k and each_once(parts, count)
        assert all(part == sorted(part) and len(part) >= 1 for part in parts)


def test_seeds_decide() -> None:
    for make in (
        lambda g: partition_iid(LABELS, 7, generator=g),
        lambda g: partition_dirichlet(LABELS, 7, 0.5, generator=g),
        lambda g: partition_shards(LABELS, 7, 2, generator=g),
    ):
        assert make(seeded(1)) == make(seeded(1)) != make(seeded(2))
        torch.manual_seed(5)
        first = make(None)
        torch.manual_seed(5)
        assert make(None) == first


def test_iid_parts_are_of_equal_size_and_alike() -> None:
    parts = partition_iid(TensorDataset(LABELS), 3, generator=seeded(0))
    assert sorted(map(len, parts)) == [333, 333, 334]
    _values, counts = count_labels(parts, LABELS)
    assert counts.min() > 15


def test_alpha_says_how_uneven() -> None:
    def classes_per_client(alpha: float) -> float:
        _values, counts = count_labels(partition_dirichlet(LABELS, 10, alpha, generator=seeded(3)), LABELS)
        return float((counts > 5).sum(axis=1).mean())

    assert classes_per_client(0.05) < 3.5 < 9 < classes_per_client(100)


def test_a_client_has_the_minimum_at_least() -> None:
    parts = partition_dirichlet(LABELS, 50, 0.01, min_size=5, generator=seeded(0))
    assert min(map(len, parts)) == 5 and each_once(parts, 1000)
    assert min(map(len, partition_dirichlet(LABELS, 50, 0.01, min_size=0, generator=seeded(0)))) == 0


def test_two_shards_are_at_most_a_few_classes() -> None:
    parts = partition_shards(LABELS, 10, 2, generator=seeded(0))
    _values, counts = count_labels(parts, LABELS)
    assert all(len(part) == 100 for part in parts) and ((counts > 0).sum(axis=1) <= 2).all()


def test_parts_become_subsets_and_workers_data(alice: Any, bob: Any) -> None:
    dataset = TensorDataset(torch.arange(1000.0), LABELS)
    parts = partition_shards(LABELS, 2, 1, generator=seeded(0))
    assert [len(s) for s in subsets(dataset, parts)] == [500, 500]
    federated = dataset.federate((alice, bob), parts=parts)
    assert torch.equal(federated["bob"].targets.get(), LABELS[parts[1]])
    assert isinstance(federated, sy.FederatedDataset)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: partition_iid(3, 4), "3 rows were to be split into 4 parts"),
        (lambda: partition_iid(3, 0), "1 to 3"),
        (lambda: partition_dirichlet(LABELS, 3, 0.0), "alpha=0.0"),
        (lambda: partition_dirichlet(LABELS, 3, 1.0, min_size=400), "at least 400 rows"),
        (lambda: partition_shards(LABELS, 100, 11), "1100 pieces"),
        (lambda: partition_shards(LABELS, 10, 0), "at least one piece"),
        (lambda: partition_shards(LABELS.view(2, 500), 2), "one number per row"),
    ],
)
def test_what_cannot_be_split(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_labels_on_a_worker_are_not_looked_at(bob: Any) -> None:
    with pytest.raises(TypeError, match="on worker 'bob'"):
        partition_dirichlet(LABELS.send(bob), 2, 1.0)


def test_the_table_and_the_plot_show_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ["cat", "cat", "dog", "dog", "dog"]
    parts = [[0, 2], [1, 3, 4]]
    assert label_table(parts, labels).split("\n") == [
        "client  cat  dog  rows",
        "     0    1    1     2",
        "     1    1    2     3",
    ]
    pytest.importorskip("matplotlib")
    ax = plot_label_distribution(parts, labels)
    assert [[p.get_width() for p in bars] for bars in ax.containers] == [[1, 1], [1, 2]]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["cat", "dog"]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(DependencyError, match=r"pip install 'resyft\[plot\]'"):
        plot_label_distribution(parts, labels)


# -- parts that are none -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([[0, 1], [1, 2]], "Row 1 of part 1 is in part 0, too"),
        ([[0, 0], [1]], "Row 0 of part 0 is there twice"),
        ([[0], [999]], "Part 1 is not a list of row numbers"),
        ([[0], [-1]], "from 0 to 9"),
        ([[0, 1.7], [2]], "Part 0 is not a list of row numbers"),
        ([[True], [2]], "Part 0 is not a list of row numbers"),
        ([[0]], "1 parts for 2 workers"),
        ([[0], [1], [2]], "3 parts for 2 workers"),
    ],
)
def test_federate_takes_parts_of_rows_that_are_there_once(
    alice: Any, bob: Any, parts: Any, said: str
) -> None:
    rows = TensorDataset(torch.arange(10.0)[:, None], torch.arange(10))
    with pytest.raises(ValueError, match=said):
        rows.federate([alice, bob], parts=parts)


def test_parts_may_be_tensors_ranges_and_empty(alice: Any, bob: Any) -> None:
    rows = TensorDataset(torch.arange(10.0)[:, None], torch.arange(10))
    for parts in ([torch.tensor([3, 1]), range(4, 6)], [np.array([3, 1]), [4, 5]]):
        made = rows.federate([alice, bob], parts=parts)
        assert made["alice"].targets.copy().get().tolist() == [3, 1]
        assert made["bob"].targets.copy().get().tolist() == [4, 5]
    assert rows.federate([alice, bob], parts=[[], [7]]).workers == ["bob"]


def test_partitions_name_what_they_cannot_use() -> None:
    labels = torch.arange(50) % 5
    for alpha in (float("inf"), float("nan"), 0, "a"):
        with pytest.raises(ValueError, match="Give a finite number above 0"):
            partition_dirichlet(labels, 3, alpha)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"shards_per_client=1\.5"):
        partition_shards(labels, 3, 1.5)  # type: ignore[arg-type]
    for parts, said in (([[0, 99]], "Part 0 is not a list of row numbers"), ([], "There is no part")):
        with pytest.raises(ValueError, match=said):
            label_table(parts, labels)
