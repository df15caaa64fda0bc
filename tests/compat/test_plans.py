"""Plans as programs of 2020 use them: `args_shape` only builds, and a plan does the same wherever it is."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.execution.errors import PlanArgumentsError, PlanError
from syft.execution.program import Input
from syft.serde import deserialize, serialize

# -- one program, four ways -------------------------------------------------------------------------------

Step = Callable[[Any], Any]

#: Steps of random programs. Some ask for sizes, for the rank or for the dtype, and some decide by them.
STEPS: dict[str, Step] = {
    "abs": lambda x: x.abs(),
    "add": lambda x: x + 1,
    "halve": lambda x: x / 2,
    "broadcast": lambda x: x * torch.tensor([1, 2, 3]),
    "sum": lambda x: x.sum(0),
    "rows": lambda x: x.reshape(x.shape[0], -1),
    "flat": lambda x: x.reshape(-1),
    "length": lambda x: x.reshape(len(x), -1).sum(1),
    "mean": lambda x: x.sum() / x.numel(),
    "last": lambda x: x.sum(-1) * x.size(-1),
    "transposed": lambda x: x.T,
    "pieces": lambda x: x.unbind(0)[0],
    "loop": lambda x: sum(x[i] * (i + 1) for i in range(x.shape[0])),
    "decides by size": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "decides by rank": lambda x: x + 5 if x.dim() == 1 else x - 5,
    "decides by dtype": lambda x: x * 7 if x.is_floating_point() else x * 11,
    "of its dtype": lambda x: x + torch.ones(1, dtype=x.dtype),
    "doubled": lambda x: x.double(),
    "softmax": lambda x: torch.softmax(x, -1),
    "max": lambda x: x.max(0)[0],
    "in place": lambda x: x.clone().mul_(2),
    "pair": lambda x: torch.stack([x, x * 2]),
}
SHAPES = [(), (1,), (3,), (4,), (1, 3), (2, 3), (4, 3), (3, 3), (2, 1, 3)]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool]


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or that it raised."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  (any: only whether it raised is compared)
        return error


def same(one: Any, other: Any) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
    )


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4),
    built=st.sampled_from(SHAPES),
    called=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
def test_a_plan_never_gives_another_result_when_it_is_sent_fetched_or_deserialised(
    steps: list[str], built: Any, called: Any, dtype: Any, seed: int, bob: Any, me: Any
) -> None:
    def program(x: Any) -> Any:
        for step in steps:
            x = STEPS[step](x)
        return x

    try:
        plan = sy.func2plan(args_shape=[built])(program)
    except Exception:  # noqa: BLE001  (not every program can be built with every shape)
        return
    x = (torch.rand(called, generator=torch.Generator().manual_seed(seed)) * 6 - 3).to(dtype)
    local = outcome(lambda: plan(x))
    pointer = plan.send(bob)
    elsewhere = {
        "sent": outcome(lambda: pointer(x.send(bob)).get()),  # type: ignore[attr-defined]
        "fetched": outcome(lambda: me.fetch_plan(plan.id, bob, copy=True)(x)),
        "deserialised": outcome(lambda: deserialize(serialize(plan))(x)),
    }
    for place, result in elsewhere.items():
        if isinstance(local, Exception):
            assert isinstance(result, Exception), (place, steps, result)
        elif isinstance(result, Exception):
            # Refused, never wrong: only where Python code asked for what is different now.
            asks = {"loop", "pieces", "transposed", "length", "rows", "last", "mean", "of its dtype", "max"}
            assert any(s in asks or s.startswith("decides") for s in steps), (place, steps, result)
            assert isinstance(result, PlanArgumentsError), (place, steps, result)
        else:
            assert same(local, result), (place, steps, local, result)


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_args_shape_only_builds(shape: Any, dtype: Any, bob: Any, me: Any) -> None:
    @sy.func2plan(args_shape=[(1,)])
    def plan_abs(x: Any) -> Any:
        return x.abs() * 2

    x = torch.full(shape, -3, dtype=dtype)
    pointer = plan_abs.send(bob)
    for result in (
        plan_abs(x),
        pointer(x.send(bob)).get(),
        me.fetch_plan(plan_abs.id, bob)(x),
        deserialize(serialize(plan_abs))(x),
        plan_abs.copy()(x),
    ):
        assert result.dtype == dtype and torch.equal(result, torch.full(shape, 6, dtype=dtype))


def test_a_model_that_was_built_with_one_image_takes_batches_of_any_size(bob: Any) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 26 * 26, 10))
    plan = sy.func2plan(args_shape=[(1, 1, 28, 28)])(model)
    pointer = plan.send(bob)
    for rows in (1, 2, 64):
        images = torch.rand(rows, 1, 28, 28)
        assert torch.allclose(pointer(images.send(bob)).get(), model(images), atol=1e-6)
    with pytest.raises(PlanArgumentsError, match="do not go with"):
        pointer(torch.rand(1, 1, 27, 28).send(bob))


def test_two_inputs_broadcast_as_they_do_here(bob: Any) -> None:
    @sy.func2plan(args_shape=[(1,), (1,)])
    def both(x: Any, y: Any) -> Any:
        return x + y

    pointer = both.send(bob)
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((1,), (4, 1)), ((), (2,))):
        x, y = torch.rand(a), torch.rand(b)
        assert torch.equal(pointer(x.send(bob), y.send(bob)).get(), x + y)
    with pytest.raises(PlanArgumentsError, match=r"shape \(2,\).*built for"):
        pointer(torch.rand(2).send(bob), torch.rand(3).send(bob))


def test_a_size_that_python_code_decided_by_stays_as_it_was_built(bob: Any) -> None:
    @sy.func2plan(args_shape=[(1, 4)])
    def decides(x: Any) -> Any:
        return x.sum(1) if x.shape[0] == 1 else -x.sum(1)

    pointer = decides.send(bob)
    assert pointer(torch.ones(1, 7).send(bob)).get() == 7, "the other dimension is free"
    with pytest.raises(PlanArgumentsError, match="does something else for other sizes"):
        pointer(torch.ones(2, 4).send(bob))


def test_what_a_plan_takes_travels_as_protocol_buffers_too() -> None:
    pytest.importorskip("google.protobuf")
    plan = sy.func2plan(args_shape=[(2, 3), (1,)])(lambda x, y: x.reshape(len(x), -1) + y)
    again = sy.Plan.unbufferize(None, sy.Plan.bufferize(None, plan))
    assert again.program.inputs == plan.program.inputs and again.program.inputs[0].others is not None


def test_what_a_stranger_says_a_plan_takes_is_checked() -> None:
    from dataclasses import replace

    from syft.execution.errors import InvalidProgramError
    from syft.execution.inputs import Fit
    from syft.execution.program import checked_program

    program = sy.func2plan(args_shape=[(2, 3)])(lambda x: x + 1).program
    for wrong in (Fit((-1,)), Fit((-1, -2)), Fit((-1, -1), ranks=(-1,)), Fit((-1, -1), ranks=(1000,))):
        with pytest.raises(InvalidProgramError):
            checked_program(replace(program, inputs=(Input((2, 3), torch.float32, wrong),)))


# -- state ------------------------------------------------------------------------------------------------


def everywhere(plan: Any, x: Any, bob: Any, me: Any) -> list[Any]:
    """What a plan returns here, at a worker, fetched, and from bytes."""
    pointer = plan.send(bob)
    return [
        plan(x),
        pointer(x.send(bob)).get(),
        me.fetch_plan(plan.id, bob, copy=True)(x),
        deserialize(serialize(plan))(x),
    ]


def test_a_plan_with_a_state_may_use_tensors_of_its_closure(bob: Any, me: Any) -> None:
    weight = torch.tensor([2.0], requires_grad=True)

    @sy.func2plan(args_shape=[(1,)], state=(torch.tensor([1.0]),))
    def line(x: Any, state: Any) -> Any:
        (bias,) = state.read()
        return x * weight + bias

    assert len(line.parameters()) == len(line.state.read()) == 1
    assert len(line.state.tensors()) == 2, "both travel"
    assert [float(y.detach()) for y in everywhere(line, torch.tensor([3.0]), bob, me)] == [7.0] * 4
    fetched = me.fetch_plan(line.id, bob)
    assert len(fetched.parameters()) == len(fetched.state.read()) == 1
    assert len(line.send(bob).parameters()) == 1


def test_a_stateful_plan_that_calls_another_reads_its_own_state_only(bob: Any, me: Any) -> None:
    @sy.func2plan(args_shape=[(1,)], state=(torch.tensor([10.0]),))
    def inner(x: Any, state: Any) -> Any:
        (shift,) = state.read()
        return x + shift

    @sy.func2plan(args_shape=[(1,)], state=(torch.tensor([1.0]), torch.tensor([2.0])))
    def outer(x: Any, state: Any) -> Any:
        shift, scale = state.read()
        return inner(x) * scale + shift

    assert len(outer.parameters()) == 2 and len(inner.parameters()) == 1
    assert [float(y) for y in everywhere(outer, torch.tensor([3.0]), bob, me)] == [27.0] * 4
    assert [float(y) for y in everywhere(inner, torch.tensor([3.0]), bob, me)] == [13.0] * 4


def test_parameters_of_a_closure_are_still_those_of_a_plan_without_state() -> None:
    layer = nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(1, 2)])(lambda x: layer(x))
    assert len(plan.parameters()) == 2


def test_forward_is_the_function_and_none_on_a_fetched_plan(bob: Any, me: Any) -> None:
    def function(x: Any) -> Any:
        return x + 1

    plan = sy.func2plan(args_shape=[(1,)])(function)
    assert plan.forward is function
    plan.send(bob)
    fetched = me.fetch_plan(plan.id, bob)
    assert fetched.forward is None and fetched.is_built and fetched(torch.ones(1)) == 2
    fetched.forward = lambda x: x + 5
    assert fetched(torch.ones(1)) == 6

    class Net(sy.Plan):
        def forward(self, x: Any) -> Any:
            return x * 2

    net = Net().build(torch.ones(1))
    assert net.forward(torch.ones(1)) == net(torch.ones(1)) == 2
    net.forward = None
    assert net.forward is None and net(torch.ones(3)).tolist() == [2.0] * 3, "its operations are left"


@pytest.mark.parametrize("nothing", [(), [], None])
def test_an_empty_args_shape_means_not_built(nothing: Any) -> None:
    plan = sy.func2plan(args_shape=nothing)(lambda x: x + 1)
    assert not plan.is_built
    assert plan.build(torch.ones(1)).is_built


def test_a_plan_whose_state_is_shared_is_sent_fetched_and_called(
    workers: Any, make_worker: Any, me: Any
) -> None:
    james = make_worker("james")
    alice, bob, charlie = workers.alice, workers.bob, workers.charlie
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
        layer.bias.fill_(0.5)
    plan = sy.func2plan(args_shape=[(1, 2)])(layer)
    plan.fix_precision().share(alice, bob, crypto_provider=charlie)
    pointer = plan.send(james)
    x = torch.tensor([[3.0, 4.0]])
    secret = x.fix_prec().share(alice, bob, crypto_provider=charlie)  # type: ignore[attr-defined]
    fetched = me.fetch_plan(plan.id, james, copy=True)
    assert abs(fetched(secret).get().float_prec() + 4.5) < 0.01
    assert abs(plan(secret).get().float_prec() + 4.5) < 0.01, "the one here still has its own"
    with pytest.raises(ValueError, match="shared among others, so no worker can run it alone"):
        pointer(x.send(james))  # type: ignore[attr-defined]


def test_a_plan_that_a_worker_fetched_belongs_to_it(alice: Any, bob: Any, me: Any) -> None:
    plan = sy.func2plan(args_shape=[(1,)])(lambda x: x + 1)
    plan.send(bob)
    assert alice.fetch_plan(plan.id, bob).owner is alice
    assert me.fetch_plan(plan.id, bob).owner is me


# -- placeholders and what is written down ------------------------------------------------------------------


def test_a_state_is_made_of_placeholders() -> None:
    weight = nn.Parameter(torch.ones(2))
    placeholders = [
        sy.PlaceHolder(tags=["#state", "#weight"]).instantiate(weight),
        sy.PlaceHolder(tags=["#state"]).instantiate(torch.zeros(1)),
    ]
    state = sy.State(sy.local_worker, state_placeholders=placeholders)
    assert state.read()[0] is weight and state.names == ["weight", "1"] and state.owner is sy.local_worker
    again = sy.State(state.owner, state.state_placeholders)
    assert again.names == state.names and again.tensors()[0] is weight
    state.create_grad_if_missing(weight)
    assert weight.grad is not None and weight.grad.tolist() == [0.0, 0.0]
    weight.grad.add_(1)
    state.create_grad_if_missing(weight)
    assert weight.grad.tolist() == [1.0, 1.0], "one that is there stays"
    with pytest.raises(TypeError, match=r"State\.of"):
        sy.State(None, [torch.ones(1)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="with a tensor in them"):
        sy.State(None, [sy.PlaceHolder()])


def test_placeholders_are_sorted_by_the_number_of_their_tag() -> None:
    tag_sort = importlib.import_module("syft.messaging.plan.plan").tag_sort

    plan = sy.func2plan(args_shape=[(1,)] * 11)(lambda *xs: tuple(reversed(xs)))
    found = sorted(plan.find_placeholders("#output"), key=tag_sort("output"))
    assert [p.id for p in found] == list(reversed(range(11)))
    with pytest.raises(ValueError, match="no tag #input"):
        tag_sort("input")(sy.PlaceHolder(tags=["#3"]))


def test_a_placeholder_is_made_from_a_tensor() -> None:
    tensor = torch.ones(2, 3)
    made = sy.PlaceHolder.create_from(tensor, owner=sy.local_worker, tags=["#input-0"])
    assert made.child is tensor and made.id == tensor.id and made.expected_shape == (2, 3)  # type: ignore[attr-defined]
    for back in (
        sy.PlaceHolder.detail(None, sy.PlaceHolder.simplify(None, made)),
        sy.PlaceHolder.unbufferize(None, sy.PlaceHolder.bufferize(None, made)),
    ):
        assert back.id == made.id and back.tags == {"#input-0"} and torch.equal(back.child, tensor)


def test_a_trace_writes_down_what_is_called_while_it_is_switched_on() -> None:
    from syft.generic.frameworks.hook.trace import Trace, tracer

    @tracer(func_name="doubled")
    def doubled(x: Any) -> Any:
        return x * 2

    class Thing:
        @tracer(method_name="half")
        def half(self, x: Any) -> Any:
            return x / 2

    log, thing, x = Trace(), Thing(), torch.ones(2)
    x + 1
    with log.enabled():
        assert log.active
        y = (x + 1).sum()
        doubled(x)
        thing.half(x)
    x - 1
    assert not log.active
    names = [command[0] for command, _ in log.logs]
    assert names == ["add", "sum", "mul", "doubled", "div", "half"]
    (_, target, args, _), response = log.logs[1]
    assert target.tolist() == [2.0, 2.0] and args == () and response is y
    assert log.logs[-1][0][1] is thing
    log.clear()
    assert log.logs == []
    with pytest.raises(TypeError, match="one of them only"):
        tracer()


def test_pointers_to_plans_come_back_from_their_parts(bob: Any, me: Any) -> None:
    plan = sy.func2plan(args_shape=[(1,)])(lambda x: x + 1).tag("#p")
    pointer = plan.send(bob)
    back = sy.PointerPlan.detail(me, sy.PointerPlan.simplify(me, pointer))
    assert back.location is bob and back.id_at_location == plan.id and back.tags == {"#p"}
    assert not back.garbage_collect_data and back(torch.ones(1).send(bob)).get() == 2  # type: ignore[attr-defined]
    back.id_at_location, back.location = 5, me
    assert back.id_at_location == 5 and back.location is me


# -- later names: roles, actions, translations, protocols of roles ------------------------------------------


def test_a_plan_has_one_role_with_its_actions_placeholders_and_state() -> None:
    @sy.func2plan(args_shape=[(2,)], state=(torch.tensor([1.0]),))
    def line(x: Any, state: Any) -> Any:
        (bias,) = state.read()
        return torch.relu(x * 2) + bias

    first, second, _ = line.actions
    assert (first.name, first.args, first.kwargs) == ("mul", (2,), {}) and first.target.index == 0
    assert (
        second.name == "torch.relu" and second.target is None and second.args[0].index == first.return_ids[0]
    )
    assert line.role.actions == line.actions and line.role.state is line.state
    assert [p.id for p in line.role.input_placeholders()] == [0]
    assert [p.id for p in line.role.output_placeholders()] == list(line.actions[-1].return_ids)
    assert line.input_types == [torch.Tensor]
    assert sy.func2plan()(lambda x: x).input_types == []


def test_the_types_of_inputs_are_nested_as_the_arguments_are() -> None:
    plan = sy.Plan(forward_func=lambda pair, k: pair[0] + pair[1] * k).build(
        [torch.ones(1), torch.ones(1)], 3
    )
    assert plan.input_types == [[torch.Tensor, torch.Tensor], int]


def test_a_translation_is_made_when_it_is_asked_for() -> None:
    plan = sy.func2plan(args_shape=[(-1, 2)])(lambda x: x.relu() + 1)
    assert plan.torchscript is None
    made = plan.add_translation("torchscript")
    x = torch.randn(5, 2)
    assert plan.torchscript is made and torch.equal(made(x), plan(x))

    class Names:
        def __init__(self, plan: Any) -> None:
            self.plan = plan

        def translate(self) -> Any:
            return [action.name for action in self.plan.actions]

    assert plan.add_translation(Names) == ["relu", "add"]
    with pytest.raises(PlanError, match="translate"):
        plan.add_translation("javascript")


def test_autograd_inside_a_plan_is_refused_with_the_way_there_is() -> None:
    plan = sy.func2plan()(lambda x: x + 1)
    assert plan.build(torch.ones(1), trace_autograd=False).is_built
    with pytest.raises(PlanError, match=r"Plan\.training"):
        plan.build(torch.ones(1), trace_autograd=True)


def test_the_paths_of_later_releases_import() -> None:
    from syft.execution.action import Action
    from syft.execution.communication import CommunicationAction
    from syft.execution.computation import ComputationAction
    from syft.execution.placeholder import PlaceHolder
    from syft.execution.plan import Plan, func2plan
    from syft.execution.protocol import Protocol
    from syft.execution.role import Role
    from syft.execution.state import State
    from syft.execution.tracing import FrameworkWrapper

    assert (Plan, func2plan, Protocol, State, PlaceHolder) == (
        sy.Plan, sy.func2plan, sy.Protocol, sy.State, sy.PlaceHolder,
    )  # fmt: skip
    assert issubclass(ComputationAction, Action) and issubclass(CommunicationAction, Action)
    assert isinstance(Role("alice").torch, FrameworkWrapper)


def scaled_sum() -> Any:
    @sy.func2protocol(roles=["alice", "bob"], states={"bob": (torch.tensor([10.0, 20.0]),)})
    def protocol(alice: Any, bob: Any, factor: int = 2) -> Any:
        x = alice.torch.tensor([1.0, 2.0])
        (w,) = bob.load_state()
        return bob.receive(x * factor) + w

    return protocol


def test_a_protocol_of_roles_runs_where_its_roles_are(alice: Any, bob: Any) -> None:
    protocol = scaled_sum()
    assert protocol().tolist() == [12.0, 24.0], "without workers it runs here"
    protocol.assign("alice", alice).assign("bob", bob)
    result = protocol()
    assert result.location is bob and result.get().tolist() == [12.0, 24.0]
    assert protocol(5).get().tolist() == [15.0, 30.0]
    again = scaled_sum().assign_roles({"alice": alice, "bob": bob})
    assert again.run().get().tolist() == [12.0, 24.0]


def test_build_tells_what_each_role_does() -> None:
    from syft.execution.communication import CommunicationAction

    protocol = scaled_sum()
    assert not protocol.is_built and protocol.build().is_built
    of_alice, of_bob = (protocol.roles[name].actions for name in ("alice", "bob"))
    assert [a.name for a in of_alice if not isinstance(a, CommunicationAction)] == ["torch.tensor", "mul"]
    (sent,) = [a for a in of_alice if isinstance(a, CommunicationAction)]
    assert (sent.source, sent.destinations) == ("alice", ("bob",))
    assert [a.name for a in of_bob] == ["add"]


def test_what_makes_no_sense_of_roles_is_explained(alice: Any, bob: Any) -> None:
    protocol = scaled_sum()
    with pytest.raises(PlanError, match="role 'carol'; the protocol 'protocol' has alice, bob"):
        protocol.assign("carol", alice)
    with pytest.raises(PlanError, match="it takes a worker"):
        protocol.assign("alice", "alice")
    with pytest.raises(PlanError, match="states belong to roles"):
        sy.func2protocol(roles=["alice"], states={"bob": ()})(lambda alice: None)
    with pytest.raises(TypeError, match="before it decorates"):
        sy.func2protocol(lambda alice: None)  # type: ignore[arg-type]

    @sy.func2protocol(roles=["a", "b"])
    def mixed(a: Any, b: Any) -> Any:
        return a.torch.ones(1) + b.torch.ones(1)

    with pytest.raises(PlanError, match=r"tensors of a, b.*receive"):
        mixed.build()
    with pytest.raises(sy.exceptions.TensorsNotCollocatedException):
        mixed.assign_roles({"a": alice, "b": bob})()
    with pytest.raises(AttributeError, match="no such function"):
        mixed.roles["a"].torch.dance(1)
