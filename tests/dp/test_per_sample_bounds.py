"""What one example adds is as short as the bound, exactly computed, for numbers of every format and size.

Lengths are compared as fractions: nothing in these tests is rounded but the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.dp import clipping, gradient_factors
from syft.dp.clipping import clipped_sum
from syft.dp.gradient_factors import Factor, Full, Outer, Rows
from syft.dp.per_sample import factors

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def square_length(values: torch.Tensor) -> Fraction:
    return sum((Fraction(v) ** 2 for v in values.flatten().tolist()), Fraction(0))


def adversarial(dtype: torch.dtype, width: int = 12) -> torch.Tensor:
    """One gradient per row, at the ends of the format and between them."""
    info, generator = torch.finfo(dtype), torch.Generator().manual_seed(0)
    least = info.smallest_normal * info.eps  # the smallest subnormal number
    everywhere = torch.rand(width, generator=generator, dtype=torch.float64)
    low, high = math.log2(info.smallest_normal), math.log2(info.max)
    one_large = torch.full((width,), least, dtype=torch.float64)
    one_large[width // 2] = info.max
    rows = [
        torch.zeros(width, dtype=torch.float64),
        torch.full((width,), least, dtype=torch.float64),
        torch.full((width,), info.smallest_normal, dtype=torch.float64),
        torch.full((width,), -math.sqrt(info.smallest_normal), dtype=torch.float64),
        torch.full((width,), math.sqrt(info.max), dtype=torch.float64),
        torch.full((width,), info.max / 16, dtype=torch.float64),
        one_large,
        torch.linspace(-3, 3, width, dtype=torch.float64),
        2 ** (low + (high - 5 - low) * everywhere) * torch.linspace(-1, 1, width, dtype=torch.float64).sign(),
    ]
    return torch.stack(rows).to(dtype)


def as_full(values: torch.Tensor) -> Factor:
    return Full(values.reshape(-1, 3, 2, values.shape[1] // 6).permute(0, 3, 1, 2))


def as_outer(values: torch.Tensor) -> Factor:
    return Outer(values[:, :1].sign() + (values[:, :1] == 0), values)


def as_rows(values: torch.Tensor) -> Factor:
    # Two words, and the second one twice: its second use adds nothing.
    index = torch.tensor([[4, 1, 1]]).expand(len(values), 3)
    halves = values.reshape(len(values), 2, -1)
    return Rows(index, torch.cat([halves, torch.zeros_like(halves[:, :1])], 1), 5)


KINDS: dict[str, Callable[[torch.Tensor], Factor]] = {"full": as_full, "outer": as_outer, "rows": as_rows}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_norm_is_right_to_a_part_in_ten_billion(dtype: torch.dtype, kind: str) -> None:
    values = adversarial(dtype)
    for found, row in zip(KINDS[kind](values).norms().tolist(), values, strict=True):
        exact = square_length(row)
        # Below the smallest double there is nothing to be right about.
        assert abs(Fraction(found) ** 2 - exact) <= exact / 10**10 + Fraction(1e-323) ** 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bound", [clipping.LEAST_BOUND, 0.37, 1.0, clipping.LARGEST_BOUND])
def test_what_an_example_adds_is_no_longer_than_the_bound(
    dtype: torch.dtype, kind: str, bound: float
) -> None:
    values = adversarial(dtype)
    factor = KINDS[kind](values)
    weights = clipping._weights({"w": factor}, {"": bound})[""]
    for i in range(len(values)):
        if bool(weights[i].isfinite()):
            alone = KINDS[kind](values[i : i + 1]).weighted_sum(weights[i : i + 1])
            added, original = square_length(alone), square_length(values[i])
            assert added <= Fraction(bound) ** 2
            # Not stubbed: it is as long as it may be.
            floor = (1 - Fraction(3, 10**6)) * min(Fraction(bound) ** 2, original)
            assert added >= floor or original < Fraction(1e-300) ** 2


@pytest.mark.parametrize("way", ["rules", "vmap"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("exponent", [-40, -24, -8, 0, 8, 14, 35])
def test_an_example_of_a_convolution_adds_no_more_than_the_bound(
    dtype: torch.dtype, exponent: int, way: str
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(27, 1)).to(dtype)
    x = torch.randn(1, 2, 5, 5).to(dtype) * 10.0**exponent
    # NB: the loss is the output itself, so that the gradient follows the size of the input.
    sums, _ = clipped_sum(model, lambda out, _t: out.sum(), x, torch.zeros(1), {"": 0.5}, way=way)
    assert sum(square_length(value) for value in sums.values()) <= Fraction(1, 4)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e38])
def test_an_example_leaves_the_gradients_of_others_as_they_are(wrong: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten())
    x, others = torch.randn(9, 1, 8, 8), torch.arange(9) != 4
    y = torch.zeros(9, dtype=torch.long)
    usual, _ = factors(model, F.cross_entropy, x, y, "rules")
    x[4] = wrong
    found, _ = factors(model, F.cross_entropy, x, y, "rules")
    for name in usual:
        assert torch.equal(found[name].expand()[others], usual[name].expand()[others])


def test_terms_that_cancel_do_not_round_away_what_others_added() -> None:
    gradients = torch.full((101, 2, 1), 0.25)
    gradients[100] = torch.tensor([[1e30], [-1e30]])  # of no length, but very large on the way

    def total(examples: int) -> torch.Tensor:
        index = torch.zeros(examples, 2, dtype=torch.long)
        factor = Rows(index, gradients[:examples], 3)
        return factor.weighted_sum(clipping._weights({"w": factor}, {"": 1.0})[""])

    assert float(total(100).norm()) == pytest.approx(50, rel=1e-5)
    assert float((total(101) - total(100)).norm()) <= 1.0


# -- blocks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 2 * gradient_factors._WIDEST + 5), (300, 1000), (2, 0), (0, 7), (5,)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_blocks_leave_nothing_out_and_take_nothing_twice(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    gradients, weights = torch.randn(shape).to(dtype), torch.rand(shape[0])
    double, factor = gradients.double(), Full(gradients)
    torch.testing.assert_close(
        factor.norms(), double.reshape(shape[0], math.prod(shape[1:])).norm(dim=1), rtol=1e-12, atol=0
    )
    expected = (weights.double().reshape(-1, *[1] * (len(shape) - 1)) * double).sum(0)
    torch.testing.assert_close(factor.weighted_sum(weights), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_wrong_number_in_any_block_is_seen(dtype: torch.dtype, wrong: float) -> None:
    for column in (0, gradient_factors._WIDEST, 2 * gradient_factors._WIDEST + 4):
        gradients = torch.ones(3, 2 * gradient_factors._WIDEST + 5, dtype=dtype)
        gradients[1, column] = wrong
        assert Full(gradients).norms().isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 0, 2, 1)])
def test_the_order_in_memory_does_not_matter(order: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain, weights = torch.randn(4, 2, 3, 5), torch.rand(4)
    back = [order.index(i) for i in range(4)]
    stored = plain.permute(order).contiguous().permute(back)
    assert torch.equal(stored, plain)
    expected = torch.einsum("n,nijk->ijk", weights.double(), plain.double())
    torch.testing.assert_close(Full(stored).weighted_sum(weights), expected)
    torch.testing.assert_close(Full(stored).norms(), plain.double().flatten(1).norm(dim=1))


# -- convolutions ----------------------------------------------------------------------------------------

CONVOLUTIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), (4, 13)),
    "1 x 1": (lambda: nn.Conv2d(4, 6, 1), (4, 5, 4)),
    "uneven": (lambda: nn.Conv2d(3, 4, (2, 5), (3, 1), (0, 2), (1, 2)), (3, 9, 12)),
    "a place is left over": (lambda: nn.Conv2d(2, 3, 3, stride=2), (2, 8, 10)),
    "one place": (lambda: nn.Conv2d(2, 3, (5, 4)), (2, 5, 4)),
    "depthwise": (lambda: nn.Conv2d(6, 12, 3, padding=1, groups=6, bias=False), (6, 5, 5)),
    "3d": (lambda: nn.Conv3d(2, 4, (2, 3, 1), (1, 2, 2), (1, 0, 2), groups=2), (2, 4, 5, 3)),
}


@pytest.mark.parametrize("at_once", [1, 1 << 9, 1 << 17])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_equals_a_loop(name: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_factors, "_BLOCK_CPU", at_once)
    torch.manual_seed(0)
    make, shape = CONVOLUTIONS[name]
    model = nn.Sequential(make(), nn.Flatten()).double()
    x, y = torch.randn(5, *shape, dtype=torch.float64), torch.zeros(5, dtype=torch.long)
    found, _ = factors(model, F.cross_entropy, x, y, "rules")
    for i in range(5):
        model.zero_grad()
        F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        for parameter, value in model.named_parameters():
            torch.testing.assert_close(found[parameter].expand()[i], value.grad)


def test_images_whose_channels_are_last_in_memory() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.Flatten())
    x, y = torch.randn(5, 3, 6, 6), torch.zeros(5, dtype=torch.long)
    usual, _ = factors(model, F.cross_entropy, x, y, "rules")
    last = model.to(memory_format=torch.channels_last)
    found, _ = factors(last, F.cross_entropy, x.to(memory_format=torch.channels_last), y, "rules")
    for name in usual:
        torch.testing.assert_close(found[name].expand(), usual[name].expand(), rtol=1e-4, atol=1e-6)


def test_a_parameter_that_is_a_single_number() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x

    x = torch.tensor([[1.0], [2.0], [-300.0]])
    sums, _ = clipped_sum(Scaled(), lambda out, _t: out.sum(), x, torch.zeros(3), {"": 10.0})
    assert float(sums["scale"]) == pytest.approx(1 + 2 - 10, rel=1e-5)
