"""A tensor that is moved to where it is stays what it is, however the place is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.core.chain import Wrapper

CPU = torch.device("cpu")

#: Ways to name the place, and the dtype, where a tensor is. All but the last two name nothing else.
WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "to a name": lambda t, _: t.to("cpu"),
    "to a device": lambda t, _: t.to(CPU),
    "to device=": lambda t, _: t.to(device="cpu"),
    "to device=, a device": lambda t, _: t.to(device=CPU),
    "to its own device": lambda t, _: t.to(t.device),
    "to the device of another": lambda t, other: t.to(other.device),
    "to a device and its dtype": lambda t, _: t.to("cpu", t.dtype),
    "to its dtype": lambda t, _: t.to(t.dtype),
    "to dtype=": lambda t, _: t.to(device="cpu", dtype=t.dtype, non_blocking=True),
    "to nothing": lambda t, _: t.to(None),
    "to itself": lambda t, _: t.to(t),
    "to another": lambda t, other: t.to(other.to(t.dtype)),
    "to another, not blocking": lambda t, other: t.to(other.to(t.dtype), non_blocking=True, copy=False),
    "type_as another": lambda t, other: t.type_as(other.to(t.dtype)),
    "type": lambda t, _: t.type(t.dtype),
    "cpu": lambda t, _: t.cpu(),
    "cpu, its format": lambda t, _: t.cpu(memory_format=torch.preserve_format),
    "cpu of torch": lambda t, _: torch.Tensor.cpu(t),
    "to of torch": lambda t, _: torch.Tensor.to(t, "cpu"),
    "to a numbered name": lambda t, _: t.to("cpu:0"),
    "to a copy": lambda t, _: t.to("cpu", copy=True),
}
COPIES = {"to a numbered name", "to a copy"}  # torch makes copies for these


def fixed(x: torch.Tensor) -> Any:
    return x.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]


KINDS: dict[str, Callable[..., Any]] = {
    "plain": lambda x, bob, alice, carol: x,
    "pointer": lambda x, bob, alice, carol: x.send(bob),
    "view of a pointer": lambda x, bob, alice, carol: x.t().contiguous().send(bob).t(),
    "pointer with gradients": lambda x, bob, alice, carol: x.requires_grad_().send(bob),
    "pointer to a pointer": lambda x, bob, alice, carol: x.send(bob).send(alice),
    "pointer to a fixed one": lambda x, bob, alice, carol: x.send(bob).fix_precision(),
    "pointers": lambda x, bob, alice, carol: x.send(bob, alice),
    "fixed": lambda x, bob, alice, carol: fixed(x),
    "large": lambda x, bob, alice, carol: x.fix_precision(storage="large"),
    "private": lambda x, bob, alice, carol: x.private_tensor(allowed_users=("user",)),
    "secret": lambda x, bob, alice, carol: fixed(x).share(bob, alice, crypto_provider=carol),
    "secret integers": lambda x, bob, alice, carol: x.long().share(bob, alice, crypto_provider=carol),
    "secret with gradients": lambda x, bob, alice, carol: fixed(x).share(
        bob, alice, crypto_provider=carol, requires_grad=True
    ),
    "secret with authentication": lambda x, bob, alice, carol: fixed(x).share(
        bob, alice, crypto_provider=carol, protocol="spdz2k"
    ),
}
OTHERS: dict[str, Callable[..., Any]] = {
    "plain": lambda bob, alice, carol: torch.zeros(5),
    "pointer": lambda bob, alice, carol: torch.zeros(5).send(bob),  # type: ignore[attr-defined]
    "pointer elsewhere": lambda bob, alice, carol: torch.zeros(5).send(alice),  # type: ignore[attr-defined]
    "secret": lambda bob, alice, carol: fixed(torch.zeros(5)).share(bob, alice, crypto_provider=carol),
}


@pytest.fixture(scope="module")
def three(hook: Any) -> list[Any]:
    return [sy.VirtualWorker(hook, id=f"nowhere-{n}") for n in range(3)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_there_already_stays_what_it_is(kind: str, way: str, three: list[Any]) -> None:
    tensor = KINDS[kind](torch.arange(6.0).reshape(2, 3), *three)
    child = getattr(tensor, "child", None)
    is_integral = tensor.dtype == torch.int64  # a conversion of another chain would make objects of its own
    others = OTHERS if "another" in way and not is_integral else {"plain": OTHERS["plain"]}
    for make in others.values():
        other = make(*three)
        stored = [set(worker._objects) for worker in three]
        made = WAYS[way](tensor, other)
        if way not in COPIES:
            assert made is tensor
            assert not added(three, stored)
        assert getattr(tensor, "child", None) is child
        assert (made.shape, made.dtype, made.stride()) == (tensor.shape, tensor.dtype, tensor.stride())


def added(workers: list[Any], before: list[set[Any]]) -> set[Any]:
    """Ids of what the workers have, and did not have before."""
    return set().union(*(set(worker._objects) - old for worker, old in zip(workers, before, strict=True)))


def value(tensor: Any) -> torch.Tensor:
    while type(tensor) is Wrapper:
        tensor = (
            tensor.float_precision()
            if hasattr(tensor.child, "precision_fractional")
            and (isinstance(tensor.child.child, torch.Tensor))
            else tensor.get()
        )
    return tensor  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["pointer", "secret"])
@pytest.mark.parametrize("other", OTHERS)
def test_another_tensor_says_the_dtype_wherever_it_is(kind: str, other: str, three: list[Any]) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    wide = OTHERS[other](*three).double()
    for convert in (lambda t: t.to(wide), lambda t: t.type_as(wide)):
        made = convert(KINDS[kind](x.clone(), *three))
        assert made.dtype == torch.float64
        assert torch.equal(value(made), x.double())
        plain = convert(x)
        assert type(plain) is torch.Tensor
        assert torch.equal(plain, x.double())
        assert plain.dtype == torch.float64


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pointers"])
def test_meta_tensors_have_no_values_and_take_none(kind: str, three: list[Any]) -> None:
    tensor = KINDS[kind](torch.arange(6.0).reshape(2, 3), *three)
    stored = [set(worker._objects) for worker in three]
    made = tensor.to("meta")
    assert type(made) is torch.Tensor
    assert (made.device.type, made.shape, made.stride(), made.dtype) == (
        "meta",
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
    )
    assert not added(three, stored)


def test_a_device_that_holds_no_shares_is_refused(three: list[Any]) -> None:
    secret = KINDS["secret"](torch.ones(2), *three)
    for name in ("xpu", "mps:0"):
        with pytest.raises(ValueError, match="CPU or on a CUDA device"):
            secret.to(name)


@pytest.mark.parametrize("kind", ["pointer", "secret"])
@pytest.mark.parametrize(
    "move",
    [
        lambda m, t: m.to("cpu"),
        lambda m, t: m.to(device=CPU, dtype=torch.float32),
        lambda m, t: m.cpu(),
        lambda m, t: m.float(),
        lambda m, t: m.to(t),
        lambda m, t: m.to(tensor=t),
    ],
)
def test_models_stay_where_they_are(kind: str, move: Any, three: list[Any]) -> None:
    torch.manual_seed(9)
    model: Any = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2))
    x = torch.randn(2, 1, 3, 3)
    if kind == "pointer":
        model.send(three[0])
    else:
        model.fix_precision(base=2, precision_fractional=16)
        model.share(three[0], three[1], crypto_provider=three[2])
    given = KINDS[kind](x, *three)
    model(given).sum().backward()

    def parts() -> list[Any]:
        gradients = [p.grad for p in model.parameters()]
        found = [*model.parameters(), *model.buffers(), *gradients]
        return [*found, *(getattr(tensor, "child", None) for tensor in found)]

    before = parts()
    for other in (torch.zeros(1), given):
        move(model, other)
        assert all(now is then for now, then in zip(parts(), before, strict=True))
