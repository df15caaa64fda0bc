"""A plain tensor that a secret is written into becomes one for all who hold it; what would miss that is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from syft.core.chain import Wrapper
from syft.exceptions import UnsupportedOperationError
from syft.mpc.group import Group
from syft.mpc.sharing import AdditiveSharingTensor
from syft.workers.virtual import VirtualWorker

ROWS = torch.tensor([2, 0, 2])
MASK = torch.tensor([True, False, True, True])


def _put(target: Any, place: Any, value: Any) -> None:
    target[place] = value


def _add_in_place(target: Any, value: Any) -> None:
    target += value


#: Each writes `s` (3 x 2, secret) into `t` (4 x 2, plain).
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "index_add_": lambda t, s: t.index_add_(0, ROWS, s),
    "index_add_, alpha": lambda t, s: t.index_add_(0, ROWS, s, alpha=2),
    "index_copy_": lambda t, s: t.index_copy_(0, torch.tensor([3, 0, 1]), s),
    "index_put_": lambda t, s: t.index_put_((ROWS,), s, accumulate=True),
    "scatter_": lambda t, s: t.scatter_(0, ROWS.unsqueeze(1).expand(3, 2)[:2], s[:2]),
    "scatter_add_": lambda t, s: t.scatter_add_(0, ROWS.unsqueeze(1).expand(3, 2), s),
    "masked_scatter_": lambda t, s: t.masked_scatter_(MASK.unsqueeze(1), s),
    "a row": lambda t, s: _put(t, 1, s[0]),
    "a slice": lambda t, s: _put(t, slice(1, None), s),
    "a column": lambda t, s: _put(t, (slice(1, None), 0), s[:, 1]),
    "places": lambda t, s: _put(t, MASK, s),
    "copy_": lambda t, s: t.copy_(s[0]),
    "add_": lambda t, s: t.add_(s[1], alpha=-1),
    "+=": lambda t, s: _add_in_place(t, s[2]),
    "mul_": lambda t, s: t.mul_(s[0]),
    "addcmul_": lambda t, s: t.addcmul_(s[:1], s[1:2]),
    "lerp_": lambda t, s: t.lerp_(s[:1], 0.25),
}


@pytest.fixture(scope="module", params=[2, 3])
def holders(request: Any, hook: Any) -> list[Any]:
    return [VirtualWorker(hook, id=f"targets-{request.param}-{n}") for n in range(request.param + 1)]


def shared(value: torch.Tensor, holders: list[Any], **options: Any) -> Any:
    fixed: Any = value.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    return fixed.share(*holders[:-1], crypto_provider=holders[-1], **options)


def value(secret: Any) -> torch.Tensor:
    return secret.get().float_precision()  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_secret_is_written_into_is_that_secret_for_everybody_who_holds_it(
    way: str, holders: list[Any]
) -> None:
    torch.manual_seed(3)
    values, start = torch.randn(3, 2), torch.randn(4, 2)
    expected, target = start.clone(), start.clone()
    WAYS[way](expected, values)
    held = {"target": target}
    WAYS[way](target, shared(values, holders))
    assert held["target"] is target
    assert type(target) is Wrapper
    assert isinstance(target.child.child, AdditiveSharingTensor)
    torch.testing.assert_close(value(target), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("way", WAYS)
def test_numbers_in_fixed_precision_are_written_as_secrets_are(way: str) -> None:
    torch.manual_seed(4)
    values, start = torch.randn(3, 2), torch.randn(4, 2)
    expected, target = start.clone(), start.clone()
    WAYS[way](expected, values)
    WAYS[way](target, values.fix_precision(base=2, precision_fractional=16))  # type: ignore[attr-defined]
    torch.testing.assert_close(target.float_precision(), expected, atol=1e-4, rtol=0)  # type: ignore[attr-defined]


def test_shared_integers_are_written_into_integers(holders: list[Any]) -> None:
    target = torch.arange(4)
    target[1:3] = torch.tensor([-7, 9]).share(*holders[:-1], crypto_provider=holders[-1])  # type: ignore[attr-defined]
    assert target.get().tolist() == [0, -7, 9, 3]  # type: ignore[attr-defined]


def test_filling_a_buffer_takes_no_round(holders: list[Any]) -> None:
    secret = shared(torch.randn(3, 2), holders)
    group = Group.of(holders[:-1], holders[-1])
    group.reset_costs()
    target = torch.zeros(4, 2)
    target.index_add_(0, ROWS, secret)
    target[3] = secret[0]
    assert group.online.rounds == 0


def test_both_sides_have_their_gradients(holders: list[Any]) -> None:
    def loss(secret: Any, base: torch.Tensor) -> Any:
        total = base * 2
        total.index_add_(0, ROWS, secret)
        return (total * total).sum()

    torch.manual_seed(5)
    values, base = torch.randn(3, 2), torch.randn(4, 2)
    plain, plain_base = values.clone().requires_grad_(), base.clone().requires_grad_()
    loss(plain, plain_base).backward()
    secret, public = shared(values, holders, requires_grad=True), base.clone().requires_grad_()
    loss(secret, public).backward()
    torch.testing.assert_close(value(secret.grad), plain.grad, atol=1e-3, rtol=0)
    torch.testing.assert_close(value(public.grad), plain_base.grad, atol=1e-3, rtol=0)


class Routed(nn.Module):
    """Rows go through one of two layers, and come together in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(x), 2)
        out[first] = self.one(x[first])
        out[~first] = torch.relu(self.other(x[~first]))
        return out


