"""Plans of strangers: what they may name, what they may touch, and what bytes may say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import GetNotPermittedError, RemoteError, SendNotPermittedError, UnknownCommandError
from syft.execution.errors import InvalidProgramError, PlanError
from syft.execution.held import HeldPlan
from syft.execution.operation import Operation, Size, Slot
from syft.execution.optimizers import OPTIMIZERS
from syft.execution.program import Input, Program, checked_program
from syft.execution.replay import Replay
from syft.execution.training import TrainedGroup, TrainingStep
from syft.messaging.message import ObjectMessage
from syft.serde import SerdeError

FIRST = Slot(0)


def program(*operations: Operation, outputs: Any = FIRST, inputs: int = 1, **changes: Any) -> Program:
    given = Program(
        tuple(Slot(i) for i in range(inputs)),
        tuple(Input((-1,), torch.float32) for _ in range(inputs)),
        0,
        (),
        operations,
        outputs,
    )
    return replace(given, **changes)


def test_a_program_may_call_functions_of_torch() -> None:
    good = program(Operation("add", (Slot(0), 1), {}, Slot(1)), outputs=Slot(1))
    assert Replay(checked_program(good)).run([torch.ones(1)], []) == 2


@pytest.mark.parametrize(
    "name",
    """os.system __import__ eval exec torch.load torch.save torch.from_file __class__ __reduce_ex__ __init__ backward
    apply_ map_ numpy tolist item set_ storage data_ptr resize resize_ share_memory_ torch._C._set_grad_enabled
    aten.add.Tensor torch.ops.aten.add torch.nn.functional.handle_torch_function torch.hub.load add.__globals__
    torch.autograd.grad torch.manual_seed torch.utils.cpp_extension.load register_hook requires_grad_""".split(),
)
def test_anything_else_is_refused_by_name_and_not_run(name: str, me: Any, bob: Any) -> None:
    bad = program(Operation(name, (Slot(0),), {}, Slot(1)), outputs=Slot(1))
    with pytest.raises(UnknownCommandError, match=name.replace(".", r"\.")):
        checked_program(bad)
    with pytest.raises(UnknownCommandError):
        me.send_msg(ObjectMessage(HeldPlan(bad), 1), bob)
    assert not bob._objects


@pytest.mark.parametrize(
    "bad",
    [
        program(Operation("add", (Slot(5), 1), {}, Slot(1))),
        program(Operation("add", (Slot(1), 1), {}, Slot(1))),
        program(Operation("add", (Slot(-1), 1), {}, Slot(1))),
        program(Operation("add", (Slot(0), object()), {}, Slot(1))),
        program(Operation("add", (Slot(0), print), {}, Slot(1))),
        program(Operation("add", (Slot(0), torch.Generator()), {}, Slot(1))),
        program(Operation("add", (Slot(0), torch.ones(1)), {}, Slot(1))),
        program(Operation("add", (Slot(0), 1), {}, Slot(7))),
        program(Operation("add", (Slot(0), 1), {}, "x")),
        program(Operation("view", (Slot(0), Size("dim", 9, 0)), {}, Slot(1))),
        program(Operation("view", (Slot(0), Size("dim", 0, 1 << 40)), {}, Slot(1))),
        program(Operation("view", (Slot(0), Size("import", 0, 0)), {}, Slot(1))),
        program(Operation("view", (Slot(0), Size("+", "a", 0)), {}, Slot(1))),
        program(outputs=Slot(3)),
        program(signature=(Slot(1),)),
        program(signature=()),
        program(state=-1),
        program(inputs=2, signature=(Slot(0), Slot(0))),
    ],
)
def test_a_program_that_makes_no_sense_is_refused(bad: Program) -> None:
    with pytest.raises(InvalidProgramError):
        checked_program(bad)


def test_depth_and_length_are_limited() -> None:
    deep: Any = Slot(0)
    for _ in range(50):
        deep = [deep]
    with pytest.raises(InvalidProgramError, match="too deeply"):
        checked_program(program(Operation("torch.cat", (deep,), {}, Slot(1))))
    size: Any = Size("dim", 0, 0)
    for _ in range(50):
        size = Size("*", size, size)
    with pytest.raises(InvalidProgramError, match="too deeply"):
        checked_program(program(Operation("view", (Slot(0), size), {}, Slot(1))))
    power = program(Operation("mul", (Slot(0), Size("**", 10, 1000)), {}, Slot(1)), outputs=Slot(1))
    with pytest.raises(InvalidProgramError, match="power"):
        Replay(power).run([torch.ones(1)], [])


def test_a_pointer_cannot_hide_among_the_constants(alice: Any) -> None:
    for constant in (torch.ones(1).send(alice), nn.Parameter(torch.ones(1)), torch.eye(2).to_sparse()):
        with pytest.raises(InvalidProgramError, match="constants are plain"):
            checked_program(program(constants=(constant,)))


def test_fresh_memory_is_cleared() -> None:
    blank = program(Operation("torch.empty", (1000,), {}, Slot(1)), outputs=Slot(1))
    for _ in range(5):
        torch.ones(1000)
        assert not Replay(blank).run([torch.ones(1)], []).any()


def test_training_steps_of_strangers_are_checked() -> None:
    held = Program((), (), 2, (), (Operation("sum", (Slot(0),), {}, Slot(2)),), Slot(2))

    def plan(optimizer: str = "SGD", options: Any = None, where: int = 0, started: int = 1) -> HeldPlan:
        group = TrainedGroup(options if options is not None else {"lr": 0.1}, (where,), ({},))
        return HeldPlan(held, (1, 2), ("a", "b"), (), (0, 0), TrainingStep(optimizer, (group,), started))

    plan()
    for wrong in (
        dict(optimizer="LBFGS"), dict(optimizer="__class__"), dict(options={"params": 1}), dict(options={"lr": print}),
        dict(options={"lr": "0.1"}), dict(where=7), dict(where=-1), dict(started=0), dict(started=9),
    ):  # fmt: skip
        with pytest.raises(PlanError):
            plan(**wrong)  # type: ignore[arg-type]
    assert set(OPTIMIZERS) == {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad"}


# -- bytes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    return (
        sy.func2plan(args_shape=[(-1, 3)])(lambda x: layers(x).view(x.shape[0] * 2, -1))
        .tag("#a")
        .describe("b")
    )


def test_plans_states_placeholders_and_pointers_come_back_from_bytes(net: Any, bob: Any) -> None:
    def again(value: Any) -> Any:
        return sy.serde.deserialize(sy.serde.serialize(value))

    x = torch.rand(5, 3)
    plan = again(net)
    assert (plan.id, plan.name, plan.tags, plan.description) == (net.id, net.name, {"#a"}, "b")
    assert torch.equal(plan(x), net(x)) and plan.operations == net.operations
    assert all(type(a) is type(b) for a, b in zip(plan.parameters(), net.parameters(), strict=True))
    state = again(net.state)
    assert state.names == net.state.names and torch.equal(state.tensors()[0], net.state.tensors()[0])
    (given,) = net.find_placeholders("#input-0")
    assert again(given).tags == given.tags and again(given).expected_shape == (-1, 3)
    pointer = net.send(bob)
    read = again(pointer)
    assert type(read) is sy.PointerPlan and read.location is bob and read.garbage_collect_data is False
    assert torch.equal(read(x.send(bob)).get(), net(x))
    assert torch.equal(sy.Plan.detail(sy.local_worker, sy.Plan.simplify(sy.local_worker, net))(x), net(x))


def test_a_plan_that_is_not_built_has_no_bytes() -> None:
    with pytest.raises(PlanError, match="not built"):
        sy.serde.serialize(sy.func2plan()(lambda x: x))


def test_another_name_in_the_bytes_is_refused(net: Any) -> None:
    data = sy.serde.serialize(net)
    for name in (b"view", b"torch.nn.functional.linear"):
        assert name in data
        with pytest.raises(SerdeError, match="not a known torch operation"):
            sy.serde.deserialize(
                data.replace(name, b"set_" if len(name) == 4 else b"torch.nn.functional.linaer")
            )


@hypothesis.settings(max_examples=300)
@hypothesis.given(st.data())
def test_tampered_bytes_are_refused_or_are_a_plan(net: Any, data: Any) -> None:
    frame = bytearray(sy.serde.serialize(net))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)) | st.none())
    try:
        read = sy.serde.deserialize(bytes(frame if cut is None else frame[:cut]))
    except SerdeError:
        return
    if isinstance(read, sy.Plan):
        checked_program(read.program)


# -- private data ------------------------------------------------------------------------------------


def private(values: Any, bob: Any, *users: str) -> Any:
    return (
        torch.tensor(values)
        .private_tensor(allowed_users=users or ("alice",))
        .send(bob, user=(users or ("alice",))[0])
    )


def plan_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    return sy.func2plan(args_shape=list(shapes))(function)


def test_results_on_private_data_are_as_private(bob: Any) -> None:
    plan = plan_of(lambda x, y: (x + y, y * 2), (-1,), (-1,))
    secret, open_ = private([1.0, 2.0], bob), torch.ones(2).send(bob)
    added, doubled = plan.send(bob)(secret, open_)
    for result in (added, doubled):
        with pytest.raises(GetNotPermittedError):
            result.copy().get()
    assert added.get(user="alice").tolist() == [2, 3]
    assert open_.get().tolist() == [1, 1]


def test_private_state_makes_results_private(bob: Any) -> None:
    weight = torch.ones(2).private_tensor(allowed_users=("alice",))
    plan = sy.func2plan(args_shape=[(2,)], state=(torch.ones(2),))(lambda x, state: x * state.read()[0])
    plan.state.replace(plan.state.tensors()[0], weight.send(bob, user="alice"))
    result = plan.send(bob)(torch.ones(2).send(bob))
    with pytest.raises(GetNotPermittedError):
        result.get()
    with pytest.raises(GetNotPermittedError):
        sy.local_worker.fetch_plan(plan.id, bob)
    assert sy.local_worker.fetch_plan(plan.id, bob, user="alice").is_built


def test_a_plan_may_not_write_into_private_data(bob: Any) -> None:
    def writes(x: Any) -> Any:
        x += 1
        return x * 2

    def writes_a_view(x: Any) -> Any:
        x[:1].zero_()
        return x * 2

    secret = private([1.0, 2.0], bob)
    for function in (writes, writes_a_view):
        with pytest.raises(SendNotPermittedError, match="write into"):
            plan_of(function, (2,)).send(bob)(secret)
    assert secret.copy().get(user="alice").tolist() == [1, 2]
    assert plan_of(writes, (2,)).send(bob)(secret, user="alice").get(user="alice").tolist() == [4, 6]


def test_what_private_data_is_written_into_becomes_private(bob: Any) -> None:
    norm = nn.BatchNorm1d(2)
    plan = sy.func2plan(args_shape=[(-1, 2)])(norm)
    pointer = plan.send(bob)
    secret = private([[1.0, 2.0], [3.0, 5.0]], bob)
    pointer(secret)
    with pytest.raises(GetNotPermittedError):
        plan.get_()
    plan.get_(user="alice")
    assert torch.allclose(norm.running_mean, torch.tensor([0.2, 0.35]))  # type: ignore[arg-type]
    scale = torch.ones(2)
    writes = sy.func2plan(args_shape=[(2,)], state=(scale,))(lambda x, state: state.read()[0].add_(x) * 1)
    kept = writes.send(bob)
    kept(private([1.0, 1.0], bob))
    with pytest.raises(GetNotPermittedError):
        kept.state[0].copy().get()


def test_state_that_private_data_does_not_reach_stays_open(bob: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1, 2)])(nn.Linear(2, 1))
    pointer = plan.send(bob)
    pointer(private([[1.0, 2.0]], bob))
    assert pointer.parameters()[0].copy().get().shape == (1, 2)


def test_gradients_of_private_data_are_private(bob: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1, 2)])(nn.Linear(2, 1))
    pointer = plan.send(bob)
    pointer(private([[1.0, 2.0]], bob)).sum().backward()
    gradient = pointer.parameters()[0].grad
    with pytest.raises(GetNotPermittedError):
        gradient.copy().get()
    assert gradient.copy().get(user="alice").tolist() == [[1, 2]]


def test_a_shape_that_would_tell_is_refused(bob: Any) -> None:
    plan = plan_of(lambda x: x[x > 0], (-1,))
    secret = private([1.0, -2.0], bob)
    held = len(bob._objects)
    with pytest.raises(GetNotPermittedError, match="shape of its result depends"):
        plan.send(bob)(secret)
    assert len(bob._objects) == held + 1
    assert plan.send(bob)(secret, user="alice").get(user="alice").tolist() == [1]


def test_a_failure_that_would_tell_shows_only_to_those_who_may_know(bob: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1,), (-1,)], args_dtype=[torch.float32, torch.int64])(
        lambda x, at: x[at] * 2
    )
    values, where = torch.ones(3).send(bob), private([1, 7], bob)
    result = plan.send(bob)(values, where)
    assert result.shape == (2,)
    with pytest.raises(GetNotPermittedError):
        result.copy().get()
    with pytest.raises(RemoteError, match="out of bounds"):
        result.copy().get(user="alice")


def test_training_on_private_data_makes_the_model_private(bob: Any) -> None:
    net = nn.Linear(2, 1)
    plan = sy.Plan.training(
        net, nn.functional.mse_loss, torch.optim.SGD(net.parameters(), lr=0.1), args_shape=[(-1, 2), (-1, 1)]
    )
    remote = plan.send(bob)
    loss = remote(private([[1.0, 2.0]], bob), private([[1.0]], bob))
    with pytest.raises(GetNotPermittedError):
        loss.copy().get()
    with pytest.raises(GetNotPermittedError):
        plan.get_()
    before = net.weight.detach().clone()
    plan.get_(user="alice")
    assert not torch.equal(net.weight, before)


def test_a_plan_cannot_be_made_to_overwrite_private_objects(me: Any, bob: Any) -> None:
    from syft.messaging.message import PlanCallMessage, Ref

    plan = plan_of(lambda x: x * 2, (-1,))
    plan.send(bob)
    secret, mine = private([1.0], bob), torch.ones(1).send(bob)
    call = PlanCallMessage(
        plan.id, (Ref(mine.child.id_at_location),), (), None, (secret.child.id_at_location,)
    )
    with pytest.raises(SendNotPermittedError):
        me.send_msg(call, bob)
    assert secret.get(user="alice").tolist() == [1]


def test_a_plan_that_names_private_state_of_others_gets_no_further(me: Any, bob: Any) -> None:
    secret = private([1.0, 2.0], bob)
    stolen = Program((), (), 1, (), (Operation("mul", (Slot(0), 1), {}, Slot(1)),), Slot(1))
    me.send_msg(ObjectMessage(HeldPlan(stolen, (secret.child.id_at_location,), ("s",), (), (0,)), 5), bob)
    (found,) = bob.search([5])
    with pytest.raises(GetNotPermittedError):
        found().get()
    with pytest.raises(GetNotPermittedError):
        me.fetch_plan(5, bob)


# -- over the wire -----------------------------------------------------------------------------------


class Wired(sy.VirtualWorker):
    """A worker that every message and every reply reaches as bytes."""

    def _recv_msg(self, message: Any) -> Any:
        arrived = sy.serde.deserialize(bytearray(sy.serde.serialize(message, self)), self)
        reply = super()._recv_msg(arrived)
        return sy.serde.deserialize(bytearray(sy.serde.serialize(reply, self)), sy.local_worker)


@pytest.fixture
def wired(hook: Any, me: Any) -> Any:
    worker = Wired(hook, id="wired")
    yield worker
    worker.clear_objects()
    worker.remove_worker_from_local_worker_registry()


def test_calls_gradients_and_fetches_work_over_bytes(net: Any, me: Any, wired: Any) -> None:
    plan = net.copy().tag("#wired")
    x = torch.rand(4, 3)
    here, there = x.clone().requires_grad_(), x.send(wired).requires_grad_()
    pointer = plan.send(wired)
    (pointer(there) ** 2).sum().backward()
    (net(here) ** 2).sum().backward()
    torch.testing.assert_close(there.grad.get(), here.grad)
    (found,) = me.request_search(["#wired"], wired)
    assert torch.equal(found(there).get().detach(), net(x))
    assert torch.equal(me.fetch_plan(plan.id, wired)(x), net(x))
    rows = plan_of(lambda v: {"kept": v[v > 0.5]}, (-1,))
    assert rows.send(wired)(torch.tensor([0.1, 0.9]).send(wired))["kept"].get().tolist() == [
        pytest.approx(0.9)
    ]


def test_training_works_over_bytes(wired: Any) -> None:
    torch.manual_seed(0)
    one = nn.Linear(3, 1)
    other = nn.Linear(3, 1)
    other.load_state_dict(one.state_dict())
    mine, theirs = (torch.optim.Adam(m.parameters(), lr=0.1, amsgrad=True) for m in (one, other))
    plan = sy.Plan.training(one, nn.functional.mse_loss, mine, args_shape=[(-1, 3), (-1, 1)])
    remote = plan.send(wired)
    for _ in range(5):
        x, y = torch.rand(6, 3), torch.rand(6, 1)
        loss = remote(x.send(wired), y.send(wired))
        theirs.zero_grad()
        wanted = nn.functional.mse_loss(other(x), y)
        wanted.backward()
        theirs.step()
        assert torch.equal(loss.get(), wanted.detach())
    plan.get_()
    assert torch.equal(one.weight, other.weight) and torch.equal(one.bias, other.bias)


def test_a_forged_plan_is_refused_when_it_arrives(me: Any, wired: Any) -> None:
    good = HeldPlan(program(Operation("add", (Slot(0), 1), {}, Slot(1)), outputs=Slot(1)))
    bad = program(Operation("torch.load", ("secrets",), {}, Slot(1)), outputs=Slot(1))
    object.__setattr__(good, "_program", bad)
    with pytest.raises(SerdeError, match=r"torch\.load.*not a known torch operation"):
        me.send_msg(ObjectMessage(good, 3), wired)
    assert not wired._objects
