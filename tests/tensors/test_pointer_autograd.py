"""torch's autograd, with the data on workers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from syft.core.chain import Wrapper


@pytest.fixture
def data() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 4)


def test_backward_leaves_the_gradient_beside_the_data(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    assert x.requires_grad and x.is_leaf
    (x.sin() * x).sum().backward()
    assert x.grad.location is bob
    local = data.clone().requires_grad_()
    (local.sin() * local).sum().backward()
    assert torch.equal(x.grad.copy().get(), local.grad)


def test_the_gradient_comes_back_with_its_tensor(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    (x * 3).sum().backward()
    back = x.get()
    assert back.is_leaf and back.requires_grad
    assert torch.equal(back.grad, torch.full((3, 4), 3.0))
    assert len(bob._objects) == 0


def test_gradients_accumulate_and_keep_their_id(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first
    assert torch.equal(x.grad.get(), torch.full((3, 4), 5.0))


def test_autograd_grad(bob: Any, data: torch.Tensor) -> None:
    x, w = data.clone().requires_grad_().send(bob), torch.ones(4, requires_grad=True).send(bob)
    unused = torch.ones(1, requires_grad=True).send(bob)
    dx, dw, none = torch.autograd.grad((x @ w).square().sum(), (x, w, unused), allow_unused=True)
    assert none is None and x.grad is None
    lx, lw = data.clone().requires_grad_(), torch.ones(4, requires_grad=True)
    ex, ew = torch.autograd.grad((lx @ lw).square().sum(), (lx, lw))
    assert torch.equal(dx.get(), ex) and torch.equal(dw.get(), ew)


def test_double_backward(bob: Any, data: torch.Tensor) -> None:
    def penalty(x: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
        return slope.square().sum()

    x, local = data.clone().requires_grad_().send(bob), data.clone().requires_grad_()
    penalty(x).backward()
    penalty(local).backward()
    assert torch.equal(x.grad.get(), local.grad)


def test_double_backward_of_absolute_values(bob: Any, data: torch.Tensor) -> None:
    """The derivative of a sign is zeros that torch does not make; it asks what a sum with them would be."""

    def penalty(x: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(x.abs().pow(3).sum() + x.norm(1) ** 2, x, create_graph=True)
        return slope.square().sum()

    x, local = data.clone().requires_grad_().send(bob), data.clone().requires_grad_()
    penalty(x).backward()
    penalty(local).backward()
    assert torch.equal(x.grad.get(), local.grad)


def test_metadata_alone_stay_here(bob: Any, data: torch.Tensor) -> None:
    asked = data.send(bob).t().to("meta")
    assert type(asked) is torch.Tensor and asked.device.type == "meta" and asked.stride() == (1, 4)


def test_third_derivative_through_a_move(alice: Any, bob: Any) -> None:
    x = torch.tensor([2.0], requires_grad=True).send(bob)
    y = x.move(alice).pow(4).move(bob)
    for expected in (32.0, 48.0, 48.0):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        assert y.copy().get().item() == expected


def test_retain_graph(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad.get(), data.exp() * 2)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_retain_graph_of_a_remote_call(bob: Any) -> None:
    lstm = nn.LSTM(2, 3).send(bob)
    x = torch.randn(4, 1, 2).send(bob)
    loss = lstm(x)[0].sum()
    loss.backward(retain_graph=True)
    once = lstm.weight_ih_l0.grad.copy().get()
    loss.backward()
    assert torch.equal(lstm.weight_ih_l0.grad.copy().get(), once * 2)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_hooks_see_pointers_and_may_change_the_gradient(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    seen: list[Any] = []
    x.register_hook(lambda grad: seen.append(grad) or grad * 2)
    middle = x * 3
    middle.register_hook(seen.append)
    after: list[Any] = []
    x.register_post_accumulate_grad_hook(after.append)
    middle.sum().backward()
    assert [type(g) for g in seen] == [Wrapper, Wrapper] and after == [x]
    assert all(g.location is bob for g in seen)
    assert torch.equal(x.grad.get(), torch.full((3, 4), 6.0))


def test_module_hooks(bob: Any, data: torch.Tensor) -> None:
    layer = nn.Linear(4, 2).send(bob)
    seen: list[Any] = []
    layer.register_forward_hook(lambda _m, _i, out: seen.append(out.location))
    layer.register_full_backward_hook(lambda _m, _i, out: seen.append(out[0].location))
    layer(data.requires_grad_().send(bob)).sum().backward()
    assert seen == [bob, bob]


def test_retain_grad_of_an_intermediate(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    y = x * 2
    y.retain_grad()
    y.square().sum().backward()
    assert torch.equal(y.grad.get(), data * 4)


def test_no_grad_and_detach_cut_the_graph(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        x.mul_(2)
    assert not x.detach().requires_grad
    assert x.detach().id_at_location == x.id_at_location
    (x.detach() * x).sum().backward()
    assert torch.equal(x.grad.get(), data * 2)
    with torch.inference_mode():
        assert not (x * 2).requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        x.mul_(2)


def test_in_place_on_an_intermediate(bob: Any, data: torch.Tensor) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.mul_(x)
        y[0] = 7.0
        y.relu_()
        return y.sum()

    x, local = data.clone().requires_grad_().send(bob), data.clone().requires_grad_()
    f(x).backward()
    f(local).backward()
    assert torch.equal(x.grad.get(), local.grad)


def test_a_value_that_backward_needs_is_protected(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_sending_a_tensor_with_a_history_brings_its_gradient_here(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_()
    y = (x * 2).send(bob)
    assert y.requires_grad and not y.is_leaf
    y.square().sum().backward()
    assert type(x.grad) is torch.Tensor
    assert torch.equal(x.grad, data * 8)
    del y
    assert len(bob._objects) == 0


def test_getting_a_tensor_with_a_history_sends_its_gradient_there(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    y = (x * 2).get()
    assert type(y) is torch.Tensor and not y.is_leaf
    y.square().sum().backward()
    assert x.grad.location is bob
    assert torch.equal(x.grad.get(), data * 8)


def test_here_there_and_back_twice_differentiated(bob: Any) -> None:
    x = torch.tensor([3.0], requires_grad=True)
    y = (x * 1).send(bob).pow(3).get()
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    assert slope.item() == 27.0
    (bend,) = torch.autograd.grad(slope, x)
    assert bend.item() == 18.0


def test_a_model_split_over_workers_trains_like_the_whole(
    alice: Any, bob: Any, charlie: Any, data: torch.Tensor
) -> None:
    torch.manual_seed(1)
    parts = [nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)]
    whole = nn.Sequential(*copy.deepcopy(parts))
    target = torch.tensor([0, 1, 1])
    local = torch.optim.Adam(whole.parameters(), lr=0.1)
    expected = []
    for _ in range(5):
        local.zero_grad()
        loss = nn.functional.cross_entropy(whole(data), target)
        loss.backward()
        local.step()
        expected.append(loss.item())

    workers = [alice, bob, charlie]
    for part, worker in zip(parts, workers, strict=True):
        part.send(worker)
    optimizers = [torch.optim.Adam(part.parameters(), lr=0.1) for part in parts]
    losses = []
    for _ in range(5):
        for optimizer in optimizers:
            optimizer.zero_grad()
        h = data.send(alice)
        for part, worker in zip(parts, workers, strict=True):
            h = part(h.move(worker))
        loss = nn.functional.cross_entropy(h, target.send(charlie))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.get().item())
    assert losses == expected
    for part, twin in zip(parts, whole, strict=True):
        for name, value in part.get().state_dict().items():
            assert torch.equal(value, twin.state_dict()[name])
    del h, loss, optimizers, optimizer
    assert [len(w._objects) for w in workers] == [0, 0, 0]


def test_a_gradient_given_by_the_caller_must_be_there(bob: Any, data: torch.Tensor) -> None:
    x = data.clone().requires_grad_().send(bob)
    (x * 2).backward(torch.ones(3, 4).send(bob))
    assert torch.equal(x.grad.get(), torch.full((3, 4), 2.0))


def test_functional_tools_of_torch(bob: Any) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    jacobian = torch.autograd.functional.jacobian(lambda t: t.square(), x)
    assert torch.equal(jacobian.get(), torch.tensor([[2.0, 0.0], [0.0, 4.0]]))


def test_checkpointing_recomputes_on_the_worker(bob: Any, data: torch.Tensor) -> None:
    from torch.utils.checkpoint import checkpoint

    x = data.clone().requires_grad_().send(bob)
    checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False).sum().backward()
    local = data.clone().requires_grad_()
    local.sin().exp().sum().backward()
    assert torch.equal(x.grad.get(), local.grad)
