"""Pointers: tensors that live elsewhere and behave like tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.core.chain import Wrapper
from syft.exceptions import (
    ChainError,
    InvalidTensorForRemoteGet,
    LocalTensorError,
    TensorsNotCollocatedException,
    UnsupportedOperationError,
    ValueNotHereError,
)
from syft.messaging.message import ObjectMessage
from syft.tensors.pointer import PointerTensor


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4)


@pytest.fixture
def logged(bob: Any) -> Any:
    """Bob, who writes down what he is sent."""
    bob.log_msgs = True
    return bob


# -- sending and fetching --------------------------------------------------------------------------


def test_what_send_returns(me: Any, bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    assert type(p) is Wrapper and isinstance(p, torch.Tensor) and type(p.child) is PointerTensor
    assert p.is_wrapper and p.location is bob and p.owner is me and p.id_at_location == x.id != p.id
    assert str(p) == repr(p) == f"(Wrapper)>[PointerTensor | me:{p.id} -> bob:{x.id}]"
    assert f"{p}" == str(p)
    assert torch.equal(x, torch.arange(12.0).view(3, 4))  # still here
    assert torch.equal(bob.get_obj(x.id), x)


def test_a_tagged_tensor_prints_what_is_known_of_it(bob: Any, x: torch.Tensor) -> None:
    p = x.tag("#b", "#a").describe("first line\nsecond line").send(bob)
    assert str(p).splitlines()[1:] == [
        "\tTags: #a #b",
        "\tShape: torch.Size([3, 4])",
        "\tDescription: first line",
    ]
    back = p.get()
    assert back.tags == {"#a", "#b"} and back.description == "first line\nsecond line"


def test_metadata_needs_no_message(logged: Any, x: torch.Tensor) -> None:
    p = x.send(logged)
    logged.msg_history.clear()
    assert p.shape == (3, 4) and p.size() == (3, 4) and p.size(1) == 4 and len(p) == 3
    assert p.dim() == p.ndim == 2 and p.numel() == 12 and p.dtype is torch.float32
    assert p.stride() == (4, 1) and p.is_contiguous() and p.is_floating_point() and not p.requires_grad
    assert p.device.type == "cpu" and p.layout is torch.strided
    assert str(p)
    assert logged.msg_history == []


def test_get_removes_and_a_second_get_is_refused(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    assert torch.equal(p.get(), x)
    assert len(bob._objects) == 0
    with pytest.raises(AttributeError, match="fetched already"):
        p.get()
    with pytest.raises(ChainError, match="empty wrapper"):
        p + 1
    assert p.is_none()


def test_copy_get_keeps_the_original(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    assert torch.equal(p.copy().get(), x) and torch.equal(p.copy().get(), x)
    q = p.copy()
    q.zero_()
    assert torch.equal(p.get(), x)


def test_in_place_sending_and_fetching(bob: Any, x: torch.Tensor) -> None:
    y = x.clone()
    holder = [y]
    assert y.send_(bob) is y and holder[0].location is bob
    y.add_(1)
    assert y.get_() is y and type(holder[0]) is torch.Tensor
    assert torch.equal(y, x + 1)
    parameter = torch.nn.Parameter(x.clone())
    assert parameter.send_(bob) is parameter and isinstance(parameter, torch.nn.Parameter)
    assert isinstance(parameter.get_(), torch.nn.Parameter) and type(parameter) is torch.nn.Parameter


def test_options_of_send(bob: Any, x: torch.Tensor) -> None:
    assert type(x.send(bob, no_wrap=True)) is PointerTensor
    assert x.send(bob, local_autograd=True).location is bob
    assert x.send(bob, requires_grad=True).requires_grad
    ready = x.clone().requires_grad_().send(bob, preinitialize_grad=True)
    assert torch.equal(ready.grad.get(), torch.zeros(3, 4))
    with pytest.raises(TypeError, match="needs the worker"):
        x.send()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64, torch.bfloat16]
)
def test_dtypes_and_layouts_survive(bob: Any, dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, 4).to(dtype)
    for view in (x, x.transpose(0, 2), x[:, ::2], x[1:], x.expand(5, 2, 3, 4), x[:0], x[0, 0, 0]):
        p = view.send(bob)
        assert p.dtype is dtype and p.shape == view.shape
        stored = bob.get_obj(p.id_at_location)
        assert stored.stride() == p.stride() and stored.storage_offset() == p.storage_offset()
        assert torch.equal(p.get(), view)


def test_a_local_tensor_has_nothing_to_fetch(x: torch.Tensor) -> None:
    for method in ("get", "remote_get", "mid_get", "is_none"):
        with pytest.raises((LocalTensorError, AttributeError, InvalidTensorForRemoteGet)):
            getattr(x, method)()
    with pytest.raises(AttributeError, match="no child"):
        x.child
    assert x.location is None and x.id_at_location is None and not x.is_wrapper


# -- operations ------------------------------------------------------------------------------------

INDICES: list[Any] = [
    0,
    -1,
    (1, 2),
    slice(1, 3),
    slice(None, None, 2),
    (slice(None), 1),
    (..., 0),
    None,
    (None, 1),
    [0, 2],
    ([0, 2], [1, 3]),
    (slice(1), [0, 2]),
    [True, False, True],
    True,
    torch.tensor([2, 0]),
    torch.tensor([True, False, True]),
]


def _sent(index: Any, bob: Any) -> Any:
    return index.send(bob) if isinstance(index, torch.Tensor) else index


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing(bob: Any, x: torch.Tensor, index: Any) -> None:
    part = x.send(bob)[_sent(index, bob)]
    assert part.location is bob and part.shape == x[index].shape
    assert torch.equal(part.get(), x[index])


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("value", ["number", "tensor"])
def test_assignment_to_an_index(bob: Any, x: torch.Tensor, index: Any, value: str) -> None:
    p = x.send(bob)
    new = 7.0 if value == "number" else torch.full_like(x[index], 5.0)
    p[_sent(index, bob)] = _sent(new, bob)
    local = x.clone()
    local[index] = new
    assert torch.equal(p.get(), local)


def test_iteration_and_unpacking(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    assert [row.location for row in p] == [bob] * 3
    a, b, c = p
    assert torch.equal((a + b + c).get(), x.sum(0))


@pytest.mark.parametrize(
    "f",
    [
        lambda t: t + 1,
        lambda t: 1 - t,
        lambda t: 2 / (t + 1),
        lambda t: t @ t.T,
        lambda t: t.mm(t.t()),
        lambda t: -(t.abs() ** 2),
        lambda t: t // 2 % 3,
        lambda t: (t > 3) & (t != 5),
        lambda t: t == t,
        lambda t: t.sum(),
        lambda t: t.mean(dim=1, keepdim=True),
        lambda t: torch.softmax(t, dim=-1),
        lambda t: torch.cat([t, t], dim=1),
        lambda t: torch.stack((t, t)),
        lambda t: torch.nn.functional.linear(t, t),
        lambda t: torch.einsum("ij,kj->ik", t, t),
        lambda t: t.view(-1).flip(0).reshape(4, 3).contiguous(),
        lambda t: t.to(torch.int64),
        lambda t: t.double().float(),
        lambda t: torch.where(t > 3, t, 0.0),
        lambda t: t.nonzero(),
        lambda t: t[t > 3],
        lambda t: t.unique(),
        lambda t: torch.zeros_like(t),
        lambda t: torch.full_like(t, 3.0, dtype=torch.float64),
        lambda t: t.new_zeros(2, 2),
        lambda t: t.new_ones(3),
        lambda t: t.new_full((2,), 4.0),
        lambda t: torch.tril(t) + torch.eye(3, 4, out=torch.zeros_like(t)),
    ],
)
def test_operations_run_there(bob: Any, x: torch.Tensor, f: Callable[[Any], Any]) -> None:
    result = f(x.send(bob))
    assert result.location is bob and result.owner.id == "me"
    assert result.shape == f(x).shape and result.dtype == f(x).dtype
    torch.testing.assert_close(result.get(), f(x))


@pytest.mark.parametrize(
    "f",
    [
        lambda t: t.max(dim=1),
        lambda t: t.sort(descending=True),
        lambda t: t.split(2),
        lambda t: t.chunk(2, dim=1),
        lambda t: t.unbind(),
        lambda t: torch.linalg.qr(t),
        lambda t: torch.var_mean(t, dim=0),
        lambda t: torch.unique(t, return_inverse=True, return_counts=True),
        lambda t: torch.meshgrid(t[0], t[1], indexing="ij"),
        lambda t: torch._foreach_add([t, t], 1.0),
    ],
)
def test_several_results_are_several_pointers(bob: Any, x: torch.Tensor, f: Callable[[Any], Any]) -> None:
    expected, results = f(x), f(x.send(bob))
    assert type(results) is type(expected) and len(results) == len(expected)
    for mine, theirs in zip(results, expected, strict=True):
        assert mine.location is bob
        torch.testing.assert_close(mine.get(), theirs)


def test_in_place_methods_return_the_pointer_itself(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    same = p
    assert p.add_(1) is p and p.mul_(2).clamp_(max=9) is p
    p += 1
    p *= 2
    assert p is same and p.id_at_location == x.id
    assert len(bob._objects) == 1
    assert torch.equal(p.get(), (((x + 1) * 2).clamp(max=9) + 1) * 2)


def test_views_see_what_is_written(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    row, flat = p[1], p.view(-1)
    row.zero_()
    flat[0] = 100.0
    local = x.clone()
    local[1].zero_()
    local[0, 0] = 100.0
    assert torch.equal(p.copy().get(), local) and torch.equal(flat.get(), local.view(-1))
    p.t_()
    assert p.shape == (4, 3) and torch.equal(p.get(), local.t())


def test_out_arguments(bob: Any, x: torch.Tensor) -> None:
    out = torch.empty(3, 4).send(bob)
    assert torch.add(x.send(bob), 1, out=out) is out
    assert torch.equal(out.get(), x + 1)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda p, x: p + x,
        lambda p, x: x + p,
        lambda p, x: x @ p.t(),
        lambda p, x: torch.cat([p, x]),
        lambda p, x: torch.where(x > 1, p, p),
        lambda p, x: p.copy_(x),
        lambda p, x: x.clone().copy_(p),
        lambda p, x: p.add(other=x),
        lambda p, x: p.__setitem__(0, x[0]),
        lambda p, x: p[torch.tensor([0])],
        lambda p, x: torch.add(p, 1, out=x.clone()),
        lambda p, x: torch.nn.functional.linear(p, x),
        lambda p, x: torch.nn.Linear(4, 2)(p),
        lambda p, x: torch.nn.LSTM(4, 2)(p),
        lambda p, x: torch.nn.functional.mse_loss(p, x),
        lambda p, x: torch._foreach_add([p], [x]),
        lambda p, x: p + torch.tensor(1.0),
    ],
)
def test_a_local_tensor_beside_a_pointer_is_refused(
    logged: Any, x: torch.Tensor, call: Callable[[Any, Any], Any]
) -> None:
    p = x.send(logged)
    logged.msg_history.clear()
    for _ in range(2):  # also the second time
        with pytest.raises(TensorsNotCollocatedException) as caught:
            call(p, x)
        text = str(caught.value)
        assert "'bob'" in text and "on this machine" in text and ".send(bob)" in text and ".get()" in text
    assert not [m for m in logged.msg_history if isinstance(m, ObjectMessage)]


def test_pointers_to_two_workers_are_refused(alice: Any, bob: Any, x: torch.Tensor) -> None:
    p, q = x.send(alice), x.send(bob)
    for call in (
        lambda: p + q,
        lambda: torch.cat([q, p]),
        lambda: q.copy_(p),
        lambda: torch.where(p > 0, q, q),
    ):
        with pytest.raises(TensorsNotCollocatedException) as caught:
            call()
        text = str(caught.value)
        assert "'alice'" in text and "'bob'" in text and ".move(alice)" in text and ".move(bob)" in text
        assert ".get()" in text
    assert torch.equal((p + q.move(alice)).get(), x * 2)


@pytest.mark.parametrize(
    "read",
    [
        lambda p: p[0, 0].item(),
        lambda p: bool(p[0, 0]),
        lambda p: float(p[0, 0]),
        lambda p: int(p[0, 0]),
        lambda p: complex(p[0, 0]),
        lambda p: p.tolist(),
        lambda p: p.numpy(),
        lambda p: p.sum().tolist(),
        lambda p: torch.equal(p, p),
        lambda p: torch.allclose(p, p),
        lambda p: 1 if p.any() else 0,
        lambda p: p[0, 0] in [1, 2],
        lambda p: range(10)[p[0, 0].long()],
    ],
)
def test_reading_the_value_is_refused_in_a_sentence(
    bob: Any, x: torch.Tensor, read: Callable[[Any], Any]
) -> None:
    with pytest.raises(ValueNotHereError) as caught:
        read(x.send(bob))
    text = str(caught.value)
    assert "on worker 'bob'" in text and "`.get()`" in text and "`.copy().get()`" in text


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p + p.t()[:3],
        lambda p: p @ p,
        lambda p: p.view(5, 5),
        lambda p: torch.cat([p, p.t()]),
        lambda p: p[5],
        lambda p: p.sum(dim=7),
        lambda p: p.expand(2, 2),
        lambda p: torch.nn.functional.linear(p, p.t()),
        lambda p: p.add_(p[:, :2]),
    ],
)
def test_a_wrong_shape_fails_here_and_nothing_is_sent(
    logged: Any, x: torch.Tensor, call: Callable[[Any], Any]
) -> None:
    p = x.send(logged)
    logged.msg_history.clear()
    with pytest.raises((RuntimeError, IndexError)) as caught:
        call(p)
    allowed = ("aten.t.", "aten.slice.", "aten.transpose.")  # the arguments of the failing call
    assert all(m.cmd_name.startswith(allowed) for m in logged.msg_history)
    assert "bob" not in str(caught.value)


def test_things_that_cannot_be_sent(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    with pytest.raises(UnsupportedOperationError, match="generator"):
        torch.bernoulli(p / 12, generator=torch.Generator())
    with pytest.raises(UnsupportedOperationError, match="dense"):
        p.to_sparse()
    with pytest.raises(TypeError, match="pickled"):
        torch.save(p, "/dev/null")


def test_bookkeeping_of_failed_calls_is_undone(bob: Any, x: torch.Tensor) -> None:
    p = x.send(bob)
    with pytest.raises(IndexError):
        p[torch.tensor([9]).send(bob)]
    assert list(bob._objects) == [p.id_at_location]


# -- pointer to pointer, moving --------------------------------------------------------------------


def test_a_pointer_to_a_pointer(me: Any, alice: Any, bob: Any, x: torch.Tensor) -> None:
    far = x.send(bob).send(alice)
    assert far.location is alice and far.shape == (3, 4)
    held = alice.get_obj(far.id_at_location)
    assert held.location is bob and held.owner is alice
    near = far.get()
    assert near.location is bob and near.owner is me
    assert torch.equal(near.get(), x)
    assert len(alice._objects) == len(bob._objects) == 0


def test_operations_on_a_pointer_to_a_pointer(alice: Any, bob: Any, x: torch.Tensor) -> None:
    far = x.send(bob).send(alice)
    result = far * 2 + far
    assert result.location is alice
    assert torch.equal(result.get().get(), x * 3)
    del result
    far.add_(1)
    assert torch.equal(far.get().get(), x + 1)
    del far
    assert len(alice._objects) == len(bob._objects) == 0


def test_remote_get_and_mid_get(alice: Any, bob: Any, x: torch.Tensor) -> None:
    far = x.send(bob).send(alice)
    here = far.remote_get()
    assert here.location is alice and len(bob._objects) == 0
    assert torch.equal(here.get(), x)
    far = x.send(bob).send(alice)
    assert far.mid_get() is far and torch.equal(far.get(), x)
    for wrong in (x.send(bob).remote_get, x.send(bob).mid_get):
        with pytest.raises(InvalidTensorForRemoteGet, match="not a pointer to a pointer"):
            wrong()


def test_remote_send(alice: Any, bob: Any, x: torch.Tensor) -> None:
    chain = x.send(bob).remote_send(alice)
    assert chain.location is bob and bob.get_obj(chain.id_at_location).location is alice
    assert torch.equal(chain.get().get(), x)


def test_three_levels(alice: Any, bob: Any, charlie: Any, x: torch.Tensor) -> None:
    deep = x.send(charlie).send(bob).send(alice)
    assert torch.equal(deep.get().get().get(), x)
    assert [len(w._objects) for w in (alice, bob, charlie)] == [0, 0, 0]


def test_move(me: Any, alice: Any, bob: Any, x: torch.Tensor) -> None:
    p = x.tag("#moved").send(bob)
    q = p.move(alice)
    assert q is p and q.location is alice and q.tags == {"#moved"} and len(bob._objects) == 0
    assert torch.equal(q.copy().get(), x)
    assert p.move(alice) is p
    assert type(p.move(me)) is torch.Tensor
    assert x.move(bob).location is bob
    r = x.send(bob)
    assert r.move_(alice) is r and r.location is alice


def test_a_move_does_not_pass_through_here(me: Any, alice: Any, bob: Any, x: torch.Tensor) -> None:
    me.log_msgs, before = True, len(me.msg_history)
    try:
        x.send(bob).move(alice)
        assert len(me.msg_history) == before
    finally:
        me.log_msgs = False


# -- attributes ------------------------------------------------------------------------------------


def test_attributes(bob: Any, x: torch.Tensor) -> None:
    p = x.clone().requires_grad_().send(bob)
    assert torch.equal(p.attr("T").get(), x.T) and torch.equal(p.data.copy().get(), x)
    assert p.attr("grad") is None and p.grad is None
    p.sum().backward()
    assert torch.equal(p.attr("grad").copy().get(), torch.ones(3, 4))
    p.setattr("grad", torch.zeros(3, 4).send(bob))
    assert torch.equal(p.grad.copy().get(), torch.zeros(3, 4))
    p.setattr("data", torch.ones(3, 4).send(bob))
    assert torch.equal(p.detach().copy().get(), torch.ones(3, 4))
    p.data = torch.zeros(3, 4).send(bob)
    assert torch.equal(p.detach().copy().get(), torch.zeros(3, 4))
    assert not p.is_none()
    with pytest.raises(AttributeError, match="cannot be read remotely"):
        p.attr("nothing")


def test_create_pointer(me: Any, bob: Any, x: torch.Tensor) -> None:
    bob.register_obj(x)
    p = x.create_pointer(location=bob, garbage_collect_data=False)
    assert torch.equal((p + 1).get(), x + 1)
    del p
    assert x.id in bob._objects


def test_bare_pointers_have_the_methods_of_tensors(bob: Any, x: torch.Tensor) -> None:
    node = x.send(bob).child
    assert type(node.add(1)) is PointerTensor
    assert torch.equal(torch.add(node, node).get(), x * 2)
    assert node.shape == (3, 4) and node.dtype is torch.float32 and len(node) == 3


def test_nothing_of_this_touches_plain_tensors(x: torch.Tensor) -> None:
    y = torch.ones(2)
    y + y
    assert y.__dict__ == {}
    assert type(x + 1) is torch.Tensor
    assert sy.Wrapper is Wrapper


def test_an_emptied_pointer_is_no_missing_argument(bob: Any) -> None:
    x, k, b = torch.ones(1, 1, 3).send(bob), torch.ones(1, 1, 3).send(bob), torch.tensor([100.0]).send(bob)
    assert torch.conv1d(x, k).copy().get().item() == 3.0
    assert torch.conv1d(x, k, b).copy().get().item() == 103.0
    b.get()
    with pytest.raises(ChainError, match="empty wrapper"):
        torch.conv1d(x, k, b)
