"""A user who may compute on private data, and not fetch it: what is refused, fails and costs tells them nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from network import hospital as hospital_worker
from network.hospital import PATIENTS, attempt, id_of, user
from syft.exceptions import GetNotPermittedError, OperationNotAdmittedError, QuotaExceededError
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import (
    AttributeMessage,
    CallBackwardMessage,
    CallMethodMessage,
    ForceObjectDeleteMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCallMessage,
    Ref,
    StatusMessage,
)
from syft.tensors.object_wrapper import ObjectWrapper
from syft.tensors.string import String

pytestmark = pytest.mark.network

SMALL = '[limits]\nmax_bytes = "1 MB"\n'


@contextlib.contextmanager
def serving(hook: Any, authority: TokenAuthority, policy: str = "", **options: Any) -> Any:
    more: list[Any] = [
        torch.tensor([0, 1, 2]).tag("#good"),  # type: ignore[attr-defined]
        torch.tensor([0, 1, 99]).tag("#evil"),  # type: ignore[attr-defined]
        torch.tensor([0.2, 0.3, 0.5]).tag("#shares"),  # type: ignore[attr-defined]
        torch.tensor([-1.0, 0.3, 7.0]).tag("#no shares"),  # type: ignore[attr-defined]
        String("a diagnosis").tag("#text"),
    ]
    with hospital_worker.serving(hook, authority, policy, more=more, **options) as server:
        yield server


@pytest.fixture
def hospital(hook: Any, me: Any, authority: TokenAuthority) -> Iterator[Any]:
    with serving(hook, authority, SMALL) as server:
        yield server


def op(name: str, args: list[Any], *ids: Any, **kwargs: Any) -> Operation:
    return Operation(name, None, args, kwargs, ids)


def get(obj_id: Any) -> ObjectRequestMessage:
    return ObjectRequestMessage((obj_id, None, ""), keep=True)


def held(client: Any) -> tuple[int, int]:
    status = client._link.ask(StatusMessage())
    return status["objects"], status["bytes"]


def fill(client: Any, but: int = 0) -> None:
    """Use up the quota, except for some bytes."""
    left = 1_000_000 - held(client)[1] - but
    assert attempt(client, op("aten.zeros.default", [[left]], "filling", dtype=torch.uint8)) == [None]


# -- refused replacements ----------------------------------------------------------------------------


def test_what_is_too_large_for_a_place_does_not_lift_the_restriction_there(eve: Any) -> None:
    private = id_of(eve, "#patients")
    said = attempt(
        eve,
        op("aten.clone.default", [Ref(private)], 5),
        ObjectMessage(torch.zeros(300_000), 5),
        get(5),
    )
    assert isinstance(said[1], QuotaExceededError)
    assert isinstance(said[2], GetNotPermittedError)


def test_no_message_lifts_a_restriction_when_its_result_is_refused(eve: Any, hospital: Any) -> None:
    private = id_of(eve, "#patients")

    @sy.func2plan(args_shape=[(2,)])
    def double(x: Any) -> Any:
        return x * 2

    plan = double.send(eve)
    eve.sync()
    attempt(
        eve,
        op("aten.clone.default", [Ref(private)], 5),
        ObjectMessage(torch.ones(2), 20),
        ObjectMessage(String("hello"), 21),
        ObjectMessage(ObjectWrapper([1, 2, 3]), 22),
    )
    before = hospital._objects[5], hospital.allowed_users(5)
    fill(eve)
    for message in (
        ObjectMessage(torch.ones(3), 5),
        op("aten.add.Tensor", [Ref(20), Ref(20)], 5),
        op("aten.zeros.default", [[2]], 5),
        PlanCallMessage(plan.id_at_location, (Ref(20),), (), None, (5,)),
        PlanCallMessage(plan.id_at_location, (Ref(20),), (0,), 5, (23,)),
        CallMethodMessage(21, "upper", (), {}, 5),
        AttributeMessage(21, "child", 5),
    ):
        said, got = attempt(eve, message, get(5))
        assert isinstance(said, Exception), message
        assert isinstance(got, GetNotPermittedError), message
        assert (hospital._objects[5], hospital.allowed_users(5)) == before


def test_an_attribute_that_does_not_fit_is_not_written(eve: Any, hospital: Any) -> None:
    class Holder:
        pass

    attempt(eve, ObjectMessage(String("x"), 21))
    wrapper = ObjectWrapper(Holder())
    wrapper.obj.note = "short"  # type: ignore[attr-defined]
    from syft.policy.caller import speaking_for

    with speaking_for("eve"):
        hospital.set_obj(30, wrapper)
    fill(eve)
    (said,) = attempt(eve, AttributeMessage(30, "note", None, "long" * 100, True))
    assert isinstance(said, QuotaExceededError)
    assert wrapper.obj.note == "short"  # type: ignore[attr-defined]


def test_what_the_directory_does_not_keep_leaves_what_was_there(
    hook: Any, me: Any, authority: TokenAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serving(hook, authority, directory=tmp_path / "data") as server,
        user(server, authority, "eve") as client,
    ):
        attempt(client, op("aten.clone.default", [Ref(id_of(client, "#patients"))], 5))
        before = server._objects[5], server.allowed_users(5), held(client)

        def full(*_: Any) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(server.directory, "put", full)
        said, got = attempt(client, ObjectMessage(torch.zeros(300).tag("#mine"), 5), get(5))  # type: ignore[attr-defined]
        assert isinstance(said, Exception)
        assert isinstance(got, GetNotPermittedError)
        assert (server._objects[5], server.allowed_users(5), held(client)) == before
        assert server.is_held_by("eve", 5)
        (said,) = attempt(client, ObjectMessage(torch.zeros(300).tag("#mine"), 6))  # type: ignore[attr-defined]
        assert isinstance(said, Exception) and 6 not in server._objects


# -- graphs ------------------------------------------------------------------------------------------


def test_a_graph_does_not_tell_what_was_written_into_what_it_kept(eve: Any, hospital: Any) -> None:
    @sy.func2plan(args_shape=[(2,), (2,)])
    def product(x: Any, s: Any) -> Any:
        return x * s

    plan = product.send(eve)
    eve.sync()
    said = attempt(
        eve,
        *(ObjectMessage(torch.ones(2), i) for i in (20, 21, 22)),
        PlanCallMessage(plan.id_at_location, (Ref(20), Ref(21)), (0,), 30, (31,)),
        op(
            "aten.native_batch_norm.default",
            [Ref(id_of(eve, "#patients")), None, None, Ref(21), Ref(22), True, 1.0, 1e-5],
            *(40, 41, 42),
        ),
        CallBackwardMessage(30, (Ref(20),), (50,)),
        get(50),
    )
    assert said[:-1] == [None] * 6
    assert isinstance(said[-1], GetNotPermittedError)
    assert hospital._entries[50].failure is not None  # the version of what the graph kept was counted


def test_whether_a_differentiable_plan_failed_does_not_show_in_numbers(eve: Any) -> None:
    @sy.func2plan()
    def choose(x: Any, index: Any) -> Any:
        return x.index_select(0, index), x.view(-1)

    choose.build(torch.ones(3, 2), torch.tensor([0, 1, 2]))
    plan = choose.send(eve)
    eve.sync()
    seen = []
    for tag in ("#good", "#evil"):
        attempt(eve, ObjectMessage(torch.ones(3, 2), 20), ObjectMessage(torch.ones(3, 2), 21))
        call = PlanCallMessage(plan.id_at_location, (Ref(20), Ref(id_of(eve, tag))), (0,), 30, (31, 32))
        steps = (
            call,
            ForceObjectDeleteMessage((31,)),
            op("aten.view.default", [Ref(32), [-1, 1]], 33),
            CallBackwardMessage(30, (Ref(21), None), (34,)),
            ForceObjectDeleteMessage((32,)),
            ForceObjectDeleteMessage((20, 21, 30, 33, 34)),
        )
        seen.append([(attempt(eve, step), held(eve)) for step in steps])
    assert seen[0] == seen[1]
    assert seen[0][0][0] == [None]


def test_a_plan_whose_sizes_depend_on_values_is_refused(hook: Any, authority: Any) -> None:
    @sy.func2plan()
    def modest(x: Any) -> Any:
        return x[x > 0] * 2

    x = torch.tensor([1.0, -2.0])
    modest.build(x)
    with serving(hook, authority, SMALL) as server, user(server, authority, "eve") as eve:
        pointer = x.send(eve)
        with pytest.raises((ValueError, OperationNotAdmittedError), match=r"torch\.where"):
            modest.send(eve)(pointer).get()


# -- texts -------------------------------------------------------------------------------------------


def test_methods_of_texts_take_no_tensors(eve: Any, hospital: Any) -> None:
    private = id_of(eve, "#good")
    attempt(
        eve,
        op("aten.select.int", [Ref(private), 0, 2], 10),
        ObjectMessage(String("x" * 100), 1),
        ObjectMessage(torch.tensor(2), 11),
    )
    before = held(eve)
    for method, args in (
        ("__mul__", (Ref(10),)),
        ("__getitem__", (Ref(10),)),
        ("ljust", (Ref(10),)),
        ("join", ([Ref(10)],)),
        ("center", (Ref(11),)),
    ):
        (said,) = attempt(eve, CallMethodMessage(1, method, args, {}, 2))
        assert isinstance(said, TypeError) and "called with a Tensor" in str(said), method
    assert held(eve) == before and 2 not in hospital._objects


def test_methods_of_texts_take_plain_values(eve: Any) -> None:
    text = String("hello world").send(eve)
    assert text[0:5].get() == "hello"
    assert (text * 2).get() == "hello worldhello world"
    assert text.replace("world", String("you").send(eve)).get() == "hello you"
    assert text.translate({ord("h"): "j"}).get() == "jello world"
    assert text.center(13, "*").get() == "*hello world*"


def test_a_private_text_answers_nobody_who_may_not_fetch_it(eve: Any, hospital: Any) -> None:
    private = id_of(eve, "#text")
    attempt(eve, ObjectMessage(String("x"), 1))
    before = held(eve)
    for message in (
        CallMethodMessage(private, "index", ("diagnosis",), {}, 2),
        CallMethodMessage(private, "index", ("not there",), {}, 2),
        CallMethodMessage(private, "split", ("a",), {}, 2),
        CallMethodMessage(1, "__add__", (Ref(private),), {}, 2),
    ):
        (said,) = attempt(eve, message)
        assert isinstance(said, GetNotPermittedError), said
    assert held(eve) == before


# -- failures ----------------------------------------------------------------------------------------


def test_a_failed_write_costs_and_shows_nothing(eve: Any, hospital: Any) -> None:
    seen = []
    for tag in ("#good", "#evil"):
        attempt(
            eve,
            ObjectMessage(torch.zeros(3).tag("#mine"), 14),  # type: ignore[attr-defined]
            ObjectMessage(torch.ones(3), 15),
        )
        index = Ref(id_of(eve, tag))
        fill(eve, but=4)
        (said,) = attempt(eve, op("aten.index_add_.default", [Ref(14), 0, index, Ref(15)]))
        assert said is None
        assert (hospital._entries[14].failure is not None) == (tag == "#evil")
        assert hospital.is_held_by("eve", 14)
        numbers = [held(eve), len(eve.search("#mine"))]
        attempt(eve, op("aten.view.default", [Ref(14), [-1, 1]], 16))
        numbers.append(held(eve))
        attempt(eve, AttributeMessage(14, "data", 17))
        numbers.append(held(eve))
        (got,) = attempt(eve, get(14))
        assert isinstance(got, GetNotPermittedError)
        attempt(eve, ForceObjectDeleteMessage((14,)))
        numbers.append(held(eve))
        attempt(eve, ForceObjectDeleteMessage((15, 16, 17, "filling")))
        numbers.append(held(eve))
        seen.append(numbers)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.binary_cross_entropy.default", ["p", Ref(61)]),
        ("aten.index_select.default", [Ref(60), 0, "i"]),
        ("aten.index_select.default", [Ref(62), 0, "i"]),
        ("aten.take.default", [Ref(60), "i"]),
        ("aten.gather.default", [Ref(61), 0, "i"]),
        ("aten.multinomial.default", ["p", 2]),
        ("aten.bernoulli.default", ["p"]),
        ("aten.embedding.default", [Ref(60), "i"]),
    ],
)
def test_a_failure_costs_what_the_result_costs(eve: Any, hospital: Any, name: str, args: list[Any]) -> None:
    attempt(
        eve,
        ObjectMessage(torch.ones(3, 3), 60),
        ObjectMessage(torch.ones(3), 61),
        ObjectMessage(torch.ones(3, 6)[:, ::2], 62),
    )
    seen, kinds = [], []
    for tags in ({"i": "#good", "p": "#shares"}, {"i": "#evil", "p": "#no shares"}):
        given = [Ref(id_of(eve, tags[a])) if isinstance(a, str) else a for a in args]
        said = attempt(eve, op(name, given, 70))
        assert said == [None]
        kinds.append(hospital._entries[70].failure is not None)
        numbers = [held(eve)]
        # A view of it costs nothing, a copy costs something, and the memory is there until the last has gone.
        attempt(eve, op("aten.reshape.default", [Ref(70), [-1]], 71), op("aten.clone.default", [Ref(70)], 72))
        numbers.append(held(eve))
        for obj_id in (70, 72, 71):
            attempt(eve, ForceObjectDeleteMessage((obj_id,)))
            numbers.append(held(eve))
        seen.append(numbers)
    assert kinds == [False, True]
    assert seen[0] == seen[1]


def test_an_out_is_not_resized_by_private_data(eve: Any) -> None:
    attempt(
        eve,
        ObjectMessage(torch.ones(3), 61),
        ObjectMessage(torch.zeros(0), 62),
        ObjectMessage(torch.zeros(3), 63),
    )
    index = Ref(id_of(eve, "#evil"))
    before = held(eve)
    for out in (62, 63):
        (said,) = attempt(eve, op("aten.index_select.out", [Ref(61), 0, index], out=Ref(out)))
        assert isinstance(said, OperationNotAdmittedError)
        assert held(eve) == before


def test_running_statistics_are_written_into_whatever_the_schema_says(
    hook: Any, me: Any, authority: TokenAuthority
) -> None:
    with (
        serving(hook, authority, '[users.ana]\nmay_get = "all"\n') as server,
        user(server, authority, "ana") as ana,
    ):
        private = id_of(ana, "#patients")
        *_, said = attempt(
            ana,
            ObjectMessage(torch.full((4, 2), -7.0), 50),
            op("aten.select.int", [Ref(private), 0, 0], 51),
            ObjectMessage(torch.zeros(2), 52),
            op("aten.batch_norm_update_stats.default", [Ref(50), Ref(51), Ref(52), 1.0], 53, 54),
        )
        assert isinstance(said, Exception)
        assert torch.equal(server._objects[private], PATIENTS)
