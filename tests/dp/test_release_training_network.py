"""DP-SGD at a worker on a network: who proved a name pays, models are records of known layers, nothing else travels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from syft import serde
from syft.dp.layer_records import SETTINGS, LayerRecord, model_of, record_of
from syft.dp.release_training import train_privately
from syft.exceptions import BudgetExceededError, GetNotPermittedError, ReleaseNotPermittedError
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import PrivateTrainingMessage
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.network
torch.set_num_threads(1)

ROWS = torch.randn(600, 4, generator=torch.Generator().manual_seed(2))
SETTINGS_OF_TRAINING: dict[str, Any] = dict(
    loss="cross_entropy", user="eve", delta=1e-5, epochs=2, batch_size=100, lr=1.0
)


@pytest.fixture
def ann(hook: Any, me: Any, tmp_path: Path) -> Iterator[Any]:
    """Ann's connection to a worker with inputs, labels, and a budget for everybody."""
    authority = TokenAuthority.create(tmp_path / "keys")
    server = NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id="far",
        data=[ROWS.clone().tag("#x"), (ROWS[:, 0] > 0).long().tag("#y")],
        tokens=authority.verifier("far"),
    )
    for tag in ("#x", "#y"):
        server.set_budget(dataset=tag, epsilon=10.0, delta=1e-4)
    with server:
        client = connect(server.address, token=authority.issue("ann", 600), auto_add=False)
        yield client
        client.close()


@pytest.fixture
def data(ann: Any) -> tuple[Any, Any]:
    return ann.search("#x")[0], ann.search("#y")[0]


def test_a_model_is_trained_there_and_who_proved_their_name_pays(ann: Any, data: Any) -> None:
    with pytest.raises(GetNotPermittedError):
        data[0].copy().get()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model[0].bias.requires_grad_(False)
    before = {name: p.clone() for name, p in model.named_parameters()}
    trained = train_privately(*data, model, epsilon=8.0, **SETTINGS_OF_TRAINING)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert torch.equal(trained[0].bias, before["0.bias"])  # what is frozen stays
    x = torch.randn(500, 4)
    assert (trained(x).argmax(1) == (x[:, 0] > 0)).float().mean() > 0.8
    for name in ("#x", "#y"):
        state = ann.budget("eve", name)
        assert (state.user, state.spent, state.releases[0].mechanism) == ("ann", 8.0, "dpsgd")
    with pytest.raises(BudgetExceededError, match="epsilon 2 of 10 left"):
        train_privately(*data, model, epsilon=3.0, **SETTINGS_OF_TRAINING)


def test_wrong_requests_are_explained_there_and_not_charged(ann: Any, data: Any) -> None:
    x, y = data
    linear = nn.Sequential(nn.Linear(4, 2))
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        ((x, y[1:]), linear, {}, "same records"),
        ((x.mean(0), y), linear, {}, "not released"),
        ((x, y), linear, {"loss": "guess"}, "There are"),
        ((x, y), linear, {"delta": 0.0}, "delta"),
        ((x, y), linear, {"epochs": 0}, "epochs=0"),
        ((x, y), linear, {"batch_size": -1}, "batch_size=-1"),
        ((x, y), nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), {}, "does not run"),
        ((x, y), nn.Sequential(nn.Linear(5, 2)), {}, "shapes cannot be multiplied"),
    ]
    for pointers, model, options, sentence in wrong:
        with pytest.raises((ValueError, RuntimeError, PermissionError), match=sentence):
            train_privately(*pointers, model, **{"epsilon": 1.0, **SETTINGS_OF_TRAINING, **options})
    assert ann.budget("ann", "#x").releases == ()


def test_every_layer_of_the_list_travels_as_it_is() -> None:
    torch.manual_seed(0)
    images = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, groups=1, bias=False, padding_mode="reflect"),
        nn.GroupNorm(2, 8),
        nn.ELU(0.5),
        nn.MaxPool2d(2, stride=1, padding=1),
        nn.AvgPool2d(2, count_include_pad=False),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d((None, 2)),
        nn.LeakyReLU(0.3),
        nn.Sequential(nn.Identity(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(2.0)),
        nn.Flatten(),
        nn.LayerNorm(64, bias=False),
        nn.Linear(64, 4),
        nn.GELU("tanh"),
        nn.ReLU(),
    )
    series = nn.Sequential(nn.Conv1d(2, 3, 3, padding="same", dilation=2), nn.Flatten(), nn.LayerNorm((30,)))
    seen = set()
    for model, x in ((images, torch.randn(2, 3, 16, 16)), (series, torch.randn(2, 2, 10))):
        made = model_of(serde.deserialize(serde.serialize(record_of(model))))
        assert torch.equal(made(x), model(x))
        assert str(made) == str(model)
        seen |= {type(layer) for layer in made.modules()}
    assert seen == set(SETTINGS)


def mirrored(model: nn.Module) -> nn.Module:
    return model_of(serde.deserialize(serde.serialize(record_of(model))))


