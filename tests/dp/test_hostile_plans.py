"""Plans of strangers beside private rows: what a row can do but by its clipped part of the sum. Each test is a way."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from torch import nn

from syft.core.spec import spec_of
from syft.dp.clipping import clipped_sum
from syft.dp.private_programs import OPERATIONS, check_program
from syft.exceptions import ReleaseNotPermittedError
from syft.execution.operation import Operation, Slot
from syft.execution.program import Input, Program
from syft.execution.replay import Replay
from syft.federated.plan_module import BUFFER, TRAINED, PlanModule

torch.set_num_threads(1)
BOUND, WIDTH = 1.0, 4
F = "torch.nn.functional."
LINEAR = Operation(F + "linear", (Slot(0), Slot(1), Slot(2)), {}, Slot(3), True)


def plan(*operations: Operation, kinds: tuple[int, int] = (TRAINED, TRAINED)) -> PlanModule:
    """Slot 0 is a row, slots 1 and 2 a weight and a bias."""
    program = Program(
        (Slot(0),), (Input((-1, WIDTH), torch.float32),), 2, (), operations, Slot(2 + len(operations))
    )
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(WIDTH, WIDTH, generator=generator), torch.randn(WIDTH, generator=generator)]
    return PlanModule([Replay(program)], [(0, 1)], ["weight", "bias"], list(kinds), tensors)


def moved(model: nn.Module, x: torch.Tensor, place: int, other: torch.Tensor, way: str = "vmap") -> float:
    """By how much the clipped sum moves where one row is another."""
    y = torch.zeros(len(x), dtype=torch.long)
    swapped = x.clone()
    swapped[place] = other
    first, second = (
        clipped_sum(model, nn.CrossEntropyLoss(), rows.clone(), y, {"": BOUND}, way=way)[0]
        for rows in (x, swapped)
    )
    assert all(bool(s.isfinite().all()) for sums in (first, second) for s in sums.values())
    return math.sqrt(sum(float((first[n] - second[n]).square().sum()) for n in first))


WRITING = {
    "leaky_relu": Operation(F + "leaky_relu", (Slot(0), 1e-3), {"inplace": True}, Slot(3), True),
    "elu": Operation(F + "elu", (Slot(0), 3.0), {"inplace": True}, Slot(3), True),
    "silu": Operation(F + "silu", (Slot(0),), {"inplace": True}, Slot(3), True),
}


@pytest.mark.parametrize("name", WRITING)
def test_a_row_that_is_not_finite_does_not_have_the_others_computed_again(name: str) -> None:
    """It had: a plan that writes into its rows gave other gradients then, of all of them, 14 bounds for 20 rows."""
    model = plan(WRITING[name], Operation(F + "linear", (Slot(0), Slot(1), Slot(2)), {}, Slot(4), True))
    check_program(model, spec_of(torch.empty(1, WIDTH, device="meta")))
    x = -1000 * torch.rand(20, WIDTH, generator=torch.Generator().manual_seed(2))
    assert moved(model, x, 3, torch.full((WIDTH,), math.inf)) <= BOUND * (1 + 1e-9)


@pytest.mark.parametrize("way", ["auto", "rules", "vmap"])
def test_no_way_computes_a_batch_twice_because_of_a_row(way: str) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.neg_()
            return self.layer(x)

    torch.manual_seed(0)
    model, x = Writes(), torch.rand(30, WIDTH)
    assert moved(model, x, 0, torch.full((WIDTH,), math.nan), way) <= BOUND * (1 + 1e-9)
    assert bool((x >= 0).all())


def test_the_last_digits_of_the_others_do_not_depend_on_a_row_that_is_not_finite() -> None:
    """Rounding depends on where in a batch a row stands, and a plan can enlarge it: so it stays where it stands."""
    from syft.dp.clipping import clipped

    model, x = plan(LINEAR), torch.randn(37, WIDTH)
    bad = x.clone()
    bad[5] = math.nan
    y = torch.zeros(37, dtype=torch.long)
    usual, odd = (
        clipped(model, nn.CrossEntropyLoss(), rows, y, {"": BOUND}, way="vmap")[0] for rows in (x, bad)
    )
    others = torch.arange(37) != 5
    for name in usual:
        assert torch.equal(usual._found[name].expand()[others], odd._found[name].expand()[others])
        assert not bool(odd._found[name].expand()[5].count_nonzero())


EXTREMES = (0.0, 1.0, -1.0, 1e38, -1e38, 1e-45, math.nan, math.inf, -math.inf)
#: Operations that take a row of any width, with arguments that fit, by chance.
STEPS: list[Any] = [
    lambda r, s: (F + "relu", (s,), {"inplace": r.random() < 0.5}),
    lambda r, s: (F + "leaky_relu", (s, r.choice([0.01, -3.0, 1e20])), {"inplace": r.random() < 0.5}),
    lambda r, s: (F + "elu", (s, r.choice([0.5, 1e20])), {"inplace": r.random() < 0.5}),
    lambda r, s: (F + "silu", (s,), {"inplace": r.random() < 0.5}),
    lambda r, s: (F + "gelu", (s,), {}),
    lambda r, s: (F + "softplus", (s, r.choice([1.0, 1e10])), {}),
    lambda r, s: ("tanh", (s,), {}),
    lambda r, s: ("sigmoid", (s,), {}),
    lambda r, s: ("neg", (s,), {}),
    lambda r, s: ("add", (s, s), {"alpha": r.choice([1, -1.0, 1e30])}),
    lambda r, s: ("sub", (s, r.choice([s, 2.5])), {}),
    lambda r, s: ("mul", (s, r.choice([s, 1e30, 0.0, math.inf])), {}),
    lambda r, s: (F + "layer_norm", (s, (WIDTH,)), {"eps": r.choice([1e-5, 0.0])}),
    lambda r, s: (F + "linear", (s, Slot(1), Slot(2)), {}),
    lambda r, s: ("reshape", (s, (-1, WIDTH)), {}),
]


def test_one_row_moves_the_sum_by_two_bounds_at_most_whatever_the_plan() -> None:
    """Random plans of the list, random rows with extremes, one row replaced; and none fails because of a value."""
    assert all(step(random.Random(0), Slot(0))[0] in OPERATIONS for step in STEPS)
    tried = 0
    for seed in range(120):
        r = random.Random(seed)
        operations = [LINEAR] if r.random() < 0.5 else []
        for _ in range(r.randrange(1, 6)):
            last = Slot(2 + len(operations)) if operations else Slot(0)
            name, args, kwargs = r.choice(STEPS)(r, last)
            operations.append(Operation(name, args, kwargs, Slot(3 + len(operations)), True))
        if not any(op.name == F + "linear" for op in operations):
            last = Slot(2 + len(operations))
            operations.append(
                Operation(F + "linear", (last, Slot(1), Slot(2)), {}, Slot(3 + len(operations)), True)
            )
        model = plan(*operations)
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(12, WIDTH, generator=generator) * 10.0 ** r.randrange(-6, 7)
        for row in range(12):
            if r.random() < 0.15:
                x[row, r.randrange(WIDTH)] = r.choice(EXTREMES)
        other = torch.tensor([r.choice(EXTREMES) for _ in range(WIDTH)])

        def run(model: nn.Module = model, x: Any = x, r: Any = r, other: Any = other) -> float:
            return moved(model, x, r.randrange(12), other)

        try:  # whether it runs is found out with zeros
            moved(model, torch.zeros(1, WIDTH), 0, torch.zeros(WIDTH))
        except (RuntimeError, ValueError):
            with pytest.raises((RuntimeError, ValueError)):
                run()
            continue
        assert run() <= 2 * BOUND * (1 + 1e-9), seed
        tried += 1
    assert tried >= 100


@pytest.mark.parametrize("kind", [TRAINED, BUFFER])
@pytest.mark.parametrize("through_a_view", [False, True])
def test_a_plan_that_would_remember_is_refused(kind: int, through_a_view: bool) -> None:
    """In a parameter or a buffer, itself or a view of it: refused by what the plan does, or in the pass on zeros."""
    first = Operation("view", (Slot(2), WIDTH), {}, Slot(3), True)
    target = Slot(3) if through_a_view else Slot(2)
    writes = Operation(F + "leaky_relu", (target, 0.5), {"inplace": True}, Slot(4), True)
    model = plan(
        first,
        writes,
        Operation(F + "linear", (Slot(0), Slot(1), Slot(4)), {}, Slot(5), True),
        kinds=(TRAINED, kind),
    )

    def looked_at_and_run() -> None:
        x, y = torch.zeros(1, WIDTH), torch.zeros(1, dtype=torch.long)
        check_program(model, spec_of(x.to("meta")))
        clipped_sum(model, nn.CrossEntropyLoss(), x, y, {"": BOUND}, way="vmap")

    with pytest.raises((ReleaseNotPermittedError, ValueError), match=r"writes to its own|changed while"):
        looked_at_and_run()
