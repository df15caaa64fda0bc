"""Data sets and loaders as programs of 2020 use them: in place, with `next`, with everybody's CUDA options."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, TensorDataset

import syft as sy
from syft.exceptions import ChainError, GetNotPermittedError
from syft.frameworks.torch import fl
from syft.frameworks.torch.fl import utils
from syft.frameworks.torch.fl.dataloader import (
    _DataLoaderIter,
    _DataLoaderOneWorkerIter,
    default_collate,
    numpy_type_map,
)
from syft.frameworks.torch.fl.dataset import dataset_federate
from syft.generic.pointers.pointer_dataset import PointerDataset
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

DATA = torch.arange(20.0).view(10, 2)
TARGETS = torch.arange(10)


def four() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([1, 2, 3, 4.0]), torch.tensor([1, 2, 3, 4.0])


class ToTensor:
    """As people wrote it for data sets of numpy arrays."""

    def __call__(self, sample: Any) -> torch.Tensor:
        assert isinstance(sample, np.ndarray)
        return torch.from_numpy(sample).float() / 255


# -- paths -------------------------------------------------------------------------------------------------


def test_the_package_fl_has_the_data_sets_the_loader_and_the_utilities() -> None:
    assert fl.BaseDataset is sy.BaseDataset
    assert fl.FederatedDataset is sy.FederatedDataset
    assert fl.FederatedDataLoader is sy.FederatedDataLoader
    assert fl.utils.federated_avg is sy.federated.utils.federated_avg
    assert PointerDataset is sy.PointerDataset
    assert isinstance(fl.dataset.logger, logging.Logger) and isinstance(fl.utils.logger, logging.Logger)


def test_toy_data_can_be_told_apart_and_has_the_documented_shapes() -> None:
    torch.manual_seed(0)
    data, targets = utils.create_gaussian_mixture_toy_data(nr_samples=101)
    assert data.shape == (101, 2) and targets.dtype == torch.int64
    assert targets.bincount().tolist() == [50, 51]
    assert torch.equal((data.sum(1) > 0).long(), targets)
    assert data[targets == 1].std(0).mean() == pytest.approx(1, abs=0.2)
    for wrong in (-1, 2.5, True):
        with pytest.raises(ValueError, match="nr_samples"):
            utils.create_gaussian_mixture_toy_data(wrong)


def test_the_part_of_the_iris_data_is_that_of_scikit_learn() -> None:
    from sklearn.datasets import load_iris

    data, targets = utils.iris_data_partial()
    assert targets.tolist() == 10 * [0] + 10 * [1] + 10 * [2]
    whole = load_iris()
    first = np.concatenate([whole["data"][whole["target"] == kind][:10] for kind in range(3)])
    assert torch.allclose(data, torch.as_tensor(first, dtype=torch.float32))


# -- send and get in place -----------------------------------------------------------------------------------


def test_a_data_set_is_sent_and_fetched_in_place(bob: Any) -> None:
    inputs, targets = four()
    dataset = sy.BaseDataset(inputs, targets)
    assert len(dataset) == 4 and dataset[2] == (3, 3)
    dataset.send(bob)
    assert dataset.data.location.id == dataset.targets.location.id == dataset.location.id == "bob"
    assert len(bob._objects) == 2 and inputs.location is None
    assert dataset.get() is dataset
    with pytest.raises(AttributeError):
        assert dataset.targets.location.id == 0
    assert torch.equal(dataset.data, inputs) and len(bob._objects) == 0


def test_a_dropped_result_of_send_loses_nothing_and_the_rows_go_with_the_data_set(bob: Any) -> None:
    dataset = sy.BaseDataset(DATA, TARGETS)
    dataset.send(bob)
    dataset.send_again = None  # type: ignore[attr-defined]  # an attribute of the user's own
    with pytest.raises(ChainError, match="on worker 'bob' already"):
        dataset.send(bob)
    assert torch.equal(dataset[2:4][0].get(), DATA[2:4])
    del dataset
    assert len(bob._objects) == 0


@pytest.mark.parametrize(
    "options", [{"transform": lambda row: row * 2}, {"tags": ["#t"]}, {"description": "rows"}]
)
def test_a_transform_or_tag_goes_along_and_still_everything_is_in_place(
    bob: Any, options: dict[str, Any]
) -> None:
    dataset = sy.BaseDataset(DATA, TARGETS, **options)
    factor = 2 if "transform" in options else 1
    assert dataset.send(bob) is dataset
    assert dataset.data.location is dataset.targets.location is dataset.location is bob
    assert len(dataset) == 10 and dataset.data.shape == (10, 2)
    assert torch.equal(dataset.data.get(), DATA * factor)
    assert torch.equal(dataset[3][0].get(), DATA[3] * factor)
    assert dataset[3][1].get() == 3
    assert len(bob.search("#t")) == ("tags" in options)
    federated = sy.FederatedDataset([dataset])
    batches = [data.get() for data, _target in sy.FederatedDataLoader(federated, batch_size=4, shuffle=False)]
    assert torch.equal(torch.cat(batches), DATA * factor)
    dataset.get()
    assert torch.equal(dataset.data, DATA) and torch.equal(dataset[3][0], DATA[3] * factor)
    assert dataset.location is None and len(bob._objects) == 0


def test_what_is_held_with_a_transform_can_be_shared_and_copied(alice: Any, bob: Any, charlie: Any) -> None:
    import copy

    dataset = sy.BaseDataset(DATA, TARGETS.float(), transform=lambda row: row + 1).send(alice)
    twin = copy.deepcopy(dataset)
    assert torch.equal(twin.get().data, DATA + 1)
    with pytest.raises(sy.serde.UnserializableError, match=r"dataset\.held"):
        sy.serde.serialize(dataset)
    assert len(sy.serde.deserialize(sy.serde.serialize(dataset.held))) == 10
    dataset.fix_prec().share(alice, bob, crypto_provider=charlie)
    opened = dataset.get().get().float_prec()
    assert torch.allclose(opened.data, DATA + 1)


def test_a_refused_get_loses_no_rows(bob: Any) -> None:
    data, targets = DATA.send(bob), TARGETS.private_tensor(allowed_users=("ann",)).send(bob, user="ann")  # type: ignore[attr-defined]
    dataset = sy.BaseDataset(data, targets)
    with pytest.raises(GetNotPermittedError):
        dataset.get(user="eve")
    dataset.get(user="ann")
    assert torch.equal(dataset.data, DATA) and torch.equal(dataset.targets, TARGETS)


def test_private_rows_restrict_data_and_targets_alike(bob: Any) -> None:
    dataset = sy.BaseDataset(DATA.private_tensor(allowed_users=("ann", "eve")), TARGETS)  # type: ignore[attr-defined]
    dataset.send(bob, user="ann")
    data, target = dataset[0:2]
    for value in (dataset.data, dataset.targets, data, target, data * 0):
        with pytest.raises(GetNotPermittedError):
            value.get(user="mallory")
    assert torch.equal(dataset.get(user="eve").data, DATA)


def test_what_is_no_tensor_is_not_sent(bob: Any) -> None:
    with pytest.raises(TypeError, match=r"torch\.as_tensor"):
        sy.BaseDataset([1, 2], torch.ones(2)).send(bob)


# -- transforms ----------------------------------------------------------------------------------------------


def test_a_users_to_tensor_is_given_numpy_arrays_here_and_on_a_worker(bob: Any) -> None:
    images = torch.randint(0, 255, (6, 4, 4), dtype=torch.uint8)
    dataset = sy.BaseDataset(images, torch.arange(6), transform=ToTensor())
    image, target = dataset[2]
    assert torch.allclose(image, images[2].float() / 255) and target == 2
    loaded = torch.cat([batch for batch, _ in DataLoader(dataset, batch_size=4)])
    assert torch.allclose(loaded, images.float() / 255)
    dataset.send(bob)
    assert torch.allclose(dataset[:][0].get(), images.float() / 255)


@pytest.mark.parametrize("made", [float, np.float32, np.asarray, torch.tensor, lambda x: [x, x]])
def test_a_transform_returns_plain_values_arrays_or_tensors(made: Any) -> None:
    dataset = sy.BaseDataset(*four(), transform=lambda x: made(float(x) * 2))
    assert isinstance(dataset[1][0], torch.Tensor)
    assert torch.equal(dataset[0:2][0].double().flatten()[[0, -1]], torch.tensor([2.0, 4.0]).double())


def test_a_transform_that_writes_into_its_argument_does_not_write_into_the_data_set() -> None:
    def zero(row: Any) -> Any:
        row *= 0
        return row

    dataset = sy.BaseDataset(DATA.clone(), TARGETS, transform=zero)
    assert dataset[3][0].tolist() == [0, 0] and torch.equal(dataset.data, DATA)


def test_plans_and_modules_are_given_tensors(bob: Any) -> None:
    @sy.func2plan(args_shape=[(2,)])
    def doubled(row: Any) -> Any:
        return row * 2

    for transform in (doubled, torch.nn.Flatten(0)):
        dataset = sy.BaseDataset(DATA, TARGETS, transform=transform)
        assert dataset[1][0].shape == (2,)


def test_transform_can_be_called_with_a_function_of_all_rows() -> None:
    dataset = sy.BaseDataset(*four())
    assert dataset.transform(lambda x: x * 2) is dataset
    assert [item[0].item() for item in dataset] == [2, 4, 6, 8]  # type: ignore[attr-defined]
    dataset.transform = lambda x: x + 1  # type: ignore[assignment]
    assert dataset[0][0] == 3 and dataset.transform_ is not None


def test_transform_refuses_what_it_cannot_change(bob: Any) -> None:
    dataset = sy.BaseDataset(*four())
    with pytest.raises(TypeError, match="function of the whole data"):
        dataset.transform(3)
    with pytest.raises(ValueError, match="2 rows of 4"):
        dataset.transform(lambda x: x[:2])
    with pytest.raises(TypeError, match="PointerTensor on 'bob'"):
        sy.BaseDataset(*four()).send(bob).transform(lambda x: x)
    with pytest.raises(TypeError, match="FixedPrecisionTensor here"):
        sy.BaseDataset(*four()).fix_prec().transform(lambda x: x)
    held = sy.BaseDataset(*four(), transform=lambda x: x).send(bob)
    with pytest.raises(ChainError, match=r"Fetch it with `\.get\(\)`"):
        held.transform = None  # type: ignore[assignment]


@pytest.mark.network
def test_a_transform_in_python_is_not_sent_over_a_network_and_nothing_is_lost(hook: Any, me: Any) -> None:
    @sy.func2plan(args_shape=[(2,)])
    def doubled(row: Any) -> Any:
        return row * 2

    with NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="far") as server, connect(server.address) as far:
        dataset = sy.BaseDataset(DATA, TARGETS, transform=lambda row: row * 2)
        with pytest.raises(TypeError, match="Give a Plan as transform"):
            dataset.send(far)
        assert dataset.location is None and torch.equal(dataset[1][0], DATA[1] * 2)
        dataset.transform = doubled  # type: ignore[assignment]
        dataset.send(far)
        assert torch.equal(dataset[1:3][0].get(), DATA[1:3] * 2)
        assert torch.equal(dataset.get().data, DATA)
        plain = sy.BaseDataset(DATA, TARGETS).send(far)
        loader = sy.FederatedDataLoader(sy.FederatedDataset([plain]), batch_size=4, shuffle=True)
        assert sorted(torch.cat([target.get() for _data, target in loader]).tolist()) == TARGETS.tolist()
        plain.get()


# -- federated data sets -------------------------------------------------------------------------------------


def parts(*workers: Any) -> list[Any]:
    rows = [torch.tensor([1, 2]), torch.tensor([3, 4, 5, 6]), torch.tensor([7, 8, 9, 10])]
    return [sy.BaseDataset(row, row).send(worker) for row, worker in zip(rows, workers, strict=False)]


def test_a_part_that_was_fetched_leaves_the_data_set_usable(alice: Any, bob: Any) -> None:
    alices = sy.BaseDataset(torch.tensor([3, 4, 5, 6]), torch.tensor([3, 4, 5, 6]))
    federated = sy.FederatedDataset([*parts(bob), alices.send(alice)])
    assert federated.workers == ["bob", "alice"] and len(federated) == 6
    federated["alice"].get()
    assert (federated["alice"].data == alices.data).all()
    assert federated["alice"][2] == (5, 5)
    assert len(federated["alice"]) == 4 and len(federated) == 6 and "alice: 4 rows" in repr(federated)
    batches = list(sy.FederatedDataLoader(federated, batch_size=2))
    assert [t.location for _d, t in batches] == [bob, None, None]


def test_dataset_federate_is_the_method_as_a_function(alice: Any, bob: Any) -> None:
    federated = dataset_federate(sy.BaseDataset(torch.arange(6), torch.arange(6)), (bob, alice))
    assert isinstance(federated, sy.FederatedDataset) and federated.workers == ["bob", "alice"]
    assert federated["bob"].location.id == "bob" and len(federated) == 6
    assert federated["alice"].get()[2] == (5, 5)


# -- the loader ----------------------------------------------------------------------------------------------


@pytest.fixture
def federated(workers: Any) -> Any:
    return sy.FederatedDataset(parts(workers.bob, workers.alice, workers.charlie))


def test_next_of_iter_and_next_of_the_loader_itself(federated: Any) -> None:
    loader = sy.FederatedDataLoader(federated, batch_size=2)
    data, target = next(iter(loader))
    assert data.get().tolist() == target.get().tolist() == [1, 2]
    iter(loader)
    found = [next(loader)[1].get().tolist() for _ in range(len(loader))]
    assert found == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    with pytest.raises(StopIteration):
        next(loader)
    first = iter(loader)
    assert next(first)[1].get().tolist() == [1, 2] and next(loader)[1].get().tolist() == [3, 4]
    with pytest.raises(TypeError, match="before iter"):
        next(sy.FederatedDataLoader(federated))


def test_two_passes_at_a_time_do_not_disturb_each_other(federated: Any) -> None:
    loader = sy.FederatedDataLoader(federated, batch_size=2)
    pairs = [(a[1].get().tolist(), b[1].get().tolist()) for a, b in zip(loader, loader, strict=True)]
    assert len(pairs) == 5 and all(a == b for a, b in pairs)


def test_the_number_of_iterators_is_lowered_to_the_workers_less_one(
    federated: Any, alice: Any, bob: Any
) -> None:
    for asked, got in ((1, 1), (2, 2), (3, 2), (8, 2)):
        assert sy.FederatedDataLoader(federated, num_iterators=asked).num_iterators == got
    loader = sy.FederatedDataLoader(federated, batch_size=2, num_iterators=3)
    rows = [{w.id: t.get().tolist() for w, (_d, t) in item.items()} for item in loader]
    assert rows == [
        {"bob": [1, 2], "alice": [3, 4]},
        {"charlie": [7, 8], "alice": [5, 6]},
        {"charlie": [9, 10]},
    ]
    two = sy.FederatedDataLoader(sy.FederatedDataset(parts(bob, alice)), batch_size=2, num_iterators=2)
    assert [t.get().tolist() for _d, t in two] == [[1, 2], [3, 4], [5, 6]]


def test_a_batch_of_every_worker_in_each_dict(
    federated: Any, workers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loader = sy.FederatedDataLoader(federated, batch_size=2, iter_per_worker=True, shuffle=True)
    assert "{'bob': 1, 'alice': 2, 'charlie': 2} batches, so an epoch ends after 1" in caplog.text
    found = list(loader)
    assert [set(batches) for batches in found] == [set(vars(workers).values())]
    assert len(loader) == 1 and loader.num_iterators == 3
    single = sy.FederatedDataLoader(
        sy.FederatedDataset([federated["alice"]]), batch_size=2, iter_per_worker=True
    )
    assert [list(batches) for batches in single] == [[workers.alice]] * 2


def test_everybodys_cuda_options_are_taken_and_answered(
    federated: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kwargs = {"num_workers": 1, "pin_memory": True}
    loader = sy.FederatedDataLoader(federated, batch_size=4, shuffle=True, **kwargs)
    assert "num_workers=1, pin_memory=True: the workers that hold the rows" in caplog.text
    assert sum(len(target) for _data, target in loader) == 10
    caplog.clear()
    sy.FederatedDataLoader(federated)
    assert not caplog.text


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"sampler": [1]}, TypeError, "no option sampler"),
        ({"batchsize": 3}, TypeError, "no option batchsize"),
        ({"num_workers": -1}, ValueError, "num_workers=-1"),
        ({"num_workers": "two"}, ValueError, "num_workers='two'"),
    ],
)
def test_options_that_would_choose_other_rows_are_refused(
    federated: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        sy.FederatedDataLoader(federated, **options)


def test_the_iterators_of_2020_serve_one_worker_or_one_after_the_other(federated: Any) -> None:
    loader = sy.FederatedDataLoader(federated, batch_size=2)
    one = _DataLoaderOneWorkerIter(loader, worker_idx=1)
    assert iter(one) is one
    assert [t.get().tolist() for _d, t in one] == [[3, 4], [5, 6]]
    lane = _DataLoaderIter(loader, worker_idx=1)
    assert len(lane) == 10
    assert lane._get_batch()[1].get().tolist() == [3, 4]
    assert [t.get().tolist() for _d, t in lane] == [[5, 6], [1, 2], [7, 8], [9, 10]]
    for stopped in (_DataLoaderIter(loader, 0), _DataLoaderOneWorkerIter(loader, 0)):
        with pytest.raises(StopIteration):
            stopped.stop()
        assert next(stopped, None) is None
    with pytest.raises(IndexError, match="worker number 3"):
        _DataLoaderIter(loader, 3)


def test_the_types_of_numpy_are_those_of_torch() -> None:
    for name, kind in numpy_type_map.items():
        array = np.ones(2, dtype=name)
        assert torch.equal(kind([1, 1]), torch.as_tensor(array))
    assert default_collate([np.ones(2, dtype="int8")] * 3).type() == "torch.CharTensor"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 12),
    batch_size=st.integers(1, 5),
    iterators=st.integers(1, 4),
    shuffle=st.booleans(),
    transform=st.booleans(),
)
def test_every_row_comes_once_whatever_the_lanes(
    workers: Any, count: int, batch_size: int, iterators: int, shuffle: bool, transform: bool
) -> None:
    places = list(vars(workers).values())
    function = (lambda row: row) if transform else None
    dataset = sy.BaseDataset(torch.arange(count), torch.arange(count) * 10, transform=function)
    federated = dataset.federate(places)
    loader = sy.FederatedDataLoader(federated, batch_size, shuffle=shuffle, num_iterators=iterators)
    found = list(loader)
    assert len(found) == len(loader)
    batches = [b for item in found for b in (item.values() if isinstance(item, dict) else [item])]
    rows = torch.cat([data.copy().get() for data, _target in batches])
    targets = torch.cat([target.copy().get() for _data, target in batches])
    assert sorted(rows.tolist()) == list(range(count)) and torch.equal(targets, rows * 10)


# -- programs ------------------------------------------------------------------------------------------------


class Normalized(Dataset):
    """A data set of files, as courses write it."""

    def __init__(self, transform: Any = None) -> None:
        self.images = np.random.default_rng(0).integers(0, 255, (12, 3, 3)).astype("uint8")
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(self.images[index]), index % 2


def test_a_course_trains_on_images_at_two_workers(alice: Any, bob: Any) -> None:
    torch.manual_seed(0)
    kwargs = {"num_workers": 1, "pin_memory": True}
    train_loader = sy.FederatedDataLoader(
        Normalized(transform=ToTensor()).federate((bob, alice)), shuffle=True, batch_size=4, **kwargs
    )
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 2), torch.nn.LogSoftmax(dim=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _epoch in range(15):
        for data, target in train_loader:
            model.send(data.location)
            optimizer.zero_grad()
            loss = torch.nn.functional.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            model.get()
            losses.append(loss.get().item())
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_a_course_gathers_the_batches_of_each_worker(alice: Any, bob: Any) -> None:
    loader = sy.FederatedDataLoader(TensorDataset(DATA, TARGETS).federate((bob, alice)), batch_size=2)
    batches = utils.extract_batches_per_worker(loader)
    assert {worker.id: len(found) for worker, found in batches.items()} == {"bob": 3, "alice": 3}
