"""Polynomials piece by piece from one opening: values, costs, and what is opened."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mpc.lower import HOLDERS, deal, revealed
from syft.mpc.correlations_of_functions import DigitPowers
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import lookup

SHIFT = 28


def _tables(size: int, degree: int, functions: int) -> np.ndarray:
    """(functions, degree + 1, size) coefficients, each below 1."""
    return np.random.default_rng(size + degree).uniform(-1, 1, (functions, degree + 1, size)).round(6)


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("size", [1, 8, 128])
@pytest.mark.parametrize("degree", [0, 1, 5])
@pytest.mark.parametrize("functions", [1, 2])
def test_every_function_is_read_at_one_of_both_digits_next_to_a_number(
    size: int, degree: int, functions: int, holders: int
) -> None:
    tables = _tables(size, degree, functions)
    words = lookup.packed(*np.rint(tables.reshape(-1, size) * 2.0**SHIFT).astype(np.int64).tolist())
    x = torch.randint(0, size << SHIFT, (3, 7))
    x[0, :4] = torch.tensor([0, 1, (1 << SHIFT) - 1, (size << SHIFT) - 1])
    driver = Lockstep(holders)
    found = revealed(driver.run(lookup.read_pieces, deal(x, holders), SHIFT, size, functions, words))
    assert found.shape == (functions, 3, 7)
    assert driver.cost.rounds == 1 and driver.cost.bytes_sent[0] == 8 * 21 * (holders - 1)
    digit, rest = (x >> SHIFT).numpy(), (x & ((1 << SHIFT) - 1)).numpy() / 2.0**SHIFT
    for function, coefficients in zip(
        found.numpy() / 2.0 ** (SHIFT + lookup.PIECE_BITS), tables, strict=True
    ):
        errors = []
        for up in (0, 1):
            chosen = coefficients[:, (digit + up) % size]
            value = sum(chosen[k] * (rest - up) ** k for k in range(degree + 1))
            errors.append(np.abs(function - value))
        assert np.minimum(*errors).max() < 2.0**-24


def test_the_same_function_everywhere_is_that_function() -> None:
    """Neighbouring pieces of one polynomial: no digit is off, whichever of both was read."""
    size = 16
    centres = np.arange(size)
    columns = [1 + 0.125 * centres + centres**2 / 512, 0.125 + centres / 256, np.full(size, 1 / 512)]
    words = lookup.packed(*[np.rint(column * 2.0**SHIFT).astype(np.int64).tolist() for column in columns])
    x = torch.randint(0, 15 << SHIFT, (5000,))
    found = revealed(Lockstep(2).run(lookup.read_pieces, deal(x, 2), SHIFT, size, 1, words))
    value = x.double() / 2.0**SHIFT
    exact = 1 + 0.125 * value + value**2 / 512
    assert (found[0].double() / 2.0 ** (SHIFT + lookup.PIECE_BITS) - exact).abs().max() < 2.0**-24


@pytest.mark.parametrize("number", [0, 1, (200 << 24) + 12345])
def test_what_is_opened_is_uniform_whatever_the_number_is(number: int) -> None:
    x = torch.full((1 << 13,), number)
    driver = Lockstep(2, transcript=True)
    driver.run(lookup.read_pieces, deal(x, 2), 24, 256, 1, lookup.packed([1] * 256, [2] * 256))
    assert driver.seen is not None
    for one in driver.seen[0]:
        if one.sender != "opened":
            assert bool((one.tensor >> 32 == 0).all()), "nothing above what is used is sent"
        raw = one.tensor.view(torch.uint8).view(-1, 8)[:, :4].reshape(-1)
        counts = torch.bincount(raw.long(), minlength=256).double()
        expected = counts.sum() / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 255 + 6.5 * math.sqrt(510)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ((5, 8, 3, 2, 30), "power of two"),
        ((5, 60, 16, 2, 30), "not inside a word"),
        ((5, 0, 16, 2, 30), "not inside a word"),
        ((5, 8, 16, 17, 30), "degree 0 to 16"),
        ((5, 8, 16, 2, 53), "1 to 52 bits"),
    ],
)
def test_digits_and_powers_that_do_not_fit_are_refused(kind: tuple[int, ...], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        DigitPowers(*kind)
