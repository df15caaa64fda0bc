"""The inverse of a matrix, and dropout."""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.exceptions import UnsupportedOperationError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_arithmetic as arithmetic
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_products as products
from syft.mpc.rules import fixed_reductions as reductions
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


# -- inverse -------------------------------------------------------------------------------------------

#: Newton steps: enough for condition numbers (in the Frobenius norm) up to about 500.
STEPS = 26


@rule(FixedPrecisionTensor, aten.linalg_inv_ex.default)
def inverse(A: Any, *, check_errors: bool = False) -> Any:
    """Newton-Schulz: X <- X (2 - A X) from X = A^T, on A divided by its Frobenius norm, with 24 bits.

    Relative error about cond(A)^2 * 2^-26 plus 2 units. A singular matrix is not detected.
    """
    x = kinds.as_real(A)
    rank = len(x.shape)
    if 0 in x.shape:
        return kinds.same_kind(on_children(aten.clone.default, x.child), x), torch.zeros(
            x.shape[:-2], dtype=torch.int32
        )
    squares = reductions.total(ring.times(x.child, x.child), [rank - 2, rank - 1], True)
    # The norm in units; scale^2 / norm in units is 1 / norm.
    norm = kinds.real(approx.square_root(squares, 1), x)
    shrink = arithmetic.reciprocal(norm)
    work = FixedPrecisionTensor(2, _INVERSE_BITS, x.presented_dtype)
    entries = arithmetic.multiply(x, shrink).child
    a = kinds.real(approx.to_work(entries, x.scale << (approx.WORK - _INVERSE_BITS), 1.01), work)
    guess = kinds.real(on_children(aten.transpose.int, a.child, -1, -2), work)
    size = x.shape[-1]
    twice = 2 * torch.eye(size, dtype=torch.int64) * work.scale
    for _ in range(STEPS):
        gap = kinds.real(ring.minus(twice, _matmul(a, guess).child), work)
        guess = _matmul(guess, gap)
    bound = 2.0 ** (40 - _INVERSE_BITS)
    back = approx.rescaled(guess.child, x.scale / work.scale, bound * work.scale)
    made = arithmetic.multiply(kinds.real(back, x), shrink)
    return made, torch.zeros(x.shape[:-2], dtype=torch.int32)


_INVERSE_BITS = 24


def _matmul(a: FixedPrecisionTensor, b: FixedPrecisionTensor) -> FixedPrecisionTensor:
    shape = list(a.shape)
    size = shape[-1]
    flat_a, flat_b = (
        kinds.real(on_children(aten.reshape.default, v.child, [-1, size, size]), v) for v in (a, b)
    )
    made = products.matrix_product(aten.bmm.default, flat_a, flat_b)
    return kinds.real(on_children(aten.reshape.default, made.child, shape), a)


@rule(FixedPrecisionTensor, aten._linalg_solve_ex.default)
def solve(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    """The inverse times the right-hand side; errors as `inverse`."""
    made, info = inverse(A) if kinds.is_node(A) else torch.linalg.inv_ex(A)
    vector = len(B.shape) == 1 or (len(A.shape) - 1 == len(B.shape) and A.shape[:-1] == B.shape)
    right = products._on(B, aten.unsqueeze.default, -1) if vector and left else B
    first, second = (new_wrapper(v) if kinds.is_node(v) else v for v in (made, right))
    both = torch.matmul(first, second) if left else torch.matmul(second, first)
    child = both.child if type(both) is Wrapper else both
    solution = products._on(child, aten.squeeze.dim, -1) if vector and left else child
    if kinds.is_node(made):
        made.known["inverse"] = True
    return solution, made, torch.zeros(A.shape[:-1], dtype=torch.int32), info


@rule(FixedPrecisionTensor, aten.linalg_lu_solve.default)
def solve_again(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    """In place of the factors, `solve` hands the inverse to its backward."""
    if not kinds.is_node(LU) or "inverse" not in LU.known:
        raise UnsupportedOperationError(
            "aten.linalg_lu_solve", FixedPrecisionTensor, "Use torch.linalg.solve on the matrix itself."
        )
    inverse_node = products._on(LU, aten.transpose.int, -1, -2) if adjoint else LU
    first, second = (new_wrapper(v) if kinds.is_node(v) else v for v in (inverse_node, B))
    both: Any = torch.matmul(first, second) if left else torch.matmul(second, first)
    return both.child


# -- dropout -------------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.native_dropout.default)
def dropout(input: Any, p: float, train: bool | None) -> Any:
    """The mask is public."""
    if train is False or p == 0:
        return input, torch.ones(input.shape, dtype=torch.bool)
    mask = torch.rand(input.shape) >= p
    if p == 1:
        return arithmetic.multiply(input, 0), mask
    return arithmetic.multiply(arithmetic.multiply(input, mask), 1 / (1 - p)), mask
