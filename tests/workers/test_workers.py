"""Workers: the store, the address book, messages, search, and the guard in front of commands."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import syft as sy
from syft.core.session import session
from syft.exceptions import ObjectNotFoundError, TensorsNotCollocatedException, WorkerNotFoundException
from syft.messaging import message as messages
from syft.messaging.message import (
    ForceObjectDeleteMessage,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCommandMessage,
    Ref,
    SearchMessage,
)
from syft.workers.abstract import AbstractWorker
from syft.workers.base import BaseWorker
from syft.workers.handlers import HANDLERS


class Silent(BaseWorker):
    """Another type of worker."""


# -- identity and address book ---------------------------------------------------------------------


def test_repr_counts_objects(bob: Any) -> None:
    kept = torch.ones(1).send(bob)
    assert repr(bob) == str(bob) == "<VirtualWorker id:bob #objects:1>"
    assert len(bob) == 1 and bob
    del kept
    assert repr(bob) == "<VirtualWorker id:bob #objects:0>" and bob


def test_a_new_worker_is_known_to_the_local_worker_and_to_all_it_knows(me: Any, alice: Any, bob: Any) -> None:
    assert me.get_worker("bob") is bob and alice.get_worker("bob") is bob and bob.get_worker("alice") is alice
    assert bob.get_worker("me") is me and bob.get_worker("bob") is bob
    assert isinstance(bob, AbstractWorker)


def test_a_worker_that_is_not_to_be_introduced(hook: Any, me: Any) -> None:
    hidden = sy.VirtualWorker(hook, id="hidden", auto_add=False)
    assert me.get_worker("hidden") == "hidden"
    assert me.get_worker(hidden) is hidden  # given the worker itself, it is known from then on
    assert me.get_worker("hidden") is hidden


def test_an_unknown_worker_is_returned_as_its_id_or_refused(me: Any, bob: Any) -> None:
    assert me.get_worker("nobody") == "nobody"
    with pytest.raises(WorkerNotFoundException, match=r"'nobody'.*'bob'"):
        me.get_worker("nobody", fail_hard=True)
    with pytest.raises(WorkerNotFoundException):
        torch.ones(1).send("nobody")
    assert torch.ones(1).send("bob").location is bob


def test_adding_workers_returns_self(hook: Any, bob: Any) -> None:
    one, two = (sy.VirtualWorker(hook, id=i, auto_add=False) for i in ("one", "two"))
    assert bob.add_worker(one) is bob and bob.add_workers([one, two]) is bob
    assert bob.get_worker("two") is two
    bob.remove_worker_from_registry("two")
    assert bob.get_worker("two") == "two"
    bob.remove_worker_from_registry("two")


def test_leaving_the_local_registry(me: Any, bob: Any) -> None:
    bob.remove_worker_from_local_worker_registry()
    assert me.get_worker("bob") == "bob"


def test_the_same_id_and_type_is_the_same_worker(hook: Any, me: Any, bob: Any) -> None:
    kept = torch.ones(1).send(bob)
    twin = sy.VirtualWorker(hook, id="bob")
    assert twin._objects is bob._objects and len(twin._objects) == 1
    p = torch.ones(1).send(twin)
    assert bob.get_obj(p.id_at_location).item() == 1.0
    assert twin.policy is bob.policy and twin.get_worker("me") is me
    assert (kept + 1).get().item() == 2.0


def test_the_same_id_and_another_type_is_refused(hook: Any, bob: Any) -> None:
    with pytest.raises(RuntimeError, match=r"VirtualWorker with the id 'bob'.*Silent"):
        Silent(hook, id="bob")


def test_a_worker_without_transport_says_so(hook: Any, bob: Any) -> None:
    silent = Silent(hook, id="silent", auto_add=False)
    with pytest.raises(NotImplementedError, match="transport"):
        silent.send_msg(IsNoneMessage(1), bob)


# -- store -----------------------------------------------------------------------------------------


def test_the_store(bob: Any) -> None:
    x, y = torch.ones(1), torch.zeros(1)
    bob.register_obj(x, 7)
    bob.register_obj(y)
    bob.set_obj("z", x)
    assert bob.get_obj(7) is x and bob[7] is x and bob.get_obj(y.id) is y and bob["z"] is x
    assert set(bob._objects) == {7, y.id, "z"} == set(bob.current_objects())
    assert bob.current_objects() is not bob._objects
    assert bob.objects_count() == 3
    bob.de_register_obj(y)
    bob.rm_obj("z")
    bob.rm_obj("never there")
    bob.force_rm_obj(7)
    assert len(bob._objects) == 0
    bob.register_obj(x)
    assert bob.clear_objects() is bob and len(bob._objects) == 0
    assert bob.clear_objects(return_self=False) is None


def test_a_missing_object_is_missed_with_advice(bob: Any) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"'99'.*'bob'.*send the data again"):
        bob.get_obj(99)
    assert bob[99] is None


def test_the_data_of_the_owner(make_worker: Any) -> None:
    x = torch.ones(2).tag("#x")
    carol = make_worker("carol", data=[x, torch.zeros(1)])
    assert len(carol._objects) == 2 and carol.get_obj(x.id) is x
    assert carol.search("#x")[0].get().tolist() == [1.0, 1.0]


def test_a_client_registers_nothing_unless_told_to(me: Any) -> None:
    x = torch.ones(1)
    me.register_obj(x)
    assert len(me._objects) == 0
    with me.registration_enabled() as worker:
        assert worker is me
        me.register_obj(x)
    assert me._objects == {x.id: x}
    me.register_obj(torch.ones(1))
    assert len(me._objects) == 1 and me.is_client_worker


# -- messages --------------------------------------------------------------------------------------


def test_contents_are_the_fields() -> None:
    assert Operation("add", None, (1,), {}, (2,)).contents == (("add", None, (1,), {}), (2,))
    assert ObjectRequestMessage((1, "ann", "why")).contents == (1, "ann", "why")
    assert IsNoneMessage(4).contents == GetShapeMessage(4).contents == 4
    assert ForceObjectDeleteMessage((4, 5)).contents == (4, 5)
    assert SearchMessage(("#a",)).contents == ("#a",)
    assert PlanCommandMessage("fetch", (1,)).contents == ("fetch", (1,))
    assert ObjectMessage("x", 3).contents == "x"


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        IsNoneMessage(4).id = 5  # type: ignore[misc]


def test_every_message_of_workers_and_pointers_is_handled() -> None:
    ours = """Operation CallMessage CallBackwardMessage ObjectMessage ObjectRequestMessage ForwardMessage
    RemoteGetMessage ForceObjectDeleteMessage IsNoneMessage GetShapeMessage AttributeMessage CallObjectMessage
    SearchMessage""".split()
    assert {getattr(messages, name) for name in ours} <= set(HANDLERS)
    assert all(issubclass(kind, messages.Message) for kind in HANDLERS)


def test_an_unknown_message_is_refused(me: Any, bob: Any) -> None:
    with pytest.raises(TypeError, match="no handler"):
        me.send_msg("hello", bob)


def test_the_messages_of_the_seeds(me: Any, bob: Any) -> None:
    x = torch.arange(6.0).view(2, 3)
    me.send_msg(ObjectMessage(x, 5), bob)
    assert me.send_msg(GetShapeMessage(5), bob) == (2, 3)
    assert me.send_msg(IsNoneMessage(5), bob) is False and me.send_msg(IsNoneMessage(6), bob) is True
    me.send_msg(Operation("sum", Ref(5), (), {}, (6,)), bob)
    assert bob.get_obj(6).item() == 15.0
    assert me.send_msg(ObjectRequestMessage((6, None, "")), bob).item() == 15.0
    assert me.send_msg(IsNoneMessage(6), bob) is True
    me.send_msg(ForceObjectDeleteMessage(5), bob)
    me.send_msg(ForceObjectDeleteMessage((1, 2, 3)), bob)
    assert len(bob._objects) == 0


def test_messages_are_kept_on_request(make_worker: Any) -> None:
    quiet, logging = make_worker("quiet"), make_worker("logging", log_msgs=True)
    for worker in (quiet, logging):
        (torch.ones(1).send(worker) + 1).get()
    assert quiet.msg_history == []
    kinds = [type(m) for m in logging.msg_history]
    assert kinds == [ObjectMessage, Operation, ObjectRequestMessage]


def test_verbose_workers_print_what_passes_but_no_content(
    me: Any, make_worker: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = make_worker("loud", verbose=True)
    monkeypatch.setattr(me, "verbose", True)
    (torch.full((2,), 1234.5).send(loud) + 1).get()
    said = capsys.readouterr().out
    assert "worker me sending ObjectMessage" in said and "to loud" in said
    assert "worker loud received Operation" in said and "aten.add.Tensor" in said
    assert "ObjectRequestMessage" in said and "1234" not in said


def test_sending_and_requesting_objects(me: Any, alice: Any, bob: Any) -> None:
    x = torch.ones(2)
    pointer = me.send(x, bob)
    assert pointer.location is bob and pointer.id_at_location == x.id
    both = me.send(x, [alice, bob])
    assert len(both.child.child) == 2
    me.send_obj(torch.zeros(2), "alice", obj_id=8)
    assert alice.get_obj(8).tolist() == [0.0, 0.0]
    assert me.request_obj(8, alice, "ann", "because").tolist() == [0.0, 0.0]
    with pytest.raises(ObjectNotFoundError):
        me.request_obj(8, alice)


def test_send_command(me: Any, alice: Any, bob: Any) -> None:
    x = torch.tensor([3.0, 1.0, 2.0]).send(bob)
    assert me.send_command(bob, ("add", x, (1,), {})).get().tolist() == [4.0, 2.0, 3.0]
    assert me.send_command("bob", ("torch.add", None, (x, x), {"alpha": 2})).get().tolist() == [9.0, 3.0, 6.0]
    assert me.send_command(bob, ("torch.cat", None, ([x, x],), {})).get().shape == (6,)
    values, indices = me.send_command(bob, ("torch.sort", None, (x,), {}), return_ids=[51, 50])
    assert (values.id_at_location, indices.id_at_location) == (50, 51)
    assert values.get().tolist() == [1.0, 2.0, 3.0] and indices.get().tolist() == [1, 2, 0]
    for wrong in (torch.ones(3), torch.ones(3).send(alice)):
        with pytest.raises(TensorsNotCollocatedException, match="remote command"):
            me.send_command(bob, ("torch.add", None, (x, wrong), {}))


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "__import__('os').system",
        "eval",
        "torch.load",
        "torch.save",
        "numpy",
        "tolist",
        "item",
        "storage",
        "apply_",
        "register_hook",
        "__reduce_ex__",
        "__class__",
        "aten.from_file.default",
        "aten._local_scalar_dense.default",
        "aten.set_.source_Tensor",
        "prim.device.default",
        "torch.Tensor.__init__",
        "torch.hub.load",
        "",
        "aten.add",
        7,
        None,
    ],
)
def test_an_unknown_command_is_refused_by_name(me: Any, bob: Any, name: Any) -> None:
    x = torch.ones(1).send(bob)
    with pytest.raises(RuntimeError, match="not a known torch operation") as caught:
        me.send_msg(Operation(name, None, (Ref(x.id_at_location),), {}, (1,)), bob)
    assert str(name)[:20] in str(caught.value)
    assert list(bob._objects) == [x.id_at_location]


def test_questions_about_a_pointer(me: Any, bob: Any) -> None:
    x = torch.ones(2, 3).send(bob)
    assert me.request_remote_tensor_shape(x) == torch.Size([2, 3])
    assert me.request_is_remote_tensor_none(x) is False
    me.delete_remote([x.id_at_location], bob)
    assert me.request_is_remote_tensor_none(x) is True
    assert (
        bob.pointer_to(torch.ones(1).send(bob, garbage_collect_data=False).id_at_location).get().item() == 1.0
    )


# -- search ----------------------------------------------------------------------------------------


@pytest.fixture
def library(bob: Any) -> list[Any]:
    return [
        torch.ones(1).tag("#mnist", "#train").describe("Handwritten digits").send(bob),
        torch.ones(2).tag("#mnist", "#test").describe("More digits").send(bob),
        torch.ones(3).tag("#boston").send(bob),
        torch.ones(4).send(bob),
    ]


@pytest.mark.parametrize(
    ("query", "sizes"),
    [
        ("#mnist", [1, 2]),
        (["#mnist"], [1, 2]),
        (["#mnist", "#test"], [2]),
        (("#mnist", "#boston"), []),
        ("digits", [1, 2]),
        (["digits", "Handwritten"], [1]),
        ("#mni", []),
        ("nothing", []),
        ([], []),
        ("", []),
    ],
)
def test_all_terms_of_a_search_must_match(
    me: Any, bob: Any, library: Any, query: Any, sizes: list[int]
) -> None:
    for found in (bob.search(query), me.request_search(query, bob), me.request_search(query, "bob")):
        assert sorted(len(p) for p in found) == sizes
        assert all(p.location is bob and not p.gc for p in found)


def test_search_by_id_and_what_is_found(bob: Any, library: Any) -> None:
    for term in (library[2].id_at_location, str(library[2].id_at_location)):
        (found,) = bob.search(term)
        assert found.shape == (3,) and found.tags == {"#boston"}
    (digits,) = bob.search("#train")
    assert digits.description == "Handwritten digits"
    assert (digits + 1).get().item() == 2.0
    assert "#train" in str(digits) and "Handwritten digits" in str(digits) and "tensor(" not in str(digits)


# -- making tensors on a worker --------------------------------------------------------------------


def test_tensors_are_made_on_the_worker(bob: Any) -> None:
    zeros = bob.remote.torch.zeros(2, 3, dtype=torch.int32)
    assert zeros.location is bob and zeros.dtype is torch.int32
    assert zeros.get().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert bob.remote.torch.arange(3).get().tolist() == [0, 1, 2]
    assert bob.remote.torch.randn(5).shape == (5,)
    x = bob.remote.torch.full((2,), 4.0)
    assert bob.remote.torch.nn.functional.relu(x).get().tolist() == [4.0, 4.0]
    assert bob.remote.torch.linalg.norm(x).get().item() == pytest.approx(32**0.5)
    del x, zeros
    assert len(bob._objects) == 0


def test_names_that_torch_does_not_have(bob: Any) -> None:
    for call in (
        lambda: bob.remote.torch.no_such_thing,
        lambda: bob.remote.os,
        lambda: bob.remote.torch.load,
    ):
        with pytest.raises(RuntimeError, match="not a known torch operation"):
            call()
    with pytest.raises(AttributeError):
        bob.remote.torch.__wrapped__
    assert repr(bob.remote.torch.zeros) == "<torch.zeros on worker 'bob'>"


# -- separateness ----------------------------------------------------------------------------------


def test_nothing_is_shared_with_the_sender(bob: Any) -> None:
    x = torch.zeros(3)
    p = x.send(bob)
    x.fill_(1)
    assert p.copy().get().tolist() == [0.0, 0.0, 0.0]
    got = p.copy().get()
    p.fill_(2)
    assert got.tolist() == [0.0, 0.0, 0.0] and x.tolist() == [1.0, 1.0, 1.0]
    stored = bob.get_obj(p.id_at_location)
    fetched = p.get()
    fetched.fill_(9)
    assert stored.tolist() == [2.0, 2.0, 2.0]


def test_nothing_is_shared_between_workers(alice: Any, bob: Any) -> None:
    p = torch.zeros(3).send(bob)
    q = p.copy().move(alice)
    q.fill_(1)
    assert p.get().tolist() == [0.0, 0.0, 0.0] and q.get().tolist() == [1.0, 1.0, 1.0]


def test_parameters_and_gradients_are_copied_too(bob: Any) -> None:
    layer = torch.nn.Linear(2, 2)
    layer.weight.grad = torch.ones(2, 2)
    weight, grad = layer.weight.data, layer.weight.grad
    layer.send(bob)
    with torch.no_grad():
        layer.weight.fill_(5)
        layer.weight.grad.fill_(5)
    assert not (weight == 5).any() and not (grad == 5).any()


def test_the_local_worker_is_the_one_of_the_session(me: Any) -> None:
    assert sy.local_worker is me is session.local_worker
    assert torch.ones(1).owner is me


def test_ids_given_for_a_test_are_used_in_order(bob: Any) -> None:
    sy.ID_PROVIDER.set_next_ids([3, 2, 1])
    pointers = [bob.remote.torch.zeros(1) for _ in range(3)]
    assert [p.id_at_location for p in pointers] == [1, 2, 3]
    assert list(itertools.islice(bob._objects, 3)) == [1, 2, 3]


def test_a_worker_made_again_is_the_same_place(make_worker: Any) -> None:
    """A notebook cell that is run twice: pointers made before and after work together."""
    before = torch.ones(2).send(make_worker("dora"))
    after = torch.ones(2).send(make_worker("dora"))
    assert (before + after).get().tolist() == [2.0, 2.0]
    assert before.move("dora").copy().get().tolist() == [1.0, 1.0]


def test_the_documented_table_of_objects_is_a_mapping(bob: Any) -> None:
    objects = bob._objects
    objects["x"] = torch.ones(2)
    assert list(objects) == ["x"] and len(objects) == 1 and "x" in objects and objects["x"].tolist() == [1, 1]
    with pytest.raises(KeyError):
        del objects["y"]
    del bob._objects["x"]
    assert bob._objects == {} and not bob._objects
    bob._objects = {"a": torch.zeros(1), "b": torch.ones(1)}
    assert sorted(bob._objects) == ["a", "b"] and isinstance(bob._objects.copy(), dict)
    bob._objects = {}
    assert len(bob) == 0
