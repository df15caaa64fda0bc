"""Values for property tests, and what it means that one came back."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import hypothesis.extra.numpy as hnp
from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**200), max_value=2**200),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(max_size=600),
    st.just(...),
    st.ranges() if hasattr(st, "ranges") else st.builds(range, st.integers(-9, 9), st.integers(-9, 9)),
    st.builds(slice, st.none() | st.integers(), st.none() | st.integers(), st.none() | st.integers()),
)
HASHABLE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.tuples(st.integers(), st.text())
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.sets(HASHABLE, max_size=5),
        st.frozensets(HASHABLE, max_size=5),
        st.dictionaries(HASHABLE, inner, max_size=5),
        st.dictionaries(st.text(), inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=20,
)
ARRAYS = hnp.arrays(
    dtype=st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(),
        hnp.unsigned_integer_dtypes(),
        hnp.floating_dtypes(sizes=(16, 32, 64)),
        hnp.complex_number_dtypes(sizes=(64, 128)),
        hnp.unicode_string_dtypes(max_len=5),
        hnp.byte_string_dtypes(max_len=5),
        hnp.datetime64_dtypes(),
        hnp.timedelta64_dtypes(),
    ),
    shape=hnp.array_shapes(min_dims=0, min_side=0, max_dims=4, max_side=4),
)


def same(a: Any, b: Any) -> bool:
    """Equal, of one type all the way down, in one order; a NaN is the same as a NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)):
        return bool(a == b) and sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)
