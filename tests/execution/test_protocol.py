"""Protocols: plans chained over workers, deployed, run, kept and found."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRequestObjectAttribute, SyftError, WorkerNotFoundException
from syft.execution.errors import PlanArgumentsError, PlanError, PlanProtocolError
from syft.execution.protobuf import from_bytes, plan_pb2, to_bytes
from syft.messaging.message import CallObjectMessage
from syft.serde import SerdeError


class Parts:
    """Two halves of a model as plans, and the model."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.embed = sy.func2plan(args_shape=[(-1, 3)])(lambda x: torch.relu(self.first(x)))
        self.classify = sy.func2plan(args_shape=[(-1, 4)])(self.second)
        self.x = torch.rand(5, 3)

    @property
    def wanted(self) -> torch.Tensor:
        return self.second(torch.relu(self.first(self.x))).detach()


@pytest.fixture
def parts(hook: Any) -> Parts:
    return Parts()


def test_names_are_given_workers_and_results_go_along(parts: Parts, make_worker: Any, me: Any) -> None:
    alice, bob = make_worker("alice", log_msgs=True), make_worker("bob")
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)])
    assert protocol.open_names == ["one", "two"] and not protocol.is_deployed
    assert protocol.deploy(alice, bob) is protocol and protocol.is_deployed
    result = protocol.run(parts.x)
    assert result.location is bob
    torch.testing.assert_close(result.get(), parts.wanted)
    # The result in between goes from alice to bob: nobody here asks for it.
    assert not any(type(m).__name__ == "ObjectRequestMessage" for m in alice.msg_history)
    assert [worker.id for worker, _ in protocol.plans] == ["alice", "bob"]


def test_workers_may_be_given_at_once(parts: Parts, alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([(alice, parts.embed), (bob, parts.classify)]).deploy()
    torch.testing.assert_close(protocol.run(parts.x).get(), parts.wanted)


def test_a_name_that_comes_twice_is_one_worker(parts: Parts, alice: Any, bob: Any) -> None:
    double = sy.func2plan(args_shape=[(-1, 2)])(lambda x: x * 2)
    steps = [("a", parts.embed), (bob, parts.classify), ("a", double)]
    protocol = sy.Protocol(steps).deploy(alice)
    result = protocol.run(parts.x)
    assert result.location is alice
    torch.testing.assert_close(result.get(), parts.wanted * 2)


def test_pointers_to_the_first_worker_are_taken_as_they_are(parts: Parts, alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)]).deploy(alice, bob)
    pointer = parts.x.send(alice)  # type: ignore[attr-defined]
    torch.testing.assert_close(protocol.run(pointer).get(), parts.wanted)
    assert torch.equal(pointer.get(), parts.x)


def test_gradients_flow_back_through_all_workers(parts: Parts, alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)]).deploy(alice, bob)
    x = parts.x.send(alice).requires_grad_()  # type: ignore[attr-defined]
    protocol.run(x).sum().backward()
    given = parts.x.clone().requires_grad_()
    parts.second(torch.relu(parts.first(given))).sum().backward()
    torch.testing.assert_close(x.grad.get(), given.grad)
    (weight, _bias) = protocol.plans[0][1].parameters()
    torch.testing.assert_close(weight.grad.get(), parts.first.weight.grad)


def test_a_tuple_becomes_arguments(alice: Any, bob: Any) -> None:
    split = sy.func2plan(args_shape=[(-1, 2)])(lambda x: (x[:, 0], x[:, 1]))
    add = sy.func2plan(args_shape=[(-1,), (-1,)])(lambda a, b: {"sum": a + b, "both": [a, b]})
    result = (
        sy.Protocol([("one", split), ("two", add)])
        .deploy(alice, bob)
        .run(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    )
    assert result["sum"].get().tolist() == [3.0, 7.0] and result["both"][1].get().tolist() == [2.0, 4.0]


def test_nothing_stays_behind(parts: Parts, alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)]).deploy(alice, bob)
    protocol.run(parts.x).get()
    counts = [len(alice._objects), len(bob._objects)]
    for _ in range(5):
        protocol.run(parts.x).get()
    assert [len(alice._objects), len(bob._objects)] == counts


# -- what does not fit ---------------------------------------------------------------------------------


def test_what_is_no_pair_of_a_worker_and_a_plan_is_refused(parts: Parts, alice: Any) -> None:
    for wrong in (
        [parts.embed],
        [(alice, parts.embed, 1)],
        [(alice, lambda x: x)],
        [(3, parts.embed)],
        [(None, parts.embed)],
    ):
        with pytest.raises(TypeError, match="Protocol was given"):
            sy.Protocol(wrong)  # type: ignore[arg-type]


