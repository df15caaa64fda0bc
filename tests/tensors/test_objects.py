"""Objects that are not tensors: wrapped objects, callables, strings."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import CannotRequestObjectAttribute, ObjectNotFoundError, TensorsNotCollocatedException
from syft.messaging.message import CallMethodMessage


class Statistics:
    def __init__(self) -> None:
        self.count = torch.tensor(3)
        self._salt = "secret"


def test_a_wrapped_object_is_held_under_its_id_and_comes_back(bob: Any) -> None:
    pointer = sy.ObjectWrapper([1, 2, 3], id="numbers").send(bob)
    assert "numbers" in bob._objects
    assert pointer.get().obj == [1, 2, 3]
    assert "numbers" not in bob._objects


def test_a_pointer_shows_no_content(bob: Any) -> None:
    pointer = sy.ObjectWrapper("the secret", id="s").send(bob)
    assert "the secret" not in repr(pointer)
    assert "bob:s" in repr(pointer)


def test_the_object_goes_with_its_last_pointer(bob: Any) -> None:
    pointer = sy.ObjectWrapper([1]).send(bob)
    assert len(bob._objects) == 1
    del pointer
    assert len(bob._objects) == 0


def test_public_attributes_can_be_pointed_to_and_set_but_private_ones_cannot(bob: Any) -> None:
    pointer = sy.ObjectWrapper(Statistics(), id="stats").send(bob)
    assert pointer.attr("count").get().item() == 3
    pointer.setattr("count", torch.tensor(4).send(bob))  # type: ignore[attr-defined]
    assert pointer.attr("count").get().item() == 4
    for name in ("_salt", "__class__", "__init__", "missing"):
        with pytest.raises(CannotRequestObjectAttribute, match="no public attribute"):
            pointer.attr(name)


def test_a_callable_runs_where_the_data_is(bob: Any) -> None:
    double = sy.ObjectWrapper(lambda x, by=2: x * by, id="double").send(bob)
    assert isinstance(double, sy.CallablePointer)
    x = torch.tensor([1.0, 2.0]).send(bob)  # type: ignore[attr-defined]
    assert double(x).get().tolist() == [2.0, 4.0]
    assert double(x, by=3).get().tolist() == [3.0, 6.0]


def test_a_call_on_data_of_another_worker_is_refused(alice: Any, bob: Any) -> None:
    double = sy.ObjectWrapper(lambda x: x * 2).send(bob)
    with pytest.raises(TensorsNotCollocatedException, match="alice"):
        double(torch.ones(1).send(alice))  # type: ignore[attr-defined]


def test_the_owners_callable_runs_on_private_data_and_the_result_stays_private(bob: Any) -> None:
    secret = torch.tensor([7.0]).private_tensor(allowed_users=("ann",)).send(bob, user="ann")  # type: ignore[attr-defined]
    bob.load_data([sy.ObjectWrapper(lambda x: x + 1).tag("#plus_one")])
    (plus_one,) = bob.search("#plus_one")
    result = plus_one(secret)
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        result.get(user="eve")
    assert result.get(user="ann").item() == 8.0


def test_a_callable_that_somebody_sent_does_not_run_on_private_data(bob: Any) -> None:
    secret = torch.tensor([7.0]).private_tensor(allowed_users=("ann",)).send(bob, user="ann")  # type: ignore[attr-defined]
    seen: list[Any] = []
    spy = sy.ObjectWrapper(seen.append).send(bob)
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        spy(secret)
    assert seen == []


def test_an_object_that_is_no_callable_cannot_be_called(bob: Any) -> None:
    pointer = sy.CallablePointer(
        bob, sy.ObjectWrapper(3, id="three").send(bob, garbage_collect_data=False).id_at_location
    )
    with pytest.raises(TypeError, match="cannot be called"):
        pointer()


def test_a_fetched_object_is_gone(bob: Any) -> None:
    pointer = sy.ObjectWrapper(1).send(bob)
    pointer.get()
    with pytest.raises(ObjectNotFoundError):
        pointer.get()


# -- strings ---------------------------------------------------------------------------------------


def test_a_string_has_the_methods_of_str() -> None:
    text = sy.String("Hello world")
    assert text.upper() == "HELLO WORLD"
    assert isinstance(text.upper(), sy.String)
    assert text.split(" ") == ["Hello", "world"]
    assert text + "!" == "Hello world!"
    assert text[0:5] == sy.String("Hello")
    assert len(text) == 11
    assert "wor" in text
    assert str(text.replace("world", sy.String("there"))) == "Hello there"


def test_a_string_lives_on_a_worker_and_its_methods_run_there(bob: Any) -> None:
    text = sy.String("Hello").tag("#greeting").send(bob)
    assert isinstance(text, sy.StringPointer)
    shouted = text.upper()
    assert isinstance(shouted, sy.StringPointer)
    assert shouted.get() == "HELLO"
    assert (text + sy.String(" you").send(bob)).get() == "Hello you"
    assert text.split("e").get().obj == ["H", "llo"]
    (found,) = bob.search("#greeting")
    assert isinstance(found, sy.StringPointer)


def test_only_listed_methods_can_be_called_remotely(bob: Any, me: Any) -> None:
    text = sy.String("Hello").send(bob)
    for name in ("send", "__class__", "__init__", "format", "_owner"):
        with pytest.raises(CannotRequestObjectAttribute, match="no method"):
            me.send_msg(CallMethodMessage(text.id_at_location, name, (), {}, 1), bob)


def test_results_of_string_methods_do_not_stay_behind(bob: Any) -> None:
    text = sy.String("Hello").send(bob)
    for _ in range(50):
        text.upper().lower()
    assert len(bob._objects) == 1
