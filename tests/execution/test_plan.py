"""The documented life of a plan: made, built, sent, called, searched, fetched, copied, shown."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import PlanCommandUnknownError, TensorsNotCollocatedException
from syft.execution.errors import PlanArgumentsError, PlanError
from syft.messaging.message import ObjectMessage, PlanCallMessage, PlanCommandMessage


class Net(sy.Plan):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(2, 3), nn.Linear(3, 1)
        self.shift = torch.tensor([1.0])

    def forward(self, x: Any) -> Any:
        return self.fc2(F.relu(self.fc1(x))) + self.shift


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().build(torch.zeros(1, 2))


@sy.func2plan(args_shape=[(-1,)])
def plan_abs(x: Any) -> Any:
    return x.abs()


def test_func2plan_builds_at_once_and_a_local_call_runs_the_function() -> None:
    ran: list[int] = []

    @sy.func2plan(args_shape=[(-1,)])
    def doubled(x: Any) -> Any:
        ran.append(1)
        return x * 2

    assert doubled.is_built and doubled.name == "doubled"
    before = len(ran)
    assert torch.equal(doubled(torch.ones(3)), torch.full((3,), 2.0))
    assert len(ran) == before + 1
    replayed = doubled.copy()
    assert torch.equal(replayed(torch.ones(3)), torch.full((3,), 2.0))
    assert len(ran) == before + 1


def test_func2plan_without_parentheses_is_explained() -> None:
    with pytest.raises(TypeError, match="with parentheses"):
        sy.func2plan(lambda x: x)


def test_an_unbuilt_plan_runs_here_and_is_not_sent(bob: Any) -> None:
    plan = sy.func2plan()(lambda x: x + 1)
    assert not plan.is_built and plan(torch.ones(1)) == 2
    with pytest.raises(RuntimeError, match=r"^A plan needs to be built before being sent to a worker\.$"):
        plan.send(bob)
    assert not bob._objects


def test_an_unbuilt_plan_called_with_pointers_is_built_for_them(bob: Any) -> None:
    plan = sy.func2plan()(lambda x: x + 1)
    assert plan(torch.ones(4).send(bob)).get().tolist() == [2, 2, 2, 2]
    assert plan.is_built


def test_a_function_with_state_reads_it(bob: Any) -> None:
    @sy.func2plan(args_shape=[(1,)], state=(torch.tensor([1.0]),))
    def add_bias(x: Any, state: Any) -> Any:
        (bias,) = state.read()
        return x.abs() + bias

    assert add_bias(torch.tensor([-3.0])) == 4
    pointer = add_bias.send(bob)
    assert pointer(torch.tensor([-3.0]).send(bob)).get() == 4
    add_bias.state.set_([torch.tensor([5.0])])
    assert add_bias(torch.tensor([-3.0])) == 8
    assert add_bias.send(bob, force=True)(torch.tensor([-3.0]).send(bob)).get() == 8


def test_attributes_of_a_plan_are_its_state(net: Any) -> None:
    assert net.state.names == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "shift"]
    assert net.parameters()[0] is net.fc1.weight
    net.shift = torch.tensor([5.0])
    assert net.state.tensors()[4] is net.shift and net.copy()(torch.zeros(1, 2)) == net(torch.zeros(1, 2))
    with pytest.raises(PlanError, match="after it was built"):
        net.shift = torch.zeros(2)
    with pytest.raises(PlanError, match="after it was built"):
        net.fc3 = nn.Linear(1, 1)


def test_a_sent_plan_is_cached_per_location(net: Any, alice: Any, make_worker: Any) -> None:
    bob = make_worker("bob", log_msgs=True)
    first = net.send(bob)
    assert net.send(bob) is first and net.get_pointers() == {"bob": first}
    sent = sum(type(m) is ObjectMessage for m in bob.msg_history)
    assert net.send(bob, force=True) is not first
    assert sum(type(m) is ObjectMessage for m in bob.msg_history) == 2 * sent
    both = net.send(alice, bob)
    x = torch.rand(2, 2)
    assert torch.equal(both(x.send(alice)).get(), net(x)) and torch.equal(both(x.send(bob)).get(), net(x))
    with pytest.raises(PlanError, match="at several workers"):
        both(x)


def test_a_call_on_pointers_is_one_message(net: Any, make_worker: Any) -> None:
    bob = make_worker("bob", log_msgs=True)
    x = torch.rand(3, 2).send(bob)
    net.send(bob)
    bob.msg_history.clear()
    result = net(x)
    assert [type(m) for m in bob.msg_history] == [PlanCallMessage]
    assert isinstance(result, torch.Tensor) and result.shape == (3, 1) and result.location is bob


def test_results_and_state_go_with_their_pointers(bob: Any) -> None:
    plan = Net().build(torch.zeros(1, 2))
    pointer = plan.send(bob)
    x = torch.rand(3, 2).send(bob).requires_grad_()
    held = len(bob._objects)
    for _ in range(5):
        pointer(x).sum().backward()
        x.grad = None
        for p in pointer.parameters():
            p.grad = None
    assert len(bob._objects) == held
    del pointer, plan, x, p
    gc.collect()
    assert len(bob._objects) == 0


def test_a_tensor_passed_twice_gets_both_gradients(bob: Any) -> None:
    plan = sy.func2plan(args_shape=[(3,), (3,)])(lambda x, y: (x * y * y).sum())
    x = torch.tensor([1.0, 2.0, 3.0]).send(bob).requires_grad_()
    plan(x, x).backward()
    assert x.grad.get().tolist() == [3, 12, 27]


def test_gradients_flow_through_a_plan_into_what_was_before_and_after(net: Any, bob: Any) -> None:
    x = torch.rand(3, 2)
    remote, here = x.send(bob).requires_grad_(), x.clone().requires_grad_()
    (net(remote * 2) ** 2).sum().backward()
    (net(here * 2) ** 2).sum().backward()
    torch.testing.assert_close(remote.grad.get(), here.grad)
    with torch.no_grad():
        assert not net(remote).requires_grad


def test_an_optimizer_trains_the_parameters_of_a_sent_plan(bob: Any) -> None:
    plan = Net().build(torch.zeros(1, 2))
    twin = Net()
    for a, b in zip(twin.parameters(), plan.parameters(), strict=True):
        a.data = b.detach().clone()
    pointer = plan.send(bob)
    remote = torch.optim.SGD([p for p in pointer.parameters() if p.requires_grad], lr=0.1)
    here = torch.optim.SGD([p for p in twin.parameters() if p.requires_grad], lr=0.1)
    x = torch.rand(4, 2)
    for _ in range(3):
        remote.zero_grad(), here.zero_grad()
        pointer(x.send(bob)).sum().backward()
        twin(x).sum().backward()
        remote.step(), here.step()
    plan.get_()
    for a, b in zip(plan.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("way", ["here", "at a worker"])
def test_wrong_arguments_are_explained_and_nothing_runs(net: Any, way: str, make_worker: Any) -> None:
    bob = make_worker("bob", log_msgs=True)
    plan = net.copy() if way == "here" else net.send(bob)
    place = (lambda t: t) if way == "here" else (lambda t: t.send(bob))
    good = place(torch.rand(1, 2))
    bob.msg_history.clear()
    with pytest.raises(PlanArgumentsError, match="2 arguments; it was built for 1"):
        plan(good, good)
    with pytest.raises(
        PlanArgumentsError, match=r"shape \(1, 3\).*built for torch.float32 of shape \(-1, 2\)"
    ):
        plan(place(torch.rand(1, 3)))
    with pytest.raises(PlanArgumentsError, match=r"torch.int64.*\.to\(torch.float32\)"):
        plan(place(torch.ones(1, 2, dtype=torch.int64)))
    with pytest.raises(PlanArgumentsError, match="a float as argument 0"):
        plan(1.0)
    assert not any(type(m) is PlanCallMessage for m in bob.msg_history)


def test_a_worker_checks_the_arguments_itself(net: Any, me: Any, bob: Any) -> None:
    from syft.messaging.message import Ref

    pointer = net.send(bob)
    wrong, right = torch.rand(1, 3).send(bob), torch.rand(1, 2).send(bob)
    refs = {n: Ref(t.child.id_at_location) for n, t in (("wrong", wrong), ("right", right))}
    held = len(bob._objects)

    def call(*args: Any, **options: Any) -> None:
        me.send_msg(
            PlanCallMessage(
                net.id, args, **{**dict(differentiable=(), handle=None, return_ids=(9,)), **options}
            ),
            bob,
        )

    with pytest.raises(PlanArgumentsError, match="shape"):
        call(refs["wrong"])
    with pytest.raises(PlanArgumentsError, match="2 tensors; it takes 1"):
        call(refs["right"], refs["right"])
    with pytest.raises(PlanArgumentsError, match="gradients of tensors"):
        call(refs["right"], differentiable=(99,))
    with pytest.raises(PlanArgumentsError, match="learning rates"):
        call(refs["right"], rates=(0.1,))
    with pytest.raises(TypeError, match="is no plan"):
        me.send_msg(PlanCallMessage(right.child.id_at_location, (), (), None, ()), bob)
    with pytest.raises(TypeError, match="runs on tensors"):
        call(Ref(pointer.id_at_location))
    assert len(bob._objects) == held


def test_tensors_of_two_places_are_refused(net: Any, alice: Any, bob: Any) -> None:
    plan = sy.func2plan(args_shape=[(2,), (2,)])(lambda x, y: x + y)
    with pytest.raises(TensorsNotCollocatedException):
        plan(torch.ones(2).send(alice), torch.ones(2).send(bob))
    with pytest.raises(TensorsNotCollocatedException):
        plan(torch.ones(2).send(alice), torch.ones(2))
    pointer = plan.send(bob)
    with pytest.raises(TensorsNotCollocatedException):
        pointer(torch.ones(2).send(bob), torch.ones(2))


def test_a_plan_is_found_by_tag_called_and_fetched(net: Any, me: Any, bob: Any) -> None:
    net.tag("#net", "#plan").describe("a small net")
    kept = net.send(bob)
    (found,) = me.request_search(["#net"], bob)
    assert type(found) is sy.PointerPlan and "a small net" in str(found)
    x = torch.rand(4, 2)
    assert torch.equal(found(x.send(bob)).get(), net(x))
    fetched = me.fetch_plan(found.id_at_location, bob)
    assert (
        fetched.forward_func is None and fetched.is_built and fetched.id == net.id and "#net" in fetched.tags
    )
    assert torch.equal(fetched(x), net(x))
    assert me.fetch_plan(net.id, bob, copy=True).id != net.id
    with pytest.raises(PlanError, match="found by a search"):
        found.parameters()
    again = kept.get()
    assert torch.equal(again(x), net(x)) and not bob.search(["#net"])


def test_unknown_commands_about_plans_are_named(me: Any, bob: Any) -> None:
    with pytest.raises(PlanCommandUnknownError, match=r"'dance'.*fetch_plan"):
        me.send_msg(PlanCommandMessage("dance", ()), bob)


def test_a_result_whose_shape_depends_on_data_is_asked_for(bob: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1,)])(lambda x: (x[x > 0], x * 2))
    positive, doubled = plan.send(bob)(torch.tensor([1.0, -1.0, 3.0]).send(bob))
    assert positive.shape == (2,) and positive.get().tolist() == [1, 3]
    assert doubled.get().tolist() == [2, -2, 6]


def test_nested_plans_are_inlined(bob: Any) -> None:
    inner = sy.func2plan(args_shape=[(-1, 2)])(lambda x: x.view(x.shape[0] * 2))
    fetched = inner.copy()
    for part in (inner, fetched):
        outer = sy.func2plan(args_shape=[(-1, 2)])(lambda x, part=part: part(x) + 1)
        assert [op.name for op in outer.operations] == ["view", "add"]
        assert outer.send(bob)(torch.zeros(3, 2).send(bob)).get().shape == (6,)


def test_placeholders_are_tagged(net: Any) -> None:
    (given,) = net.find_placeholders("#input-0")
    (returned,) = net.find_placeholders("#output-0")
    assert given.tags == {"#1", "#input-0"} and given.expected_shape == (-1, 2)
    assert len(net.find_placeholders("#state")) == 5 and returned.id == max(net.placeholders)
    assert len(net.find_placeholders("#input", "#output")) == 2
    names = [line[0] for line in net.readable_plan]
    assert names == [
        "torch.nn.functional.linear",
        "torch.nn.functional.relu",
        "torch.nn.functional.linear",
        "add",
    ]
    assert net.readable_plan[0][1][0] is given


def test_placeholders_can_be_added_to_a_plan() -> None:
    plan = sy.Plan()
    x, y = torch.ones(2), torch.ones(3)
    first = plan.add_placeholder(x, node_type="input")
    assert plan.add_placeholder(x) is first and first.tags == {"#1", "#input-0"}
    replaced = plan.replace_with_placeholders([x, {"y": y}, 3])
    assert replaced[0] is first and type(replaced[1]["y"]) is sy.PlaceHolder and replaced[2] == 3
    with pytest.raises(PlanError, match="node_type"):
        plan.add_placeholder(x, node_type="middle")


def test_a_plan_is_made_anew_from_its_parts(net: Any) -> None:
    made = sy.Plan(
        name="again",
        state=net.state.copy(),
        is_built=True,
        operations=net.operations,
        placeholders=net.placeholders,
    )
    x = torch.rand(2, 2)
    assert torch.equal(made(x), net(x))
    with pytest.raises(PlanError, match="operations and their placeholders"):
        sy.Plan(is_built=True)


def test_copies_are_independent(net: Any) -> None:
    copied = net.copy()
    x = torch.ones(1, 2)
    before = copied(x)
    with torch.no_grad():
        net.fc2.weight.zero_()
    assert torch.equal(copied(x), before) and copied.id != net.id


def test_how_a_plan_is_shown(net: Any) -> None:
    assert repr(net) == f"<Net Net id:{net.id} owner:me built>"
    assert repr(plan_abs) == f"<Plan plan_abs id:{plan_abs.id} owner:me built>"
    assert repr(sy.func2plan()(lambda x: x)).endswith("not built>")
    assert "fc1_weight = state fc1.weight (3, 2)" in str(net)
    assert "linear_1 = torch.nn.functional.linear(input_0, fc1_weight, fc1_bias)" in str(net)
    sized = sy.func2plan(args_shape=[(-1, 2)])(lambda x: x.view(x.shape[0] * 2, -1))
    assert "input_0.view((input_0.shape[0] * 2), -1)" in str(sized)
    with pytest.raises(AttributeError, match="no location"):
        net.location


def test_run_registers_results_under_the_given_ids(net: Any, me: Any) -> None:
    with me.registration_enabled():
        result = net.run((torch.ones(1, 2),), [77])
        assert torch.equal(me.get_obj(77), result.detach())


def test_the_store_of_a_plan(net: Any) -> None:
    x = torch.ones(1)
    net.register_obj(x, 5)
    assert net.respond_to_obj_req(5) is x
    with pytest.raises(RuntimeError, match="not found"):
        net.respond_to_obj_req(5)
    assert net._known_workers is net.owner._known_workers


def test_arguments_by_name_are_put_in_order() -> None:
    plan = sy.func2plan(args_shape=[(1,), (1,)])(lambda x, y: x - y)
    assert plan(y=torch.ones(1), x=torch.zeros(1)) == -1
    with pytest.raises(PlanError, match="knows no names"):
        plan.copy()(x=torch.ones(1), y=torch.ones(1))


# -- methods -----------------------------------------------------------------------------------------


class Scaler:
    def __init__(self, factor: float) -> None:
        self.factor = torch.tensor([factor])

    @sy.method2plan(args_shape=[(-1,)])
    def scaled(self, x: Any) -> Any:
        return x * self.factor

    @sy.method2plan
    def shifted(self, x: Any) -> Any:
        return x + self.factor


def test_methods_become_plans_of_their_object(bob: Any) -> None:
    two, three = Scaler(2.0), Scaler(3.0)
    assert two.scaled is two.scaled and two.scaled is not three.scaled
    assert two.scaled.is_built and two.scaled.state.tensors()[0] is two.factor
    x = torch.ones(2)
    assert two.scaled(x).tolist() == [2, 2] and three.scaled.send(bob)(x.send(bob)).get().tolist() == [3, 3]
    assert not two.shifted.is_built and two.shifted(x.send(bob)).get().tolist() == [3, 3]
    with pytest.raises(PlanError, match="takes no state"):
        sy.method2plan(state=(x,))


def test_a_method_of_a_module_is_a_plan_too(bob: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        @sy.method2plan(args_shape=[(-1, 2)])
        def infer(self, x: Any) -> Any:
            return self.fc(x)

    model = Model()
    x = torch.rand(3, 2)
    assert torch.equal(model.infer.send(bob)(x.send(bob)).get(), model.fc(x))


# -- secrets -----------------------------------------------------------------------------------------


def test_sharing_the_state_makes_an_encrypted_model(workers: Any) -> None:
    torch.manual_seed(0)
    plan = Net().build(torch.zeros(1, 2))
    x = torch.rand(3, 2)
    wanted = plan(x).detach()
    holders = dict(crypto_provider=workers.charlie)
    for each in (plan, plan.copy()):
        each.fix_precision_().share_(workers.alice, workers.bob, **holders)
        secret = x.fix_precision().share(workers.alice, workers.bob, **holders)
        revealed = each(secret).get().float_precision()
        torch.testing.assert_close(revealed.detach(), wanted, atol=1e-2, rtol=0)
        there = each.send(workers.bob)  # it can be kept there and fetched; nobody can run it alone
        with pytest.raises(PlanError, match="is shared"):
            there(x.send(workers.bob))
        each.get_().float_precision_()
        torch.testing.assert_close(each(x).detach(), wanted, atol=1e-2, rtol=0)


def test_state_that_is_at_the_worker_already_is_not_sent(bob: Any, alice: Any) -> None:
    model = nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(-1, 2)])(model)
    x = torch.rand(2, 2)
    wanted = model(x).detach()
    model.send(bob)
    held = len(bob._objects)
    pointer = plan.send(bob)
    assert len(bob._objects) == held + 1
    assert torch.equal(pointer(x.send(bob)).get(), wanted)
    with pytest.raises(TensorsNotCollocatedException):
        plan.send(alice)
    plan.get_()
    assert torch.equal(model(x), wanted)


def test_a_replay_runs_on_pointers_operation_by_operation(make_worker: Any) -> None:
    bob = make_worker("bob", log_msgs=True)
    plan = sy.func2plan(args_shape=[(-1, 2)])(lambda x: (x * 2).view(x.shape[0] * 2) + 1)
    x = torch.rand(3, 2)
    bob.msg_history.clear()
    result = plan._ready().run([x.send(bob)], [])
    assert len(bob.msg_history) > 3 and torch.equal(result.get(), plan(x))
