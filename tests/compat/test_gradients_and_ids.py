"""Gradients that come back to the tensor that was sent, what in-place methods keep, what a registering worker keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft import AutogradTensor, FixedPrecisionTensor


@pytest.fixture
def pair(make_worker: Any) -> Any:
    return make_worker("origin_alice"), make_worker("origin_bob")


@pytest.mark.parametrize("options", [{}, {"local_autograd": True}])
def test_gradients_come_back_to_the_tensor_that_was_sent_with_requires_grad(pair: Any, options: Any) -> None:
    alice, _bob = pair
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    there = x.send(alice, requires_grad=True, **options)  # type: ignore[attr-defined]
    (there * there).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]
    (there * 3).sum().backward()
    assert x.grad.tolist() == there.grad.get().tolist() == [5.0, 7.0]
    assert x.send(alice).grad.get().tolist() == [5.0, 7.0]  # type: ignore[attr-defined]


def test_gradients_come_back_after_a_move_and_not_unless_asked_for(pair: Any) -> None:
    alice, bob = pair
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    moved = (x.send(alice, requires_grad=True) * 2).move(bob)  # type: ignore[attr-defined]
    (moved * moved).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [8.0, 16.0]
    y = torch.tensor([1.0], requires_grad=True)
    for options in ({}, {"local_autograd": True}, {"requires_grad": False}):
        sent = y.send(alice, **options)  # type: ignore[attr-defined]
        if sent.requires_grad:
            (sent * 2).sum().backward()
        assert y.grad is None


def test_a_parameter_stays_a_parameter_in_fixed_precision_and_back() -> None:
    weight = torch.nn.Parameter(torch.tensor([0.1, 0.2]))
    (weight * 2).sum().backward()
    fixed = weight.fix_prec()  # type: ignore[attr-defined]
    assert isinstance(fixed, torch.nn.Parameter) and isinstance(fixed.child, FixedPrecisionTensor)
    back = fixed.float_prec()
    assert isinstance(back, torch.nn.Parameter) and back.requires_grad
    assert torch.equal(back, weight) and back.grad.tolist() == [2.0, 2.0]
    frozen = torch.nn.Parameter(torch.tensor([0.1]), requires_grad=False).fix_prec()  # type: ignore[attr-defined]
    assert isinstance(frozen, torch.nn.Parameter) and not frozen.requires_grad
    assert not isinstance(torch.tensor([0.1]).fix_prec(), torch.nn.Parameter)  # type: ignore[attr-defined]


def test_what_changes_in_place_keeps_its_id_and_its_place_in_the_registry(me: Any) -> None:
    with me.registration_enabled():
        x = torch.tensor([1.5])
        first = x.id  # type: ignore[attr-defined]
        x.fix_precision_()  # type: ignore[attr-defined]
        assert x.id == first and isinstance(me.get_obj(first).child, FixedPrecisionTensor)  # type: ignore[attr-defined]
        x.float_precision_()  # type: ignore[attr-defined]
        assert x.id == first and torch.equal(me.get_obj(first), torch.tensor([1.5]))  # type: ignore[attr-defined]
    me.clear_objects()


def test_a_registering_worker_keeps_secrets_and_nothing_that_the_library_makes_on_its_way(
    me: Any, pair: Any
) -> None:
    with me.registration_enabled():
        x = torch.tensor([1, 2])
        secret = x.share(*pair)  # type: ignore[attr-defined]
        doubled = torch.nn.functional.relu(x * 2)
        assert set(me._objects) >= {x.id, secret.id, doubled.id}  # type: ignore[attr-defined]
        assert len(me._objects) == 4, "x, the secret, the product, its relu: no shares, no copies"
        assert bool((secret == me._objects[secret.id]).get().all())
    me.clear_objects()


def test_bytes_of_a_tensor_carry_an_id_that_nobody_has_asked_for_before() -> None:
    x = torch.tensor([1.0])
    assert sy.serde.deserialize(sy.serde.serialize(x)).id == x.id  # type: ignore[attr-defined]


def test_a_pointer_to_what_a_worker_holds_belongs_to_the_worker(pair: Any) -> None:
    alice, _bob = pair
    sent = torch.rand(3, 4).send(alice)  # type: ignore[attr-defined]
    held = alice._objects[sent.id_at_location]
    pointer = held.create_pointer(garbage_collect_data=False)
    assert pointer.owner is alice and pointer.location is alice
    assert pointer.id_at_location == held.id == sent.id_at_location and pointer.shape == (3, 4)
    assert torch.ones(1).create_pointer(garbage_collect_data=False).owner is sy.local_worker  # type: ignore[attr-defined]
    assert held.get_class_attributes() == {}


def test_shared_integers_carry_an_autograd_node_when_asked(pair: Any) -> None:
    secret = torch.tensor([1, 2]).share(*pair, requires_grad=True)  # type: ignore[attr-defined]
    assert isinstance(secret.child, AutogradTensor)
    assert (secret + secret).get().tolist() == [2, 4]
