"""`PrivateTensor` before it is sent anywhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.core.chain import Wrapper
from syft.exceptions import SendNotPermittedError
from syft.tensors.private import PrivateTensor


@pytest.fixture
def private() -> Any:
    return torch.full((2,), 1234.5).private_tensor(allowed_users=("ann", "ben"))


def test_the_chain(private: Any) -> None:
    assert type(private) is Wrapper and type(private.child) is PrivateTensor
    assert private.child.allowed_users == ("ann", "ben") and private.shape == (2,)
    assert private.allow("ann") and not private.allow("eve") and not private.allow(None)


def test_printing_shows_who_and_what_shape_but_no_value(private: Any) -> None:
    for text in (str(private), repr(private), f"{private}", str(private + 1)):
        assert "ann" in text and "(2,)" in text and "1234" not in text


@pytest.mark.parametrize("users", [3, None, {"ann": 1}])
def test_users_are_given_as_a_list(users: Any) -> None:
    with pytest.raises(TypeError, match="list or tuple"):
        torch.ones(1).private_tensor(allowed_users=users)


def test_results_inherit(private: Any) -> None:
    other = torch.ones(2).private_tensor(allowed_users=["ben", "cat"])
    for result in (private * other, torch.stack([private, other]), private.addcmul(other, other)):
        assert result.child.allowed_users == ("ben",)
    assert (private + torch.ones(2)).child.allowed_users == ("ann", "ben")
    values, indices = private.sort()
    assert values.child.allowed_users == indices.child.allowed_users == ("ann", "ben")
    nobody = private * torch.ones(2).private_tensor(allowed_users=["eve"])
    assert nobody.child.allowed_users == () and not nobody.allow("ann")


def test_writing_into_one_restricts_it(private: Any) -> None:
    mine = torch.zeros(2).private_tensor(allowed_users=["ben", "eve"])
    mine.add_(private)
    assert mine.child.allowed_users == ("ben",)


def test_credentials_can_be_replaced(private: Any) -> None:
    assert private.child.register_credentials(["dan"]) is private.child
    assert private.allow("dan") and not private.allow("ann")


def test_sending(bob: Any, private: Any) -> None:
    for user in (None, "eve"):
        with pytest.raises(SendNotPermittedError, match="'ann', 'ben'"):
            private.send(bob, user=user)
    pointer = private.tag("#pay").send(bob, user="ann")
    assert type(bob.get_obj(pointer.id_at_location)) is torch.Tensor  # the worker keeps users beside the data
    assert bob.allowed_users(pointer.id_at_location) == {"ann", "ben"}
    assert bob.get_obj(pointer.id_at_location).tags == {"#pay"}
    assert pointer.get(user="ben").tolist() == [1234.5, 1234.5]


def test_gradients_of_private_tensors(private: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.private_tensor(allowed_users=["ann"])
    assert y.requires_grad
    (y * y).sum().backward()
    assert y.grad.child.allowed_users == ("ann",)
