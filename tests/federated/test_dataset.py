"""Data sets on workers: what they give, what stays where, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import syft as sy
from syft.exceptions import (
    AlreadyFetchedError,
    ChainError,
    GetNotPermittedError,
    SendNotPermittedError,
)
from syft.federated import LazyDataset
from syft.federated import dataset as dataset_module
from syft.messaging.message import BatchMessage, ObjectMessage, ObjectRequestMessage

DATA = torch.arange(20.0).view(10, 2)
TARGETS = torch.arange(10)


class Squares(Dataset):
    """Reads items on demand, and remembers which."""

    def __init__(self, count: int = 10) -> None:
        self.count, self.read = count, []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.read.append(index)
        return torch.tensor([float(index), float(index**2)]), index


def rows(dataset: Any) -> torch.Tensor:
    """All data of a part, fetched."""
    return dataset[:][0].get()


class TestHere:
    def test_has_length_items_and_batches(self) -> None:
        dataset = sy.BaseDataset(DATA, TARGETS)
        assert len(dataset) == 10 and dataset.location is None
        data, target = dataset[3]
        assert torch.equal(data, DATA[3]) and target == 3
        assert torch.equal(dataset[2:5][0], DATA[2:5])

    def test_transforms_one_item_at_a_time(self) -> None:
        dataset = sy.BaseDataset(DATA, TARGETS, transform=lambda row: row - row.mean())
        assert dataset[0][0].tolist() == [-0.5, 0.5]
        assert torch.equal(dataset[0:4][0], torch.tensor([[-0.5, 0.5]] * 4))

    def test_is_a_dataset_of_torch(self) -> None:
        loaded = list(torch.utils.data.DataLoader(sy.BaseDataset(DATA, TARGETS), batch_size=4))
        assert [len(d) for d, _ in loaded] == [4, 4, 2]

    def test_refuses_what_does_not_fit(self, bob: Any) -> None:
        with pytest.raises(ValueError, match="10 rows of data and 4 targets"):
            sy.BaseDataset(DATA, TARGETS[:4])
        with pytest.raises(ValueError, match=r"data that is on 'bob' and targets that are here"):
            sy.BaseDataset(DATA.send(bob), TARGETS)
        with pytest.raises(TypeError, match="function of one item"):
            sy.BaseDataset(DATA, TARGETS, transform=3)

    def test_fixed_precision_and_shares_in_place(self, alice: Any, bob: Any, charlie: Any) -> None:
        dataset = sy.BaseDataset(DATA, TARGETS)
        assert dataset.fix_prec().share(alice, bob, crypto_provider=charlie) is dataset
        assert len(alice._objects) >= 2
        assert torch.allclose(dataset.get().float_prec().data, DATA)
        with pytest.raises(TypeError, match="fix_precision"):
            sy.BaseDataset(DATA, TARGETS).share(alice, bob, crypto_provider=charlie)


class TestOnAWorker:
    def test_sent_whole_it_has_a_pointer_and_get_brings_it_back(self, bob: Any) -> None:
        dataset = sy.BaseDataset(DATA.clone(), TARGETS)
        pointer = dataset.send_whole(bob)
        assert isinstance(pointer, sy.PointerDataset)
        assert pointer.location is bob and len(pointer) == 10
        dataset.data.zero_()
        back = pointer.get()
        assert isinstance(back, sy.BaseDataset) and torch.equal(back.data, DATA)
        assert len(bob._objects) == 0
        with pytest.raises(AlreadyFetchedError):
            pointer.get()

    def test_the_data_set_goes_with_its_pointer(self, bob: Any) -> None:
        pointer = sy.BaseDataset(DATA, TARGETS).send_whole(bob)
        assert len(bob._objects) == 1
        del pointer
        assert len(bob._objects) == 0

    def test_batches_are_made_there(self, bob: Any) -> None:
        pointer = sy.BaseDataset(DATA, TARGETS, transform=lambda row: row * 2).send_whole(bob)
        data, target = pointer.batch([7, 2])
        assert data.location is bob and data.shape == (2, 2)
        assert torch.equal(data.get(), DATA[[7, 2]] * 2)
        assert target.get().tolist() == [7, 2]
        item, label = pointer[-1]
        assert torch.equal(item.get(), DATA[9] * 2) and label.get() == 9
        del data, target, item, label
        assert len(bob._objects) == 1

    def test_writing_into_a_batch_leaves_the_data_set_alone(self, bob: Any) -> None:
        pointer = sy.BaseDataset(DATA, TARGETS).send_whole(bob)
        pointer.batch(range(4))[0].zero_()
        assert torch.equal(pointer.get().data, DATA)

    def test_a_row_that_is_not_there(self, bob: Any) -> None:
        pointer = sy.BaseDataset(DATA, TARGETS).send_whole(bob)
        with pytest.raises(IndexError, match="rows 0 to 9"):
            pointer.batch([10])
        with pytest.raises(TypeError, match="no batches"):
            bob.recv_msg(BatchMessage(DATA.send(bob, garbage_collect_data=False).id_at_location, (0,)))

    def test_is_found_by_its_tag(self, bob: Any) -> None:
        bob.load_data([sy.BaseDataset(DATA, TARGETS).tag("#rows").describe("ten rows")])
        (found,) = bob.search("#rows")
        assert isinstance(found, sy.PointerDataset) and len(found) == 10 and "ten rows" in repr(found)
        assert torch.equal(rows(found), DATA)
        del found
        assert len(bob.search("#rows")) == 1

    def test_as_tensors_for_precision_and_shares(self, alice: Any, bob: Any, charlie: Any) -> None:
        pointer = sy.BaseDataset(DATA, TARGETS).send_whole(alice)
        shared = pointer.fix_prec().share(alice, bob, crypto_provider=charlie)
        assert torch.allclose(shared.get().get().float_prec().data, DATA), (
            "the first get is the secret itself"
        )
        assert torch.equal(pointer.data.get(), DATA) and torch.equal(pointer.targets.get(), TARGETS)

    def test_data_of_pointers(self, bob: Any) -> None:
        dataset = sy.BaseDataset(DATA.send(bob), TARGETS.send(bob))
        assert dataset.location is bob
        assert torch.equal(dataset[2:4][0].get(), DATA[2:4])
        with pytest.raises(ChainError, match="on worker 'bob' already"):
            dataset.send(bob)
        assert torch.equal(dataset.get().data, DATA) and dataset.location is None

    def test_it_travels_as_bytes(self, me: Any, bob: Any) -> None:
        dataset = sy.BaseDataset(DATA, TARGETS).tag("#t").describe("d")
        back = sy.serde.deserialize(sy.serde.serialize(dataset))
        assert torch.equal(back.data, DATA) and torch.equal(back.targets, TARGETS)
        assert (back.tags, back.description, back.id) == ({"#t"}, "d", dataset.id)
        pointer = dataset.send_whole(bob)
        twin = sy.serde.deserialize(sy.serde.serialize(pointer))
        assert twin.location is bob and len(twin) == 10 and not twin.garbage_collect_data
        with pytest.raises(sy.serde.UnserializableError):
            sy.serde.serialize(sy.BaseDataset(DATA, TARGETS, transform=lambda x: x))
        elsewhere = sy.ObjectWrapper(print).send(bob)
        with pytest.raises(sy.serde.SerdeError, match="transform on another worker"):
            sy.serde.deserialize(sy.serde.serialize(sy.BaseDataset(DATA, TARGETS, transform=elsewhere)))
        with pytest.raises(sy.serde.SerdeError):
            sy.serde.detail(None, ("BaseDataset", 1, 2, None, 3, ("tuple",), None))


class TestPrivacy:
    def test_private_rows_restrict_the_data_set_and_its_batches(self, bob: Any) -> None:
        dataset = sy.BaseDataset(DATA.private_tensor(allowed_users=("ann", "eve")), TARGETS)
        for send in (dataset.send, dataset.send_whole):
            with pytest.raises(SendNotPermittedError):
                send(bob, user="mallory")
        pointer = dataset.send_whole(bob, user="ann")
        data, target = pointer.batch([0, 1])
        for value in (pointer, data, target, data * 0):
            with pytest.raises(GetNotPermittedError):
                value.get(user="mallory")
        assert torch.equal(data.get(user="eve"), DATA[:2])
        assert torch.equal(pointer.get(user="ann").data, DATA)

    def test_what_an_owner_registers_is_as_private_as_its_tensors(self, bob: Any) -> None:
        dataset = sy.BaseDataset(DATA, TARGETS.private_tensor(allowed_users=("ann",))).tag("#p")
        bob.load_data([dataset])
        (found,) = bob.search("#p")
        with pytest.raises(GetNotPermittedError):
            found.get()
        with pytest.raises(GetNotPermittedError):
            found[0][0].get()

    def test_somebody_without_permission_trains_on_batches_they_cannot_have(self, bob: Any) -> None:
        bob.load_data(
            [
                DATA.clone().private_tensor(allowed_users=("ann",)).tag("#x"),
                TARGETS.clone().private_tensor(allowed_users=("ann",)).tag("#y"),
            ]
        )
        part = sy.BaseDataset(bob.search("#x")[0], bob.search("#y")[0])
        batches = list(sy.FederatedDataLoader(sy.FederatedDataset([part]), batch_size=4, shuffle=True))
        assert [data.shape for data, _ in batches] == [(4, 2), (4, 2), (2, 2)]
        model = torch.nn.Linear(2, 10).send(bob)
        torch.nn.functional.cross_entropy(model(batches[0][0]), batches[0][1]).backward()
        for value in (*batches[0], model.weight.grad):
            with pytest.raises(GetNotPermittedError):
                value.get(user="eve")

    def test_no_message_replaces_what_a_data_set_is_made_of(self, bob: Any) -> None:
        pointer = sy.BaseDataset(DATA, TARGETS).send_whole(bob)
        with pytest.raises(AttributeError):
            pointer.setattr("_transform", 1)
        with pytest.raises(AttributeError, match="cannot be set"):
            pointer.setattr("batch", 1)
        assert torch.equal(rows(pointer), DATA)


class TestFederate:
    @pytest.mark.parametrize("make", [sy.BaseDataset, TensorDataset])
    def test_contiguous_parts_of_ceil_n_over_k(self, workers: Any, make: Any) -> None:
        federated = make(DATA, TARGETS).federate((workers.alice, workers.bob, workers.charlie))
        assert federated.workers == ["alice", "bob", "charlie"]
        assert [len(federated[w]) for w in federated.workers] == [4, 4, 2]
        assert torch.equal(rows(federated["bob"]), DATA[4:8])
        assert torch.equal(rows(federated[workers.charlie]), DATA[8:])

    def test_few_rows_leave_the_last_workers_out(self, workers: Any) -> None:
        federated = TensorDataset(DATA[:2], TARGETS[:2]).federate(
            (workers.alice, workers.bob, workers.charlie)
        )
        assert federated.workers == ["alice", "bob"] and len(federated) == 2

    def test_any_torch_data_set_item_by_item_and_in_pieces(
        self, workers: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dataset_module, "PIECE_BYTES", 40)  # two items of two floats and a number
        sent: list[int] = []
        original = dataset_module._pair

        def pair(batch: Any, dataset: Any) -> Any:
            sent.append(len(batch[0]))
            return original(batch, dataset)

        monkeypatch.setattr(dataset_module, "_pair", pair)
        federated = Squares().federate((workers.alice, workers.bob))
        assert max(sent) == 2
        assert torch.equal(rows(federated["bob"])[:, 1], torch.tensor([25.0, 36, 49, 64, 81]))
        assert federated["alice"].targets.get().tolist() == [0, 1, 2, 3, 4]

    def test_lazily_nothing_is_read_before_it_is_asked_for(self, workers: Any) -> None:
        source = Squares()
        federated = source.federate((workers.alice, workers.bob), lazy=True)
        assert source.read == [] and len(federated) == 10
        data, _target = federated["bob"].batch([1, 3])
        assert source.read == [6, 8]
        assert data.get()[:, 1].tolist() == [36.0, 64.0]

    def test_transforms_go_along(self, workers: Any) -> None:
        federated = sy.BaseDataset(DATA, TARGETS, transform=lambda row: -row).federate(
            (workers.alice, workers.bob)
        )
        assert torch.equal(workers.alice.get_obj(federated["alice"].held.id_at_location).data, DATA[:5])
        assert torch.equal(rows(federated["alice"]), -DATA[:5])

    def test_parts_of_choice(self, workers: Any) -> None:
        federated = TensorDataset(DATA, TARGETS).federate(
            (workers.alice, workers.bob), parts=[[9, 0], [1, 2, 3]]
        )
        assert torch.equal(rows(federated["alice"]), DATA[[9, 0]])
        assert len(federated["bob"]) == 3

    def test_what_cannot_be_split(self, bob: Any) -> None:
        class Stream(IterableDataset):
            def __iter__(self) -> Any:
                return iter(())

        with pytest.raises(TypeError, match="no length"):
            Stream().federate((bob,))
        with pytest.raises(ValueError, match="no worker"):
            TensorDataset(DATA, TARGETS).federate(())
        with pytest.raises(TypeError, match=r"pairs \(data, target\)"):
            TensorDataset(DATA).federate((bob,))
        with pytest.raises(ValueError, match="2 parts for 1 workers"):
            TensorDataset(DATA, TARGETS).federate((bob,), parts=[[0], [1]])
        with pytest.raises(ChainError, match="already"):
            sy.BaseDataset(DATA.send(bob), TARGETS.send(bob)).federate((bob,))

    def test_the_parts_go_with_the_federated_data_set(self, workers: Any) -> None:
        federated = TensorDataset(DATA, TARGETS).federate((workers.alice, workers.bob))
        assert len(workers.alice._objects) == 2
        del federated
        assert len(workers.alice._objects) == len(workers.bob._objects) == 0


class TestFederatedDataset:
    def test_of_what_a_search_found(self, alice: Any, bob: Any) -> None:
        for worker in (alice, bob):
            worker.load_data([DATA.clone().tag("#x"), TARGETS.clone().tag("#y")])
        federated = sy.FederatedDataset(
            [sy.BaseDataset(w.search("#x")[0], w.search("#y")[0]) for w in (alice, bob)]
        )
        assert len(federated) == 20 and federated.workers == ["alice", "bob"]
        assert "20 rows on 2 workers" in repr(federated) and "alice: 10 rows" in repr(federated)
        del federated
        assert len(alice._objects) == 2

    def test_what_is_no_part(self, bob: Any) -> None:
        with pytest.raises(TypeError, match="not a data set on a worker"):
            sy.FederatedDataset([DATA.send(bob)])
        with pytest.raises(TypeError, match="not a data set on a worker"):
            sy.FederatedDataset([sy.BaseDataset(DATA, TARGETS)])
        part = sy.BaseDataset(DATA, TARGETS).send(bob)
        with pytest.raises(ValueError, match=r"Two parts .* on worker 'bob'"):
            sy.FederatedDataset([part, part])
        with pytest.raises(KeyError, match=r"\['bob'\]"):
            sy.FederatedDataset([part])["alice"]

    def test_a_part_can_be_fetched_out_of_it(self, alice: Any, bob: Any) -> None:
        federated = TensorDataset(DATA, TARGETS).federate((alice, bob))
        assert torch.equal(federated.get_dataset("alice").data, DATA[:5])
        assert federated.workers == ["bob"] and len(alice._objects) == 0


def test_a_lazy_data_set_is_not_copied_and_does_not_travel(bob: Any) -> None:
    source = Squares(3)
    lazy = LazyDataset(source, tags=["#lazy"])
    assert copy.deepcopy(lazy)._dataset is source and len(lazy) == 3
    with pytest.raises(sy.serde.UnserializableError):
        sy.serde.serialize(lazy)
    bob.load_data([lazy])
    assert bob.search("#lazy")[0][2][0].get().tolist() == [2.0, 4.0]


def test_rows_that_are_on_a_worker_never_come_here(bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    federated = TensorDataset(DATA, TARGETS).federate((bob,))
    seen: list[type] = []
    receive = bob.recv_msg
    monkeypatch.setattr(bob, "_recv_msg", lambda m: (seen.append(type(m)), receive(m))[1])
    for _data, _target in sy.FederatedDataLoader(federated, batch_size=3, shuffle=False):
        pass
    assert seen and not {ObjectRequestMessage, ObjectMessage} & set(seen)
