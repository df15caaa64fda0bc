"""A training plan is local training, bit for bit, with one message per batch."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.execution.errors import PlanError
from syft.messaging.message import PlanCallMessage

SHAPES: dict[str, Any] = dict(args_shape=[(-1, 8), (-1,)], args_dtype=[torch.float32, torch.int64])

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(lr=0.1)),
    "momentum": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.2)),
    "nesterov": (
        torch.optim.SGD,
        dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-2, maximize=False),
    ),
    "adam": (torch.optim.Adam, dict(lr=0.01)),
    "amsgrad": (torch.optim.Adam, dict(lr=0.01, amsgrad=True, betas=(0.8, 0.99), weight_decay=1e-2)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01)),
    "rmsprop": (torch.optim.RMSprop, dict(lr=0.01, momentum=0.5, centered=True)),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.1)),
}


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(2)
    return [
        (torch.randn(5 + i % 3, 8, generator=draw), torch.randint(3, (5 + i % 3,), generator=draw))
        for i in range(count)
    ]


def local_step(net: Any, optimizer: Any, x: Any, y: Any) -> torch.Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_equal_models(one: nn.Module, other: nn.Module) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_twenty_steps_at_a_worker_are_twenty_steps_here(name: str, make_worker: Any) -> None:
    bob = make_worker("bob", log_msgs=True)
    cls, options = OPTIMIZERS[name]
    ours, theirs = model(), model()
    mine, other = cls(ours.parameters(), **options), cls(theirs.parameters(), **options)
    plan = sy.Plan.training(ours, F.cross_entropy, mine, **SHAPES)
    remote = plan.send(bob)
    held = None
    for x, y in batches(20):
        x_ptr, y_ptr = x.send(bob), y.send(bob)
        bob.msg_history.clear()
        loss = remote(x_ptr, y_ptr)
        assert [type(m) for m in bob.msg_history] == [PlanCallMessage]
        assert torch.equal(loss.get(), local_step(theirs, other, x, y))
        del x_ptr, y_ptr, loss
        held = held or len(bob._objects)
        assert len(bob._objects) == held
    plan.get_()
    assert_equal_models(ours, theirs)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert set(mine.state[a]) <= set(other.state[b]) | {"step"}
        for key, value in other.state[b].items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(mine.state[a][key], value), key
    # What came back goes on here as if it had never been away.
    x, y = batches(1)[0]
    assert torch.equal(plan(x, y), local_step(theirs, other, x, y))
    assert_equal_models(ours, theirs)


def test_training_begun_here_goes_on_there(bob: Any) -> None:
    ours, theirs = model(), model()
    mine = torch.optim.Adam(ours.parameters(), lr=0.01)
    other = torch.optim.Adam(theirs.parameters(), lr=0.01)
    plan = sy.Plan.training(ours, F.cross_entropy, mine, **SHAPES)
    data = batches(6)
    for x, y in data[:3]:
        assert torch.equal(plan(x, y), local_step(theirs, other, x, y))
    remote = plan.send(bob)
    for x, y in data[3:]:
        assert torch.equal(remote(x.send(bob), y.send(bob)).get(), local_step(theirs, other, x, y))
    assert_equal_models(plan.get_()._model, theirs)


def test_schedulers_change_the_rate_there(bob: Any) -> None:
    ours, theirs = model(), model()
    mine, other = torch.optim.SGD(ours.parameters(), lr=0.5), torch.optim.SGD(theirs.parameters(), lr=0.5)
    plan = sy.Plan.training(ours, F.cross_entropy, mine, **SHAPES)
    remote = plan.send(bob)
    for step, (x, y) in enumerate(batches(4)):
        for optimizer in (mine, other):
            optimizer.param_groups[0]["lr"] = 0.5 / (step + 1)
        assert torch.equal(remote(x.send(bob), y.send(bob)).get(), local_step(theirs, other, x, y))
    plan.get_()
    assert_equal_models(ours, theirs)


def test_groups_of_parameters_keep_their_options_and_the_rest_stays(bob: Any) -> None:
    ours, theirs = model(), model()

    def optimizer(net: Any) -> Any:
        return torch.optim.SGD(
            [{"params": net[0].parameters(), "lr": 0.3}, {"params": [net[3].weight]}], lr=0.1
        )

    mine, other = optimizer(ours), optimizer(theirs)
    plan = sy.Plan.training(ours, F.cross_entropy, mine, **SHAPES)
    remote = plan.send(bob)
    for x, y in batches(3):
        remote(x.send(bob), y.send(bob))
        local_step(theirs, other, x, y)
    plan.get_()
    assert_equal_models(ours, theirs)
    assert torch.equal(ours[3].bias, model()[3].bias)  # type: ignore[index]


def test_a_loss_function_may_return_more_than_the_loss(bob: Any) -> None:
    def loss_and_hits(out: Any, y: Any) -> Any:
        return F.cross_entropy(out, y), (out.argmax(1) == y).sum()

    net = model()
    plan = sy.Plan.training(net, loss_and_hits, torch.optim.SGD(net.parameters(), lr=0.1), **SHAPES)
    x, y = batches(1)[0]
    wanted = (copy.deepcopy(net)(x).argmax(1) == y).sum()
    loss, hits = plan.send(bob)(x.send(bob), y.send(bob))
    assert loss.get().ndim == 0 and hits.get() == wanted


def test_a_training_plan_travels_as_bytes_and_is_fetched(bob: Any, me: Any) -> None:
    net, twin = model(), model()
    plan = sy.Plan.training(net, F.cross_entropy, torch.optim.Adam(net.parameters(), lr=0.01), **SHAPES)
    other = torch.optim.Adam(twin.parameters(), lr=0.01)
    read = sy.serde.deserialize(sy.serde.serialize(plan))
    kept = read.send(bob)
    for step, (x, y) in enumerate(batches(6)):
        if step == 3:
            read = me.fetch_plan(kept.id_at_location, bob)
        ours = read(x, y) if step >= 3 else kept(x.send(bob), y.send(bob)).get()
        assert torch.equal(ours, local_step(twin, other, x, y))


def test_a_finished_training_leaves_nothing_behind(bob: Any) -> None:
    net = model()
    plan = sy.Plan.training(net, F.cross_entropy, torch.optim.Adam(net.parameters()), **SHAPES)
    remote = plan.send(bob)
    x, y = batches(1)[0]
    remote(x.send(bob), y.send(bob))
    del remote, plan
    gc.collect()
    assert len(bob._objects) == 0


class _MySgd(torch.optim.SGD):
    pass


def test_what_cannot_be_trained_is_explained(bob: Any) -> None:
    net = model()
    with pytest.raises(PlanError, match=r"_MySgd.*SGD, Adam"):
        sy.Plan.training(net, F.cross_entropy, _MySgd(net.parameters(), lr=0.1), **SHAPES)
    with pytest.raises(PlanError, match="differentiable"):
        sy.Plan.training(
            net, F.cross_entropy, torch.optim.SGD(net.parameters(), lr=0.1, differentiable=True), **SHAPES
        )
    with pytest.raises(PlanError, match="not the model's"):
        sy.Plan.training(net, F.cross_entropy, torch.optim.SGD(model().parameters(), lr=0.1), **SHAPES)
    many = sy.Plan.training(
        net,
        lambda out, y: F.cross_entropy(out, y, reduction="none"),
        torch.optim.SGD(net.parameters(), lr=0.1),
        **SHAPES,
    )
    x, y = batches(1)[0]
    with pytest.raises(PlanError, match="one number"):
        many.send(bob)(x.send(bob), y.send(bob))
