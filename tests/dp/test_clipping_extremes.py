"""What is clipped is as short as it is said to be, for gradients and bounds of every size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.clipping import clipped_sum
from syft.dp.dpsgd import make_private
from syft.dp.gradient_factors import Full, Outer, Rows

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)


def length(sums: dict[str, torch.Tensor]) -> float:
    return math.sqrt(math.fsum(float(value.double().square().sum()) for value in sums.values()))


@pytest.mark.parametrize("way", ["vmap", "rules"])
@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e-10, 1.0, 1e10, 1e18])
@pytest.mark.parametrize("bound", [1e-45, 3.7e-44, 1e-30, 1e-6, 1.0, 1e6])
def test_nobody_adds_more_than_the_bound(way: str, size: float, bound: float) -> None:
    model = nn.Linear(50, 1, bias=False)
    nn.init.zeros_(model.weight)
    x, y = torch.full((1, 50), size), torch.full((1, 1), -0.5)  # the gradient is x
    sums, _losses = clipped_sum(model, nn.MSELoss(), x, y, {"": bound}, way=way)
    expected = min(bound, float(x.double().norm()))
    assert length(sums) <= bound
    assert length(sums) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_norms_neither_underflow_nor_overflow(dtype: torch.dtype) -> None:
    for size in (torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max / 4, 0.0):
        values = torch.full((3, 4), size, dtype=dtype)
        expected = torch.full((3,), 2.0 * float(values[0, 0]), dtype=torch.float64)
        assert torch.allclose(Full(values).norms(), expected, rtol=1e-12, atol=0)
        rows = Rows(torch.tensor([[0, 1]] * 3), values.reshape(3, 2, 2), 5)
        assert torch.allclose(rows.norms(), expected, rtol=1e-12, atol=0)
        one = torch.ones(3, 1, dtype=dtype)
        assert torch.allclose(Outer(values, one).norms(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_norms_of_what_is_not_finite_are_not_finite(wrong: float) -> None:
    values = torch.ones(2, 4)
    values[1, 2] = wrong
    for factor in (
        Full(values),
        Outer(values, torch.ones(2, 1)),
        Rows(torch.tensor([[0, 0], [1, 1]]), values.reshape(2, 2, 2), 3),
    ):
        assert factor.norms().isfinite().tolist() == [True, False]


def test_a_long_sum_is_not_rounded_away() -> None:
    gradients = torch.full((5000, 1), 1e-4)
    gradients[0] = 1e4
    found = Full(gradients).weighted_sum(torch.ones(5000))
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(1e4 + 4999 * float(torch.tensor(1e-4)), rel=1e-13)
    outer = Outer(gradients, torch.ones(5000, 1)).weighted_sum(torch.ones(5000))
    table = Rows(torch.zeros(5000, 1, dtype=torch.long), gradients[:, None], 1).weighted_sum(torch.ones(5000))
    assert float(outer) == pytest.approx(float(found), rel=1e-14) == float(table)


def private(**options: Any) -> Any:
    model = options.pop("model", None) or nn.Linear(3, 1)
    rows = options.pop("rows", 20)
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    held = parameters or [nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.SGD(held, lr=options.pop("lr", 0.1))
    loader: Any = DataLoader(TensorDataset(torch.zeros(rows, 3), torch.zeros(rows, 1)), batch_size=5)
    return make_private(
        model, optimizer, loader, **dict(loss_fn=nn.MSELoss(), noise_multiplier=1.0) | options
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *[
            ({"max_grad_norm": bound}, "from 1e-06 to 1e.06")
            for bound in (1e-30, 1e-7, 1e7, 1e300, 0, -1, math.nan, math.inf, "x", None, True)
        ],
        ({"max_grad_norm": 1e-30, "clipping": "per_layer"}, "of each layer"),
        ({"max_grad_norm": {"(model)": "x"}, "clipping": "per_layer"}, "of each layer"),
        ({"loss_fn": None}, "function of outputs and targets"),
        ({"lr": math.inf}, "learning rate"),
        ({"lr": math.nan}, "learning rate"),
        ({"model": nn.Linear(3, 1).requires_grad_(False)}, "no parameter to train"),
        ({"model": nn.Sequential(nn.ReLU())}, "no parameter to train"),
        ({"model": abs}, "nn.Module"),
        ({"rows": 0}, "without rows"),
        ({"physical_batch": 1.5}, "whole number"),
        (
            {"noise_multiplier": None, "target_epsilon": 1.0, "target_delta": 1e-5, "epochs": "1"},
            "whole number",
        ),
        (
            {"noise_multiplier": None, "target_epsilon": "a", "target_delta": 1e-5, "epochs": 1},
            "epsilon is a",
        ),
        ({"noise_multiplier": None, "target_epsilon": 1.0, "target_delta": "a", "epochs": 1}, "delta is a"),
        ({"noise_multiplier": 1e-300}, "noise_multiplier is a"),
        ({"noise_multiplier": "x"}, "noise_multiplier is a"),
    ],
)
def test_mistakes_are_sentences(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        private(**options)
