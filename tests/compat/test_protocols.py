"""Protocols as programs of 2020 use them: sent, found by id, run from where they are, changed before `deploy`."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import TensorsNotCollocatedException
from syft.execution.errors import PlanError, PlanProtocolError


@sy.func2plan(args_shape=[(1,)])
def add_one(x: Any) -> Any:
    return x + 1


@sy.func2plan(args_shape=[(1,)])
def add_two(x: Any) -> Any:
    return x + 2


@sy.func2plan(args_shape=[(1,)])
def times_five(x: Any) -> Any:
    return x * 5


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    for plan in (add_one, add_two, times_five):
        plan.pointers.clear()


@pytest.fixture
def james(make_worker: Any) -> Any:
    return make_worker("james")


@pytest.fixture
def protocol(alice: Any, bob: Any) -> Any:
    return sy.Protocol([("w1", add_one), ("w2", add_two)]).deploy(alice, bob)


def test_a_protocol_that_was_sent_stays_and_is_found_by_its_id(protocol: Any, james: Any, me: Any) -> None:
    protocol.send(james)
    gc.collect()
    assert protocol.location is james and protocol.id in james._objects
    (found,) = me.request_search([protocol.id], location=james)
    assert isinstance(found, sy.PointerProtocol) and found.id_at_location == protocol.id
    found.delete()
    assert me.request_search([protocol.id], location=james) == []


def test_it_goes_with_its_pointer_if_that_was_asked_for(protocol: Any, james: Any) -> None:
    protocol.send(james, garbage_collect_data=True)
    gc.collect()
    assert protocol.id not in james._objects


def test_a_run_after_send_starts_and_ends_at_that_worker(protocol: Any, james: Any, bob: Any) -> None:
    protocol.send(james)
    x = torch.tensor([1.0]).send(james)
    result = protocol.run(x)
    assert result.location is james
    at_bob = result.get()
    assert at_bob.location is bob and at_bob.get() == 4
    assert x.get() == 1, "the argument is still where it was"


def test_a_pointer_to_a_protocol_runs_it_the_same_way(protocol: Any, james: Any, me: Any) -> None:
    protocol.send(james)
    (found,) = me.request_search([protocol.id], location=james)
    result = found.run(torch.tensor([1.0]).send(james))
    assert result.location is james and result.get().get() == 4
    assert found.run(torch.tensor([1.0])).get() == 4, "a tensor that is here goes to the first worker"
    assert found.wrap() is found


def test_request_remote_run_names_the_worker(protocol: Any, james: Any, alice: Any, me: Any) -> None:
    x = torch.tensor([[2.0]]).send(james)
    result = protocol.request_remote_run(james, (x,), {})
    assert result.location is james and result.get().get() == 5
    protocol.send(alice)
    pointer = protocol.create_pointer(me, False)
    assert pointer.request_remote_run(james, (x,), {}).get().get() == 5
    with pytest.raises(TypeError, match="in order"):
        protocol.request_remote_run(james, (x,), {"scale": 2})
    with pytest.raises(TypeError, match="without names"):
        protocol.run(x=x)


def test_find_args_location_tells_where_the_arguments_are(james: Any, bob: Any, me: Any) -> None:
    x = torch.ones(1)
    assert sy.Protocol.find_args_location((x.send(james), x.send(james))) is james  # type: ignore[attr-defined]
    assert sy.Protocol.find_args_location((x,)) is me
    with pytest.raises(TensorsNotCollocatedException):
        sy.Protocol.find_args_location((x.send(james), x.send(bob)))  # type: ignore[attr-defined]


def test_a_tensor_elsewhere_is_refused_after_send_too(protocol: Any, james: Any, bob: Any) -> None:
    protocol.send(james)
    with pytest.raises(PlanProtocolError, match="first plan"):
        protocol.run(torch.ones(1).send(bob))


def test_plans_that_are_assigned_count_at_deploy(alice: Any, bob: Any) -> None:
    protocol = sy.Protocol([("w1", add_one), ("w2", add_two)])
    protocol.plans[1] = ("w2", times_five)
    protocol.plans.append(("w1", add_one))
    protocol.deploy(alice, bob)
    assert protocol.run(torch.ones(1)).get() == 11
    other = sy.Protocol([("w1", add_one)])
    other.plans = [(bob, times_five)]
    assert other.run(torch.ones(1)).get() == 5


def test_an_assignment_that_makes_no_sense_changes_nothing(protocol: Any) -> None:
    fresh = sy.Protocol([("w1", add_one)])
    plans = fresh.plans
    with pytest.raises(TypeError, match="pairs of a worker"):
        plans[0] = add_two
    assert plans == [("w1", add_one)] and fresh.plans == [("w1", add_one)]
    with pytest.raises(PlanProtocolError, match="deployed already"):
        protocol.plans[0] = ("w1", times_five)


def test_real_workers_need_no_deploy(alice: Any, bob: Any) -> None:
    assert sy.Protocol([(alice, add_one), (bob, add_two)]).run(torch.ones(1)).get() == 4
    with pytest.raises(PlanProtocolError, match=r"not deployed.*deploy\(w2\)"):
        sy.Protocol([(alice, add_one), ("w2", add_two)]).run(torch.ones(1))


def test_a_protocol_is_made_from_its_attributes(alice: Any, bob: Any, me: Any) -> None:
    made = sy.Protocol.create_from_attributes(me, 9, {"#a"}, "b", False, [("w1", add_one), ("w2", add_two)])
    assert (made.id, made.tags, made.description, made.open_names) == (9, {"#a"}, "b", ["w1", "w2"])
    assert made.deploy(alice, bob).run(torch.ones(1)).get() == 4
    there = [(worker, pointer.id_at_location) for worker, pointer in made.plans]
    again = sy.Protocol.create_from_attributes(me, 10, None, None, True, there)
    assert again.is_deployed and again.run(torch.ones(1)).get() == 4


def test_a_pointer_to_no_place_is_refused(me: Any) -> None:
    with pytest.raises(PlanProtocolError, match="at no worker"):
        sy.Protocol([("w1", add_one)]).create_pointer(me, True)


def test_request_run_plan_gives_results_the_ids_that_were_chosen(alice: Any, bob: Any) -> None:
    pointer = add_one.send(alice)
    x = torch.ones(1).send(alice)  # type: ignore[attr-defined]
    result = pointer.request_run_plan(alice, [77], x)
    assert result.id_at_location == 77 and alice._objects[77] == 2 and pointer.wrap() is pointer
    with pytest.raises(PlanError, match="2 response_ids; it returns 1"):
        pointer.request_run_plan(alice, [1, 2], x)
    with pytest.raises(PlanError, match="the plan is at 'alice'"):
        pointer.request_run_plan(bob, [1], x)
