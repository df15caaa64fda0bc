"""Python's and numpy's types come back equal, and of the same type."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

from serde.strategies import ARRAYS, VALUES, same
from syft import serde
from syft.serde import SerdeError, UnserializableError


@settings(max_examples=300)
@given(VALUES)
def test_nested_values_come_back(value: Any) -> None:
    assert same(serde.deserialize(serde.serialize(value)), value)
    assert same(serde.detail(None, serde.simplify(None, value)), value)


@settings(max_examples=200)
@given(ARRAYS)
def test_arrays_come_back(array: Any) -> None:
    for given_array in (array, np.asfortranarray(array), array[::-1] if array.ndim else array):
        back = serde.deserialize(serde.serialize(given_array))
        assert back.dtype == given_array.dtype.newbyteorder("=")
        assert back.shape == given_array.shape
        assert back.flags.writeable
        np.testing.assert_array_equal(back, given_array)


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.float64("nan"),
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.complex64(1 + 2j),
        np.str_("añ"),
        np.bytes_(b"ab"),
        np.datetime64("2024-02-29"),
        np.timedelta64(3, "s"),
    ],
)
def test_numpy_scalars_come_back(scalar: Any) -> None:
    back = serde.deserialize(serde.serialize(scalar))
    assert type(back) is type(scalar)
    assert back == scalar or scalar != scalar
    assert back.dtype == scalar.dtype


def test_a_fortran_array_stays_one() -> None:
    array = np.asfortranarray(np.arange(600.0).reshape(20, 30))
    back = serde.deserialize(serde.serialize(array))
    assert back.flags.f_contiguous and not back.flags.c_contiguous
    assert (back == array).all()


def test_numpy_dtypes_come_back() -> None:
    for dtype in (np.dtype("float32"), np.dtype("<U7"), np.dtype("datetime64[ns]")):
        assert serde.deserialize(serde.serialize(dtype)) == dtype


@pytest.mark.parametrize("size", [255, 256, 257, 5000])
def test_bytes_of_any_length_come_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    for value in (data[:size], bytearray(data[:size])):
        back = serde.deserialize(serde.serialize(value))
        assert type(back) is type(value)
        assert back == value


def test_numbers_at_the_edges_of_64_bits_come_back() -> None:
    edges = [s * 2**n + d for s in (-1, 1) for n in (31, 32, 63, 64, 65, 5000) for d in (-1, 0, 1)]
    assert serde.deserialize(serde.serialize(edges)) == edges


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (object(), "register"),
        (lambda: 1, "function"),
        (Colour.RED, "Convert it to a int"),
        (Point(1, 2), "Convert it to a tuple"),
        (Text("a"), "Convert it to a str"),
        ([{"a": (print,)}], "builtin"),
        (int, "type"),
        (np.array([object()]), "dtype object"),
        (np.zeros(2, dtype=[("a", "i4")]), "dtype"),
        (np.longdouble(1), "dtype"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        ("\ud800", "Unicode"),
    ],
)
def test_what_cannot_travel_is_refused_with_advice(value: Any, word: str) -> None:
    with pytest.raises(SerdeError, match=word):
        serde.serialize(value)


def test_an_unregistered_type_is_also_a_type_error() -> None:
    with pytest.raises(TypeError):
        serde.serialize(object())
    assert issubclass(UnserializableError, SerdeError)


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(SerdeError, match="contains itself"):
        serde.serialize(loop)


def test_an_explosion_of_references_is_refused() -> None:
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    with pytest.raises(SerdeError, match="parts"):
        serde.serialize(value)


def test_nesting_within_the_limit_comes_back() -> None:
    value: list[Any] = []
    for _ in range(98):
        value = [value]
    assert serde.deserialize(serde.serialize(value)) == value
