"""e^x from one opening: its accuracy over the whole range, its ends, and what is opened for it."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch

from mpc.lower import HOLDERS, deal, revealed
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import exponential as protocol
from syft.mpc.rules import fixed_exponentials as rules

SCALES = (1 << 16, 10**3, 1 << 13, 10**5, 1 << 30)


def table_of(scale: int, units: int, highest: float = math.inf) -> tuple[rules.ExponentialTable, int, int]:
    """The digits of e^x, and the ends of what it is read for."""
    low = math.ceil((-math.log2(units) - 3) * math.log(2) * scale)
    high = math.floor(min(highest, (57 - math.log2(units)) * math.log(2)) * scale)
    return rules._exponential_table(scale, units, low, high), low, high


def error_of(x: torch.Tensor, found: torch.Tensor, scale: int, units: int) -> torch.Tensor:
    """What is left of the error beyond the one unit, relative to the result."""
    exact = torch.exp(x.double() / scale) * units
    return ((found - exact).abs() - 1.1).clamp(min=0) / exact


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("holders", HOLDERS)
def test_it_is_as_near_as_it_says_wherever_the_result_fits(scale: int, holders: int) -> None:
    table, low, high = table_of(scale, scale)
    x = torch.linspace(low, high, 20_000, dtype=torch.float64).long()
    driver = Lockstep(holders)
    found = revealed(driver.run(protocol.exponential, deal(x, holders), *table.given))
    assert error_of(x, found, scale, scale).max() <= 2.0**-19
    assert driver.cost.rounds == 2  # without a comparison


@pytest.mark.parametrize("units", [1, 1 << 30])
def test_the_result_may_have_units_of_its_own(units: int) -> None:
    table, low, high = table_of(1 << 16, units)
    x = torch.linspace(low, high, 20_000, dtype=torch.float64).long()
    found = revealed(Lockstep(2).run(protocol.exponential, deal(x, 2), *table.given))
    assert error_of(x, found, 1 << 16, units).max() <= 2.0**-19


@pytest.mark.parametrize("how", [2, 4, "fss"])
def test_beyond_its_ends_it_is_nothing_or_the_most(how: int | str) -> None:
    table, low, high = table_of(1 << 16, 1 << 16)
    outside = torch.tensor([low - 1, -(1 << 62), -(1 << 40), high + 1, 1 << 40, (1 << 62) - 1])
    inside = torch.tensor([low, 0, high])
    x = torch.cat([outside, inside])
    found = revealed(Lockstep(2).run(protocol.exponential, deal(x, 2), *table.given, low, high, 77, how))
    assert found[:6].tolist() == [0, 0, 0, 77, 77, 77]
    assert error_of(inside, found[6:], 1 << 16, 1 << 16).max() <= 2.0**-19
    found = revealed(Lockstep(2).run(protocol.exponential, deal(x, 2), *table.given, low, None, 0, how))
    assert found[:3].tolist() == [0, 0, 0] and found[6] <= 1


def test_an_upper_end_that_is_known_saves_digits() -> None:
    all_of_them, *_ = table_of(1 << 16, 1 << 16)
    negative, *_ = table_of(1 << 16, 1 << 16, 0)
    assert (all_of_them.size, negative.size) == (16, 8) and len(negative.shifts) == 1


def test_its_costs() -> None:
    """Four bytes for the digits, eight for each class that is truncated, 16.5 for two comparisons, 8.25 to select."""
    table, low, high = table_of(1 << 16, 1 << 16)
    driver = Lockstep(2)
    driver.run(
        protocol.exponential, deal(torch.zeros(6400, dtype=torch.int64), 2), *table.given, low, high, 1, 4
    )
    assert (driver.cost.rounds, driver.cost.bytes_sent[0]) == (4, 6400 * (4 + 2 * 8 + 16.5 + 8.25))


def test_what_is_opened_is_uniform_whatever_the_number_is() -> None:
    """The masked digits of one number, opened again and again, take each of 64 places about as often."""
    table, *_ = table_of(1 << 16, 1 << 16)
    for number in (0, -12345):
        driver = Lockstep(2, transcript=True)
        driver.run(protocol.exponential, deal(torch.full((64_000,), number), 2), *table.given)
        assert driver.seen is not None
        opened = next(one.tensor for one in driver.seen[0] if one.sender == "opened")
        assert opened.dtype == torch.int32
        width = table.shift + table.size.bit_length() - 1
        counts = torch.bincount((opened.long() & ((1 << width) - 1)) >> (width - 6), minlength=64)
        assert ((counts - 1000).abs() < 6 * math.sqrt(1000)).all()


def test_all_holders_have_the_same_factors_to_the_last_bit() -> None:
    """They are made of integers alone, and rounded correctly."""
    scale, shift = 1 << 16, 18
    coarse, fine, half = protocol._tables(scale, shift, torch.device("cpu"))
    with localcontext() as context:
        context.prec = 60
        for table, step, bits in ((coarse, 1 << half, protocol._COARSE), (fine, 1, protocol._FINE)):
            exact = [(Decimal(i * step) / scale).exp() * (1 << bits) for i in range(len(table))]
            assert [int(one.to_integral_value()) for one in exact] == table.tolist()


def test_it_adds_up_the_same_on_every_device() -> None:
    table, *_ = table_of(1 << 16, 1 << 16)
    z = torch.randint(0, 1 << 22, (9000,))
    rows = torch.randint(-(1 << 62), 1 << 62, (9000, table.size))
    given = *protocol._open_parts(z, 1 << 16, 18, table.size), table.digits, len(table.shifts)
    assert torch.equal(protocol._sums(rows, *given), protocol._sums_on_cpu(rows, *given))
