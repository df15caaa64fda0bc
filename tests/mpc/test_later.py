"""Gradients wait until it is known what they are needed for, and are what they would have been at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from mpc.network_parties import node_of
from syft.mpc.lazy_shares import LazyShares

UNIT = 2.0**-16
Share = Callable[[Any], Any]


@pytest.fixture
def near(hook: Any) -> Share:
    return _sharing([sy.VirtualWorker(hook, id=f"later {name}", auto_add=False) for name in "abc"])


@pytest.fixture
def three(hook: Any) -> Share:
    return _sharing([sy.VirtualWorker(hook, id=f"later {name}", auto_add=False) for name in "abcd"])


@pytest.fixture
def far(client: Any, me: Any) -> Share:
    return _sharing([*client.holders, client.provider])


def _sharing(workers: list[Any]) -> Share:
    *holders, provider = workers

    def share(value: Any) -> Any:
        return value.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)

    return share


def opened(secret: Any) -> torch.Tensor:
    found: torch.Tensor = secret.copy().get().float_precision()
    return found


def close(secret: Any, expected: torch.Tensor, units: float = 64) -> bool:
    return bool((opened(secret) - expected).abs().max() <= units * UNIT)


def is_undone(secret: Any) -> bool:
    shares = node_of(secret).child
    return isinstance(shares, LazyShares) and not shares.is_made


class Net:
    """A net and its data, plain and shared."""

    def __init__(self, share: Share, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.plain: Any = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
        self.x, self.y = torch.randn(4, 6), torch.randn(4, 3)
        self.secret: Any = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
        self.secret.load_state_dict(self.plain.state_dict())
        share(self.secret)
        self.inputs, self.targets = share(self.x), share(self.y)

    def losses(self) -> tuple[Any, Any]:
        return F.mse_loss(self.plain(self.x), self.y), F.mse_loss(self.secret(self.inputs), self.targets)

    def backward(self, **options: Any) -> None:
        for loss in self.losses():
            loss.backward(**options)

    def pairs(self) -> list[tuple[Any, Any]]:
        return list(zip(self.secret.parameters(), self.plain.parameters(), strict=True))

    def check_gradients(self) -> None:
        for ours, theirs in self.pairs():
            assert close(ours.grad, theirs.grad)

    def check_parameters(self) -> None:
        for ours, theirs in self.pairs():
            assert close(ours, theirs.detach())


@pytest.fixture(params=["near", "three", "far"])
def net(request: pytest.FixtureRequest) -> Net:
    return Net(request.getfixturevalue(request.param))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "a rate without an integer divisor": lambda p: torch.optim.SGD(p, lr=0.3),
    "a rate above the scale": lambda p: torch.optim.SGD(p, lr=70_000.0 * 2**-16),
    "maximize": lambda p: torch.optim.SGD(p, lr=0.05, maximize=True),
    "one by one": lambda p: torch.optim.SGD(p, lr=0.05, foreach=False),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "decay": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_plain_torch(name: str, near: Share) -> None:
    net = Net(near)
    optimizers = [OPTIMIZERS[name](model.parameters()) for model in (net.plain, net.secret)]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        net.backward()
        for optimizer in optimizers:
            optimizer.step()
    for ours, theirs in net.pairs():
        assert close(ours, theirs.detach(), 2048 if name == "adam" else 64)


def test_a_step_is_right_wherever_the_holders_are(net: Net) -> None:
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (net.plain, net.secret)]
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.zero_grad()
        net.backward()
        assert [is_undone(p.grad) for p in net.secret.parameters()] == [True, False, True, True]
        for optimizer in optimizers:
            optimizer.step()
    net.check_parameters()
    net.check_gradients()  # read after the step, they are those before it


def test_a_gradient_that_is_read_before_the_step_is_the_same(near: Share) -> None:
    net = Net(near)
    net.backward()
    net.check_gradients()
    assert not any(is_undone(p.grad) for p in net.secret.parameters())
    for model in (net.plain, net.secret):
        torch.optim.SGD(model.parameters(), lr=0.05).step()
    net.check_parameters()


def test_gradients_add_up(near: Share) -> None:
    net = Net(near)
    for _ in range(3):
        net.backward()
    net.check_gradients()
    net.secret.zero_grad(set_to_none=False)
    assert all(close(p.grad, torch.zeros(p.shape), 0) for p in net.secret.parameters())
    net.plain.zero_grad()
    net.backward()
    net.check_gradients()


def test_a_graph_that_is_kept_gives_its_gradients_again(near: Share) -> None:
    net = Net(near)
    for loss in net.losses():
        loss.backward(retain_graph=True)
        loss.backward()
    net.check_gradients()


def test_second_derivatives(near: Share) -> None:
    net = Net(near)
    for loss, model in zip(net.losses(), (net.plain, net.secret), strict=True):
        (first,) = torch.autograd.grad(loss, [model[2].weight], create_graph=True)
        (first * first).sum().backward()
    ours, theirs = net.secret[0].weight.grad, net.plain[0].weight.grad
    assert close(ours, theirs)


def test_hooks_see_and_change_gradients(near: Share) -> None:
    net = Net(near)
    seen: list[Any] = []
    for model in (net.plain, net.secret):
        model[0].weight.register_hook(lambda grad: grad * 2)
        model[2].weight.register_hook(lambda grad: seen.append(grad))
        model[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    net.backward()
    net.check_gradients()
    half = len(seen) // 2
    for theirs, ours in zip(seen[:half], seen[half:], strict=True):
        assert close(ours, theirs)


def test_gradients_that_are_written_to(near: Share) -> None:
    net = Net(near)
    net.backward()
    for model in (net.plain, net.secret):
        weight = model[0].weight
        view = weight.grad.t()[0]
        weight.grad.mul_(0.5)
        view.add_(1)
        nn.utils.clip_grad_norm_([model[2].weight, model[2].bias], 0.1)
    for ours, theirs in net.pairs():
        assert close(ours.grad, theirs.grad, 256)
    for model in (net.plain, net.secret):
        torch.optim.SGD(model.parameters(), lr=0.05).step()
    net.check_parameters()


def test_a_view_of_a_gradient_sees_what_is_written_to_it(near: Share) -> None:
    net = Net(near)
    net.backward()
    rates = []
    for model in (net.plain, net.secret):
        weight = model[0].weight
        turned = (
            nn.Parameter(torch.zeros(6, 5))
            if model is net.plain
            else near(torch.zeros(6, 5)).requires_grad_()
        )
        turned.grad = weight.grad.t()
        weight.grad.mul_(0.5)
        torch.optim.SGD([turned], lr=0.05).step()
        rates.append(turned)
    assert close(rates[1], rates[0].detach())


def test_what_a_gradient_waits_for_may_change_meanwhile(near: Share) -> None:
    net = Net(near)
    net.backward()
    with torch.no_grad():
        net.inputs.add_(1)
        net.targets.mul_(2)
        net.secret[2].weight.zero_()
    net.check_gradients()


WRITES = {
    "product": lambda value, other: value.mul_(3),
    "copy": lambda value, other: value.copy_(other),
    "rows": lambda value, other: value[1:3].copy_(other[1:3]),
    "by its transpose": lambda value, other: value.t().add_(other.t()),
    "data": lambda value, other: setattr(value, "data", other),
    "fetched": lambda value, other: value.get() if hasattr(value, "child") else None,
}


@pytest.mark.parametrize("loss", [F.mse_loss, lambda made, wanted: (made * wanted).mean()])
@pytest.mark.parametrize("which", ["inputs", "targets"])
@pytest.mark.parametrize("write", WRITES)
def test_a_step_is_that_of_what_the_backward_pass_saw(
    write: str, which: str, loss: Callable[..., Any], near: Share
) -> None:
    net = Net(near)
    plain = {"inputs": net.x, "targets": net.y}
    for model, data in ((net.plain, plain), (net.secret, vars(net))):
        value, other = (
            data[which],
            torch.randn(plain[which].shape, generator=torch.Generator().manual_seed(2)),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loss(model(data["inputs"]), data["targets"]).backward()
        with torch.no_grad():
            WRITES[write](value, other if model is net.plain else near(other))
        optimizer.step()
    net.check_parameters()


def test_a_weight_that_is_used_twice(near: Share) -> None:
    torch.manual_seed(0)
    w, x = torch.randn(4, 4), torch.randn(3, 4)
    weight, data = near(w).requires_grad_(), near(x)
    plain = w.clone().requires_grad_()
    for one, inputs in ((plain, x), (weight, data)):
        F.relu(inputs @ one).mm(one.t()).sum().backward()
    assert close(weight.grad, plain.grad)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("is_public", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_squared_errors(when: str, is_public: bool, reduction: str, near: Share) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    secret, target = near(x).requires_grad_(), y if is_public else near(y)
    plain = x.clone().requires_grad_()
    expected = F.mse_loss(plain, y, reduction=reduction)
    loss = F.mse_loss(secret, target, reduction=reduction)
    if when == "before":
        assert close(loss, expected.detach())
    for one in (expected, loss):
        one.sum().backward()
    assert close(loss, expected.detach())
    assert close(secret.grad, plain.grad)


def test_a_mean_of_many_squares_is_made_of_truncated_ones(near: Share, programs: list[str]) -> None:
    x = torch.randn(1 << 15)
    assert close(F.mse_loss(near(x), torch.zeros(x.shape)), x.square().mean())
    assert "derived.sum_of_squares" not in programs


def test_programs_of_a_step(near: Share, programs: list[str]) -> None:
    net = Net(near)
    optimizer = torch.optim.SGD(net.secret.parameters(), lr=0.05)
    for _ in range(2):
        optimizer.zero_grad()
        loss = net.losses()[1]
        programs.clear()
        loss.backward()
        optimizer.step()
    assert programs == ["steps.side_by_side", "steps.side_by_side"]


def test_a_loss_is_made_with_the_gradients_that_its_errors_are_for(net: Net) -> None:
    loss = net.losses()[1]
    assert is_undone(loss)
    loss.backward()
    assert not is_undone(loss)
    assert close(loss, net.losses()[0].detach())


def test_a_gradient_that_nobody_reads_is_not_computed(near: Share, programs: list[str]) -> None:
    net = Net(near)
    loss = net.losses()[1]
    programs.clear()
    loss.backward()
    assert programs == ["steps.side_by_side"]
    net.secret.zero_grad()
    assert len(programs) == 1


def test_gradients_under_macs_do_not_wait(hook: Any) -> None:
    a, b, c = (sy.VirtualWorker(hook, id=f"later mac {name}", auto_add=False) for name in "abc")
    torch.manual_seed(0)
    w, x = torch.randn(3, 2), torch.randn(4, 3)

    def share(value: Any) -> Any:
        fixed = value.fix_precision(base=2, precision_fractional=16)
        return fixed.share(a, b, crypto_provider=c, protocol="spdz2k")

    weight, plain = share(w).requires_grad_(), w.clone().requires_grad_()
    (share(x) @ weight).sum().backward()
    (x @ plain).sum().backward()
    assert not is_undone(weight.grad)
    assert close(weight.grad, plain.grad)


def test_operands_go_with_the_gradient(hook: Any) -> None:
    workers = [sy.VirtualWorker(hook, id=f"later gone {name}", auto_add=False) for name in "abc"]
    net = Net(_sharing(workers))
    gc.collect()
    before = [len(worker._objects) for worker in workers]
    net.losses()[1].backward()
    net.secret.zero_grad()
    gc.collect()
    assert [len(worker._objects) for worker in workers] == before


def test_what_failed_is_tried_again() -> None:
    calls: list[int] = []

    def make() -> dict[Any, Any]:
        calls.append(1)
        if len(calls) == 1:
            raise ArithmeticError("once")
        return {"a": 1}

    shares = LazyShares(make, None, ())
    with pytest.raises(ArithmeticError):
        shares["a"]
    assert not shares.is_made
    assert shares["a"] == 1
    assert len(calls) == 2
