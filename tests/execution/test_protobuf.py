"""Plans as Protocol Buffers: they come back as they were, and what is not a plan does not."""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import nn

import plan_models as models
import syft as sy
from syft.exceptions import SyftError, UnknownCommandError
from syft.execution.errors import PlanError
from syft.execution.operation import Operation, Size, Slot
from syft.execution.protobuf import from_bytes, plan_pb2, to_bytes
from syft.execution.replay import Replay
from syft.serde import Limits, SerdeError, UnserializableError

ROOT = Path(__file__).parents[2]


def again(plan: Any) -> Any:
    """A plan by way of its message's bytes."""
    data = sy.Plan.bufferize(sy.local_worker, plan).SerializeToString()
    return sy.Plan.unbufferize(sy.local_worker, plan_pb2.PlanPB.FromString(data))


def small() -> Any:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    made = sy.func2plan(args_shape=[(-1, 3)])(lambda x: layers(x).view(x.shape[0] * 2, -1) + torch.ones(1))
    return made.tag("#a", "#b").describe("c")


@pytest.fixture(scope="module")
def net() -> Any:
    return small()


# -- round trips -------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", models.MODELS)
def test_a_plan_comes_back_with_its_results_and_gradients(name: str, training: bool) -> None:
    make, shape = models.MODELS[name]
    torch.manual_seed(3)
    model = make().train(training)
    plan = again(sy.func2plan(args_shape=[shape])(copy.deepcopy(model)))
    for size in (2, 7, 64):
        x = torch.randn([size if n == -1 else n for n in shape])
        found = []
        for function, parameters in ((model, model.parameters()), (plan, plan.parameters())):
            torch.manual_seed(11)
            given, held = x.clone().requires_grad_(), list(parameters)
            result = function(given)
            gradients = torch.autograd.grad(models.total(result), [given, *held])
            found.append([*models.tensors_in(result), *gradients])
        for ours, theirs in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    named = dict(zip(plan.state.names, plan.state.tensors(), strict=True))
    for buffer, value in model.named_buffers():
        torch.testing.assert_close(named[buffer], value)


def test_everything_about_a_plan_comes_back(net: Any) -> None:
    plan = again(net)
    assert (plan.id, plan.name, plan.tags, plan.description) == (net.id, net.name, {"#a", "#b"}, "c")
    assert plan.operations == net.operations and plan.program.outputs == net.program.outputs
    assert plan.program.inputs == net.program.inputs and plan.owner is sy.local_worker
    assert plan.state.names == net.state.names and plan.state.buffers == net.state.buffers
    for ours, theirs in zip(plan.state.tensors(), net.state.tensors(), strict=True):
        assert type(ours) is type(theirs) and ours.requires_grad == theirs.requires_grad
        assert torch.equal(ours, theirs) and ours.data_ptr() != theirs.data_ptr()
    assert to_bytes(net) == to_bytes(net) == to_bytes(plan)


def test_both_formats_carry_the_same(net: Any) -> None:
    x = torch.rand(5, 3)
    one = sy.serde.deserialize(sy.serde.serialize(net))
    other = from_bytes(sy.Plan, to_bytes(net))
    assert one.operations == other.operations and torch.equal(one(x), other(x))


def test_a_plan_that_came_as_a_message_can_be_sent(net: Any, bob: Any) -> None:
    x = torch.rand(5, 3)
    assert torch.equal(again(net).send(bob)(x.send(bob)).get(), net(x))


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -5, (1 << 62), 1.5, float("inf"), -0.0, 2 - 3j, "", "ü", ..., torch.float16,
        torch.device("cuda:1"), torch.device("cpu"), torch.strided, torch.channels_last, Slot(0),
        Size("*", Size("dim", 0, 1), 2), Size("neg", 3, 0), (), (1, (2,)), [], [[None]], {}, {"a": 1, 2: [3], True: ()},
        slice(None, 3, None), slice(Size("dim", 0, 0), None, -1),
    ],
)  # fmt: skip
def test_every_value_of_an_operation_comes_back(value: Any) -> None:
    operation = Operation("add", (Slot(0), value), {"alpha": value}, (Slot(1), None, (Slot(2),)), False)
    message = Operation.bufferize(None, operation)
    back = Operation.unbufferize(None, plan_pb2.OperationPB.FromString(message.SerializeToString()))
    assert back == operation and repr(back) == repr(operation)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(2, 0), torch.tensor(7), torch.tensor([True, False]),
        torch.randn(3, dtype=torch.complex64), torch.randn(3).bfloat16(), torch.arange(9)[::2],
        nn.Parameter(torch.randn(2), requires_grad=False), torch.randn(2, requires_grad=True),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    ],
)  # fmt: skip
def test_tensors_of_a_state_come_back(tensor: Any) -> None:
    state = sy.State.unbufferize(
        None, sy.State.bufferize(None, sy.State.of([tensor, torch.ones(1)], ["w"], [1]))
    )
    back = state.tensors()[0]
    assert torch.equal(back, tensor) and back.dtype == tensor.dtype
    assert type(back) is type(tensor) and back.requires_grad == tensor.requires_grad
    assert state.names == ["w", "1"] and state.buffers == {1}


