"""Private training: what it refuses, what it goes on from, what it makes of data sets of every kind."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from syft.dp.accounting import Accountant, BudgetExceededError, Gaussian, Pure
from syft.dp.clipping import clipped_sum
from syft.dp.dpsgd import make_private, replace_batch_norm

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)


def data(rows: int = 200) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def training(model: Any = None, loader: Any = None, optimizer: Any = None, **options: Any) -> Any:
    model = network() if model is None else model
    options = dict(loss_fn=F.cross_entropy) | options
    if "target_epsilon" not in options:
        options.setdefault("noise_multiplier", 1.0)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data(), batch_size=20) if loader is None else loader
    return make_private(model, optimizer, loader, **options)


def epoch(private: Any) -> None:
    for x, y in private.loader:
        private.step(x, y)


# -- whose rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        dict(batch_size=20, sampler=SubsetRandomSampler(range(100))),
        dict(batch_size=20, sampler=WeightedRandomSampler([1.0] * 200, 200)),
        dict(batch_size=20, sampler=RandomSampler(range(100))),
        dict(batch_size=20, sampler=SequentialSampler(range(100))),
        dict(batch_size=20, sampler=list(range(200))),
        dict(batch_sampler=[[0, 1], [2]]),
        dict(batch_size=None),
    ],
)
def test_a_loader_that_draws_rows_its_own_way_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Subset\(data, rows\)|needs a loader with a batch_size"):
        training(loader=DataLoader(data(), **options))


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True}])
def test_ordinary_loaders_and_subsets_are_taken(options: dict[str, Any]) -> None:
    private = training(loader=DataLoader(Subset(data(), range(100)), batch_size=20, **options))
    assert private.loader.rate == 0.2
    epoch(private)


def test_streams_and_what_is_no_loader_are_refused() -> None:
    class Rows(IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from zip(*data().tensors, strict=True)

    with pytest.raises(TypeError, match="come in a stream"):
        training(loader=DataLoader(Rows(), batch_size=20))
    with pytest.raises(TypeError, match="DataLoader, got a list"):
        training(loader=[data().tensors])


def test_a_subclass_of_tensor_dataset_keeps_its_own_getitem() -> None:
    class Sevens(TensorDataset):
        def __getitem__(self, row: Any) -> Any:
            x, y = super().__getitem__(row)
            return x * 0 + 7, y

    for x, _y in training(loader=DataLoader(Sevens(*data().tensors), batch_size=100)).loader:
        assert bool((x == 7).all())


Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize("kind", ["dict", "ordered", "named", "nested"])
def test_an_empty_batch_has_the_make_of_the_others(kind: str) -> None:
    class Rows(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, row: int) -> Any:
            x, y = torch.full((4,), float(row)), row % 2
            return {
                "dict": {"x": x, "y": y},
                "ordered": OrderedDict(x=x, y=y),
                "named": Pair(x, y),
                "nested": {"x": x, "y": y, "more": (x, {"name": f"row {row}"})},
            }[kind]

    private = training(loader=DataLoader(Rows(), batch_size=1))
    full = private.loader._batches[torch.tensor([0, 2])]
    empty = private.loader._batches[torch.tensor([], dtype=torch.long)]
    assert type(empty) is type(full)
    sizes = set()
    for _ in range(20):
        for batch in private.loader:
            x, y = (batch.x, batch.y) if kind == "named" else (batch["x"], batch["y"])
            private.step(x, y)
            sizes.add(len(x))
            assert x.shape[1:] == (4,) and y.dtype == torch.long
            if kind == "nested":
                assert len(batch["more"][0]) == len(x) == len(batch["more"][1]["name"])
    assert 0 in sizes


def test_an_empty_batch_that_cannot_be_made_is_told() -> None:
    loader: Any = DataLoader(data(), batch_size=20, collate_fn=lambda rows: {1, 2})
    with pytest.raises(TypeError, match="collate_fn makes a set: let it make tensors"):
        training(loader=loader).loader._batches[torch.tensor([], dtype=torch.long)]


# -- whose budget ----------------------------------------------------------------------------------------


def test_steps_are_refused_when_something_else_has_spent_the_budget() -> None:
    private = training(target_epsilon=1.0, target_delta=1e-5, epochs=2)
    with pytest.raises(BudgetExceededError):
        private.budget.spend(Pure(0.9))
    private.budget.accountant.compose(Pure(0.9))  # whoever does so all the same
    with pytest.raises(BudgetExceededError):
        epoch(private)


def test_all_planned_steps_may_be_taken_and_no_more() -> None:
    private = training(target_epsilon=1.0, target_delta=1e-5, epochs=2)
    epoch(private)
    epoch(private)
    assert 0.99 < private.epsilon() <= 1.0
    with pytest.raises(BudgetExceededError):
        epoch(private)


# -- going on --------------------------------------------------------------------------------------------


def test_a_training_goes_on_from_what_was_spent() -> None:
    options = dict(target_epsilon=1.0, target_delta=1e-5, epochs=2)
    first = training(**options)
    epoch(first)
    state = json.loads(json.dumps(first.state_dict()))  # plain values: any format does
    second = training(copy.deepcopy(first.model), **options)
    second.load_state_dict(state)
    assert second.epsilon() == first.epsilon() > 0
    epoch(second)
    event = Gaussian(second.noise_multiplier, 0.1)
    assert second.accountant.spent == {event: 20}
    assert second.epsilon() == Accountant("pld").compose(event, 20).epsilon(1e-5) <= 1.0
    with pytest.raises(BudgetExceededError):
        epoch(second)


def test_without_a_target_too_and_with_other_events() -> None:
    first = training()
    epoch(first)
    first.accountant.compose(Pure(0.25), 2)
    second = training()
    second.load_state_dict(first.state_dict())
    assert second.accountant.spent == first.accountant.spent
    assert second.epsilon(1e-5) == first.epsilon(1e-5)


def test_the_state_holds_nothing_that_noise_is_drawn_from() -> None:
    first = training()
    assert set(first.state_dict()) == {"format", "settings", "spent"}
    assert "stream" not in json.dumps(first.state_dict())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (dict(noise_multiplier=2.0), "noise_multiplier was 1.0 and is 2.0"),
        (dict(accountant="rdp"), "accountant was 'pld' and is 'rdp'"),
        (dict(loader=DataLoader(data(100), batch_size=10)), "rows was 200 and is 100"),
        (dict(loader=DataLoader(data(), batch_size=40)), "rate was 0.1 and is 0.2"),
        (
            dict(noise_multiplier=None, target_epsilon=1.0, target_delta=1e-5, epochs=1),
            "target was None",
        ),
    ],
)
def test_the_state_of_another_training_is_refused(change: dict[str, Any], sentence: str) -> None:
    state = training().state_dict()
    with pytest.raises(ValueError, match=sentence):
        training(**change).load_state_dict(state)


def test_nothing_is_unspent_by_loading() -> None:
    private = training()
    before = private.state_dict()
    epoch(private)
    spent = dict(private.accountant.spent)
    with pytest.raises(ValueError, match="spent more than the state knows"):
        private.load_state_dict(before)
    assert private.accountant.spent == spent


@pytest.mark.parametrize(
    "state",
    [
        {},
        None,
        [],
        {"format": 2},
        {"format": 1, "settings": {}, "spent": [{"event": "other", "count": 1}]},
        {"format": 1, "settings": {}, "spent": [{"event": "pure", "epsilon": -1.0, "count": 1}]},
        {"format": 1, "settings": {}, "spent": [{"event": "pure", "epsilon": 1.0, "count": -1}]},
        {"format": 1, "settings": {}, "spent": [3]},
    ],
)
def test_what_is_no_state_is_not_taken_for_an_empty_one(state: Any) -> None:
    with pytest.raises(ValueError, match="not the state of a private training"):
        training().load_state_dict(state)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_training_is_not_copied(copied: Any) -> None:
    with pytest.raises(TypeError, match=r"neither copied nor pickled.*state_dict"):
        copied(training())


# -- noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1e-9, 1e-7, 1e10, 1e200])
def test_noise_that_cannot_be_added_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match="out of what can be added to batches of about 20 rows"):
        training(noise_multiplier=noise)


@pytest.mark.parametrize("noise", [5e-7, 1e-3])
def test_the_least_noise_is_added_without_overflow(noise: float) -> None:
    private = training(loader=DataLoader(data(), batch_size=200), noise_multiplier=noise)
    total, _ = clipped_sum(private.model, F.cross_entropy, *data().tensors, private.bounds)
    private.set_noisy_gradients(total)
    for name, parameter in private.model.named_parameters():
        assert float((parameter.grad - total[name] / 200).abs().max()) < 1e-6 + 10 * noise / 200
    # A sum that nobody thought of is cut off, not wrapped around.
    private.set_noisy_gradients({n: torch.full_like(v, 1e12) for n, v in total.items()})
    assert all(bool((p.grad > 0).all()) for p in private.model.parameters())


# -- models and optimizers -------------------------------------------------------------------------------


def test_hooks_on_gradients_are_refused() -> None:
    for where in ("parameter", "after", "layer"):
        model = network()
        if where == "parameter":
            handle = model[0].weight.register_hook(lambda g: g * 0)
        elif where == "after":
            handle = model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
        else:
            handle = model[0].register_full_backward_hook(lambda *_: None)
        with pytest.raises(
            ValueError, match=r"^This model.* 0(\.weight)? has a hook on its gradient.*remove"
        ):
            training(model)
        handle.remove()
        training(model)


def test_a_model_without_shapes_and_an_optimizer_with_a_closure_are_refused() -> None:
    lazy = nn.Sequential(nn.LazyLinear(2))
    with pytest.raises(ValueError, match=r"0\.weight has no shape yet: call the model once"):
        training(lazy)
    model = network()
    with pytest.raises(ValueError, match="LBFGS, which asks for the gradient several times"):
        training(model, optimizer=torch.optim.LBFGS(model.parameters()))
    with pytest.raises(TypeError, match="takes a torch optimizer, got a str"):
        training(optimizer="sgd")
    with pytest.raises(ValueError, match="way is one of"):
        training(way="fast")


def test_a_layer_that_is_unfrozen_has_no_bound_of_its_own() -> None:
    def half_frozen() -> Any:
        model = network()
        model[0].requires_grad_(False)
        return training(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), clipping="per_layer")

    private = half_frozen()
    epoch(private)
    private.model[0].requires_grad_(True)
    spent, batch = dict(private.accountant.spent), next(iter(private.loader))
    with pytest.raises(ValueError, match=r"no clipping bound for '0'.*make_private.*state_dict"):
        private.step(*batch)
    assert private.accountant.spent == spent
    again = training(private.model, clipping="per_layer")
    again.load_state_dict(private.state_dict())
    epoch(again)
    assert again.epsilon(1e-5) > private.epsilon(1e-5)
    private.model.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen by now"):
        private.step(*batch)


def test_a_batch_of_another_make_is_refused_before_it_is_charged() -> None:
    private = training()
    x, y = next(iter(private.loader))
    with pytest.raises(TypeError, match=r"inputs\[1\] as one tensor"):
        private.step((x, [x]), y)
    with pytest.raises(TypeError, match=r"targets\[0\] as one tensor"):
        private.step(x, y.tolist())
    assert not private.accountant.spent
    private.step(x, y)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_learns_with_a_look_at_it_in_between(in_place: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    plain: Any = network()
    model: Any = plain
    if in_place:
        plain.compile(backend="eager")
    else:
        model = torch.compile(plain, backend="eager")
    private = training(
        model,
        loader=DataLoader(data(1000), batch_size=100),
        optimizer=torch.optim.SGD(model.parameters(), lr=2.0),
        noise_multiplier=0.5,
    )
    for _ in range(3):
        for x, y in private.loader:
            sums, _ = private.clipped_sums(x, y)
            assert all(float(value.abs().max()) > 0 for value in sums.values())
            private.step(x, y)
            F.cross_entropy(model(x), y)  # compiled again, without hooks
    x, y = data(1000).tensors
    assert float((model(x).argmax(1) == y).float().mean()) > 0.9


def test_a_training_finds_out_in_time_that_positions_are_no_examples() -> None:
    class Places(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mid, self.place, self.out = nn.Linear(3, 4), nn.Embedding(6, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out((self.mid(x) * self.place(torch.arange(6))).mean(1))

    rows = TensorDataset(torch.randn(60, 6, 3), torch.arange(60) % 2)
    private = training(Places(), loader=DataLoader(rows, batch_size=30), physical_batch=6)
    x, y = next(iter(private.loader))
    found, _ = private.clipped_sums(x, y)
    expected, _ = clipped_sum(private.model, F.cross_entropy, x, y, private.bounds, way="vmap")
    assert private.way == "vmap"
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_batch_norm_is_replaced_by_a_norm_of_its_kind() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, eps=0.5), nn.BatchNorm2d(4, affine=False)
    ).double()
    model[1].bias.requires_grad_(False)
    model.eval()
    replaced = replace_batch_norm(model)
    norm, plain = replaced[1], replaced[2]
    assert isinstance(norm, nn.GroupNorm) and norm.eps == 0.5 and not norm.training
    assert norm.weight.dtype == torch.float64 and norm.weight.requires_grad and not norm.bias.requires_grad
    assert isinstance(plain, nn.GroupNorm) and plain.weight is None
    assert replaced(torch.randn(2, 1, 5, 5, dtype=torch.float64)).dtype == torch.float64
    meta: Any = replace_batch_norm(nn.BatchNorm1d(6, device="meta"))
    assert meta.weight.device.type == "meta"
    assert math.isclose(meta.eps, 1e-5)


def test_a_frozen_batch_norm_is_trained_around_and_keeps_its_statistics() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    model(torch.randn(50, 4) * 3 + 1)  # statistics of public data
    with pytest.raises(ValueError, match=r"1 is BatchNorm1d.*\.eval\(\)"):
        training(model)
    model[1].eval()
    before = {name: value.clone() for name, value in model[1].named_buffers()}
    x, y = data(12)[:]
    sums, _ = clipped_sum(model, F.cross_entropy, x, y, {"": 1e6})
    for name, parameter in model.named_parameters():  # as many single examples
        alone = [
            torch.autograd.grad(F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]), parameter)[0]
            for i in range(12)
        ]
        torch.testing.assert_close(sums[name].float(), torch.stack(alone).sum(0), rtol=1e-4, atol=1e-5)
    private = training(model)
    epoch(private)
    assert all(torch.equal(value, before[name]) for name, value in model[1].named_buffers())


def test_a_batch_norm_that_is_unfrozen_later_or_has_no_statistics_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    private = training(model)
    model.train()
    with pytest.raises((ValueError, NotImplementedError)):
        epoch(private)
    assert not model[1].running_mean.any()
    with pytest.raises(ValueError, match="BatchNorm1d, which mixes"):
        training(nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)).eval())


def test_complex_parameters_are_refused_before_anything_is_charged() -> None:
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.phases = nn.Parameter(torch.ones(4, dtype=torch.complex64))
            self.last = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last((x * self.phases).real)

    model = Spectral()
    with pytest.raises(ValueError, match=r"phases is complex.*view_as_real"):
        training(model)
    model.phases.requires_grad_(False)
    private = training(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    epoch(private)
    spent = private.epsilon(1e-5)
    model.phases.requires_grad_(True)
    with pytest.raises(ValueError, match="phases is complex"):
        epoch(private)
    assert private.epsilon(1e-5) == spent


@pytest.mark.parametrize("delta", [0, 1, -1, float("nan"), "x", True])
def test_a_delta_that_is_none_is_refused_without_a_target_too(delta: Any) -> None:
    with pytest.raises(ValueError, match="target_delta="):
        training(noise_multiplier=1.0, target_delta=delta)


def test_epochs_without_a_target_are_not_passed_over() -> None:
    with pytest.raises(ValueError, match="epochs=3 without a target_epsilon"):
        training(noise_multiplier=1.0, epochs=3)