def test_a_model_that_fills_a_buffer_runs_and_trains_on_secrets(holders: list[Any]) -> None:
    torch.manual_seed(6)
    plain, x, first = Routed(), torch.randn(5, 3), torch.tensor([True, False, True, True, False])
    model: Any = copy.deepcopy(plain).fix_precision(base=2, precision_fractional=16)  # type: ignore[operator]
    model.share(*holders[:-1], crypto_provider=holders[-1])
    data = shared(x, holders)
    for net, batch in ((plain, x), (model, data)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (net(batch, first) ** 2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(value(model(data, first)), plain(x, first).detach(), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.zeros(4, 2)[1:],
        lambda: torch.zeros(2, 3).t(),
        lambda: torch.from_numpy(np.zeros((3, 2), dtype=np.float32)),
    ],
    ids=["a view", "a transposed view", "an array"],
)
def test_memory_that_others_see_is_not_taken_from_them(made: Any, holders: list[Any]) -> None:
    target = made()
    secret = shared(torch.randn(3, 2), holders)
    with pytest.raises(UnsupportedOperationError, match=r"add_ into a plain tensor whose memory is also"):
        target.add_(secret)
    assert type(target) is torch.Tensor
    assert not target.any()


@pytest.mark.parametrize(
    "look", [lambda t: t[0], lambda t: t.detach(), lambda t: t.numpy()], ids=["view", "detached", "array"]
)
def test_a_tensor_that_is_seen_through_another_is_not_written_into(look: Any, holders: list[Any]) -> None:
    target = torch.zeros(3, 2)
    seen = look(target)
    with pytest.raises(UnsupportedOperationError, match=r"clone\(\)"):
        target.copy_(shared(torch.randn(3, 2), holders))
    assert type(target) is torch.Tensor
    assert not seen.any()


def test_what_torch_refuses_stays_refused(holders: list[Any]) -> None:
    secret = shared(torch.randn(3, 2), holders)
    with pytest.raises(RuntimeError, match="leaf"):
        torch.zeros(3, 2, requires_grad=True).add_(secret)
    with pytest.raises(RuntimeError):
        torch.zeros(2, 2).add_(secret)
    for target in (torch.zeros(3, 2, dtype=torch.long), nn.Parameter(torch.zeros(3, 2), requires_grad=False)):
        with pytest.raises((UnsupportedOperationError, RuntimeError)):
            target.copy_(secret)
        assert not isinstance(target, Wrapper)
