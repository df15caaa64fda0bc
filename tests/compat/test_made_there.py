"""COMPAT item 16: `pointer.fix_precision()` and `pointer.share(...)` make the chain where the value is."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft import AdditiveSharingTensor, FixedPrecisionTensor, LargePrecisionTensor, PointerTensor
from syft.messaging.message import CallMethodMessage
from syft.policy.permissions import Policy


@pytest.fixture
def group() -> Iterator[Any]:
    hook = sy.TorchHook(torch)
    names = ("there_alice", "there_bob", "there_carol", "there_james")
    made = [sy.VirtualWorker(hook, id=name) for name in names]
    yield SimpleNamespace(**dict(zip(("alice", "bob", "carol", "james"), made, strict=True)))
    for worker in made:
        assert not worker._objects
        worker.remove_worker_from_local_worker_registry()


def held(pointer: Any) -> Any:
    """What a pointer points to."""
    assert isinstance(pointer.child, PointerTensor)
    return pointer.location._objects[pointer.id_at_location]


def test_fix_precision_of_a_pointer_is_a_pointer_to_fixed_precision(group: Any) -> None:
    values = torch.tensor([1.5, -2.0])
    fixed = values.send(group.bob).fix_precision(precision_fractional=4)  # type: ignore[attr-defined]
    assert isinstance(held(fixed).child, FixedPrecisionTensor)
    assert held(fixed).child.child.tolist() == [15000, -20000]
    assert torch.equal((fixed * fixed).get().float_prec(), values * values)
    floats = fixed.float_precision()
    assert type(held(floats)) is torch.Tensor and torch.equal(floats.get(), values)
    bare = values.send(group.bob, no_wrap=True).fix_prec()  # type: ignore[attr-defined]
    assert isinstance(bare, PointerTensor)


def test_fix_precision_of_a_pointer_to_a_pointer_is_made_at_its_end(group: Any) -> None:
    values = torch.tensor([1.5, -2.0])
    fixed = values.send(group.bob).send(group.alice).fix_precision()  # type: ignore[attr-defined]
    assert isinstance(held(held(fixed)).child, FixedPrecisionTensor)
    assert torch.equal((fixed + fixed).get().get().float_prec(), values + values)
    floats = fixed.float_precision()
    assert type(held(held(floats))) is torch.Tensor
    assert torch.equal(floats.get().get(), values)


def test_share_of_a_pointer_is_a_pointer_to_a_secret(group: Any) -> None:
    values = torch.tensor([3, -4])
    secret = values.send(group.carol).share(group.alice, group.bob, crypto_provider=group.james)  # type: ignore[attr-defined]
    assert secret.location is group.carol and isinstance(held(secret).child, AdditiveSharingTensor)
    assert len(group.alice._objects) == len(group.bob._objects) == 1
    node = (secret * secret).get()
    assert isinstance(node.child, AdditiveSharingTensor) and node.get().tolist() == [9, 16]
    assert torch.equal(secret.get().get(), values)
    with pytest.raises(TypeError, match=r"fix_precision\(\) first"):
        torch.tensor([1.5]).send(group.carol).share(group.alice, group.bob)  # type: ignore[attr-defined]


def test_other_storages_are_made_there_too(group: Any) -> None:
    large = torch.tensor([2.0**70]).send(group.bob).fix_precision(storage="large", internal_type=torch.int16)  # type: ignore[attr-defined]
    assert isinstance(held(large).child, LargePrecisionTensor)
    assert large.get().float_prec().item() == 2.0**70


@pytest.mark.parametrize("is_leaf", [True, False])
def test_gradients_go_through_what_is_made_there(group: Any, is_leaf: bool) -> None:
    leaf = torch.tensor([1.5, -2.0], requires_grad=True).send(group.bob)  # type: ignore[attr-defined]
    fixed = (leaf if is_leaf else leaf * 1).fix_precision()
    (fixed * fixed).sum().float_precision().backward()
    source = fixed if is_leaf else leaf
    grad = source.grad.get()
    assert (grad.float_prec() if is_leaf else grad).tolist() == [3.0, -4.0]


def test_what_was_sent_in_fixed_precision_meets_a_model_whose_nodes_are_here(group: Any) -> None:
    model = torch.nn.Linear(2, 1)
    data = torch.tensor([[1.0, 2.0]])
    expected = model(data)
    model.send(group.bob).fix_precision()
    assert isinstance(model.weight.child, FixedPrecisionTensor)
    predicted = model(data.send(group.bob).fix_precision())  # type: ignore[attr-defined]
    assert torch.allclose(predicted.float_precision().get(), expected, atol=5e-3)
    with pytest.raises(sy.exceptions.MixedChainsError):
        model.weight * data.send(group.bob)  # type: ignore[attr-defined]
    model.float_precision().get()


def test_a_worker_that_denies_keeps_the_integers_and_the_node_stays_here(group: Any) -> None:
    denying = sy.VirtualWorker(sy.hook, id="there_denying", policy=Policy(allows_by_default=False))
    values = torch.tensor([1.5, -2.0])
    fixed = values.send(denying).fix_precision()  # type: ignore[attr-defined]
    assert isinstance(fixed.child, FixedPrecisionTensor) and isinstance(fixed.child.child, PointerTensor)
    pointer = fixed.child.child
    for method in ("fix_precision", "share", "float_precision", "item"):
        with pytest.raises(sy.exceptions.SyftError):
            pointer.ask(CallMethodMessage(pointer.id_at_location, method, (), {}, 77))
    assert 77 not in denying._objects
    del fixed, pointer
    denying.remove_worker_from_local_worker_registry()


def test_a_restricted_value_is_not_looked_at(group: Any) -> None:
    x = torch.tensor([1.5, -2.0]).private_tensor(allowed_users="ann").send(group.bob, user="ann")  # type: ignore[attr-defined]
    fixed = x.fix_precision()
    assert isinstance(fixed.child, FixedPrecisionTensor)
    with pytest.raises(sy.exceptions.SyftError):
        x.child.ask(CallMethodMessage(x.id_at_location, "fix_precision", (), {}, 77))
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        fixed.get()


def test_a_tensor_has_no_other_methods_there(group: Any) -> None:
    x = torch.tensor([1.5]).send(group.bob)  # type: ignore[attr-defined]
    for method in ("tolist", "__reduce_ex__", "register_hook"):
        with pytest.raises(sy.exceptions.CannotRequestObjectAttribute, match=method):
            x.child.ask(CallMethodMessage(x.id_at_location, method, (), {}, 77))