def test_a_protocol_is_deployed_once_and_with_as_many_workers_as_it_has_names(
    parts: Parts, alice: Any, bob: Any
) -> None:
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)])
    with pytest.raises(PlanProtocolError, match=r"not deployed.*deploy\(one, two\)"):
        protocol.run(parts.x)
    for workers in ((), (alice,), (alice, bob, alice)):
        with pytest.raises(PlanProtocolError, match="2 names that need one: 'one', 'two'"):
            protocol.deploy(*workers)
    with pytest.raises(WorkerNotFoundException):
        protocol.deploy(alice, "nobody")
    with pytest.raises(PlanProtocolError, match="no plans"):
        sy.Protocol().deploy()
    unbuilt = sy.Protocol([(alice, parts.embed), (bob, sy.func2plan()(lambda x: x))])
    with pytest.raises(PlanProtocolError, match="not built"):
        unbuilt.deploy()
    assert not alice._objects and not bob._objects  # nothing was sent for any of these
    protocol.deploy(alice, "bob")
    with pytest.raises(PlanProtocolError, match="deployed already, at 'alice' -> 'bob'"):
        protocol.deploy(alice, bob)


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(parts: Parts, workers: Any) -> None:
    alice, bob = workers.alice, workers.bob
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)]).deploy(alice, bob)
    there, before = parts.x.send(bob), len(alice._objects)  # type: ignore[attr-defined]
    for wrong in (
        (),
        (parts.x, parts.x),
        (torch.rand(5, 4),),
        (torch.ones(5, 3, dtype=torch.int64),),
        ([parts.x],),
    ):
        with pytest.raises(PlanArgumentsError, match="first plan"):
            protocol.run(*wrong)
    with pytest.raises(PlanProtocolError, match=r"worker 'bob'; the first plan .* at 'alice'.*move"):
        protocol.run(there)
    shared = parts.x.long().share(alice, bob, crypto_provider=workers.charlie)  # type: ignore[attr-defined]
    with pytest.raises(PlanError):
        protocol.run(shared)
    del shared
    assert len(alice._objects) == before


def test_a_step_that_does_not_fit_the_one_before_it_is_named(parts: Parts, alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([(alice, parts.embed), (bob, parts.embed.copy())]).deploy()
    with pytest.raises(PlanArgumentsError) as caught:
        protocol.run(parts.x)
    assert "step 1 of a protocol, at worker 'bob'" in caught.value.__notes__[0]


# -- kept by a worker ------------------------------------------------------------------------------------


def test_a_deployed_protocol_is_found_by_its_tags_and_run_by_somebody_else(
    parts: Parts, make_worker: Any, me: Any
) -> None:
    alice, bob, james = (make_worker(name) for name in ("alice", "bob", "james"))
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)]).deploy(alice, bob)
    pointer = protocol.tag("#split", "#mnist").describe("two halves").send(james)
    assert isinstance(pointer, sy.PointerProtocol) and "#split" in str(pointer) and pointer.location is james
    assert james._objects[protocol.id].held_tensors() == []  # it goes without the plans
    pointer.garbage_collect_data = False
    del protocol, pointer
    parts.embed.pointers.clear()
    parts.classify.pointers.clear()
    (found,) = me.request_search(["#split"], location=james)
    assert isinstance(found, sy.PointerProtocol) and found.tags == {"#split", "#mnist"}
    assert me.request_search(["#other"], location=james) == []
    torch.testing.assert_close(found.run(parts.x).get(), parts.wanted)
    fetched = found.fetch()
    assert fetched.description == "two halves" and fetched.is_deployed and len(james._objects) == 1
    torch.testing.assert_close(fetched.run(parts.x).get(), parts.wanted)
    with pytest.raises(PlanProtocolError, match="deployed already"):
        fetched.deploy(alice, bob)
    assert found.get().id == fetched.id and not james._objects


def test_one_that_is_not_deployed_goes_with_its_plans(parts: Parts, workers: Any) -> None:
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)], tags=["#p"])
    pointer = protocol.send(workers.charlie)
    with torch.no_grad():
        parts.first.weight.zero_()  # the one there is a copy
    with pytest.raises(PlanProtocolError, match="not deployed"):
        pointer.run(parts.x)
    fetched = pointer.get()
    assert fetched.tags == {"#p"} and fetched.id == protocol.id and not workers.charlie._objects
    fetched.deploy(workers.alice, workers.bob)
    torch.testing.assert_close(fetched.run(parts.x).get(), Parts().wanted)


