"""What a function may do to become a plan, and what is refused, by the line it stands on."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.execution.errors import PlanError, TraceError

W = torch.randn(4, 3)


def uses_sizes(x: Any) -> Any:
    return x.view(x.shape[0], -1) * (x.size(0) * 2 + 1) // 3 - x.numel() / x.shape[0] + len(x)


def indexes(x: Any) -> Any:
    half = x.size(0) // 2 + 1
    return x[:half, None, ..., 1], x[[0]], x[torch.tensor([0, 0])], x[x.shape[0] - 1], x[:, -1:][..., 0]


def writes(x: Any) -> Any:
    y = x * 1
    y += 1
    y[0] = 2
    y[:, 1:2] -= 3
    y.mul_(2).clamp_(max=5)
    return y


def without_grad(x: Any) -> Any:
    with torch.no_grad():
        scale = x.abs().max()
    return x / scale


def makes_tensors(x: Any) -> Any:
    mask = torch.ones(x.shape[1], x.shape[1]).tril() * torch.full_like(x[0], 0.5)
    return (
        x @ mask
        + torch.arange(x.size(0))[:, None]
        + torch.tensor([1.0, 2.0, 3.0, 4.0])
        + x.new_zeros(x.shape)
    )


def structures(x: Any) -> Any:
    first, second = torch.split(x, 2, dim=1)
    values, where = x.max(dim=1)
    return {"parts": [first, (second,)], "max": values, "at": where, "none": None, "number": 3}


def transposes(x: Any) -> Any:
    return x.T @ x, x.mT.sum(0), x.real, x.unflatten(1, (2, 2)).flatten(1), x.t().contiguous()


def joins(x: Any) -> Any:
    return torch.cat([x, x * 2], dim=0), torch.stack((x, x)), torch.einsum("bi,ij->bj", x, W)


def loops(x: Any) -> Any:
    h = torch.zeros(x.shape[0])
    for step in range(x.shape[1]):
        h = torch.tanh(h + x[:, step])
    return h


def cut(x: Any) -> Any:
    few = x[:3]
    return few.reshape(few.shape[0] * few.shape[1])


def helper(x: Any) -> Any:
    return F.softmax(x, dim=-1)


def plain_sizes(x: Any) -> Any:
    return x.view(len(x), int(x.shape[1])) / float(x.shape[0]) + torch.tensor(x.shape[0]) ** -0.5


def nested(x: Any) -> Any:
    return helper(helper(x)) * W.shape[0]


FUNCTIONS: list[Callable[[Any], Any]] = [
    uses_sizes, indexes, writes, without_grad, makes_tensors, structures, transposes, joins, loops, cut, nested,
    plain_sizes,
]  # fmt: skip


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_plan_of_any_size_is_right_for_every_size(function: Any, size: int) -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(function).copy()
    x = torch.randn(size, 4)
    ours, theirs = plan(x.clone()), function(x.clone())
    assert type(ours) is type(theirs)
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b


def test_operations_keep_their_public_names() -> None:
    plan = sy.func2plan(args_shape=[(-1, 784)])(
        lambda x: F.relu(nn.functional.linear(x.view(-1, 784), torch.ones(2, 784)))
    )
    assert [op.name for op in plan.operations] == [
        "view", "torch.ones", "torch.nn.functional.linear", "torch.nn.functional.relu",
    ]  # fmt: skip
    assert plan.operations[0].args[1:] == (-1, 784)


def test_random_numbers_are_drawn_at_every_run() -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(
        lambda x: torch.rand(x.shape[0]) + torch.randn_like(x[:, 0])
    ).copy()
    x = torch.zeros(6, 4)
    assert not torch.equal(plan(x), plan(x))
    torch.manual_seed(1)
    wanted = torch.rand(6) + torch.randn_like(x[:, 0])
    torch.manual_seed(1)
    assert torch.equal(plan(x), wanted)


def test_dropout_keeps_the_mode_it_was_traced_in() -> None:
    drop = nn.Dropout(0.5)
    trains, tests = (sy.func2plan(args_shape=[(-1, 50)])(drop.train(mode)).copy() for mode in (True, False))
    x = torch.ones(4, 50)
    assert (trains(x) == 0).any() and torch.equal(tests(x), x)


def test_tensors_of_the_surroundings_are_state_and_literals_are_operations() -> None:
    weight = torch.randn(4, requires_grad=True)
    plan = sy.func2plan(args_shape=[(-1, 4)])(lambda x: x @ weight + torch.tensor(2.0))
    assert plan.state.tensors()[0] is weight
    assert [op.name for op in plan.operations] == ["matmul", "torch.tensor", "add"]


def test_writing_to_a_constant_does_not_last() -> None:
    import numpy as np

    def counts(x: Any) -> Any:
        total = torch.from_numpy(np.zeros(1, dtype=np.float32))
        total += x.sum()
        return total

    plan = sy.func2plan(args_shape=[(3,)])(counts).copy()
    assert plan(torch.ones(3)) == 3 == plan(torch.ones(3))


def test_several_inputs_may_share_the_unknown_size_or_not() -> None:
    tied = sy.func2plan(args_shape=[(-1, 4), (-1, 4)])(lambda x, y: (x * y).sum(1)).copy()
    assert tied(torch.ones(5, 4), torch.ones(5, 4)).shape == (5,)
    free = sy.func2plan(args_shape=[(-1, 4), (-1, 4)])(lambda x, y: x @ y.T * x.shape[0] + y.shape[0]).copy()
    assert torch.equal(free(torch.ones(2, 4), torch.ones(7, 4)), torch.full((2, 7), 15.0))


def test_building_with_examples_frees_the_first_dimension_if_it_can() -> None:
    plan = sy.Plan(forward_func=uses_sizes).build(torch.zeros(1, 4)).copy()
    assert torch.equal(plan(torch.ones(5, 4)), uses_sizes(torch.ones(5, 4)))
    dots = sy.Plan(forward_func=lambda x: x @ torch.ones(3)).build(torch.zeros(3)).copy()
    assert dots(torch.ones(3)) == 3
    with pytest.raises(PlanError, match=r"shape \(4,\).*built for torch.float32 of shape \(3,\)"):
        dots(torch.ones(4))


def test_nested_arguments_and_numbers_become_the_signature() -> None:
    def function(pair: Any, options: Any, power: int) -> Any:
        return pair[0] * options["w"] + pair[1] ** power

    args = ([torch.ones(2), torch.ones(2)], {"w": torch.ones(2)}, 2)
    plan = sy.Plan(forward_func=function).build(*args).copy()
    assert torch.equal(
        plan([torch.ones(2) * 3, torch.ones(2) * 2], {"w": torch.ones(2)}, 2), torch.full((2,), 7.0)
    )
    with pytest.raises(PlanError, match="with 3 as argument 2; it was built with 2"):
        plan(*args[:2], 3)
    with pytest.raises(PlanError, match="argument 1"):
        plan(args[0], {"v": torch.ones(2)}, 2)


# -- refused -----------------------------------------------------------------------------------------


def by_value(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def by_size(x: Any) -> Any:
    return x if x.shape[0] > 3 else -x


def by_emptiness(x: Any) -> Any:
    return x if x.size(0) else -x


def row_by_row(x: Any) -> Any:
    return torch.stack([row.sum() for row in x])


def range_of_rows(x: Any) -> Any:
    return sum(x[i] for i in range(x.shape[0]))


def floats(x: Any) -> Any:
    return x * float(x.sum())


def ints(x: Any) -> Any:
    return x[int(x.argmax())]


def items(x: Any) -> Any:
    return x * x.sum().item()


def lists(x: Any) -> Any:
    return x * x.tolist()[0][0]


def python_index(x: Any) -> Any:
    return x * [1, 2, 3, 4][x[0].argmax()]


def arrays(x: Any) -> Any:
    return torch.from_numpy(x.numpy())


def by_length(x: Any) -> Any:
    return x if len(x) > 32 else -x


def by_plain_size(x: Any) -> Any:
    return x[: min(50, int(x.shape[0]))]


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def custom_function(x: Any) -> Any:
    return _Square.apply(x) + 1  # type: ignore[no-untyped-call]


def mapped(x: Any) -> Any:
    return torch.vmap(lambda row: row * 2)(x)


def operators(x: Any) -> Any:
    return torch.ops.aten.mul.Tensor(x, 2.0)


def equal(x: Any) -> Any:
    return x if torch.equal(x, x) else -x


def chance(x: Any) -> Any:
    return x * random.random()


def hides_a_size(x: Any) -> Any:
    return x * x.shape.numel()


def goes_back(x: Any) -> Any:
    (x * W.sum()).sum().backward()
    return x


def sets_data(x: Any) -> Any:
    x.data = x * 2
    return x


def asserts(x: Any) -> Any:
    assert (x < 100).all()
    return x


REFUSED = {
    by_value: "decides by the value", by_size: "decides by a size", by_emptiness: "decides by a size",
    row_by_row: "does something else", range_of_rows: "different number of times", floats: r"float\(\)",
    ints: r"int\(\)", items: r"\.item\(\)", lists: r"\.tolist\(\)", python_index: "Python index", arrays: "numpy",
    equal: "torch.equal", chance: "in one traced run", hides_a_size: "in one traced run", goes_back: "Plan.training",
    by_length: "different number of times", by_plain_size: "in one traced run", custom_function: "autograd.Function",
    mapped: "cannot be followed", operators: "aten.mul", sets_data: "sets `.data`", asserts: "decides by the value",
}  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_a_plan_cannot_express_is_refused_by_its_line(function: Any) -> None:
    with pytest.raises(TraceError, match=REFUSED[function]) as caught:
        sy.func2plan(args_shape=[(-1, 4)])(function)
    code = function.__code__
    named = str(caught.value)
    assert code.co_filename in named
    first = code.co_firstlineno - (10 if function is custom_function else 0)
    lines = range(first, first + 12)
    assert any(f"{code.co_filename}:{line} " in named for line in lines), named


def test_a_decision_by_a_fixed_size_is_no_decision() -> None:
    plan = sy.func2plan(args_shape=[(-1, 4)])(lambda x: x if x.shape[1] == 4 and x.dim() == 2 else -x).copy()
    assert torch.equal(plan(torch.ones(2, 4)), torch.ones(2, 4))
    fixed = sy.func2plan(args_shape=[(5, 4)])(by_size).copy()
    assert torch.equal(fixed(torch.ones(5, 4)), torch.ones(5, 4))


def test_a_check_that_sizes_belong_together_is_no_decision() -> None:
    def checked(x: Any, y: Any) -> Any:
        if x.shape[0] != y.shape[0]:
            raise ValueError("not of one batch")
        return x + y

    plan = sy.func2plan(args_shape=[(-1, 2), (-1, 2)])(checked).copy()
    assert plan(torch.ones(3, 2), torch.ones(3, 2)).sum() == 12


@pytest.mark.parametrize("shapes", [(1, 4), [(-2, 4)], [("a",)]])
def test_nonsense_as_args_shape_is_refused(shapes: Any) -> None:
    with pytest.raises(PlanError, match="args_shape"):
        sy.func2plan(args_shape=shapes)(lambda x: x)


def test_a_function_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(TraceError, match="returns 3"):
        sy.func2plan(args_shape=[(2,)])(lambda x: 3)
    with pytest.raises(TraceError, match="returns a size"):
        sy.func2plan(args_shape=[(-1,)])(lambda x: (x, x.shape[0]))


def test_errors_of_the_function_itself_come_through() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sy.func2plan(args_shape=[(-1, 5)])(lambda x: x @ W)