def test_a_layer_that_stands_twice_arrives_twice() -> None:
    act, block = nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Identity())
    model = nn.Sequential(
        nn.Linear(4, 8), act, block, nn.Linear(8, 8), act, nn.Sequential(block, act, act), nn.Linear(8, 2)
    )
    made = mirrored(model)
    x = torch.randn(5, 4)
    assert str(made) == str(model) and torch.equal(made(x), model(x))
    assert made.state_dict().keys() == model.state_dict().keys()


def tied() -> nn.Sequential:
    """One layer in two places, and one weight in two layers, at different depths."""
    torch.manual_seed(3)
    shared, first, last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
    last.weight = first.weight
    first.weight.requires_grad_(False)
    return nn.Sequential(shared, nn.Tanh(), first, nn.Sequential(shared, nn.Tanh(), last), nn.Linear(4, 2))


def test_what_is_tied_here_is_tied_there() -> None:
    model, x = tied(), torch.randn(5, 4)
    made = mirrored(model)
    assert torch.equal(made(x), model(x))
    assert [name for name, _ in made.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert [p.requires_grad for p in made.parameters()] == [p.requires_grad for p in model.parameters()]
    assert made[0].weight is made[3][0].weight and made[2].weight is made[3][2].weight
    assert len(record_of(model).children["3"].children["0"].tensors) == 0  # travels once
    for each in (model, made):
        each(x).square().sum().backward()
    grads = zip(made.parameters(), model.parameters(), strict=True)
    assert all(p.grad is None if q.grad is None else torch.allclose(p.grad, q.grad) for p, q in grads)


def test_a_tied_model_is_trained_there_and_comes_back_tied(ann: Any, data: Any) -> None:
    model = tied()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trained = train_privately(*data, model, epsilon=9.0, **SETTINGS_OF_TRAINING)
    assert trained[0].weight is trained[3][0].weight and trained[2].weight is trained[3][2].weight
    assert torch.equal(trained[2].weight, before["2.weight"])  # frozen
    assert not torch.equal(trained[0].weight, before["0.weight"])


def test_models_that_are_no_trees_are_refused_before_they_travel(ann: Any, data: Any) -> None:
    inside = nn.Sequential(nn.Linear(4, 2))
    inside.add_module("again", inside)
    empty = nn.Sequential(nn.Linear(4, 2))
    empty.add_module("gap", None)
    for model, sentence in ((inside, "again .Sequential.*stands in itself"), (empty, "gap .nothing")):
        with pytest.raises(ReleaseNotPermittedError, match=sentence):
            train_privately(*data, model, epsilon=1.0, **SETTINGS_OF_TRAINING)
    assert ann.budget("ann", "#x").releases == ()


def test_ties_of_strangers_are_checked() -> None:
    weight = torch.zeros(4, 4)
    square = dict(in_features=4, out_features=4, bias=False)
    first = LayerRecord("Linear", square, {"weight": weight}, ("weight",), {})

    def pair(settings: dict[str, Any], tied: dict[str, str], name: str = "1", **more: Any) -> LayerRecord:
        second = LayerRecord("Linear", settings, more.get("tensors", {}), (), {}, tied)
        return LayerRecord("Sequential", {}, {}, (), {"0": first, name: second})

    good = model_of(pair(square, {"weight": "0.weight"}))
    assert good[0].weight is good[1].weight  # type: ignore[index]
    wrong = [
        pair(square, {"weight": "1.weight"}),  # itself
        pair(square, {"weight": "2.weight"}),
        pair(square, {"weight": "0"}),
        pair(square, {"weight": "__class__"}),
        pair(square, {"weight": "0.weight", "bias": "0.weight"}),
        pair({**square, "out_features": 2}, {"weight": "0.weight"}),
        pair(square, {"weight": "0.weight"}, tensors={"weight": weight}),
        pair(square, {"weight": "0.weight"}, name="0.weight"),
        pair(square, {"weight": "0.weight"}, name=""),
    ]
    for record in wrong:
        with pytest.raises(ValueError):  # noqa: PT011  (each has its own sentence)
            model_of(record)


def test_records_of_strangers_are_checked(ann: Any, data: Any) -> None:
    weight, bias = torch.zeros(2, 4), torch.zeros(2)
    linear = dict(in_features=4, out_features=2, bias=True)
    good = LayerRecord("Linear", linear, {"weight": weight, "bias": bias}, ("weight",), {})
    assert isinstance(model_of(good), nn.Linear)
    bad = [
        {"kind": "LSTM"},
        {"kind": "__class__"},
        {"settings": {**linear, "device": "cuda"}},
        {"settings": {**linear, "in_features": 10**15}},  # announces what it does not bring
        {"settings": {**linear, "in_features": "four"}},
        {"tensors": {"weight": weight}},
        {"tensors": {"weight": weight.long(), "bias": bias}},
        {"tensors": {"weight": weight.T, "bias": bias}},
        {"children": {"0": good}},
    ]
    for changes in bad:
        with pytest.raises((ValueError, ReleaseNotPermittedError)):
            model_of(msgspec.structs.replace(good, **changes))
    ids = (pointer.child.id_at_location for pointer in data)
    with pytest.raises(ValueError, match="LayerRecord"):
        ann._recv_msg(PrivateTrainingMessage(*ids, "a model", "mse", 1.0, 1e-5, 1, 10, 0.1, 0.0, 1.0))
