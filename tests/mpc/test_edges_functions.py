"""Functions keep the errors that docs/secrets.md states, for values and gradients, over all of their range."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from mpc.edges import FORMS, PRECISIONS, Secrets, assert_close, both, spread

COUNT = 60


@pytest.fixture(params=PRECISIONS, ids=["base 2", "base 10"])
def precision(request: Any) -> Any:
    return request.param


@pytest.fixture(params=FORMS)
def secrets(request: Any, make_worker: Any, precision: Any) -> Secrets:
    return Secrets(make_worker, FORMS[request.param], precision)


def signed(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, -x])


SMOOTH = {
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "logsigmoid": F.logsigmoid,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_a_smooth_function_and_its_slope_are_right_everywhere(name: str, secrets: Secrets) -> None:
    near = torch.linspace(-25, 25, 101, dtype=torch.float64)
    x = torch.cat([near, signed(spread(20, 1e6, 10))])
    values, (slope,) = both(SMOOTH[name], secrets, x)
    assert_close(values, 2.0**-16 + 2 * secrets.unit, x)
    assert_close(slope, 2.0**-15 + 3 * secrets.unit, x)


def test_softplus_has_the_slope_of_its_temperature_and_threshold(secrets: Secrets) -> None:
    x = torch.linspace(-30, 30, 61, dtype=torch.float64)
    for beta, threshold in ((0.5, 20.0), (2.0, 20.0), (1.0, 3.0)):
        values, (slope,) = both(lambda x, b=beta, t=threshold: F.softplus(x, b, t), secrets, x)
        assert_close(values, 2.0**-14 + 6 * secrets.unit, x)
        assert_close(slope, 2.0**-14 + 6 * secrets.unit, x)


def test_quotients_are_right_whatever_the_sizes_of_both_sides(secrets: Secrets) -> None:
    top = 2.0**61 * secrets.unit
    x, y = signed(spread(secrets.unit, top, COUNT, 1)), signed(spread(secrets.unit, top, COUNT, 2))
    fits = (x / y).abs() < 2.0**59 * secrets.unit
    x, y = secrets.encoded(x[fits]), secrets.encoded(y[fits])
    got = secrets.plain(secrets(x) / secrets(y))
    assert_close((got, x / y), 2.0**-19 * (x / y).abs() + 1.01 * secrets.unit, y)


def test_a_large_number_divided_by_itself_is_one(secrets: Secrets) -> None:
    x = torch.tensor([2e8, -2e8, 1e12, 3.0], dtype=torch.float64)
    assert_close((secrets.plain(secrets(x) / secrets(x)), torch.ones(4)), 2.0**-19 + 1.01 * secrets.unit)


def test_a_public_side_of_a_quotient_may_be_of_any_size(secrets: Secrets) -> None:
    y = signed(spread(2.0**10 * secrets.unit, 1e6, COUNT, 3))
    exact = secrets.encoded(y)
    hidden = secrets(y)
    for numerator in (2e8, -3.0, 0.001, 7):
        wanted = numerator / exact
        assert_close(
            (secrets.plain(numerator / hidden), wanted), 2.0**-18 * wanted.abs() + 1.01 * secrets.unit
        )
    many = signed(spread(secrets.unit, 1e8, COUNT, 4))
    wanted = secrets.encoded(many) / exact
    assert_close((secrets.plain(many / hidden), wanted), 2.0**-18 * wanted.abs() + 1.01 * secrets.unit)


def test_zero_divides_to_zero_and_what_does_not_fit_ends_far_away(secrets: Secrets) -> None:
    x = torch.tensor([3.0, -2e8, 0.0, 1e12, -1e12], dtype=torch.float64)
    y = torch.tensor([0.0, 0.0, 5.0, secrets.unit, secrets.unit], dtype=torch.float64)
    got = secrets.plain(secrets(x) / secrets(y))
    assert got[:3].tolist() == [0.0, 0.0, 0.0]
    if 1e12 / secrets.unit > 2.0**61 * secrets.unit:
        assert got[3] >= 2.0**59 * secrets.unit and got[4] <= -(2.0**59) * secrets.unit


def test_the_gradient_of_a_quotient(secrets: Secrets) -> None:
    x, y = signed(spread(0.01, 1e6, COUNT, 5)), spread(0.1, 1e3, 2 * COUNT, 6)
    unit = secrets.unit
    _, (of_x, of_y) = both(torch.div, secrets, x, y)
    assert_close(of_x, 2.0**-18 * of_x[1].abs() + 3 * unit, y)
    assert_close(of_y, 2.0**-17 * of_y[1].abs() + 4 * unit * (1 + 1 / secrets.encoded(y)), y)


def test_exponentials(secrets: Secrets) -> None:
    limit = 2.0**61 / secrets.scale**2  # of the product in its gradient
    high = float(torch.tensor(limit, dtype=torch.float64).log())
    x = torch.linspace(-40, high, COUNT, dtype=torch.float64)
    values, (slope,) = both(torch.exp, secrets, x)
    for pair in (values, slope):
        assert_close(pair, 2.0**-18 * pair[1] + 2.1 * secrets.unit, x)


def test_logarithms(secrets: Secrets) -> None:
    x = spread(secrets.unit, 2.0**61 * secrets.unit, COUNT)
    values, (slope,) = both(torch.log, secrets, x)
    assert_close(values, 2.0**-22 + 1.01 * secrets.unit, x)
    assert_close(slope, 2.0**-18 * slope[1] + 2.1 * secrets.unit, x)


def test_roots_and_their_inverses(secrets: Secrets) -> None:
    unit = secrets.unit
    x = spread(unit, 2.0**60 * unit, COUNT)
    exact = secrets.encoded(x)
    values, (slope,) = both(torch.sqrt, secrets, x)
    assert_close(values, 2.0**-19 * values[1] + 1.01 * unit, x)
    assert_close(slope, 2.0**-17 * slope[1] + 2.1 * unit * (1 + 1 / exact), x)
    values, (slope,) = both(torch.rsqrt, secrets, x)
    assert_close(values, 2.0**-19 * values[1] + 1.01 * unit, x)
    assert_close(slope, 2.0**-17 * slope[1].abs() + 3 * unit * (1 + 1 / exact), x)


def test_the_gradient_of_a_reciprocal_as_far_as_products_reach(secrets: Secrets) -> None:
    low = 2 * secrets.scale / 2.0**30.5  # 1 / x^2 < 2^61 / scale^2
    x = signed(spread(max(low, secrets.unit), 1e6, COUNT))
    exact = secrets.encoded(x)
    _, (slope,) = both(torch.reciprocal, secrets, x)
    assert_close(slope, 2.0**-17 * slope[1].abs() + 4 * secrets.unit * (1 + 1 / exact.abs()), x)


@pytest.mark.parametrize("size", [2, 40, 300])
def test_softmax_keeps_its_error_for_any_number_of_classes(size: int, secrets: Secrets) -> None:
    torch.manual_seed(size)
    x = torch.randn(2, size, dtype=torch.float64) * 3
    weights = torch.linspace(-1, 1, size, dtype=torch.float64)
    got = secrets.plain(torch.softmax(secrets(x), -1))
    assert_close((got, torch.softmax(secrets.encoded(x), -1)), 2.0**-18 + 2 * secrets.unit)
    got = secrets.plain(torch.log_softmax(secrets(x), -1))
    assert_close((got, torch.log_softmax(secrets.encoded(x), -1)), 2.0**-18 + 2.1 * secrets.unit)
    for function in (torch.softmax, torch.log_softmax):
        _, (slope,) = both(lambda x, f=function: f(x, -1) * weights, secrets, x)
        assert_close(slope, 2.0**-14 + 6 * secrets.unit * (1 + (size**0.5) / 10))


MASKS = [float("-inf"), torch.finfo(torch.float32).min, torch.finfo(torch.bfloat16).min, -1e30, -1e20]


def test_masks_of_any_size_hide_what_they_cover(secrets: Secrets) -> None:
    x = torch.randn(2, 5, dtype=torch.float64)
    covered = torch.tensor([False, False, True, False, True])
    wanted = torch.softmax(secrets.encoded(x).masked_fill(covered, float("-inf")), -1)
    for number in MASKS:
        added = torch.zeros(5, dtype=torch.float64).masked_fill(covered, number)
        hidden = secrets(x)
        for masked in (hidden + added, hidden.masked_fill(covered, number), hidden + added + added):
            assert_close((secrets.plain(torch.softmax(masked, -1)), wanted), 2.0**-18 + 2 * secrets.unit)
        chosen = torch.where(covered, torch.tensor(number, dtype=torch.float64), hidden)
        assert_close((secrets.plain(torch.softmax(chosen, -1)), wanted), 2.0**-18 + 2 * secrets.unit)


def test_what_is_no_mask_and_does_not_fit_raises(secrets: Secrets) -> None:
    hidden = secrets(torch.ones(2, dtype=torch.float64))
    large = 2.0**62 * secrets.unit * 2
    for operation in (lambda: hidden + large, lambda: hidden * torch.finfo(torch.float32).min):
        with pytest.raises(ValueError, match="cannot be represented"):
            operation()
