"""Ways round permissions that a reviewer found, each closed."""

from __future__ import annotations

import contextlib
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import GetNotPermittedError, SendNotPermittedError, UnsupportedOperationError
from syft.tensors.logging import LoggingTensor
from syft.tensors.plusisminus import PlusIsMinusTensor


def private(bob: Any, *values: float) -> Any:
    tensor: Any = torch.tensor(values)
    return tensor.private_tensor(allowed_users=("ann",)).send(bob, user="ann")


def test_a_worker_holds_no_sparse_tensors_which_could_not_be_followed(bob: Any) -> None:
    indices, ones = torch.tensor([[0, 1, 2]]).send(bob), torch.ones(3).send(bob)
    for make in (
        lambda: bob.run_command("torch.sparse_coo_tensor", (indices, ones, (3,))),
        lambda: bob.remote.torch.sparse_coo_tensor([[0, 1, 2]], [1.0, 1.0, 1.0], (3,)),
        lambda: torch.eye(2).to_sparse().send(bob),
        lambda: bob.register_obj(torch.eye(2).to_sparse(), 7),
    ):
        with pytest.raises(RuntimeError, match=r"to_dense|not a known torch operation"):
            make()
    assert len(bob._objects) == 2


@pytest.mark.parametrize(
    "draw",
    [
        lambda s: torch.bernoulli(s * 0.01),
        lambda s: torch.bernoulli(s),  # fails, concealed
        lambda s: torch.poisson(s),
        lambda s: torch.nn.functional.rrelu(s, training=True),
        lambda s: torch.nn.functional.dropout(s),
    ],
)
def test_the_random_numbers_after_an_operation_on_private_data_tell_nothing(bob: Any, draw: Any) -> None:
    secret = private(bob, 61.8)
    torch.manual_seed(0)
    undisturbed = torch.rand(1)
    torch.manual_seed(0)
    draw(secret)
    assert torch.equal(torch.rand(1), undisturbed)
    torch.manual_seed(0)
    draw(secret)
    assert torch.equal(bob.remote.torch.rand(1).get(), undisturbed)


@pytest.mark.parametrize("above", [LoggingTensor, PlusIsMinusTensor])
def test_a_private_tensor_is_private_below_other_types_too(bob: Any, above: Any, quiet: None) -> None:
    tensor: Any = torch.tensor([3.0])
    chain = above().on(tensor.private_tensor(allowed_users=("ann",)))
    with pytest.raises(SendNotPermittedError):
        chain.send(bob, user="eve")
    pointer = chain.send(bob, user="ann")
    with pytest.raises(UnsupportedOperationError, match="as plain tensors"):
        pointer * 2
    with pytest.raises(GetNotPermittedError):
        pointer.get(user="eve")


def test_a_private_tensor_that_the_owner_registers_stays_private(bob: Any) -> None:
    tensor: Any = torch.tensor([3.0])
    bob.register_obj(tensor.private_tensor(allowed_users=("ann",)).tag("#r"))
    (found,) = bob.search("#r")
    with pytest.raises(GetNotPermittedError):
        found.get(user="eve")
    assert found.get(user="ann").tolist() == [3.0]


def test_what_an_object_holds_inside_cannot_be_reached_by_two_ways(bob: Any) -> None:
    tensor = torch.zeros(3)
    pointer = sy.ObjectWrapper(SimpleNamespace(a=tensor, h=deque([tensor]))).send(bob)
    other = pointer.attr("h")
    pointer.attr("a").copy_(private(bob, 3.0, 7.0, 5.0))
    assert other.get()[0].tolist() == [0.0, 0.0, 0.0]
    assert pointer.attr("a").get().tolist() == [0.0, 0.0, 0.0]


def test_a_callable_hands_out_copies_of_what_it_keeps(bob: Any) -> None:
    kept = torch.zeros(3)
    function = sy.ObjectWrapper(lambda: kept).send(bob)
    function().copy_(private(bob, 3.0, 7.0, 5.0))
    assert function().get().tolist() == [0.0, 0.0, 0.0]
    assert kept.tolist() == [0.0, 0.0, 0.0]


def test_a_search_without_terms_lists_nothing_of_others(bob: Any) -> None:
    kept = torch.tensor([42.0]).send(bob) * 2
    assert bob.search("") == []
    assert bob.search([]) == []
    assert bob.search(["", ""]) == []
    assert len(bob.search(kept.id_at_location)) == 1


