"""Functions by the leading bit: where it is, what is read there, polynomials from one opening, and what is opened."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from mpc.lower import HOLDERS, deal, revealed
from syft.mpc import ring
from syft.mpc.drivers import Lockstep
from syft.mpc.party import Party, Program
from syft.mpc.protocols import leading, lookup, polynomials


def place_of(party: Party, x: torch.Tensor) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    found = yield from leading.leading(party, x)
    return found.byte, found.place


def read_at(party: Party, x: torch.Tensor, by_byte: bytes, by_place: bytes) -> Program[Any]:
    found = yield from leading.leading(party, x)
    return (yield from leading.read_factors(party, found, by_byte, by_place))


def check_places(x: torch.Tensor, holders: int) -> None:
    byte, place = (
        ring.reconstruct_bits(list(part)) for part in Lockstep(holders).run(place_of, deal(x, holders))
    )
    for value, of_byte, of_place in zip(x.tolist(), byte.tolist(), place.tolist(), strict=True):
        highest = value.bit_length() - 1
        assert (of_byte, of_place) == ((1 << (highest >> 3), highest & 7) if value > 0 else (0, 0))


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("count", [1, 3, 64, 65, 130, 2000])
def test_the_leading_bit_is_found_in_any_number_of_any_size(count: int, holders: int) -> None:
    x = torch.randint(0, 1 << 62, (count,)) >> torch.randint(0, 62, (count,))
    edges = torch.tensor([0, 1, -1, 2, 3, -(1 << 62), (1 << 62) - 1, 1 << 61, 1 << 8, (1 << 8) - 1, ring.MIN])
    x[: len(edges)] = edges[:count]
    check_places(x, holders)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(ring.MIN, (1 << 62) - 1), min_size=1, max_size=70))
def test_the_leading_bit_is_found_in_anything(values: list[int]) -> None:
    check_places(torch.tensor(values), 2)


def test_neighbours_of_powers_of_two_have_their_places() -> None:
    powers = torch.tensor([1 << k for k in range(62)])
    check_places(torch.cat([powers, powers - 1, (powers + 1)[:61], -powers]), 2)


@pytest.mark.parametrize("holders", HOLDERS)
def test_tables_are_read_by_byte_and_by_place(holders: int) -> None:
    x = torch.tensor([1 << k for k in range(62)] + [0, -5])
    first, second = list(range(100, 108)), [(-3) ** k for k in range(8)]
    by_byte, by_place = revealed(
        Lockstep(holders).run(read_at, deal(x, holders), lookup.packed(first, second), lookup.packed(second))
    )
    places = torch.arange(62)
    for table, read in ((first, by_byte[0]), (second, by_byte[1])):
        assert torch.equal(read[:62], torch.tensor(table)[places >> 3]) and not read[62:].any()
    assert torch.equal(by_place[0][:62], torch.tensor(second)[places & 7])


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("degree", [1, 2, 6, 8])
def test_a_polynomial_is_near_everywhere(holders: int, degree: int) -> None:
    coefficients = [(-1) ** k / 3.0**k for k in range(degree + 1)]
    t = torch.cat([torch.linspace(-1, 1, 4001, dtype=torch.float64)[:-1], torch.tensor([1 - 2.0**-40])])
    y = ((t + 1) * 2.0**62).to(torch.int64) + ring.MIN
    given_ = degree, polynomials.matrix_of(coefficients)
    driver = Lockstep(holders)
    found = revealed(driver.run(polynomials.polynomial_of_fraction, deal(y, holders), *given_))
    exact = np.polyval(coefficients[::-1], t.numpy())
    assert np.abs(found.numpy() / 2.0**polynomials.RESULT_BITS - exact).max() < 2.0**-24
    assert driver.cost.rounds == 1


def test_a_polynomial_is_the_same_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.randint(ring.MIN, 0, (3000,))
    matrix = polynomials.matrix_of([0.5, -0.25, 0.125])
    whole = revealed(Lockstep(2).run(polynomials.polynomial_of_fraction, deal(y, 2), 2, matrix))
    monkeypatch.setattr(polynomials, "_BLOCK", 256)
    parts = revealed(Lockstep(2).run(polynomials.polynomial_of_fraction, deal(y, 2), 2, matrix))
    assert int((whole - parts).abs().max()) < 1 << (polynomials.RESULT_BITS - 24)


def test_its_costs() -> None:
    """80 bytes for the leading bit, 2 for the tables, 24 to raise the number, 8 for the polynomial, 8 to truncate it."""
    driver = Lockstep(2)
    given_ = lookup.packed([5] * 8, [6] * 8), lookup.packed([5] * 8, [7] * 8), 8, bytes(8 * 18 * 9), 28, 1, 1
    driver.run(leading.shifted_function, deal(torch.arange(6400), 2), *given_)
    assert (driver.cost.rounds, driver.cost.bytes_sent[0]) == (18, 6400 * (80 + 2 + 24 + 8 + 8))


def test_what_is_opened_is_uniform_whatever_the_number_is() -> None:
    """In what is opened for many copies of one number, every byte value comes about as often as any other."""
    given_ = lookup.packed([5] * 8, [6] * 8), lookup.packed([5] * 8, [7] * 8), 3, bytes(8 * 8 * 4), 28, 1, 1
    for number in (0, 12345, -(1 << 40)):
        driver = Lockstep(2, transcript=True)
        driver.run(leading.shifted_function, deal(torch.full((12_800,), number), 2), *given_)
        assert driver.seen is not None
        for one in driver.seen[0]:
            if one.sender != "opened":
                continue
            found = one.tensor.contiguous().view(-1).view(torch.uint8).long()
            is_place = one.tensor.dtype == torch.uint8 and int(found.max()) < 8
            counts = torch.bincount(found, minlength=8 if is_place else 256)
            expected = len(found) / len(counts)
            assert ((counts - expected).abs() < 7 * math.sqrt(expected)).all()


def test_no_elements_take_no_rounds() -> None:
    driver = Lockstep(2)
    given_ = lookup.packed([5] * 8, [6] * 8), lookup.packed([5] * 8, [7] * 8), 8, bytes(8 * 18 * 9), 28, 1, 1
    assert revealed(
        driver.run(leading.shifted_function, deal(torch.empty(0, 3).long(), 2), *given_)
    ).shape == (0, 3)
    assert driver.cost.rounds == 0


def test_of_the_error_of_a_reciprocal_between_0_1_and_100_most_is_the_encodings(hook: Any) -> None:
    """What `bench` tells apart: a tenth of CrypTen's error, 1.6e-3, is less than what encoding costs."""
    alice, bob, provider = (sy.VirtualWorker(hook, id=f"leading {name}", auto_add=False) for name in "abc")
    plain = torch.linspace(0.1, 100, 20_001, dtype=torch.float64)
    secret: Any = plain.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    secret = secret.share(alice, bob, crypto_provider=provider)
    encoded = plain.mul(2.0**16).round().mul(2.0**-16)
    found = torch.reciprocal(secret).get().float_precision()
    assert (found - 1 / encoded).abs().max() < 2.0**-16 + 10 * 2.0**-19
    near = torch.linspace(0.1, 0.1001, 1000, dtype=torch.float64)
    assert (1 / near - 1 / near.mul(2.0**16).round().mul(2.0**-16)).abs().max() > 7e-4
