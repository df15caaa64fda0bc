"""torch's own operator database, run through chains and compared with plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import opdb
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.tensors.logging import LoggingTensor
from syft.tensors.plusisminus import PlusIsMinusTensor

SPARSE = "a chain presents dense tensors, and the result is sparse"

#: The entries that do not agree with plain torch yet. Strict: whoever mends one strikes its line.
NOT_YET = {
    torch.float32: {"sparse.sampled_addmm": SPARSE, "sparse.mm.reduce": SPARSE, "to_sparse": SPARSE},
    torch.int64: {"to_sparse": SPARSE},
}

#: Functions that make tensors from numbers: no chain can be among their arguments.
TAKES_NO_TENSOR = set(
    """arange broadcast_shapes linspace logspace randn randint ones zeros full empty_strided empty eye
    empty_permuted scalar_tensor triu_indices tril_indices signal.windows.hamming signal.windows.hann
    signal.windows.bartlett signal.windows.blackman signal.windows.cosine signal.windows.exponential
    signal.windows.gaussian signal.windows.kaiser signal.windows.general_cosine
    signal.windows.general_hamming signal.windows.nuttall""".split()
)

ZEROS = "torch makes zeros itself, from the shape alone"
BUFFER = "torch's Python code writes into a buffer that it made itself"

#: Entries with a result or a gradient that is a plain tensor, because no chain had a part in making it.
MAY_BE_PLAIN = {
    "copysign": ZEROS,
    "nextafter": ZEROS,
    "sgn": ZEROS,
    "normal": ZEROS,
    "normal.number_mean": ZEROS,
    "repeat": ZEROS,
    "max_pool2d_with_indices_backward": ZEROS,
    "linalg.matrix_rank": ZEROS,
    "linalg.matrix_rank.hermitian": ZEROS,
    "nn.functional.linear_cross_entropy.chunked_none": BUFFER,
}

#: A chain over PlusIsMinus is meant to differ here.
ADDS = {"add", "sub", "rsub", "__radd__", "__rsub__"}

#: The entries of the two-deep chain: every third one, to keep it short.
SAMPLE_STEP = 3


def logged(tensor: torch.Tensor) -> torch.Tensor:
    return LoggingTensor().on(tensor)


def logged_and_swapped(tensor: torch.Tensor) -> torch.Tensor:
    return LoggingTensor().on(PlusIsMinusTensor().on(tensor))


def plain(tensor: Any) -> Any:
    while type(tensor) is Wrapper or isinstance(tensor, AbstractTensor):
        tensor = tensor.child
    return tensor


def cases(dtype: torch.dtype, step: int = 1) -> Iterator[Any]:
    for op in opdb.entries(dtype)[::step]:
        name = opdb.op_id(op)
        if name in TAKES_NO_TENSOR:
            continue
        reason = NOT_YET[dtype].get(name)
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        yield pytest.param(op, id=name, marks=marks)


pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore"),  # torch's own, about deprecated entries of the database
]


@pytest.mark.parametrize("op", list(cases(torch.float32)))
def test_float32_forward_and_backward_equal_plain_torch(op: Any) -> None:
    may_be_plain = opdb.op_id(op) in MAY_BE_PLAIN
    assert opdb.compare(op, torch.float32, logged, plain, may_be_plain=may_be_plain) > 0


@pytest.mark.parametrize("op", list(cases(torch.int64)))
def test_int64_equals_plain_torch(op: Any) -> None:
    assert opdb.compare(op, torch.int64, logged, plain) > 0


@pytest.mark.parametrize(
    "op", [c for c in cases(torch.float32, SAMPLE_STEP) if c.values[0].name not in ADDS and not c.marks]
)
def test_two_deep_chain_equals_plain_torch(op: Any) -> None:
    may_be_plain = opdb.op_id(op) in MAY_BE_PLAIN
    assert opdb.compare(op, torch.float32, logged_and_swapped, plain, 2, may_be_plain) > 0


@pytest.mark.parametrize("lift", [logged, logged_and_swapped])
def test_in_place_variants_and_out_arguments_equal_plain_torch(lift: Any) -> None:
    run, differing = 0, {}
    for op in opdb.entries(torch.float32):
        if lift is logged_and_swapped and op.name in ADDS:
            continue
        try:
            run += opdb.compare_written(op, torch.float32, lift, plain, limit=2)
        except (AssertionError, RuntimeError, ValueError) as error:
            differing[opdb.op_id(op)] = f"{type(error).__name__}: {error}"
    assert differing == {}
    assert run > 700


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_at_least_99_percent_of_the_entries_agree(dtype: torch.dtype) -> None:
    names = {opdb.op_id(op) for op in opdb.entries(dtype)}
    missing = set(NOT_YET[dtype])
    assert missing <= names, "the table names entries that the database does not have"
    taking_tensors = names - TAKES_NO_TENSOR
    assert len(taking_tensors) > (600 if dtype is torch.float32 else 400)
    assert 1 - len(missing) / len(taking_tensors) >= 0.99


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_what_is_left_out_really_takes_no_tensor(dtype: torch.dtype) -> None:
    for op in opdb.entries(dtype):
        if opdb.op_id(op) in TAKES_NO_TENSOR:
            assert opdb.compare(op, dtype, logged, plain) == 0, opdb.op_id(op)


def test_a_difference_would_be_found() -> None:
    """The harness itself: a type that computes something else does not pass."""
    (op,) = (op for op in opdb.entries(torch.float32) if opdb.op_id(op) == "add")
    with pytest.raises(AssertionError):
        opdb.compare(op, torch.float32, lambda t: PlusIsMinusTensor().on(t), plain)
    with pytest.raises(AssertionError, match="no chain any more"):
        opdb.compare(op, torch.float32, lambda t: t, plain)
