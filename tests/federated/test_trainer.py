"""The Trainer: the same as a loop by hand, on data sets, on workers, with secure sums."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import syft as sy
from syft.federated.dataset import BaseDataset, FederatedDataset, federate
from syft.federated.local_training import OPTIMIZERS, batches
from syft.federated.randomness import SeededDraws, derive_seed, seeded
from syft.federated.rounds import NotEnoughClientsError, choose
from syft.federated.secure_aggregation import MaskedSum
from syft.federated.trainer import Trainer
from syft.policy.owner_policy import OwnerPolicy
from trainer_parts import Fixed, classes, line, net, same, weights

CE, MSE = nn.CrossEntropyLoss(), nn.MSELoss()


def test_it_equals_federated_averaging_written_by_hand() -> None:
    parts = classes()
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    by_hand = copy.deepcopy(model)
    Trainer(
        model,
        CE,
        parts,
        epochs=2,
        batch_size=16,
        shuffle=False,
        optimizer="Adam",
        optimizer_args={"lr": 0.01},
    ).fit(3)
    total = sum(map(len, parts.values()))
    for _ in range(3):
        sums = {name: torch.zeros_like(p) for name, p in by_hand.named_parameters()}
        for part in parts.values():
            local = copy.deepcopy(by_hand)
            optimizer = torch.optim.Adam(local.parameters(), lr=0.01)
            for _ in range(2):
                for x, y in zip(part.tensors[0].split(16), part.tensors[1].split(16), strict=True):
                    optimizer.zero_grad()
                    CE(local(x), y).backward()
                    optimizer.step()
            for name, p in local.named_parameters():
                sums[name] += p.detach() * len(part) / total
        by_hand.load_state_dict(sums)
    for name, value in by_hand.state_dict().items():
        assert torch.allclose(model.state_dict()[name], value, atol=1e-5), name


def test_the_model_is_trained_in_place_and_its_parameters_stay_the_same_objects() -> None:
    model = net()
    held = dict(model.named_parameters())
    before = {name: p.detach().clone() for name, p in held.items()}
    Trainer(model, CE, classes(), batch_size=10).fit(1)
    assert all(p is held[name] and p.grad is None for name, p in model.named_parameters())
    assert not any(torch.equal(before[name], p) for name, p in held.items() if name.endswith("weight"))


def test_data_is_not_changed() -> None:
    parts = classes()
    kept = {name: [t.clone() for t in part.tensors] for name, part in parts.items()}
    Trainer(net(), CE, parts, batch_size=10).fit(1)
    for name, part in parts.items():
        assert all(torch.equal(a, b) for a, b in zip(part.tensors, kept[name], strict=True))


def test_what_a_module_keeps_beside_its_state_does_not_wander_between_clients() -> None:
    class Counter(nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x) * (1.0 if self.calls == 1 else 100.0)

    model = Counter(1, 1, bias=False)
    nn.init.ones_(model.weight)
    part = TensorDataset(torch.ones(1, 1), torch.zeros(1, 1))
    Trainer(model, MSE, {"a": part, "b": part}).fit(2)
    assert weights(model) == [0.64] and model.calls == 0


# -- who is asked --------------------------------------------------------------------------------------------


def test_a_choice_of_clients_is_drawn_anew_each_round_and_repeated_with_the_seed() -> None:
    clients = {f"c{i:02d}": Fixed(1.0) for i in range(20)}

    def asked(seed: int, **options: Any) -> list[tuple[str, ...]]:
        history = Trainer(line(0.0), MSE, clients, seed=seed, engine="serial", **options).fit(30)
        return [report.selected for report in history.rounds]

    once = asked(1, fraction=0.25)
    assert all(len(set(chosen)) == 5 for chosen in once)
    assert once == asked(1, clients_per_round=5) and once != asked(2, fraction=0.25)
    assert set().union(*once) == set(clients)  # 30 rounds miss one of 20 clients with a probability of 0.4 %
    assert choose(list(clients), 50, 0) == tuple(clients)


def test_seeds_of_different_purposes_are_unrelated() -> None:
    seeds = {
        derive_seed(s, *p) for s in (0, 1) for p in ((), ("a",), ("a", 1), ("a1",), ("a", "1", ""), ("b", 1))
    }
    assert len(seeds) == 12 and all(0 <= seed < 2**63 for seed in seeds)
    assert torch.equal(torch.rand(3, generator=seeded(3, "x")), torch.rand(3, generator=seeded(3, "x")))


def test_the_order_of_names_does_not_matter() -> None:
    parts = classes()
    one, other = net(), net()
    Trainer(one, CE, parts, batch_size=10, seed=0).fit(2)
    Trainer(other, CE, dict(reversed(parts.items())), batch_size=10, seed=0).fit(2)
    assert same(one.state_dict(), other.state_dict())


def test_a_schedule_is_a_function_of_the_round() -> None:
    # (w - 0)^2 from 1: 1 - 0.1 * 2 = 0.8, then at half the rate 0.8 - 0.05 * 1.6 = 0.72
    model = line(1.0)
    part = TensorDataset(torch.ones(1, 1), torch.zeros(1, 1))
    Trainer(model, MSE, {"a": part}, optimizer_args=lambda number: {"lr": 0.1 / number}).fit(2)
    assert weights(model) == [0.72]


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_every_optimizer_can_be_named(optimizer: str) -> None:
    trainer = Trainer(
        net(), CE, classes(clients=2), optimizer=optimizer, optimizer_args={"lr": 1e-3}, batch_size=10
    )
    assert trainer.fit(1).rounds[0].failures == ()


# -- data of many kinds ----------------------------------------------------------------------------------------


def test_batches_of_tensors_of_parts_of_tensors_and_of_items_are_the_same() -> None:
    whole = TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    rows = [3, 9, 1, 4, 7]
    part = Subset(whole, rows)
    listed = [whole[row] for row in rows]
    nested = Subset(Subset(whole, [9, 3, 4, 1, 7]), [1, 0, 3, 2, 4])
    held = BaseDataset(whole.tensors[0][rows], whole.tensors[1][rows])
    order = torch.tensor([4, 0, 2, 1, 3])
    for this_order in (None, order):
        expected = [[part.tolist() for part in batch] for batch in batches(listed, 2, this_order)]
        assert len(expected) == 3
        for dataset in (part, nested, held, ConcatDataset([part])):
            found = [[part.tolist() for part in batch] for batch in batches(dataset, 2, this_order)]
            assert found == expected
    assert len(list(batches(part, 2, drop_last=True))) == 2
    assert list(batches(part, 4, collate_fn=len)) == [4, 1]


def test_models_with_several_inputs_and_lists_of_items() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(2, 1), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.one(x) + self.other(y)

    items = [(torch.randn(2), torch.randn(3), torch.randn(1)) for _ in range(6)]
    trainer = Trainer(Two(), MSE, {"a": items, "b": items[:3]}, batch_size=2)
    assert trainer.fit(1).rounds[0].failures == ()


TOLD: list[list[float]] = []


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_what_functions_keep_of_one_client_is_not_seen_by_another(engine: str) -> None:
    """In a closure, a default, an attribute; a lock, which cannot be copied, is shared."""
    lock = threading.Lock()
    TOLD.clear()

    def of_the_loss() -> Any:
        kept: list[float] = []
        beside = [lock]

        def inner(value: float) -> list[float]:
            kept.append(value)
            return kept

        def loss(output: Tensor, target: Tensor, seen: list[float] = []) -> Tensor:  # noqa: B006
            loss.calls.append(float(target.mean()))  # type: ignore[attr-defined]
            seen.append(float(target.mean()))
            with beside[0]:
                TOLD.append([*inner(float(target.mean())), *seen, *loss.calls])  # type: ignore[attr-defined]
            return F.mse_loss(output, target)

        loss.calls = []  # type: ignore[attr-defined]
        return loss

    data = {f"c{i}": TensorDataset(torch.randn(4, 3), torch.full((4, 1), float(i))) for i in range(3)}
    given = of_the_loss()
    Trainer(nn.Linear(3, 1), given, data, engine=engine, batch_size=2).fit(2)
    assert given.calls == []  # type: ignore[attr-defined]
    assert len(TOLD) == 12 and all(len(set(each)) == 1 for each in TOLD)


def test_a_collate_function_of_ones_own() -> None:
    words = [([1, 2, 3], 0), ([4], 1), ([2, 2], 1)]

    def pad(items: list[Any]) -> Any:
        rows = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids, _ in items], batch_first=True)
        return rows, torch.tensor([label for _, label in items])

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 2)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.table(rows).mean(1)

    trainer = Trainer(Bag(), CE, {"a": words}, collate_fn=pad, batch_size=2, evaluate=words)
    assert "loss" in trainer.fit(1).rounds[0].evaluation


def test_draws_of_a_thread_are_its_own_and_explicit_generators_are_left_alone() -> None:
    outside = torch.get_rng_state()
    with SeededDraws(5):
        first = torch.randn(3)
        explicit = torch.randn(3, generator=torch.Generator().manual_seed(1))
    with SeededDraws(5) as draws:
        assert not draws.has_drawn
        assert torch.equal(torch.randn(3), first) and draws.has_drawn
        assert not torch.equal(torch.randn(3), first)
    assert torch.equal(explicit, torch.randn(3, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), outside)


# -- data at workers -------------------------------------------------------------------------------------------


def task(rows: int = 60) -> TensorDataset:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 6, generator=random)
    return TensorDataset(x, (x[:, 0] > 0).long())


def test_a_federated_dataset_is_trained_on_where_it_is(workers: Any) -> None:
    data = task()
    places = [workers.alice, workers.bob, workers.charlie]
    parts = {w.id: TensorDataset(*data[i * 20 : i * 20 + 20]) for i, w in enumerate(places)}
    expected, model = net(), net()
    Trainer(expected, CE, parts, batch_size=10, seed=3).fit(2)
    federated = federate(data, places)
    before = [len(w._objects) for w in places]
    Trainer(model, CE, federated, batch_size=10, seed=3).fit(2)
    assert same(model.state_dict(), expected.state_dict())
    assert [len(w._objects) for w in places] == before


@pytest.mark.parametrize("lazy", [False, True])
def test_sent_data_sets_and_transforms_run_at_the_worker(workers: Any, lazy: bool) -> None:
    data = task()
    held = BaseDataset(*data.tensors, transform=lambda x: -x)
    federated = federate(held, [workers.alice, workers.bob], lazy=lazy)
    minus = {
        "alice": TensorDataset(-data.tensors[0][:30], data.tensors[1][:30]),
        "bob": TensorDataset(-data.tensors[0][30:], data.tensors[1][30:]),
    }
    one, other = net(), net()
    Trainer(one, CE, federated, batch_size=10, seed=3).fit(1)
    Trainer(other, CE, minus, batch_size=10, seed=3).fit(1)
    assert same(one.state_dict(), other.state_dict())


def test_workers_train_on_what_they_offer(alice: Any, bob: Any) -> None:
    data = task()
    alice.add_dataset(TensorDataset(*data[:40]), "scans")
    bob.add_dataset(TensorDataset(*data[40:]), "scans", allowed_users=["ann"])
    history = Trainer(net(), CE, [alice, bob], dataset_key="scans", batch_size=10).fit(1)
    assert history.rounds[0].accepted == ("alice",)
    assert "may not train on object 'scans'" in history.rounds[0].failures[0].why
    history = Trainer(net(), CE, [alice, bob], dataset_key="scans", batch_size=10, user="ann").fit(1)
    assert history.rounds[0].accepted == ("alice", "bob")
    bob.remove_dataset("scans")
    (report,) = Trainer(net(), CE, [alice, bob], dataset_key="scans", batch_size=10, user="ann").fit(1).rounds
    assert "Worker 'bob' offers no data set 'scans'; it offers none" in report.failures[0].why


def test_what_is_offered_to_everybody_is_so_on_a_worker_with_a_policy_too(hook: Any) -> None:
    """To whoever says who they are; as over a network, where the policy hides data that it hides elsewhere."""
    worker = sy.VirtualWorker(hook, id="guarded", policy=OwnerPolicy())
    worker.add_dataset(TensorDataset(*task()[:40]), "scans")

    def train(**who: Any) -> Any:
        return Trainer(net(), CE, [worker], dataset_key="scans", engine="serial", batch_size=10, **who).fit(1)

    assert train(user="ann").rounds[0].accepted == ("guarded",)
    with pytest.raises(NotEnoughClientsError, match=r"No client could train.*call fit\(\) again") as refused:
        train()
    assert "name yourself with user=" in str(refused.value)

    def telling(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise ValueError("the data is 45.625")

    with pytest.raises(NotEnoughClientsError, match="failed on the worker with a ValueError") as raised:
        Trainer(net(), telling, [worker], dataset_key="scans", engine="serial", user="ann").fit(1)
    assert "45.6" not in str(raised.value)


def test_private_data_is_trained_on_for_those_who_may_and_errors_do_not_tell_of_it(alice: Any) -> None:
    x = torch.tensor([[123.0], [45.625]]).private_tensor(allowed_users=("ann",))  # type: ignore[attr-defined]
    y = torch.tensor([[1.0], [2.0]]).private_tensor(allowed_users=("ann",))  # type: ignore[attr-defined]
    part = BaseDataset(x, y).send(alice, user="ann")
    with pytest.raises(NotEnoughClientsError, match="may not train on object"):
        Trainer(line(0.0), MSE, FederatedDataset([part])).fit(1)
    assert Trainer(line(0.0), MSE, FederatedDataset([part]), user="ann").fit(1).rounds[0].accepted == (
        "alice",
    )

    def telling(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"The data is {target}")

    with pytest.raises(NotEnoughClientsError, match=r"may not train on object") as raised:
        Trainer(line(0.0), telling, FederatedDataset([part]), user="bea").fit(1)
    assert "45.6" not in str(raised.value)  # NB: ids are digits, too
    with pytest.raises(NotEnoughClientsError, match=r"failed on the worker with a ValueError") as raised:
        Trainer(line(0.0), telling, FederatedDataset([part]), user="ann").fit(1)
    assert "2." not in str(raised.value).split("ValueError")[1].split("withheld")[0]


def test_data_that_was_taken_away_is_missed_and_nobody_else(alice: Any, bob: Any) -> None:
    federated = federate(task(), [alice, bob])
    trainer = Trainer(net(), CE, federated, batch_size=10)
    trainer.fit(1)
    bob.clear_objects()
    report = trainer.fit(2).rounds[1]
    assert report.accepted == ("alice",) and report.failures[0].client == "bob"
    assert "ObjectNotFoundError" in report.failures[0].why


def test_what_is_no_worker_of_this_process_is_refused(alice: Any) -> None:
    with pytest.raises(TypeError, match=r"'bob' is not a worker of this process"):
        Trainer(net(), CE, ["bob"], dataset_key="scans")
    with pytest.raises(TypeError, match=r"clients are a list of workers"):
        Trainer(net(), CE, classes(), dataset_key="scans")
    with pytest.raises(ValueError, match=r"'alice' is named twice"):
        Trainer(net(), CE, [alice, alice], dataset_key="scans")


def test_a_model_that_is_elsewhere_is_refused(hook: Any, alice: Any) -> None:
    model = nn.Linear(6, 2)
    model.send(alice)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"Fetch the model with model.get\(\)"):
        Trainer(model, CE, classes())
    model.get()  # type: ignore[operator]


# -- with secure sums ------------------------------------------------------------------------------------------


def test_secure_aggregation_gives_the_same_training_to_its_precision() -> None:
    plain, secure = net(), net()
    Trainer(plain, CE, classes(), batch_size=10, seed=3).fit(2)
    Trainer(secure, CE, classes(), batch_size=10, seed=3, aggregation=MaskedSum(clip=16.0)).fit(2)
    for name, value in plain.state_dict().items():
        assert torch.allclose(secure.state_dict()[name].double(), value.double(), atol=1e-4), name


def test_who_drops_out_of_a_secure_sum_is_reported_and_not_counted() -> None:
    clients = {"a": Fixed(100.0, examples=5), "b": Fixed(1.0), "c": Fixed(2.0), "d": Fixed(6.0)}
    model = line(0.0)
    secure = MaskedSum(3, dropouts=lambda step, present: ["a"] if step == "input" else [])
    (report,) = Trainer(model, MSE, clients, aggregation=secure).fit(1).rounds
    assert weights(model) == pytest.approx([3.0], abs=1e-4)
    assert [(f.client, f.kind) for f in report.failures] == [("a", "dropped")] and report.examples == 3


def test_it_is_where_people_look_for_it() -> None:
    assert sy.federated.Trainer is Trainer
    trainer = Trainer(net(), CE, classes())
    assert repr(trainer) == "<Trainer of 5 clients, fedavg, SerialEngine, 0 rounds done>"
