"""Layers that stay with their clients: what is theirs is not sent, and nothing else is left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy
from syft.federated import Trainer
from syft.federated.engines.serial import SerialEngine
from syft.federated.layout import read_state

torch.set_num_threads(1)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def data(shift: float, seed: int = 1) -> TensorDataset:
    """Clients whose features lie elsewhere, with the same classes."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x + shift, (x[:, 0] > 0).long())


def trainer(clients: Any = None, **options: Any) -> Trainer:
    clients = clients or {"near": data(0.0), "far": data(30.0, 2)}
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 10, "seed": 1} | options
    return Trainer(net(), nn.CrossEntropyLoss(), clients, **settings)


@pytest.mark.parametrize("named", [[nn.BatchNorm1d], ["1"], ["1.*"]])
def test_statistics_of_batches_stay_with_their_clients(named: Any) -> None:
    """FedBN (Li et al. 2021): clients with shifted features agree on all layers but the norms."""
    alone, shared = trainer(local=named), trainer()
    start = read_state(alone.model)
    alone.fit(4), shared.fit(4)
    after = read_state(alone.model)
    assert {name for name in start if torch.equal(start[name], after[name])} == {
        name for name in start if name.startswith("1.")
    }
    assert {entry.name for entry in alone.layout.entries} == {"0.weight", "0.bias", "3.weight", "3.bias"}
    found, common = alone.evaluate_clients(), shared.evaluate_clients()
    assert found.metrics["loss"] < common.metrics["loss"]
    kept = {name: client.layers._kept for name, client in alone.clients.items()}  # type: ignore[attr-defined]
    (means,) = ([state["1.running_mean"] for _, state in kept[name].values()] for name in ["near"])
    (others,) = ([state["1.running_mean"] for _, state in kept[name].values()] for name in ["far"])
    assert not torch.allclose(means[0], others[0], atol=1.0)


@pytest.mark.parametrize("strategy", ["fedavg", "fedprox", "scaffold", "fedadam", "median"])
def test_threads_and_other_strategies_train_the_same_layers(strategy: str) -> None:
    states = []
    for engine in ("serial", "threads"):
        one = trainer(strategy=strategy, local=[nn.BatchNorm1d], engine=engine, optimizer_args={"lr": 0.01})
        one.fit(2)
        states.append(read_state(one.model))
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_workers_of_this_process_keep_theirs_until_the_data_is_another(hook: Any) -> None:
    alice = sy.VirtualWorker(hook, id="alice-personal")
    alice.add_dataset(data(0.0), "rows")
    one = trainer([alice], dataset_key="rows", local=["3"])
    one.fit(1)
    (kept,) = one.clients["alice-personal"].layers._kept.values()  # type: ignore[attr-defined]
    assert not torch.equal(kept[1]["3.weight"], net()[3].weight)  # type: ignore[index, arg-type]
    trained = one.evaluate_clients().metrics
    alice.remove_dataset("rows")
    alice.add_dataset(data(0.0), "rows")
    assert one.evaluate_clients().metrics != trained  # begins anew


@pytest.mark.parametrize(
    ("named", "error", "sentence"),
    [
        ("3", TypeError, "it is a list of names"),
        ([3], TypeError, "a name, a pattern or a class"),
        (["4"], ValueError, "no trainable parameter or buffer of the model is meant"),
        ([nn.Conv2d], ValueError, "no trainable parameter or buffer"),
        (["*"], ValueError, "nothing is left to be trained together"),
    ],
)
def test_names_that_mean_nothing_or_all_are_refused(named: Any, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        trainer(local=named)


def test_what_would_lose_the_layers_is_refused(tmp_path: Any) -> None:
    class Copying(SerialEngine):
        copies_clients = True

    with pytest.raises(ValueError, match="keep no layers of their own"):
        trainer(local=["3"], engine=Copying())
    with pytest.raises(ValueError, match="in no checkpoint"):
        trainer(local=["3"], checkpoint=tmp_path / "run").resume()


def test_layers_of_one_user_are_not_lost_because_another_trains_much() -> None:
    from syft.federated.personal import PersonalLayers
    from syft.federated.records import LocalLayers

    kept, source = PersonalLayers(), object()

    def model(value: float) -> nn.Module:
        made = nn.Linear(1, 1)
        nn.init.constant_(made.bias, value)
        return made

    def bias(user: str, training: str) -> float:
        found = model(-1.0)
        kept.bring(found, LocalLayers(training, ("bias",)), source, user, "rows")
        return float(found.bias.detach())

    kept.keep(model(7.0), LocalLayers("bobs", ("bias",)), source, "bob", "rows")
    for number in range(40):
        kept.keep(model(number), LocalLayers(f"eves {number}", ("bias",)), source, "eve", "rows")
    assert bias("bob", "bobs") == 7.0 and bias("eve", "eves 39") == 39.0
    assert bias("eve", "eves 0") == -1.0 and bias("eve", "bobs") == -1.0