def test_private_data_is_not_written_into_or_deleted_by_others(bob: Any, me: Any) -> None:
    secret = private(bob, 1.0, 2.0)
    view = secret[0]
    for write in (
        lambda: secret.zero_(),
        lambda: secret.add_(1),
        lambda: view.fill_(0.0),
        lambda: secret.__setitem__(0, 5.0),
        lambda: bob.run_command("zero_", (secret,)),
    ):
        with pytest.raises(SendNotPermittedError, match="write into"):
            write()
    with pytest.raises(SendNotPermittedError, match="delete"):
        me.delete_remote([secret.id_at_location], bob)
    assert secret.copy().get(user="ann").tolist() == [1.0, 2.0]
    mine = secret * 1
    mine.add_(1)  # what was computed from it may be written into, and stays private
    assert mine.get(user="ann").tolist() == [2.0, 3.0]


def test_an_operation_in_place_by_name_returns_its_target(bob: Any) -> None:
    pointer = torch.ones(3).send(bob)
    assert bob.run_command("aten.mul_.Tensor", (pointer, 2.0)) is pointer
    assert pointer.get().tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("name", ["torch.nn.functional.batch_norm", "aten.native_batch_norm.default"])
def test_private_data_cannot_be_written_into_as_running_statistics(me: Any, bob: Any, name: str) -> None:
    private = torch.zeros(3).private_tensor(allowed_users=("ann",)).send(bob, user="ann")
    x = torch.randn(8, 3).send(bob)
    variance = torch.ones(3).send(bob)
    own = {"torch.nn.functional.batch_norm": (None, None), "aten.native_batch_norm.default": ()}[name]
    args: tuple[Any, ...] = (x, private, variance, True, 0.5, 1e-5)
    if not own:
        args = (x, None, None, private, variance, True, 0.5, 1e-5)
    else:
        args = (x, private, variance, None, None, True, 0.5, 1e-5)
    with contextlib.suppress(Exception):
        bob.run_command(name, args)
    assert torch.equal(private.get(user="ann"), torch.zeros(3))


@pytest.mark.parametrize("name", ["torch.nn.functional.relu", "torch.nn.functional.dropout"])
def test_private_data_cannot_be_written_into_by_functions_in_place(me: Any, bob: Any, name: str) -> None:
    values = torch.tensor([-1.0, 2.0, -3.0, 4.0])
    private = values.clone().private_tensor(allowed_users=("ann",)).send(bob, user="ann")
    with contextlib.suppress(Exception):
        bob.run_command(name, (private,), {"inplace": True})
    assert torch.equal(private.get(user="ann"), values)


@pytest.mark.parametrize("name", ["data_ptr", "const_data_ptr"])
def test_addresses_in_memory_are_not_told(me: Any, bob: Any, name: str) -> None:
    with pytest.raises(sy.exceptions.UnknownCommandError):
        bob.run_command(name, (torch.ones(2).send(bob),))


@pytest.mark.parametrize("name", ["resize", "resize_as"])
def test_memory_beside_a_tensor_is_not_handed_out_by_a_public_name_either(
    me: Any, bob: Any, name: str
) -> None:
    x = torch.ones(2).send(bob)
    more = (1000,) if name == "resize" else (torch.ones(1000).send(bob),)
    with pytest.raises(sy.exceptions.UnknownCommandError):
        bob.run_command(name, (x, *more))


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("aten.softmax.int", (0, -3), {}),
        ("aten.sum.dim_IntList", ([0], False), {"dtype": -3}),
        ("aten._to_copy.default", (), {"dtype": 10**6}),
        ("aten.clone.default", (), {"memory_format": -7}),
        ("aten.zeros.default", None, {"dtype": -1}),
    ],
)
def test_a_number_in_place_of_a_dtype_does_not_end_the_worker(
    me: Any, bob: Any, name: str, args: Any, kwargs: dict[str, Any]
) -> None:
    x = torch.ones(3).send(bob)
    given = ([2],) if args is None else (sy.messaging.message.Ref(x.id_at_location), *args)
    with pytest.raises(TypeError, match="a number"):
        me.send_msg(sy.messaging.message.Operation(name, None, given, kwargs, (), wants_specs=True), bob)
