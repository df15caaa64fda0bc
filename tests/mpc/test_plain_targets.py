"""A plain tensor that a secret is written into becomes one for all who hold it; what would miss that is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from syft.core.chain import Wrapper
from syft.exceptions import UnsupportedOperationError
from syft.mpc.group import Group
from syft.mpc.precision import FixedPrecisionTensor
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


# -- writes that fail --------------------------------------------------------------------------------------------

INDICES = st.lists(st.integers(-1, 5), min_size=1, max_size=4)
SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=3)
START = st.sampled_from([1.5, -2.0, 1e30, float("inf"), float("nan")])
#: Each writes a secret into `t`; most indices and shapes do not fit.
MAYBE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_add_": lambda t, s, i: t.index_add_(0, i, s),
    "index_copy_": lambda t, s, i: t.index_copy_(0, i, s),
    "index_put_": lambda t, s, i: t.index_put_((i,), s),
    "scatter_add_": lambda t, s, i: t.scatter_add_(0, i.unsqueeze(1).expand(len(i), 2), s),
    "places": lambda t, s, i: _put(t, i, s),
    "a row": lambda t, s, i: _put(t, int(i[0]), s),
    "a slice": lambda t, s, i: _put(t, slice(int(i[0]), None), s),
    "copy_": lambda t, s, i: t.copy_(s),
    "add_": lambda t, s, i: t.add_(s, alpha=10.0 ** (9 * int(i[0]))),
    "mul_": lambda t, s, i: t.mul_(s),
    "atan2_": lambda t, s, i: t.atan2_(s),
    "out=": lambda t, s, i: torch.add(s, s, out=t),
    "out= of a product": lambda t, s, i: torch.mm(s, s, out=t),
    "a list": lambda t, s, i: torch._foreach_add_([t, t.clone()], [s, s[:1]]),
}


@settings(max_examples=120, deadline=None)
@given(
    way=st.sampled_from(sorted(MAYBE)), shape=SHAPES, indices=INDICES, start=START, has_history=st.booleans()
)
def test_a_write_that_fails_leaves_the_plain_tensor_as_it_was(
    way: str, shape: list[int], indices: list[int], start: float, has_history: bool, holders: list[Any]
) -> None:
    base = torch.full((3, 2), start).requires_grad_(has_history)
    target = base * 1
    before, graph = target.detach().clone(), target.grad_fn
    try:
        MAYBE[way](target, shared(torch.ones(shape), holders), torch.tensor(indices))
    except Exception:  # noqa: BLE001  (whatever it is)
        assert type(target) is torch.Tensor
        assert target.grad_fn is graph
        assert not hasattr(target, "child") or target.child is None  # type: ignore[attr-defined]
        torch.testing.assert_close(target.detach(), before, rtol=0, atol=0, equal_nan=True)
        if has_history:
            target.sum().backward()
            assert torch.equal(base.grad, torch.ones(3, 2))  # type: ignore[arg-type]
        target.detach().add_(1)
    else:
        assert type(target) is Wrapper


def test_an_interrupted_write_leaves_the_plain_tensor_as_it_was(
    holders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, secret = torch.ones(3, 2), shared(torch.ones(3, 2), holders)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(FixedPrecisionTensor.aten_rules, torch.ops.aten.add_.Tensor, interrupted)
    with pytest.raises(KeyboardInterrupt):
        target.add_(secret)
    assert type(target) is torch.Tensor
    assert torch.equal(target, torch.ones(3, 2))


OPTIMIZERS = [
    (getattr(torch.optim, name), options)
    for name, options in [
        ("SGD", {"momentum": 0.9}),
        ("Adam", {"amsgrad": True}),
        ("Adam", {"foreach": True}),
        ("AdamW", {}),
        ("NAdam", {}),
        ("RAdam", {}),
        ("Adamax", {}),
        ("RMSprop", {"momentum": 0.9, "centered": True}),
        ("Adagrad", {}),
        ("Adadelta", {}),
        ("ASGD", {}),
        ("Rprop", {}),
    ]
]


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Parameters and state of an optimizer."""
    state = [optimizer.state[p].get(name) for p in model.parameters() for name in sorted(optimizer.state[p])]
    return [*model.parameters(), *(value for value in state if isinstance(value, torch.Tensor))]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
@pytest.mark.parametrize("has_state", [False, True])
def test_a_step_of_plain_parameters_with_secret_gradients_changes_nothing(
    kind: Any, options: dict[str, Any], has_state: bool, holders: list[Any]
) -> None:
    torch.manual_seed(7)
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    optimizer = kind(model.parameters(), lr=0.01, **options)
    if has_state:
        model(x).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    found = everything(model, optimizer)
    before = [value.detach().clone() for value in found]
    model(shared(x, holders)).pow(2).sum().backward()
    with pytest.raises(UnsupportedOperationError, match="plain parameter whose gradient is a secret"):
        optimizer.step()
    now = everything(model, optimizer)
    assert len(now) == len(before)
    for value, as_it_was, old in zip(now, found, before, strict=True):
        assert value is as_it_was
        assert type(value) is not Wrapper
        assert torch.equal(value.detach(), old)
    for parameter in model.parameters():  # what the error advises
        parameter.grad = value_of_gradient(parameter)
    optimizer.step()


def value_of_gradient(parameter: Any) -> torch.Tensor:
    return parameter.grad.get().float_precision()  # type: ignore[no-any-return]


def test_state_that_cannot_be_encoded_leaves_all_other_state_plain(holders: list[Any]) -> None:
    torch.manual_seed(8)
    model: Any = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model(x).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.state[model.bias]["exp_avg_sq"][0] = float("nan")
    averages = [(s, name, s[name]) for s in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    before = [value.clone() for _, _, value in averages]
    model.fix_precision(base=2, precision_fractional=16).share(*holders[:-1], crypto_provider=holders[-1])
    model(shared(x, holders)).pow(2).sum().backward()
    with pytest.raises(ValueError, match="nan"):
        optimizer.step()
    for (state, name, kept), old in zip(averages, before, strict=True):
        assert state[name] is kept
        assert type(kept) is torch.Tensor
        torch.testing.assert_close(kept, old, rtol=0, atol=0, equal_nan=True)