def test_placeholders_come_back(net: Any) -> None:
    for placeholder in net.placeholders.values():
        back = sy.PlaceHolder.unbufferize(None, sy.PlaceHolder.bufferize(None, placeholder))
        assert (back.id, back.tags, str(back)) == (placeholder.id, placeholder.tags, str(placeholder))
        assert back.expected_shape == placeholder.expected_shape


def test_a_training_plan_comes_back_and_trains() -> None:
    def made() -> Any:
        torch.manual_seed(0)
        model = models.Mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.8, 0.9))
        shapes = [(-1, 12), (-1, 3)]
        return model, sy.Plan.training(model, nn.functional.mse_loss, optimizer, args_shape=shapes)

    model, plan = made()
    back = again(made()[1])
    x, y = torch.randn(5, 12), torch.randn(5, 3)
    for _ in range(3):
        assert torch.equal(back(x, y), plan(x, y))
    named = dict(zip(back.state.names, back.state.tensors(), strict=True))
    for name, parameter in model.named_parameters():
        assert torch.equal(named[name], parameter)


# -- what cannot be written --------------------------------------------------------------------------


def test_what_has_no_message_is_refused_when_it_is_written(net: Any, workers: Any) -> None:
    with pytest.raises(PlanError, match="not built"):
        to_bytes(sy.func2plan()(lambda x: x))
    with pytest.raises(UnserializableError, match="Plan, State"):
        to_bytes(torch.ones(1))
    with pytest.raises(UnserializableError, match="out of range"):
        to_bytes(Operation("add", (Slot(0), 1 << 80), {}, Slot(1)))
    with pytest.raises(UnserializableError, match="cannot be written"):
        to_bytes(Operation("add", (Slot(0), object()), {}, Slot(1)))
    shared = net.copy()
    shared.fix_precision_().share_(workers.alice, workers.bob, crypto_provider=workers.charlie)
    with pytest.raises(UnserializableError, match="get_"):
        to_bytes(shared)


def test_without_the_package_the_error_names_it(net: Any) -> None:
    code = (
        "import sys\n"
        "sys.modules['google'] = sys.modules['google.protobuf'] = None\n"
        "import torch, syft as sy\n"
        "hook = sy.TorchHook(torch)\n"
        "plan = sy.func2plan(args_shape=[(1,)])(lambda x: x + 1)\n"
        "try:\n    sy.Plan.bufferize(None, plan)\n"
        "except sy.exceptions.DependencyError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "protobuf" in done.stdout and "pip install" in done.stdout, done.stderr


# -- strangers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", "os.system eval torch.load __reduce_ex__ apply_ data_ptr set_ backward".split()
)
def test_a_function_that_is_none_of_torchs_is_refused_by_name(net: Any, name: str) -> None:
    message = sy.Plan.bufferize(None, net)
    message.program.operations[1].name = name
    with pytest.raises(UnknownCommandError, match=name):
        sy.Plan.unbufferize(None, message)
    with pytest.raises(UnknownCommandError, match=name):
        Operation.unbufferize(None, Operation.bufferize(None, Operation(name, (Slot(0),), {}, Slot(1))))


def _set_version(m: Any) -> None:
    m.version = 2


def _drop_state(m: Any) -> None:
    del m.state.tensors[0]


def _twice(m: Any) -> None:
    m.program.operations[0].kwargs.add(name="bias").value.integer = 1
    m.program.operations[0].kwargs.add(name="bias").value.integer = 1


def _deep(m: Any) -> None:
    value = m.program.operations[0].args[0]
    for _ in range(60):
        value.Clear()
        value = value.list.items.add()
    value.slot = 0


def _deep_size(m: Any) -> None:
    size = m.program.operations[0].args[0].size
    for _ in range(40):
        size.op, size.right.integer = "+", 1
        size = size.left.size
    size.op, size.left.integer, size.right.integer = "dim", 0, 0


