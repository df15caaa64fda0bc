"""Odd functions as sums of sines from one opening: their errors, their ends, and what is opened for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from mpc.lower import HOLDERS, deal, revealed
from syft.mpc.correlations_of_functions import Waves
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import waves as protocol
from syft.mpc.rules import fixed_functions as functions
from syft.mpc.rules import fixed_waves as rules

FUNCTIONS = (
    (functions._half_logistic, 16.0),
    (np.tanh, 7.0),
    (functions._erf, 4.0),
    (functions._gelu_slope, 6.0),
)


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("width", [3, 24, 30, 45])
def test_a_sum_of_sines_is_near_for_every_number(width: int, holders: int) -> None:
    amplitudes = tuple(round(0.8**k * (1 << Waves.AMPLITUDE_BITS)) for k in range(12))
    x = torch.randint(-(1 << 62), 1 << 62, (4000,))
    driver = Lockstep(holders)
    found = revealed(driver.run(protocol.sum_of_sines, deal(x, holders), width, amplitudes))
    angle = (x & ((1 << width) - 1)).double() * (2 * math.pi / (1 << width))
    exact = sum(0.8**k * torch.sin((2 * k + 1) * angle) for k in range(12))
    assert (found / 2.0**protocol.RESULT_BITS - exact).abs().max() < 2.0**-18.5
    assert driver.cost.rounds == 1


@pytest.mark.parametrize("how", [2, 4, "fss"])
@pytest.mark.parametrize(("function", "bound"), FUNCTIONS)
@pytest.mark.parametrize("scale", [1 << 16, 10**3, 1 << 22])
def test_an_odd_function_is_near_everywhere(
    function: Callable[..., Any], bound: float, scale: int, how: Any
) -> None:
    fit = rules._fit(function, bound, scale)
    assert fit is not None
    edge, end, amplitudes = fit
    x = torch.linspace(-1.3 * bound * scale, 1.3 * bound * scale, 4001, dtype=torch.float64).long()
    x = torch.cat(
        [x, torch.tensor([(1 << 62) - 1, -(1 << 62), 0, math.floor(edge * scale), -math.floor(edge * scale)])]
    )
    given = *rules._angle(edge * rules._PERIOD * scale), amplitudes, rules._divisor(scale)
    driver = Lockstep(2)
    found = revealed(
        driver.run(
            protocol.odd_function, deal(x, 2), *given, math.floor(edge * scale), round(end * scale), how
        )
    )
    exact = function((x.double() / scale).clamp(-4 * bound, 4 * bound).numpy())
    assert np.abs(found.numpy() / scale - exact).max() < 2.0**-16 + 1 / scale
    assert driver.cost.rounds == {2: 7, 4: 4, "fss": 3}[how]


def test_its_costs() -> None:
    """Four bytes for the sines, eight to truncate, 16.5 for two comparisons, 8.375 to select and for the ends."""
    driver = Lockstep(2)
    given = 5, 24, (1 << 40, 1 << 38), 1 << 40, 1000, 1000
    driver.run(protocol.odd_function, deal(torch.arange(6400), 2), *given)
    assert (driver.cost.rounds, driver.cost.bytes_sent[0]) == (4, 6400 * (4 + 8 + 16.5 + 8.375))


def test_a_function_that_few_sines_are_not_near_to_has_none() -> None:
    assert rules._fit(np.sign, 4.0, 1 << 16) is None


@pytest.mark.parametrize("number", [0, 54321])
def test_what_is_opened_is_uniform_whatever_the_number_is(number: int) -> None:
    driver = Lockstep(2, transcript=True)
    driver.run(protocol.sines, deal(torch.full((64_000,), number), 2), 3, 20, (1 << 40,), 1 << 30)
    assert driver.seen is not None
    opened = next(one.tensor for one in driver.seen[0] if one.sender == "opened")
    assert opened.dtype == torch.int32
    counts = torch.bincount((opened.long() & ((1 << 20) - 1)) >> 14, minlength=64)
    assert ((counts - 1000).abs() < 6 * math.sqrt(1000)).all()


def test_all_holders_have_the_same_sines_to_the_last_bit() -> None:
    """They are made of integers alone: pi to 40 digits, and a circle that closes."""
    digits = "3.14159265358979323846264338327950288419716939937510"
    assert abs(Decimal(protocol._pi()) / (1 << 160) - Decimal(digits)) < Decimal("1e-25")
    assert str(protocol._pi() * 10**40 >> 160) == digits.replace(".", "")[:41]
    sines, cosines = np.frombuffer(protocol._circle(10, 1 << 10), np.int64).reshape(2, -1)
    one = 1 << protocol.PUBLIC_BITS
    assert (sines[0], sines[256], sines[512], sines[768]) == (0, one, 0, -one)
    assert (np.roll(sines, -256) == cosines).all() and (sines[1:] == -sines[:0:-1]).all()
    exact = np.sin(2 * np.pi * np.arange(1 << 10) / (1 << 10)) * one
    assert np.abs(sines - exact).max() < 0.5 + 1e-6
