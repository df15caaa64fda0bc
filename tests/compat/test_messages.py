"""Messages as programs of 2020 make them and take them apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.messaging import message as messages
from syft.messaging.message import (
    ForceObjectDeleteMessage,
    GetShapeMessage,
    IsNoneMessage,
    Message,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCommandMessage,
    Ref,
    SearchMessage,
)
from syft.serde import SerdeError, deserialize, serialize

EVERY = [
    Operation("add", None, (Ref(1), 2), {"alpha": 3}, (4,)),
    ObjectMessage(torch.ones(2), 3),
    ObjectRequestMessage((1, "ann", "why")),
    IsNoneMessage(1),
    GetShapeMessage(1),
    ForceObjectDeleteMessage((1, 2)),
    SearchMessage(["#a", 3]),
    PlanCommandMessage("fetch_plan", (1, False)),
    Message(["anything", 1]),
]


def named(message: Any) -> str:
    return type(message).__name__


def test_a_message_is_made_of_its_contents() -> None:
    made = Message([1, "two"])
    assert made.contents == [1, "two"] and str(made) == repr(made) == "(Message [1, 'two'])"
    assert Message().contents is None
    assert made == Message([1, "two"]) != Message([2])


def test_every_message_is_a_message() -> None:
    assert all(isinstance(message, Message) for message in EVERY)
    assert issubclass(Operation, Message) and not isinstance("text", Message)


def test_contents_are_what_the_message_was_made_of() -> None:
    tensor = torch.ones(2)
    assert ObjectMessage(tensor).contents is tensor
    assert ObjectRequestMessage((1, None, "")).contents == (1, None, "")
    assert SearchMessage(["#a"]).contents == ["#a"]
    assert IsNoneMessage(4).contents == GetShapeMessage(4).contents == 4
    assert ForceObjectDeleteMessage(4).contents == 4
    assert PlanCommandMessage(command_name="fetch_plan", message=(1, False)).contents == (
        "fetch_plan",
        (1, False),
    )


@pytest.mark.parametrize("message", EVERY, ids=named)
@pytest.mark.parametrize("way", ["bytes", "simplify", "bufferize"])
def test_a_message_comes_back_from_each_of_its_forms(message: Any, way: str, me: Any) -> None:
    cls = type(message)
    if way == "bytes":
        back = deserialize(serialize(message))
    elif way == "simplify":
        back = cls.detail(me, cls.simplify(me, message))
    else:
        back = cls.unbufferize(me, cls.bufferize(me, message))
    assert type(back) is cls
    if cls is ObjectMessage:
        assert torch.equal(back.contents, message.contents) and back.id == 3
    else:
        assert back.contents == message.contents and type(back.contents) is type(message.contents)


def test_another_message_is_refused_by_the_methods_of_a_class(me: Any) -> None:
    with pytest.raises(SerdeError, match=r"IsNoneMessage.simplify was given a GetShapeMessage"):
        IsNoneMessage.simplify(me, GetShapeMessage(1))  # type: ignore[attr-defined]
    with pytest.raises(SerdeError, match=r"bufferize was given a str"):
        Operation.bufferize(me, "text")  # type: ignore[attr-defined]
    with pytest.raises(SerdeError, match="bytes of a GetShapeMessage"):
        IsNoneMessage.unbufferize(me, serialize(GetShapeMessage(1)))  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="takes a list of terms"):
        SearchMessage("#mnist")
    with pytest.raises(SerdeError):
        SearchMessage.detail(me, (5,))  # type: ignore[attr-defined]


def test_an_object_that_is_sent_by_message_keeps_its_id(me: Any, bob: Any) -> None:
    tensor = torch.tensor([1.0, 2.0])
    me.send_msg(ObjectMessage(tensor), bob)
    assert torch.equal(bob._objects[tensor.id], tensor)  # type: ignore[attr-defined]
    assert me.send_msg(IsNoneMessage(tensor.id), bob) is False  # type: ignore[attr-defined]
    text = sy.String("abc")
    me.send_msg(ObjectMessage(text), bob)
    assert text.id in bob._objects
    me.send_msg(ObjectMessage(tensor, 99), bob)
    assert 99 in bob._objects, "an id that is given counts"


def test_a_search_message_is_answered(me: Any, bob: Any) -> None:
    pointer = torch.ones(1).tag("#here").send(bob)  # type: ignore[attr-defined]
    (found,) = me.send_msg(SearchMessage(["#here"]), bob)
    assert found.id == pointer.id_at_location


def test_a_message_that_executes_a_command_is_made_and_run(me: Any, bob: Any) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)  # type: ignore[attr-defined]
    made = me.create_message_execute_command("torch.add", None, [7], Ref(x.id_at_location), 5, alpha=2)
    assert type(made) is Operation
    assert made.contents == (("torch.add", None, (Ref(x.id_at_location), 5), {"alpha": 2}), (7,))
    me.send_msg(made, bob)
    assert bob._objects[7].tolist() == [11.0, 12.0]


def test_no_worker_answers_a_message_of_nothing_but_contents(me: Any, bob: Any) -> None:
    with pytest.raises(Exception, match="Message"):
        me.send_msg(Message("hello"), bob)


def test_nobody_outside_can_make_a_record_that_is_no_message() -> None:
    records = [c for c in vars(messages).values() if isinstance(c, type) and c.__name__.endswith("Message")]
    assert len(records) > 20 and all(issubclass(c, Message) for c in records)
