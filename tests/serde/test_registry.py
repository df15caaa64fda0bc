"""A type joins with one line; `simplify` and `detail` are served from the same registry."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft import serde
from syft.core.hook_args import default_register_tensor


class Recipe:
    """A type of an upper room, with the two static methods its users know."""

    def __init__(self, name: str, weights: torch.Tensor) -> None:
        self.name, self.weights = name, weights

    @staticmethod
    def simplify(worker: Any, recipe: Recipe) -> tuple[Any, ...]:
        return recipe.name, recipe.weights

    @staticmethod
    def detail(worker: Any, simple: tuple[Any, ...]) -> Recipe:
        name, weights = simple
        return Recipe(f"{name}@{worker.id}", weights)


class TripledTensor(sy.AbstractTensor):
    def __init__(self, factor: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def get_class_attributes(self) -> dict[str, Any]:
        return {"factor": self.factor}


default_register_tensor(TripledTensor)
serde.register(Recipe, "test.Recipe", Recipe.simplify, Recipe.detail, fields=tuple[str, torch.Tensor])
serde.register_chain(TripledTensor, {"factor": int})


def test_a_registered_type_travels_and_learns_who_reads(there_and_back: Any, bob: Any) -> None:
    back = there_and_back({"r": Recipe("cake", torch.ones(300))}, bob)["r"]
    assert back.name == "cake@bob" and torch.equal(back.weights, torch.ones(300))


def test_the_types_of_parts_are_checked_before_decode_sees_them() -> None:
    for wrong in (("test.Recipe", 1, 2), ("test.Recipe", "a"), ("test.Recipe", "a", "b"), ("test.Recipe",)):
        with pytest.raises(serde.SerdeError, match=r"test\.Recipe"):
            serde.detail(None, wrong)


def test_whatever_decode_raises_is_a_serde_error() -> None:
    class Picky:
        pass

    def refuse(_me: Any, parts: Any) -> Any:
        raise ZeroDivisionError("no")

    serde.register(Picky, "test.Picky", lambda _me, _p: (), refuse)
    with pytest.raises(serde.SerdeError, match="ZeroDivisionError: no"):
        serde.deserialize(serde.serialize(Picky()))


def test_a_type_and_a_code_are_registered_once() -> None:
    with pytest.raises(ValueError, match="already"):
        serde.register(Recipe, "test.Other", Recipe.simplify, Recipe.detail)
    with pytest.raises(ValueError, match="already"):
        serde.register(type("New", (), {}), "tensor", Recipe.simplify, Recipe.detail)


def test_a_tensor_type_of_a_user_travels_in_chains(there_and_back: Any) -> None:
    back = there_and_back(sy.LocalTensor().on(TripledTensor(factor=5).on(torch.ones(2))))
    assert back.child.child.factor == 5
    with pytest.raises(serde.SerdeError, match="int"):
        serde.detail(None, ("TripledTensor", (None, (), None), ("five",), None))


def only_primitives(simple: Any) -> bool:
    if type(simple) is tuple or type(simple) is list:
        return all(map(only_primitives, simple))
    return simple is None or type(simple) in (bool, int, float, str, bytes)


def test_the_simple_form_is_tuples_of_primitives(bob: Any) -> None:
    pointer = torch.ones(2).send(bob)  # type: ignore[attr-defined]
    for obj in (
        [1, {"a": torch.ones(300)}],
        pointer,
        sy.LoggingTensor().on(torch.ones(2)),
        Recipe("r", torch.ones(1)),
    ):
        simple = serde.simplify(bob, obj)
        assert only_primitives(simple)
        assert isinstance(simple[0], str)
        assert type(serde.detail(bob, simple)) is type(obj)
    assert serde.simplify(None, 3) == 3
    assert serde.simplify(None, (1, "a")) == ("tuple", 1, "a")
    assert torch.equal(serde.detail(None, serde.simplify(None, torch.ones(300))), torch.ones(300))


def test_the_public_names_are_exactly_those_listed() -> None:
    import inspect

    public = {n for n, v in vars(serde).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert public == set(serde.__all__)
