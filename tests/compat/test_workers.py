"""Workers as programs of 2020 use them (COMPAT items 29, 39, 44)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft import serde
from syft.exceptions import ObjectNotFoundError, PlanCommandUnknownError, UnknownCommandError
from syft.messaging.message import ObjectMessage, ObjectRequestMessage, Operation, PlanCommandMessage, Ref


def test_a_message_in_bytes_is_answered_in_bytes(bob: Any) -> None:
    x = torch.tensor([1.0, 2.0])
    assert serde.deserialize(bob.recv_msg(serde.serialize(ObjectMessage(x, 7)))) is None
    assert bob.get_obj(7).tolist() == [1.0, 2.0]
    answer = bob.recv_msg(serde.serialize(ObjectRequestMessage((7, None, ""))))
    assert isinstance(answer, bytes)
    assert serde.deserialize(answer).tolist() == [1.0, 2.0]
    assert 7 not in bob._objects
    with pytest.raises(serde.SerdeError):
        bob.recv_msg(b"nothing of ours")


def test_a_message_in_bytes_is_kept_in_the_history_once_and_readable(make_worker: Any) -> None:
    dan = make_worker("dan", log_msgs=True)
    dan.recv_msg(serde.serialize(ObjectMessage(torch.ones(1), 7)))
    assert len(dan.msg_history) == 1 and isinstance(dan._get_msg(0), ObjectMessage)


def test_objects_can_be_assigned(bob: Any) -> None:
    torch.ones(1).send(bob, garbage_collect_data=False)
    bob._objects = {}
    assert len(bob._objects) == 0
    x = torch.ones(2)
    bob._objects = {5: x}
    assert bob.get_obj(5) is x
    bob._objects = bob._objects
    assert list(bob._objects) == [5], "what is assigned may be what is there"


def test_data_given_to_a_worker_belongs_to_it(make_worker: Any) -> None:
    x = torch.ones(1).tag("#x")
    dan = make_worker("dan", data=[x])
    assert x.owner is dan and dan.search(["#x"])[0].location is dan


def test_set_obj_with_one_argument_takes_the_id_of_the_object(bob: Any) -> None:
    x = torch.ones(2)
    bob.set_obj(x)
    assert bob.get_obj(x.id) is x
    bob.set_obj(obj=x)
    bob.set_obj(9, x)
    assert bob.get_obj(9) is x
    with pytest.raises(TypeError, match="set_obj\\(obj_id, obj\\)"):
        bob.set_obj(5)
    bob.rm_obj(remote_key=9)
    bob.force_rm_obj(remote_key=x.id)
    assert not bob._objects


def test_a_store_can_be_used_by_itself() -> None:
    store = sy.generic.object_storage.ObjectStorage()
    x = torch.ones(1)
    store.set_obj(x)
    assert store.get_obj(x.id) is x and store.current_objects() == {x.id: x}
    store.de_register_obj(x)
    assert not store.current_objects()
    assert issubclass(sy.BaseWorker, sy.generic.object_storage.ObjectStorage)


def test_the_frameworks_of_a_worker_are_listed(bob: Any) -> None:
    assert "torch" in bob.remote.frameworks
    assert bob.remote.frameworks["torch"].zeros(2).get().tolist() == [0.0, 0.0]
    assert bob.remote.torch.ones(1).get().item() == 1.0
    remote = sy.generic.frameworks.remote.Remote
    assert remote(bob, "torch").torch.ones(1).location is bob
    with pytest.raises(UnknownCommandError):
        remote(bob, "tensorflow")
    assert remote.register_framework(sy.TorchAttributes) is sy.TorchAttributes
    with pytest.raises(ValueError, match="no other framework"):
        remote.register_framework(int)


def test_a_client_with_the_id_of_a_worker_that_exists_is_refused_before_it_connects(
    hook: Any, bob: Any
) -> None:
    # Nobody listens at port 1: a connection would fail with another error.
    with pytest.raises(RuntimeError, match="VirtualWorker with the id 'bob' exists already"):
        sy.WebsocketClientWorker(hook, "localhost", 1, id="bob")


# -- commands ----------------------------------------------------------------------------------------


def test_a_command_is_executed_here_and_its_results_are_pointed_to(me: Any, bob: Any) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    ids = [41, 42]
    result = bob.execute_command((("torch.add", None, (x, 1), {}), ids))
    assert result.location is bob and result.id_at_location == 42
    assert ids == [41], "an id was popped"
    assert result.get().tolist() == [2.0, 3.0]
    message = bob.create_message_execute_command("torch.mul", None, [50], Ref(x.id_at_location), 3)
    assert message == Operation("torch.mul", None, (Ref(x.id_at_location), 3), {}, (50,))
    assert bob.execute_command(message).get().tolist() == [3.0, 6.0]
    assert bob.execute_command((("neg", x, (), {}), None)).get().tolist() == [-1.0, -2.0]


def test_a_command_sent_with_one_id_is_stored_under_it(me: Any, bob: Any) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    result = me.send_command(bob, ("torch.mul", x, (3,), {}), return_ids=[50])
    assert result.id_at_location == 50 and bob.get_obj(50).tolist() == [3.0, 6.0]


def test_a_command_that_is_no_torch_operation_is_refused(bob: Any) -> None:
    with pytest.raises(UnknownCommandError, match=r"os\.system"):
        bob.execute_command((("os.system", None, ("ls",), {}), []))


def test_an_object_request_is_answered_with_the_object_for_those_who_may_have_it(bob: Any) -> None:
    x = torch.ones(2).private_tensor(allowed_users=("ann",)).send(bob, user="ann")
    key = x.id_at_location
    with pytest.raises(sy.exceptions.GetNotPermittedError):
        bob.respond_to_obj_req((key, "eve", ""))
    assert bob.respond_to_obj_req((key, "ann", "a reason")).tolist() == [1.0, 1.0]
    with pytest.raises(ObjectNotFoundError):
        bob.respond_to_obj_req(ObjectRequestMessage((key, "ann", "")))


def test_small_questions(me: Any, bob: Any) -> None:
    x = torch.ones(2, 3)
    assert bob.is_tensor_none(None) and not bob.is_tensor_none(x)
    assert sy.BaseWorker.get_tensor_shape(x) == [2, 3]
    pointer = x.send(bob)
    assert me.request_remote_tensor_shape(pointer) == torch.Size([2, 3])
    assert me._get_worker_based_on_id("bob") is bob and me._get_worker_based_on_id("zoe") == "zoe"
    with pytest.raises(sy.exceptions.WorkerNotFoundException):
        me._get_worker_based_on_id("zoe", fail_hard=True)
    assert me._get_worker(bob) is bob
    assert bob.serializer == "torch"


def test_a_plan_and_a_protocol_are_fetched_from_the_worker_that_holds_them(me: Any, bob: Any) -> None:
    @sy.func2plan(args_shape=[(1,)])
    def doubled(x: Any) -> Any:
        return x * 2

    held = doubled.send(bob)
    fetched = bob._fetch_plan_remote(held.id_at_location, False)
    assert fetched(torch.ones(1)).item() == 2.0
    again = bob.execute_plan_command(PlanCommandMessage("fetch_plan", (held.id_at_location, True)))
    assert again.id != fetched.id
    protocol = sy.Protocol([("worker1", doubled)])
    kept = protocol.send(bob)
    found = me.fetch_protocol(protocol.id, bob)
    assert found.id == protocol.id and len(found.plans) == 1
    assert me.fetch_protocol(protocol.id, "bob", copy=True).id != protocol.id
    assert bob.execute_plan_command(("fetch_protocol", (protocol.id, False))).id == protocol.id
    assert protocol.id in bob._objects, "it stays there"
    assert kept.location is bob
    with pytest.raises(PlanCommandUnknownError):
        bob.execute_plan_command(("sing", ()))
    x = torch.ones(1).send(bob)
    with pytest.raises(TypeError, match="no protocol"):
        me.fetch_protocol(x.id_at_location, bob)


def test_a_worker_travels_by_its_id_or_with_all_it_holds(me: Any, bob: Any, make_worker: Any) -> None:
    assert sy.BaseWorker.simplify(me, bob) == ("bob",)
    assert sy.BaseWorker.detail(me, ("bob",)) is bob
    torch.tensor([3.0]).send(bob, garbage_collect_data=False)
    name, objects, auto_add = sy.BaseWorker.force_simplify(me, bob)
    assert name == "bob" and auto_add
    copied = sy.BaseWorker.force_detail(me, ("bob's twin", objects, False))
    assert copied.id == "bob's twin"
    assert [t.tolist() for t in copied._objects.values()] == [[3.0]]
    with pytest.raises(ValueError, match="force_simplify"):
        serde.serialize(bob, force_full_simplification=True)


# -- the object store of later releases ------------------------------------------------------------


def test_the_object_store_is_a_view_on_what_a_worker_holds(bob: Any) -> None:
    x, text = torch.ones(2).tag("#x"), sy.String("hello", id=12)
    store = bob.object_store
    store.set_obj(x)
    store.set_obj(text)
    assert bob.get_obj(x.id) is x is store.get_obj(x.id)
    assert set(store._objects) == {x.id, 12} and list(store._tensors) == [x.id]
    assert store.find_by_tag("#x") == {x} and store.find_by_tag("#y") == set()
    assert store.find_by_id(12) is text and store.find_by_id(13) is None
    assert len(store) == 2 and x.id in store and store.current_objects() == bob._objects
    assert bob.tensors_count_remote() == 1 and bob.list_tensors_remote() == [x.id]
    store.rm_obj(12)
    store.register_obj(bob, torch.ones(1), 77)
    assert set(bob._objects) == {x.id, 77}
    with pytest.raises(ObjectNotFoundError):
        store.get_obj(12)
    with pytest.raises(ValueError, match="the store of 'bob'"):
        store.register_obj("alice", torch.ones(1))
    store.clear_objects()
    assert not bob._objects


# -- over a socket -----------------------------------------------------------------------------------


@pytest.mark.network
def test_a_websocket_client_asks_by_the_names_of_2020(hook: Any, me: Any) -> None:
    server = sy.WebsocketServerWorker(hook, "127.0.0.1", 0, id="served").start(block=False)
    try:
        with sy.WebsocketClientWorker(
            hook, "127.0.0.1", server.port, id="served", data=[torch.ones(2).tag("#sent")]
        ) as client:
            assert client._send_msg_and_deserialize("objects_count") == 1
            (key,) = client.list_objects_remote()
            assert client.list_tensors_remote() == [key] and client.tensors_count_remote() == 1
            text = sy.String("hello").send(client)
            assert client.objects_count_remote() == 2 and client.tensors_count_remote() == 1
            fetched = client._send_msg(ObjectRequestMessage((key, None, "")))
            assert fetched.tolist() == [1.0, 1.0]
            other = torch.ones(1).send(client)
            answer = client._forward_to_websocket_server_worker(
                ObjectRequestMessage((other.id_at_location, None, ""))
            )
            assert answer.item() == 1.0
            with pytest.raises(ValueError, match="list_objects"):
                client._send_msg_and_deserialize("__init__")
            with pytest.raises(RuntimeError, match="'served' exists already"):  # nobody listens at port 1
                sy.WebsocketClientWorker(hook, "127.0.0.1", 1, id="served")
            del text
    finally:
        server.stop()


@pytest.mark.network
def test_a_loop_given_to_a_server_is_said_to_be_of_no_use(hook: Any) -> None:
    with pytest.warns(UserWarning, match="serves in threads"):
        sy.WebsocketServerWorker(hook, "127.0.0.1", 0, id="looped", loop=object())


# -- the owner's log (COMPAT item 10) ------------------------------------------------------------------


def broken_transform(_row: Any) -> Any:
    raise ValueError("row 7 holds the secret 4711")


def test_a_transform_that_raises_is_told_to_the_owner_and_not_to_the_user(
    bob: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = torch.ones(4, 2).private_tensor(allowed_users=("ann",))
    dataset = sy.BaseDataset(data, torch.zeros(4), transform=broken_transform)
    bob.register_obj(dataset, "rows")
    (pointer,) = bob.search(["rows"])
    with caplog.at_level("ERROR", logger="syft.worker"):
        with pytest.raises(sy.exceptions.RemoteError, match="withheld") as caught:
            pointer.batch([0, 1])
    assert "4711" not in str(caught.value)
    assert "broken_transform" in caplog.text and "row 7 holds the secret 4711" in caplog.text


def test_the_log_keeps_the_end_of_an_endless_message(caplog: pytest.LogCaptureFixture) -> None:
    from syft.policy import owner_log

    with caplog.at_level("ERROR", logger="syft.worker"):
        owner_log.tell_owner("the batch", ValueError("x" * 1_000_000 + "the end"))
    assert "the end" in caplog.text and len(caplog.text) < 2 * owner_log.LONGEST_TRACEBACK


def test_what_an_error_quotes_adds_no_line_to_the_log_and_commands_no_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from syft.policy import owner_log

    forged = "mode \x1b[2J\r\n2026-11-18 ERROR ann fetched everything\u2028more"
    with caplog.at_level("ERROR", logger="syft.worker"):
        owner_log.tell_owner("the training", ValueError(forged))
    lines = caplog.records[0].getMessage().split("\n")
    assert "fetched everything" in lines[-2] and all(line.startswith("  | ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)
