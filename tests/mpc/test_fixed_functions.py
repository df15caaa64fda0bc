"""Approximations keep the errors their docstrings state, over the whole representable range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.core.chain import new_wrapper
from syft.mpc.precision import FixedPrecisionTensor

PRECISIONS = [(2, 16), (2, 20), (10, 3), (10, 6)]


def fixed(x: torch.Tensor, precision: tuple[int, int]) -> Any:
    return new_wrapper(FixedPrecisionTensor.encode(x, *precision))


def spread(low: float, high: float, count: int = 2000) -> torch.Tensor:
    """Positive values of every size between two, evenly over their logarithms."""
    return torch.logspace(math.log10(low), math.log10(high), count, dtype=torch.float64)


def check(
    function: Callable[[Any], Any], x: torch.Tensor, precision: tuple[int, int], relative: float, units: float
) -> None:
    """|made - exact| <= relative * |exact| + units, where exact is the function of the encoded value."""
    chain = fixed(x, precision)
    exact = function(chain.child.decode())
    error = (function(chain).child.decode() - exact).abs()
    allowed = relative * exact.abs() + units / precision[0] ** precision[1]
    worst = (error - allowed).argmax()
    assert (error <= allowed).all(), (x.flatten()[worst], exact.flatten()[worst], error.max())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_roots_reciprocals_and_powers_of_two(precision: tuple[int, int]) -> None:
    unit = 1.0 / precision[0] ** precision[1]
    largest = 2.0**61 * unit
    x = torch.cat([spread(unit, largest * 0.99), torch.tensor([unit, 2 * unit, 1.0, 4.0]).double()])
    check(torch.sqrt, x, precision, 2.0**-19, 1.01)
    check(torch.rsqrt, x, precision, 2.0**-19, 1.01)
    check(torch.reciprocal, torch.cat([x, -x]), precision, 2.0**-19, 1.01)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_logarithms(precision: tuple[int, int]) -> None:
    unit = 1.0 / precision[0] ** precision[1]
    x = spread(unit, 2.0**61 * unit * 0.99)
    chain = fixed(x, precision)
    exact = torch.log(chain.child.decode())
    assert ((chain.log().child.decode() - exact).abs() <= 2.0**-22 + 1.01 * unit).all()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_exponentials_also_where_they_vanish_or_do_not_fit(precision: tuple[int, int]) -> None:
    unit = 1.0 / precision[0] ** precision[1]
    high = math.log(2.0**56 * unit)
    check(torch.exp, torch.linspace(-40, high, 3000, dtype=torch.float64), precision, 2.0**-19, 1.01)
    far = fixed(torch.tensor([-1e9, -1e5, 1e9], dtype=torch.float64), precision)
    low, lower, saturated = far.exp().child.decode().tolist()
    assert low == lower == 0.0 and saturated == pytest.approx(2.0**57 * unit, rel=1e-3)


SMOOTH = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "softplus": torch.nn.functional.softplus,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "atan": torch.atan,
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_are_within_2_to_minus_16(name: str, precision: tuple[int, int]) -> None:
    near = torch.linspace(-25, 25, 4001, dtype=torch.float64)
    far = spread(1, 1e6, 200)
    x = torch.cat([near, far, -far, torch.zeros(1).double()])
    chain = fixed(x, precision)
    exact = SMOOTH[name](chain.child.decode())
    allowed = 2.0**-16 + 2.0 / precision[0] ** precision[1]
    assert (SMOOTH[name](chain).child.decode() - exact).abs().max() <= allowed


@pytest.mark.parametrize("precision", PRECISIONS)
def test_angles(precision: tuple[int, int]) -> None:
    x = torch.linspace(-1000, 1000, 5001, dtype=torch.float64)
    chain = fixed(x, precision)
    for function in (torch.sin, torch.cos):
        error = (function(chain).child.decode() - function(chain.child.decode())).abs().max()
        assert error <= 2.0**-15 + 2.0 / precision[0] ** precision[1]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_softmax_and_log_softmax(precision: tuple[int, int]) -> None:
    torch.manual_seed(0)
    unit = 1.0 / precision[0] ** precision[1]
    x = torch.randn(32, 10, dtype=torch.float64) * 5
    x[0, 0] = 500.0
    chain = fixed(x, precision)
    exact = chain.child.decode()
    assert (chain.softmax(1).child.decode() - exact.softmax(1)).abs().max() <= 2.0**-18 + 2.5 * unit
    assert (chain.log_softmax(1).child.decode() - exact.log_softmax(1)).abs().max() <= 2.0**-18 + 10 * unit


def test_an_attention_mask_of_infinities_works() -> None:
    x = torch.randn(2, 4)
    mask = torch.tensor([True, False, False, True])
    made = fixed(x, (2, 16)).masked_fill(mask, float("-inf")).softmax(1).child.decode()
    torch.testing.assert_close(made, x.masked_fill(mask, float("-inf")).softmax(1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("precision", [(2, 16), (2, 20), (10, 6)])
def test_the_inverse_of_a_matrix(precision: tuple[int, int]) -> None:
    torch.manual_seed(0)
    for size in (2, 5, 8):
        a = torch.randn(3, size, size, dtype=torch.float64) + 2 * torch.eye(size) * size**0.5
        made = torch.inverse(fixed(a, precision)).child.decode()
        torch.testing.assert_close(made, torch.inverse(a), atol=1e-3, rtol=1e-3)


def test_batch_norm_trains_and_keeps_its_statistics() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(16, 3, 4, 4) * 2 + 1, torch.rand(3), torch.randn(3)
    mean, var = torch.zeros(3), torch.ones(3)
    chains = [fixed(t, (2, 16)) for t in (x, mean, var, weight, bias)]
    for training in (True, False):
        want = torch.nn.functional.batch_norm(x, mean, var, weight, bias, training=training)
        got = torch.nn.functional.batch_norm(*chains, training=training)
        torch.testing.assert_close(got.child.decode(), want, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(chains[1].child.decode(), mean, atol=1e-4, rtol=0)
        torch.testing.assert_close(chains[2].child.decode(), var, atol=1e-3, rtol=0)