def test_a_worker_that_keeps_a_protocol_neither_shows_it_nor_runs_it(parts: Parts, me: Any, bob: Any) -> None:
    pointer = sy.Protocol([("one", parts.embed)]).send(bob)
    for name in ("plans", "_steps", "_given"):
        with pytest.raises(CannotRequestObjectAttribute):
            pointer.attr(name)
    with pytest.raises(TypeError, match="cannot be called"):
        me.send_msg(CallObjectMessage(pointer.id_at_location, (), {}, 5), bob)


def test_the_tensors_inside_are_counted(parts: Parts) -> None:
    held = sy.Protocol([("one", parts.embed), ("two", parts.classify)]).held_tensors()
    assert sum(t.numel() for t in held) == 3 * 4 + 4 + 4 * 2 + 2


# -- bytes -------------------------------------------------------------------------------------------


def by_serde(value: Any) -> Any:
    return sy.serde.deserialize(sy.serde.serialize(value))


def by_protobuf(value: Any) -> Any:
    message = sy.Protocol.bufferize(sy.local_worker, value)
    return sy.Protocol.unbufferize(
        sy.local_worker, plan_pb2.ProtocolPB.FromString(message.SerializeToString())
    )


@pytest.mark.parametrize("way", [by_serde, by_protobuf])
def test_a_protocol_comes_back_from_bytes(way: Any, parts: Parts, alice: Any, bob: Any) -> None:
    steps: list[Any] = [("one", parts.embed), (bob, parts.classify)]
    protocol = sy.Protocol(steps, tags=["#a"], description="b", id=7)
    back = way(protocol)
    assert (back.id, back.tags, back.description, back.open_names) == (7, {"#a"}, "b", ["one"])
    torch.testing.assert_close(back.deploy(alice).run(parts.x).get(), parts.wanted)
    protocol.deploy(alice)
    deployed = way(protocol)
    assert deployed.is_deployed and deployed.held_tensors() == []
    torch.testing.assert_close(deployed.run(parts.x).get(), parts.wanted)


def test_a_pointer_to_a_protocol_comes_back_and_deletes_nothing(parts: Parts, bob: Any) -> None:
    pointer = sy.Protocol([("one", parts.embed)], tags=["#a"]).send(bob)
    back = by_serde(pointer)
    assert type(back) is sy.PointerProtocol and back.location is bob and back.tags == {"#a"}
    del back
    assert len(bob._objects) == 1


def test_steps_that_make_no_sense_are_refused(parts: Parts, alice: Any) -> None:
    message = sy.Protocol.bufferize(None, sy.Protocol([("one", parts.embed), ("two", parts.classify)]))
    for wrong in (
        lambda m: m.steps[0].ClearField("plan"),
        lambda m: m.steps[0].ClearField("worker"),
        lambda m: setattr(m.steps[0].plan_id, "number", 5),
        lambda m: setattr(m.steps[0].plan, "version", 9),
        lambda m: setattr(m, "version", 9),
        lambda m: m.ClearField("id"),
    ):
        changed = plan_pb2.ProtocolPB()
        changed.CopyFrom(message)
        wrong(changed)
        with pytest.raises((SerdeError, PlanProtocolError)):
            sy.Protocol.unbufferize(None, changed)


@hypothesis.settings(max_examples=200, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(data=st.data())
@pytest.mark.parametrize("way", ["serde", "protobuf"])
def test_mutated_bytes_are_a_protocol_or_our_error(way: str, parts: Parts, data: Any) -> None:
    protocol = sy.Protocol([("one", parts.embed), ("two", parts.classify)], id=3)
    good = bytearray(sy.serde.serialize(protocol) if way == "serde" else to_bytes(protocol))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        if way == "serde":
            sy.serde.deserialize(bytes(good))
        else:
            from_bytes(sy.Protocol, bytes(good))
    except SyftError:
        pass


def test_it_says_what_it_is(parts: Parts, alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([("one", parts.embed), (bob, parts.classify)], id=9, tags=["#a"])
    assert repr(protocol) == "<Protocol id:9 'one' -> 'bob' not deployed tags:#a>"
    assert str(protocol.deploy(alice)).splitlines()[0] == "<Protocol id:9 'alice' -> 'bob' deployed tags:#a>"
    assert str(protocol).splitlines()[1].startswith("  'alice': <Plan ")
    copied = protocol.copy()
    assert copied.id != 9 and copied.is_deployed and "the plan" in str(copied)
    torch.testing.assert_close(copied.run(parts.x).get(), parts.wanted)
