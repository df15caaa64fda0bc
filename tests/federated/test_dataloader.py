"""The loader: which batches come, in which order, how many, and that nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset, default_collate

import syft as sy
from syft.federated import LazyDataset

DATA = torch.arange(46.0).view(23, 2)
TARGETS = torch.arange(23)


@pytest.fixture
def federated(workers: Any) -> Any:
    return TensorDataset(DATA, TARGETS).federate((workers.alice, workers.bob, workers.charlie))


def targets(loader: Any) -> list[list[int]]:
    return [target.get().tolist() for _data, target in loader]


def test_batches_in_order_that_never_mix_workers(federated: Any) -> None:
    loader = sy.FederatedDataLoader(federated, batch_size=3)
    found = [(d.location.id, t.location.id, d.get(), t.get().tolist()) for d, t in loader]
    assert [(place, rows) for place, _, _, rows in found] == [
        ("alice", [0, 1, 2]),
        ("alice", [3, 4, 5]),
        ("alice", [6, 7]),
        ("bob", [8, 9, 10]),
        ("bob", [11, 12, 13]),
        ("bob", [14, 15]),
        ("charlie", [16, 17, 18]),
        ("charlie", [19, 20, 21]),
        ("charlie", [22]),
    ]
    assert all(a == b and torch.equal(data, DATA[rows]) for a, b, data, rows in found)
    assert len(loader) == 9


def test_drop_last_drops_each_workers_smaller_batch(federated: Any) -> None:
    loader = sy.FederatedDataLoader(federated, batch_size=3, drop_last=True)
    assert [len(t) for t in targets(loader)] == [3] * 6 and len(loader) == 6


@pytest.mark.parametrize("kind", ["pointers", "datasets", "lazy", "transform", "collate"])
def test_every_kind_of_part_gives_the_same_batches(workers: Any, kind: str) -> None:
    places = (workers.alice, workers.bob, workers.charlie)
    plain = sy.BaseDataset(DATA, TARGETS)
    federated = TensorDataset(DATA, TARGETS).federate(places)
    expected = list(
        sy.FederatedDataLoader(federated, 3, shuffle=True, generator=torch.Generator().manual_seed(5))
    )
    if kind == "datasets":
        federated = sy.BaseDataset(DATA, TARGETS, transform=lambda row: row).federate(places)
    elif kind == "lazy":
        federated = plain.federate(places, lazy=True)
    elif kind == "transform":
        federated = sy.FederatedDataset(
            sy.BaseDataset(d.data, d.targets, transform=lambda row: row + 0)
            for d in federated.datasets.values()
        )
    collate = (lambda items: default_collate(items)) if kind == "collate" else default_collate
    loader = sy.FederatedDataLoader(
        federated, 3, shuffle=True, collate_fn=collate, generator=torch.Generator().manual_seed(5)
    )
    for (data, target), (data_2, target_2) in zip(loader, expected, strict=True):
        assert data.location is data_2.location
        assert torch.equal(data.get(), data_2.copy().get()) and torch.equal(
            target.get(), target_2.copy().get()
        )


class TestShuffling:
    def test_every_row_once_per_epoch_in_a_new_order(self, federated: Any) -> None:
        loader = sy.FederatedDataLoader(federated, batch_size=4, shuffle=True)
        first, second = targets(loader), targets(loader)
        assert first != second
        for epoch in (first, second):
            flat = [row for batch in epoch for row in batch]
            assert sorted(flat) == list(range(23)) and flat != list(range(23))
            assert sorted(flat[:8]) == list(range(8))

    def test_data_and_target_stay_together(self, federated: Any) -> None:
        for data, target in sy.FederatedDataLoader(federated, batch_size=4, shuffle=True):
            assert torch.equal(data.get(), DATA[target.get()])

    def test_honours_the_global_seed_and_a_generator(self, federated: Any) -> None:
        loader = sy.FederatedDataLoader(federated, batch_size=4, shuffle=True)
        torch.manual_seed(3)
        first = targets(loader)
        torch.manual_seed(3)
        assert targets(loader) == first
        own = [
            targets(
                sy.FederatedDataLoader(federated, 4, shuffle=True, generator=torch.Generator().manual_seed(1))
            )
            for _ in range(2)
        ]
        assert own[0] == own[1]


class TestDicts:
    def test_one_batch_per_worker_at_a_time(self, federated: Any, workers: Any) -> None:
        loader = sy.FederatedDataLoader(federated, batch_size=4, iter_per_worker=True)
        found = list(loader)
        assert len(found) == len(loader) == 2
        assert list(found[0]) == [workers.alice, workers.bob, workers.charlie]
        assert found[1][workers.charlie][1].get().tolist() == [20, 21, 22]

    def test_a_worker_takes_the_place_of_one_that_is_done(self, federated: Any) -> None:
        loader = sy.FederatedDataLoader(federated, batch_size=4, num_iterators=2)
        found = [{w.id: t.get().tolist() for w, (_d, t) in item.items()} for item in loader]
        assert found == [
            {"alice": [0, 1, 2, 3], "bob": [8, 9, 10, 11]},
            {"alice": [4, 5, 6, 7], "bob": [12, 13, 14, 15]},
            {"charlie": [16, 17, 18, 19]},
            {"charlie": [20, 21, 22]},
        ]
        assert len(loader) == 4

    def test_one_worker_and_many_iterators(self, bob: Any) -> None:
        federated = TensorDataset(DATA, TARGETS).federate((bob,))
        loader = sy.FederatedDataLoader(federated, batch_size=10, num_iterators=4)
        assert [len(target) for _data, target in loader] == [10, 10, 3] and len(loader) == 3


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    batch_size=st.integers(1, 5),
    iterators=st.integers(1, 4),
    drop_last=st.booleans(),
)
def test_the_length_is_the_number_of_batches(
    workers: Any, sizes: list[int], batch_size: int, iterators: int, drop_last: bool
) -> None:
    places = (workers.alice, workers.bob, workers.charlie)
    federated = sy.FederatedDataset(
        LazyDataset(TensorDataset(DATA, TARGETS), range(size)).send(place)
        for size, place in zip(sizes, places, strict=False)
    )
    loader = sy.FederatedDataLoader(federated, batch_size, num_iterators=iterators, drop_last=drop_last)
    found = list(loader)
    assert len(found) == len(loader)
    assert loader.num_iterators == max(1, min(iterators, len(sizes) - 1))
    batches = [b for item in found for b in item.values()] if loader.num_iterators > 1 else found
    expected = sum(n - n % batch_size if drop_last else n for n in sizes)
    assert sum(len(target) for _data, target in batches) == expected


def test_what_is_no_federated_data_set(federated: Any) -> None:
    with pytest.raises(TypeError, match=r"torch\.utils\.data\.DataLoader"):
        sy.FederatedDataLoader(TensorDataset(DATA, TARGETS))
    for options in ({"batch_size": 0}, {"batch_size": 2.5}, {"num_iterators": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            sy.FederatedDataLoader(federated, **options)


@pytest.mark.parametrize("shuffle", [False, True])
def test_nothing_is_left_behind(federated: Any, workers: Any, shuffle: bool) -> None:
    before = [len(w._objects) for w in vars(workers).values()]
    loader = sy.FederatedDataLoader(federated, batch_size=4, shuffle=shuffle)
    for _ in range(3):
        for data, target in loader:
            data.mul_(0)
            del data, target
    next(iter(loader))  # an epoch that is not finished goes on with next(loader), until another begins
    iter(loader)
    assert [len(w._objects) for w in vars(workers).values()] == before
    assert torch.equal(federated["alice"].data.copy().get(), DATA[:8])
