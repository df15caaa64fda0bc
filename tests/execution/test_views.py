"""A plan as text: a list of operations, and code that does the same when somebody runs it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import plan_models as models
import syft as sy
from syft.execution.errors import InvalidProgramError, PlanError
from syft.execution.naming import identifier
from syft.execution.operation import Operation, Size, Slot
from syft.execution.program import Input, Program
from syft.execution.state import State
from syft.execution.views import code_of
from syft.execution.vocabulary import plan_command, plan_operations


def compiled(code: str, name: str | None = None) -> Any:
    """The function of a piece of code. Only tests run it."""
    space: dict[str, Any] = {}
    exec(code, space)  # noqa: S102
    functions = {k: v for k, v in space.items() if callable(v)}
    return functions[name] if name else next(iter(functions.values()))


def from_code(plan: Any, *args: Any) -> Any:
    more = [plan.state.tensors()] if len(plan.state) else []
    if "constants):" in plan.code:
        more.append(plan.program.constants)
    return compiled(plan.code)(*args, *more)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", models.MODELS)
def test_the_code_of_a_plan_does_what_the_plan_does(name: str, training: bool) -> None:
    make, shape = models.MODELS[name]
    torch.manual_seed(3)
    model = make().train(training)
    plan = sy.func2plan(args_shape=[shape])(copy.deepcopy(model)).copy()
    for size in (2, 7, 64):
        x = torch.randn([size if n == -1 else n for n in shape])
        torch.manual_seed(11)
        wanted = model(x)
        torch.manual_seed(11)
        found = from_code(plan, x)
        assert type(found) is type(wanted)
        for ours, theirs in zip(models.tensors_in(found), models.tensors_in(wanted), strict=True):
            torch.testing.assert_close(ours, theirs)
    state = dict(zip(plan.state.names, plan.state.tensors(), strict=True))
    for buffer, value in model.named_buffers():
        torch.testing.assert_close(state[buffer], value)


def test_code_reads_like_code() -> None:
    assert sy.func2plan(args_shape=[(-1, 12)])(models.Mlp()).code == (
        "import torch\n"
        "\n"
        "\n"
        "def Mlp(input_0, state):\n"
        "    first_weight, first_bias, second_weight, second_bias = state\n"
        "    linear_1 = torch.nn.functional.linear(input_0, first_weight, first_bias)  # (-1, 8)\n"
        "    relu_1 = torch.relu(linear_1)  # (-1, 8)\n"
        "    linear_2 = torch.nn.functional.linear(relu_1, second_weight, second_bias)  # (-1, 3)\n"
        "    return linear_2\n"
    )


def _arithmetic(x: Any) -> Any:
    y = x * 2 + 1 - x / 3
    y[0] = 5
    y[:, 1:3] += 1
    z = 3 - y
    powers = (-2.0) ** z, y**-1, y // 2, 7 % (y * y + 1)
    product = y @ y.T
    return powers, ~((product > 0) & (product < 5)) | (product == 1), [x.max(1)[0], x[..., None, ::2]]


def _sizes(x: Any) -> Any:
    rows, columns = x.shape
    return x.reshape(-1, rows * columns // 2) * (rows / columns) + (rows - 1) ** 2 % 7 - (-rows), x[
        : rows - 1
    ]


def _grad_modes(x: Any) -> Any:
    with torch.no_grad():
        a = x * 3
        b = a + 1
    return a * x + b, torch.empty(3), x.new_empty((2,))


def _constants(x: Any) -> Any:
    odd = torch.tensor([float("inf"), float("-inf"), 1e-40, float("nan")])
    return x + torch.tensor([1.5, -2.0, 0.1, 3e38]), odd, torch.tensor([True, False]), torch.tensor(2 - 1j)


_LARGE = list(range(100))


def _large_constant(x: Any) -> Any:
    table = torch.tensor(_LARGE, dtype=torch.float64)
    table += 1
    return table[:4] + x


@pytest.mark.parametrize("function", [_arithmetic, _sizes, _grad_modes, _constants, _large_constant])
def test_the_code_of_a_function_does_what_the_function_does(function: Any) -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(function)
    for rows in (3, 6):
        x = torch.rand(rows, 4) + 0.5
        # Fresh memory is cleared in plans, and so in their code; the function itself has whatever lay there.
        wanted, found = models.tensors_in(plan.copy()(x)), models.tensors_in(from_code(plan, x))
        assert len(wanted) == len(found)
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
            assert ours.dtype == theirs.dtype


def test_gradients_stop_in_the_code_where_they_stop_in_the_function() -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(lambda x: _grad_modes(x)[0])
    x = torch.rand(2, 4, requires_grad=True)
    (wanted,) = torch.autograd.grad(_grad_modes(x)[0].sum(), x)
    (found,) = torch.autograd.grad(from_code(plan, x).sum(), x)
    assert torch.equal(found, wanted) and "mul_1 = input_0.detach().mul(3)" in plan.code


def test_nested_arguments_are_taken_apart() -> None:
    def function(pair: Any, scale: Any, last: Any) -> Any:
        return {"sum": pair[0] + pair[1]["b"], 3: [last * scale]}

    args = ([torch.ones(2, 3), {"b": torch.rand(2, 3)}], 4, torch.rand(5))
    plan = sy.func2plan()(function).build(*args)
    found, wanted = from_code(plan, *args), function(*args)
    assert torch.equal(found["sum"], wanted["sum"]) and torch.equal(found[3][0], wanted[3][0])
    assert "argument_1 is 4" in plan.code


def test_every_name_that_a_plan_may_use_is_where_the_code_looks_for_it() -> None:
    missing = []
    for name in plan_operations():
        found: Any = torch
        for part in name.split(".")[1:] if name.startswith("torch.") else ("Tensor", name):
            found = getattr(found, part, None)
        if found is not plan_command(name).function and name != "torch.tensor":  # the hook wraps that one
            if found != plan_command(name).function:
                missing.append(name)
    assert not missing


# -- strangers ---------------------------------------------------------------------------------------


class Ran(Exception):
    """Code of a stranger was run."""


EVIL = 'x\n    raise Ran\n#\'"""); raise Ran #'


