"""A traced model is the model: same names, same numbers in both modes; what arrives from strangers is checked."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from syft import serde
from syft.execution.errors import InvalidProgramError, PlanError, TraceError
from syft.execution.func2plan import func2plan
from syft.execution.plan import Plan
from syft.execution.program import Input
from syft.federated.layout import Layout, named_state, read_state
from syft.federated.plan_module import PlanModule, SentModule, traced_loss, traced_module
from syft.serde import SerdeError
from trainer_parts import net, same

ROWS = [Input((-1, 6), torch.float32)]
LABELS = Input((-1,), torch.int64)


def sent(module: PlanModule) -> PlanModule:
    """As it arrives at a worker."""
    return serde.deserialize(serde.serialize(SentModule(module))).module


class Shared(nn.Module):
    """Tied weights, a frozen layer, a mask that is no buffer, a buffer that is not kept, buffers in a child alone."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics = nn.BatchNorm1d(6, affine=False)
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(6, 2).requires_grad_(False)
        self.mask = torch.tensor([1.0, 0, 1, 1, 1, 0])
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(self.second(self.first(self.statistics(x) * self.mask))) * self.scale


@pytest.mark.parametrize("make", [net, Shared])
def test_both_modes_state_and_gradients_are_those_of_the_original(make: Any) -> None:
    torch.manual_seed(0)
    model = make()
    before = copy.deepcopy(model)
    traced = sent(traced_module(model, ROWS))
    assert same(read_state(model), read_state(before))  # to trace is to change nothing
    assert set(named_state(traced)) == set(named_state(model))
    assert {e.name: e.is_parameter for e in Layout.of(traced).entries} == {
        e.name: e.is_parameter for e in Layout.of(model).entries
    }
    for rows in (5, 1 if make is Shared else 2, 17):
        x = torch.randn(rows, 6) if rows > 1 else torch.randn(8, 6)
        for training in (True, False):
            outputs = []
            for each in (model.train(training), traced.train(training)):
                torch.manual_seed(7)
                each.zero_grad()
                outputs.append(each(x))
                outputs[-1].sum().backward()
            assert torch.equal(*outputs)
        gradients = [{n: p.grad for n, p in m.named_parameters() if p.requires_grad} for m in (model, traced)]
        assert same(*gradients)
    assert same(read_state(model), read_state(traced))  # the statistics moved alike


def _older_order(target: Tensor, pred: Tensor) -> Tensor:
    return (2 * pred - target).square().mean()


@pytest.mark.parametrize(
    ("loss", "target"),
    [
        (F.cross_entropy, LABELS),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]), label_smoothing=0.1), LABELS),
        (nn.MSELoss(), Input((-1, 2), torch.float32)),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 1.0])), Input((-1, 2), torch.float32)),
        (_older_order, Input((-1, 2), torch.float32)),
    ],
)
def test_losses_are_traced_for_batches_of_any_size(loss: Any, target: Input) -> None:
    model = traced_module(nn.Linear(6, 2), ROWS)
    traced = sent(traced_loss(loss, model, ROWS, target))
    for rows in (1, 4, 33):
        output = torch.randn(rows, 2)
        wanted = torch.randint(2, (rows,)) if target is LABELS else torch.rand(rows, 2)
        expected = loss(wanted, output) if loss is _older_order else loss(output, wanted)
        assert torch.equal(traced(output, wanted), expected)


def test_a_copy_has_tensors_of_its_own_and_the_mode() -> None:
    traced = traced_module(net(), ROWS).eval()
    other = copy.deepcopy(traced)
    assert not other.training
    with torch.no_grad():
        next(other.parameters()).add_(1)
    assert not same(read_state(traced), read_state(other))


def test_plans_are_models_and_losses_as_they_are() -> None:
    layer = nn.Linear(6, 2)

    @func2plan(args_shape=[(-1, 6)])
    def model(x: Tensor) -> Tensor:
        return layer(x)

    @func2plan(args_shape=[(-1, 2), (-1, 2)])
    def loss(output: Tensor, wanted: Tensor) -> Tensor:
        return (output - wanted).abs().mean()

    traced = sent(traced_module(model, ()))
    x = torch.randn(3, 6)
    assert torch.equal(traced(x), layer(x))
    assert sum(p.requires_grad for p in traced.parameters()) == 2
    assert sent(traced_loss(loss, traced, (), LABELS))(torch.ones(3, 2), torch.zeros(3, 2)) == 1.0


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(TraceError, match=r"test_network_models.py:\d+ decides by the value"):
        traced_module(Deciding(), ROWS)
    with pytest.raises(TypeError, match="No Python code"):
        traced_module(lambda x: x, ROWS)
    layer = nn.Linear(6, 2)
    training = Plan.training(
        layer, F.mse_loss, torch.optim.SGD(layer.parameters(), 0.1), args_shape=[(-1, 6), (-1, 2)]
    )
    with pytest.raises(PlanError, match="takes training steps by itself"):
        traced_module(training, ROWS)
    with pytest.raises(PlanError, match="was built for"):
        traced_module(net(), ROWS)(torch.zeros(2, 7))

    def fussy(output: Tensor, target: Tensor) -> Tensor:
        return output.sum() if output.shape[0] == 2 else -output.sum()

    with pytest.raises(TraceError, match="decides by a size"):
        traced_loss(fussy, traced_module(layer, ROWS), ROWS, LABELS)


def test_parts_of_strangers_are_checked() -> None:
    good = traced_module(nn.Linear(6, 2), ROWS)
    parts = (good._replays, good._slots, good._names, good._kinds, good._tensors())

    def altered(**changes: Any) -> tuple[Any, ...]:
        return tuple(changes.get(name, part) for name, part in zip("rsnkt", parts, strict=True))

    bad = [
        altered(r=()),
        altered(r=good._replays[:1]),
        altered(s=((0, 5), (0, 1))),
        altered(s=((0,), (0, 1))),
        altered(n=("weight", "weight")),
        altered(n=("forward", "bias")),
        altered(n=("train", "bias")),
        altered(n=("weight", "")),
        altered(n=("weight", "x" * 2000)),
        altered(k=(3, 9)),
        altered(k=(3,)),
        altered(t=(torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2))),
        altered(t=(torch.zeros(2, 6).to_sparse(), torch.zeros(2))),
    ]
    for each in bad:
        with pytest.raises(InvalidProgramError):
            PlanModule(*each)
    shared = torch.zeros(2, 6).fix_precision()
    with pytest.raises(InvalidProgramError, match="plain, dense"):
        PlanModule(*altered(t=(shared, torch.zeros(2))))


def test_a_frame_with_a_program_of_another_vocabulary_is_refused() -> None:
    data = serde.serialize(SentModule(traced_module(nn.Linear(6, 2), ROWS)))
    assert b"torch.nn.functional.linear" in data
    with pytest.raises(SerdeError):
        serde.deserialize(data.replace(b"torch.nn.functional.linear", b"torch.nn.functional.sinear"))
