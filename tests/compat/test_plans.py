"""Plans as programs of 2020 use them: `args_shape` only builds, and a plan does the same wherever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.execution.errors import PlanArgumentsError
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
