"""Structures of all types, nested in each other, come back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from serde.strategies import HASHABLE, SCALARS, same
from syft import serde
from syft.core.abstract import AbstractTensor
from syft.core.spec import TensorSpec, spec_of
from syft.messaging.message import Found, ObjectMessage, Operation, Ref

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]


def tensors() -> st.SearchStrategy[torch.Tensor]:
    shapes = st.lists(st.integers(0, 9), max_size=3)
    plain = st.builds(
        lambda shape, dtype: torch.ones(shape).cumsum(-1).to(dtype), shapes, st.sampled_from(DTYPES)
    )
    return st.one_of(
        plain,
        plain.map(lambda t: t.transpose(0, -1) if t.dim() else t),
        shapes.map(lambda shape: torch.ones(shape, requires_grad=True)),
        shapes.map(lambda shape: torch.nn.Parameter(torch.ones(shape))),
        shapes.map(lambda shape: torch.ones(shape).tag("#a").describe("b")),  # type: ignore[attr-defined]
    )


def chains() -> st.SearchStrategy[Any]:
    links = st.lists(
        st.sampled_from([sy.LoggingTensor, sy.PlusIsMinusTensor, sy.LocalTensor]), min_size=1, max_size=4
    )

    def build(kinds: list[Any], tensor: torch.Tensor) -> Any:
        for kind in kinds:
            tensor = kind().on(tensor)
        return tensor

    return st.builds(build, links, tensors())


LEAVES = st.one_of(
    SCALARS,
    tensors(),
    chains(),
    tensors().map(spec_of),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 9)).map(torch.Size),
    st.just(torch.device("cpu")),
    st.integers(0, 300).map(lambda n: np.arange(n, dtype=np.float32)),
    st.floats(allow_nan=False, width=32).map(np.float32),
    st.integers().map(Ref),
    st.text().map(sy.String),
    st.text().map(ValueError),
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(HASHABLE, inner, max_size=4),
        inner.map(lambda value: ObjectMessage(value, 3, frozenset({"ann"}), None)),
        st.builds(lambda args, kw: Operation("aten.add.Tensor", None, args, kw, (1,)),
                  st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=2)),
        inner.map(sy.ObjectWrapper),
        tensors().map(lambda t: Found(1, "tensor", spec_of(t), ("#a",), None)),
    ),
    max_leaves=12,
)  # fmt: skip


def alike(a: Any, b: Any) -> bool:
    """`same`, for all types there are."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor) and not isinstance(getattr(a, "child", None), AbstractTensor):
        return (
            torch.equal(a, b)
            and a.dtype == b.dtype
            and a.requires_grad == b.requires_grad
            and a.clone().stride() == b.stride()
            and (a.tags, a.description) == (b.tags, b.description)  # type: ignore[attr-defined]
        )
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and a.requires_grad == b.requires_grad and alike(a.child, b.child)  # type: ignore[attr-defined]
    if isinstance(a, AbstractTensor):
        return alike(a.child, b.child)
    if isinstance(a, TensorSpec):
        return a is b
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and np.array_equal(a, b))
    if isinstance(a, (Operation, ObjectMessage)):
        return all(alike(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    if isinstance(a, sy.ObjectWrapper):
        return alike(a.obj, b.obj)
    if isinstance(a, Exception):
        return a.args == b.args
    if isinstance(a, (list, tuple)) and type(a) is not torch.Size:
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return alike(list(a.items()), list(b.items()))
    return same(a, b)


@settings(max_examples=300)
@given(NESTED, st.sampled_from([None, "lz4", "zstd"]))
def test_whatever_is_nested_comes_back(value: Any, compression: str | None) -> None:
    data = serde.serialize(value, compression=compression)
    assert alike(value, serde.deserialize(data))
    assert alike(value, serde.deserialize(bytearray(data)))
    assert alike(value, serde.detail(None, serde.simplify(None, value)))


def test_the_comparison_sees_differences() -> None:
    pairs = [
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.zeros(2)),
        (torch.ones(2, 3), torch.ones(3, 2).t()),
        ([1], [1.0]),
        ([1], [True]),
        (sy.LocalTensor().on(torch.ones(1)), sy.LoggingTensor().on(torch.ones(1))),
        (ObjectMessage(torch.ones(1)), ObjectMessage(torch.zeros(1))),
    ]
    for one, other in pairs:
        assert alike(one, one) and not alike(one, other)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_large_structure_comes_back(kind: Any) -> None:
    value = kind({"id": n, "loss": n / 7, "name": str(n)} for n in range(20_000))
    assert serde.deserialize(serde.serialize(value)) == value