def evil(**changes: Any) -> Program:
    first = Operation("add", (Slot(0), 1), {}, Slot(2))
    return replace(
        Program((Slot(0),), (Input((-1,), torch.float32),), 1, (), (first,), Slot(2)),
        **changes,
    )


def code(program: Program, name: str = "f", label: str = "w") -> str:
    return code_of(program, State.of([torch.ones(1)], [label]), name)


@pytest.mark.parametrize(
    "text", [EVIL, "", "0", "class", "torch", "state", "print", "a b", "é", "\\", "input_0", "f"]
)
def test_names_of_strangers_are_names_in_the_code(text: str) -> None:
    for made in (code(evil(), name=text), code(evil(), label=text)):
        space: dict[str, Any] = {"Ran": Ran}
        exec(made, space)  # noqa: S102
        (function,) = (v for k, v in space.items() if callable(v) and v is not Ran)
        assert torch.equal(function(torch.ones(1), [torch.ones(1)]), torch.tensor([2.0]))


def test_texts_of_strangers_are_texts_in_the_code() -> None:
    made = code(evil(outputs={EVIL: Slot(0), "b": (EVIL, Size("dim", 0, 0))}))
    space: dict[str, Any] = {"Ran": Ran}
    exec(made, space)  # noqa: S102
    assert space["f"](torch.ones(3), [1]) == {EVIL: pytest.approx(torch.ones(3)), "b": (EVIL, 3)}
    nested = evil(signature=({EVIL: Slot(0)}, EVIL))
    space = {"Ran": Ran}
    exec(code(nested), space)  # noqa: S102
    assert space["f"]({EVIL: torch.ones(1)}, EVIL, [1]) == 2


@pytest.mark.parametrize("keyword", [EVIL, "a=1, b", "", "class", "a.b", "1"])
def test_a_keyword_that_is_none_is_refused(keyword: str) -> None:
    program = evil(operations=(Operation("add", (Slot(0), 1), {keyword: 1}, Slot(2)),))
    with pytest.raises(InvalidProgramError):
        code(program)


def test_an_unbuilt_plan_has_no_code() -> None:
    with pytest.raises(PlanError, match="not built"):
        sy.func2plan()(lambda x: x).code


def test_printing_a_plan_shows_a_line_for_every_operation() -> None:
    text = str(sy.func2plan(args_shape=[(-1, 12)])(models.Mlp()))
    assert text.splitlines()[0].startswith("<Plan Mlp id:") and text.count("torch.nn.functional.linear(") == 2
    assert len(text.splitlines()) == 1 + 1 + 4 + 3 + 1


def test_identifiers() -> None:
    assert [identifier(t, "s") for t in ("a.b-c", "0.weight", "", "__x__", "ü")] == [
        "a_b_c",
        "s_0_weight",
        "s",
        "x",
        "s",
    ]


def test_a_plan_with_many_tensors_of_state_names_them_one_by_one() -> None:
    plan = sy.func2plan(args_shape=[(-1, 2)])(nn.Sequential(*(nn.Linear(2, 2) for _ in range(4))))
    assert "        state_0_weight,\n        state_0_bias,\n" in plan.code
    x = torch.rand(3, 2)
    assert torch.equal(from_code(plan, x), plan(x))
