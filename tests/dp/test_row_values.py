"""Rows of any kind: none of them raises, warns, shows in a text, or changes what another row counts as."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from syft.dp import mechanisms
from syft.dp.row_values import rows_as_floats, values_as_floats


class Hostile:
    """Fails at whatever it is asked."""

    def __float__(self) -> float:
        raise KeyError("HIV+")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("HIV+")

    def __hash__(self) -> int:
        return hash(1.0)


class NoFloat:
    def __float__(self) -> Any:
        return "HIV+"


class Unhashed(type):
    """A class of classes that cannot stand in a set."""

    __hash__ = None  # type: ignore[assignment]


class OfUnhashed(metaclass=Unhashed):
    pass


#: name -> a row, and the float that it is
ROWS: dict[str, tuple[Any, float]] = {
    "None": (None, math.nan),
    "text": ("HIV+", math.nan),
    "text of a number": ("2.5", 2.5),
    "bytes": (b"HIV+", math.nan),
    "large integer": (10**400, math.inf),
    "large negative integer": (-(10**400), -math.inf),
    "bool": (True, 1.0),
    "nan": (math.nan, math.nan),
    "inf": (-math.inf, -math.inf),
    "list": ([2.0], math.nan),
    "tuple that holds a list": (("b", [1]), math.nan),
    "dictionary": ({"HIV+": 1}, math.nan),
    "complex": (3 + 1j, math.nan),
    "complex on the real line": (3 + 0j, 3.0),
    "numpy complex": (np.complex128(3 + 1j), math.nan),
    "numpy text": (np.str_("HIV+"), math.nan),
    "numpy bool": (np.bool_(True), 1.0),
    "numpy array": (np.array([1.0, 2.0]), math.nan),
    "numpy array of one": (np.array([2.0]), 2.0),
    "long double": (np.longdouble("1e4000"), float(np.longdouble("1e4000"))),
    "date": (datetime.date(2020, 1, 1), math.nan),
    "signalling decimal": (decimal.Decimal("sNaN"), math.nan),
    "large fraction": (fractions.Fraction(10**400), math.nan),
    "tensor": (torch.tensor([1.0, 2.0]), math.nan),
    "tensor with a gradient": (torch.tensor(2.0, requires_grad=True), 2.0),
    "complex tensor": (torch.tensor(1j), math.nan),
    "bfloat16": (torch.tensor(2.0, dtype=torch.bfloat16), 2.0),
    "fails": (Hostile(), math.nan),
    "float that is none": (NoFloat(), math.nan),
    "class without a hash": (OfUnhashed(), math.nan),
}


def same(found: Any, wanted: list[float]) -> bool:
    return bool(np.array_equal(np.asarray(found), np.array(wanted), equal_nan=True))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_its_float_or_nan_and_the_others_are_what_they_were(name: str) -> None:
    row, wanted = ROWS[name]
    assert same(rows_as_floats([1.0, row, 3]), [1.0, wanted, 3.0])
    assert same(rows_as_floats((row,)), [wanted])
    objects = np.empty(2, dtype=object)
    objects[0], objects[1] = row, 4.0
    assert same(rows_as_floats(objects), [wanted, 4.0])


BOUNDS = (0.0, 4.0)
MECHANISMS: dict[str, Callable[[Any], Any]] = {
    "count": lambda rows: mechanisms.count(rows, 1.0),
    "sum": lambda rows: mechanisms.bounded_sum(rows, BOUNDS, 1.0),
    "mean": lambda rows: mechanisms.bounded_mean(rows, BOUNDS, 1.0),
    "variance": lambda rows: mechanisms.bounded_variance(rows, BOUNDS, 1.0),
    "quantile": lambda rows: mechanisms.quantile(rows, 0.5, BOUNDS, 1.0, candidates=8),
    "edges": lambda rows: mechanisms.histogram(rows, 1.0, edges=[0.0, 2.0, 4.0]).sum(),
    "categories": lambda rows: mechanisms.histogram(rows, 1.0, categories=[1.0, "a", ("b",)]).sum(),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "laplace": lambda values: mechanisms.laplace(values, 1.0, 1.0),
    "gaussian": lambda values: mechanisms.gaussian(values, 1.0, noise_multiplier=1.0),
    "exponential": lambda values: mechanisms.exponential(values, 1.0, 1.0),
    "noisy max": lambda values: mechanisms.noisy_max(values, 1.0, 1.0),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_row_makes_a_mechanism_raise(mechanism: str, name: str) -> None:
    assert math.isfinite(MECHANISMS[mechanism]([1.0, 2.0, ROWS[name][0], 3.0]))


@pytest.mark.parametrize(
    "name", [n for n, (row, _) in ROWS.items() if np.ndim(_) == 0 and not hasattr(row, "__len__")]
)
@pytest.mark.parametrize("mechanism", VALUES)
def test_no_number_makes_a_mechanism_raise(mechanism: str, name: str) -> None:
    assert np.isfinite(VALUES[mechanism]([1.0, 2.0, ROWS[name][0]])).all()


@pytest.mark.parametrize("value", ["HIV+", None, 10**400, Hostile(), 1j])
def test_a_single_value_that_is_no_number_counts_as_none(value: Any) -> None:
    assert math.isfinite(mechanisms.laplace(value, 1.0, 1.0))
    assert math.isfinite(mechanisms.gaussian(value, 1.0, noise_multiplier=1.0))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (np.array([1.5, "HIV+"]), [1.5, math.nan]),
        (np.array([1.5, 2 + 1j]), [1.5, math.nan]),
        (np.array([1, 10**400, None], dtype=object), [1.0, math.inf, math.nan]),
        (np.array([b"1.5", b"x"]), [1.5, math.nan]),
        (np.array([np.longdouble(1), np.longdouble("1e4000")]), [1.0, float(np.longdouble("1e4000"))]),
        (np.array(["1970-01-03", "NaT"], dtype="M8[D]"), [2.0, math.nan]),
        (torch.tensor([1.5 + 0j, 2 + 1j]), [1.5, math.nan]),
        (torch.tensor([1.5 + 2j]).conj().imag, [-2.0]),
        (torch.tensor([1.5, 2.0], requires_grad=True), [1.5, 2.0]),
        (torch.tensor([1.5, 2.0], dtype=torch.bfloat16), [1.5, 2.0]),
        (range(3), [0.0, 1.0, 2.0]),
    ],
)
def test_a_row_that_decided_the_type_of_an_array_changes_only_itself(rows: Any, wanted: list[float]) -> None:
    assert same(rows_as_floats(rows), wanted)
    assert math.isfinite(mechanisms.bounded_mean(rows, BOUNDS, 1.0))


def test_values_keep_their_shape() -> None:
    assert same(values_as_floats([[1, 2], [3, None]]), [[1.0, 2.0], [3.0, math.nan]])  # type: ignore[list-item]
    assert values_as_floats(3).shape == () and values_as_floats([]).shape == (0,)
    assert mechanisms.laplace([[1.0, "x"]], 1.0, 1.0).shape == (1, 2)


def test_plain_numbers_are_converted_all_at_once() -> None:
    rows = np.arange(10.0)
    assert rows_as_floats(rows) is rows