WRONG: dict[str, Any] = {
    "a later version": _set_version,
    "no version": lambda m: m.ClearField("version"),
    "no id": lambda m: m.ClearField("id"),
    "an empty id": lambda m: m.id.Clear(),
    "no program": lambda m: m.ClearField("program"),
    "no state": lambda m: m.ClearField("state"),
    "no outputs": lambda m: m.program.ClearField("outputs"),
    "a slot that is empty": lambda m: setattr(m.program.operations[0].args[0], "slot", 900),
    "a result in another slot": lambda m: setattr(m.program.operations[0].results, "slot", 0),
    "a value that says nothing": lambda m: m.program.operations[0].args[0].Clear(),
    "no results": lambda m: m.program.operations[0].ClearField("results"),
    "a text as a result": lambda m: setattr(m.program.operations[0].results, "text", "x"),
    "a tensor too few": _drop_state,
    "a tensor with bytes missing": lambda m: setattr(m.state.tensors[0], "data", b"123"),
    "a tensor larger than memory": lambda m: m.state.tensors[0].shape.extend([1 << 62, 1 << 62]),
    "a tensor of no dtype": lambda m: setattr(m.state.tensors[0], "dtype", "__class__"),
    "integers that require grad": lambda m: setattr(m.state.tensors[0], "dtype", "int32"),
    "an input of no dtype": lambda m: setattr(m.program.inputs[0], "dtype", "load"),
    "an input of no shape": lambda m: m.program.inputs[0].shape.append(-7),
    "a device of no kind": lambda m: setattr(m.program.operations[0].args[0], "device", "evil:0"),
    "a layout of no kind": lambda m: setattr(m.program.operations[0].args[0], "layout", "__dict__"),
    "a buffer that is not there": lambda m: m.state.buffers.append(99),
    "a size by a strange operator": lambda m: setattr(m.program.operations[0].args[0].size, "op", "import"),
    "an argument twice": _twice,
    "a key that is none": lambda m: (
        m.program.operations[0].args[0].mapping.entries.add().key.tuple.SetInParent()
    ),
    "an optimizer of no kind": lambda m: setattr(m.training, "optimizer", "__class__"),
    "too deep": _deep,
    "sizes too deep": _deep_size,
}


@pytest.mark.parametrize("what", WRONG)
def test_a_message_that_makes_no_sense_is_refused(net: Any, what: str) -> None:
    message = sy.Plan.bufferize(None, net)
    WRONG[what](message)
    with pytest.raises((SerdeError, PlanError)):
        sy.Plan.unbufferize(None, message)


def test_fields_of_a_later_version_are_not_passed_over(net: Any) -> None:
    data = to_bytes(net) + b"\xfa\x07\x03abc"  # field 127, in no version of ours
    with pytest.raises(SerdeError, match="unknown here"):
        from_bytes(sy.Plan, data)


def test_messages_of_another_kind_and_of_another_size_are_refused(net: Any) -> None:
    with pytest.raises(SerdeError, match="PlanPB"):
        sy.Plan.unbufferize(None, sy.State.bufferize(None, net.state))
    with pytest.raises(SerdeError, match="StatePB"):
        sy.State.unbufferize(None, b"")
    with pytest.raises(SerdeError, match="allowed here"):
        from_bytes(sy.Plan, to_bytes(net), limits=Limits(max_bytes=10))
    with pytest.raises(SerdeError, match="no PlanPB"):
        from_bytes(sy.Plan, b"\xff\xff\xff")
    with pytest.raises(TypeError, match="Plan"):
        from_bytes(int, b"")


@cache
def _bytes() -> bytes:
    return to_bytes(small())


@hypothesis.settings(max_examples=600)
@hypothesis.given(data=st.data())
def test_mutated_bytes_are_a_plan_that_passes_the_check_or_our_error(data: Any) -> None:
    good = bytearray(_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(good) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "insert", "flip"]))
        if how == "set":
            good[where] = data.draw(st.integers(0, 255))
        elif how == "flip":
            good[where] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "cut":
            del good[where : where + data.draw(st.integers(1, 40))]
        else:
            good[where:where] = data.draw(st.binary(min_size=1, max_size=8))
        if not good:
            return
    _is_checked_or_refused(bytes(good))


@hypothesis.settings(max_examples=200)
@hypothesis.given(st.binary(max_size=200))
def test_any_bytes_are_a_plan_that_passes_the_check_or_our_error(data: bytes) -> None:
    _is_checked_or_refused(data)


def _is_checked_or_refused(data: bytes) -> None:
    ran: list[Any] = []
    run = Replay.run
    try:
        Replay.run = lambda *args: ran.append(args)  # type: ignore[method-assign,assignment]
        plan = from_bytes(sy.Plan, data)
    except SyftError:
        pass
    else:
        Replay(plan.program)
    finally:
        Replay.run = run  # type: ignore[method-assign]
    assert not ran


# -- the generated code ------------------------------------------------------------------------------


def test_the_generated_code_is_that_of_the_proto_file(tmp_path: Path) -> None:
    where = "syft/execution/protobuf/plan"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", "src", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
         f"src/{where}.proto"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    for kind in ("_pb2.py", "_pb2.pyi"):
        assert (tmp_path / f"{where}{kind}").read_text() == (ROOT / f"src/{where}{kind}").read_text(), (
            "run make proto"
        )
