"""`inv_sym`, `qr`, `_ldl` and `_norm_mpc`: matrices of secrets, inverted and decomposed without opening anything.

Nobody learns anything but the shape. There are no branches on values: a singular matrix takes as long as any other
and its inverse means nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.mpc.linalg.scaling import (
    BITS,
    ONE,
    HalfExponents,
    equilibrated,
    half_digits,
    number,
    secret_matrix,
    to_precision_of,
    units,
)
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children
from syft.tensors.pointer import PointerTensor

aten = torch.ops.aten

#: Newton steps besides those for the size: enough for eigenvalues of an equilibrated matrix down to 2^-13.
STEPS = 17


def inverted(matrix: Any) -> Any:
    """The inverse of an equilibrated matrix: Newton and Schulz, X <- X (2 - R X), from X = 1 / n.

    The eigenvalues of R are in (0, n), so those of R X start in (0, 1) and the distance to 1 is squared by every step.
    Relative error about n 2^-BITS over the smallest eigenvalue; entries must be below 2^14.
    """
    size = matrix.shape[-1]
    identity = torch.eye(size, dtype=torch.float64)
    guess = identity * (2 / size) - matrix * (1 / size**2)
    for _ in range(STEPS + (size - 1).bit_length()):
        guess = guess @ (2 * identity - matrix @ guess)
    return guess


def inv_sym(t: Any) -> Any:
    """The inverse of a symmetric positive definite matrix in fixed precision, usually shared; nothing is opened.

    The relative error is about n 2^-24 over the smallest eigenvalue of the matrix scaled to a unit diagonal (its
    correlations), plus one unit. Entries of the inverse must be below about 10^4. Only symmetric matrices: what is
    above the diagonal is believed to be what is below. Of a plain tensor: torch's own inverse.
    """
    if type(t) is not Wrapper and isinstance(t, torch.Tensor):
        return torch.linalg.inv(t)
    node = secret_matrix(t, "inv_sym")
    if t.shape[0] != t.shape[1]:
        raise ValueError(
            f"inv_sym takes a square matrix; one of shape {tuple(t.shape)} was found. For X with more rows than "
            "columns, invert X.t() @ X."
        )
    halves = HalfExponents.of(on_children(aten.diagonal.default, node.child))
    gains = halves.gains
    scaled = equilibrated(node.child, ring.unsqueezed(gains, 1), ring.unsqueezed(gains, 0))
    # In units, A = R 2^(h_i + h_j), so 1 / A = (scale / 2^2c) X 2^(c - h_i) 2^(c - h_j); the c keep all near one.
    digits = half_digits(node.scale)
    sizes = number(halves.power(BITS + digits, -1))
    back = inverted(scaled) * sizes.unsqueeze(1) * sizes.unsqueeze(0)
    return to_precision_of(back * (node.scale / 4.0**digits), node)


def qr(t: Any, mode: str = "reduced", norm_factor: float | None = None) -> Any:
    """Q and R with Q R = t, of a matrix in fixed precision, usually shared; nothing is opened.

    Householder reflections, signs as in torch.linalg.qr. `mode` is "reduced", "complete" or "r" (Q is then None).
    The matrix is first scaled by its secret norm. That takes the sum of its squares, which has to fit the ring: if it is
    above 1e18 / scale^2 (a million with six digits), name a public `norm_factor` to divide by. Error of Q R about 2^-20
    per column, relative to the norm of the matrix, plus a unit. Of a plain tensor, here or at a worker: torch's own
    (which needs no `norm_factor`).
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"qr was called with mode={mode!r}; it knows 'reduced', 'complete' and 'r'.")
    _check_factor("qr", norm_factor)
    if _is_plain(t):
        plain_q, plain_r = torch.linalg.qr(t, mode=mode)
        return (None if mode == "r" else plain_q), plain_r
    node = secret_matrix(t, "qr")
    if norm_factor is not None:
        divided: Any = t / norm_factor
        node = divided.child
    halves = HalfExponents.of_norm(node.child)
    # With 2^h at least the norm in units, all that follows is below one.
    matrix = halves.normed(node.child)
    rows, columns = t.shape
    rank = min(rows, columns)
    reflections = []
    for j in range(min(rows - 1, columns)):
        v, factor = _reflection(matrix[j:, j])
        reflections.append((v, factor))
        below = matrix[j:, j:]
        matrix = _with_corner(matrix, below - torch.outer(v, factor * (v @ below)), j)
    upper = torch.triu(matrix)
    kept = upper if mode == "complete" else upper[:rank]
    entries = ring.truncate(ring.times(units(kept), halves.power(0, 1)), ONE)
    r = new_wrapper(node.like(entries)) * (norm_factor or 1)
    if mode == "r":
        return None, r
    q: Any = torch.eye(rows, rows if mode == "complete" else rank, dtype=torch.float64)
    for j, (v, factor) in reversed(list(enumerate(reflections))):
        q = _with_corner(q, q[j:, j:] - torch.outer(v, factor * (v @ q[j:, j:])), j)
    if not isinstance(q, Wrapper):  # a single row has nothing to reflect
        q = number(ring.plus(ring.zeros_like(units(matrix)[:rows, : q.shape[1]]), (q * ONE).long()))
    return to_precision_of(q, node), r


def _reflection(x: Any) -> tuple[Any, Any]:
    """(v, f): the reflection 1 - f v v^T takes x to a multiple of its first axis, away from its sign.

    v = x + sign(x_0) |x| e_0 and f = 2 / (v^T v); of x = 0, f is 0 and nothing is reflected (Golub and Van Loan, "Matrix
    Computations", 5.1). A multiple of x gives the same reflection, so x is first brought to a norm in [1/2, 1). Norm and
    factor are made exact by a Newton step after their approximation.
    """
    x = HalfExponents.of_norm(units(x)).normed(units(x))
    norm, _inverse = _norm(x)
    sign = 1 - 2 * (x[:1] < 0).to(torch.float64)
    v = torch.cat([x[:1] + sign * norm, x[1:]])
    return v, _exact_reciprocal((v @ v) * 0.5)


def _ldl(t: Any) -> tuple[Any, Any, Any]:
    """(l, d, inv_d) of a symmetric positive definite matrix in fixed precision: l diag(d) l^T = t, inv_d = 1 / d.

    `l` is lower triangular with ones on its diagonal; `d` and `inv_d` are vectors. Nothing is opened. As for `qr`,
    the sum of the squares of the matrix has to fit the ring. Error of l diag(d) l^T about n 2^-20 over the smallest
    eigenvalue of the matrix scaled to norm one, relative to its norm, plus a unit. Of a plain tensor, here: in its
    own dtype."""
    plain = type(t) is not Wrapper and isinstance(t, torch.Tensor)
    node = None if plain else secret_matrix(t, "_ldl")
    if t.dim() != 2 or t.shape[0] != t.shape[1]:
        raise ValueError(f"_ldl takes a square matrix; one of shape {tuple(t.shape)} was found.")
    if node is None:
        return _decomposed(t, torch.reciprocal)
    halves = HalfExponents.of_norm(node.child)
    # With 2^h at least the norm in units, all that follows is below one; l is the same for every multiple of t.
    lower, scaled, inverse = _decomposed(halves.normed(node.child), _exact_reciprocal)
    diagonal = ring.truncate(ring.times(units(scaled), halves.power(0, 1)), ONE)
    digits = (node.scale - 1).bit_length()
    sizes = number(halves.power(BITS + digits, -1))
    back = inverse * sizes * (node.scale / 2.0**digits)
    return to_precision_of(lower, node), new_wrapper(node.like(diagonal)), to_precision_of(back, node)


def _decomposed(matrix: Any, reciprocal: Any) -> tuple[Any, Any, Any]:
    """(l, d, 1 / d), one column after the other (Golub and Van Loan, "Matrix Computations", 4.1.2)."""
    size = matrix.shape[0]
    diagonal, inverses, columns = [], [], []
    rest = matrix
    for j in range(size):
        d = rest[:1, 0]
        inverse = reciprocal(d)
        column = rest[1:, 0] * inverse
        rest = rest[1:, 1:] - torch.outer(column, rest[1:, 0])
        diagonal.append(d)
        inverses.append(inverse)
        # NB: zeros and the one of a secret column are secrets, too.
        columns.append(torch.cat([torch.cat([d * 0] * j + [d * 0 + 1]), column]))
    return torch.stack(columns, 1), torch.cat(diagonal), torch.cat(inverses)


def _exact_reciprocal(x: Any) -> Any:
    """The approximation, and a Newton step after it."""
    guess = x.reciprocal()
    return guess * (2 - x * guess)


def _norm_mpc(t: Any, norm_factor: float | None = None) -> Any:
    """The norm of a vector (or of all entries of a matrix) in fixed precision, as a secret scalar; nothing is opened.

    The sum of the squares has to fit the ring: if it is above 1e18 / scale^2 (a million with six digits), name a public
    `norm_factor` to divide by first. Error about 2^-22 of the norm, plus a unit (times `norm_factor`). Of a plain tensor,
    here or at a worker: torch's own.
    """
    _check_factor("_norm_mpc", norm_factor)
    if _is_plain(t):
        return torch.linalg.vector_norm(t)
    node = secret_matrix(t.unsqueeze(0) if t.dim() == 1 else t, "_norm_mpc")
    if norm_factor is not None:
        divided: Any = new_wrapper(node) / norm_factor
        node = divided.child
    halves = HalfExponents.of_norm(node.child)
    norm, _inverse = _norm(halves.normed(node.child).reshape(-1))
    entry = ring.truncate(ring.times(units(norm), halves.power(0, 1)), ONE)
    return new_wrapper(node.like(entry)) * (norm_factor or 1)


def _norm(x: Any) -> tuple[Any, Any]:
    """(|x|, about 1 / |x|) for a norm of about one, made exact by a Newton step."""
    squares = x @ x
    inverse = squares.rsqrt()
    norm = squares * inverse
    return norm + (squares - norm * norm) * inverse * 0.5, inverse


def _is_plain(t: Any) -> bool:
    """Whether torch's own function does: a tensor of floats, here or at a worker."""
    if type(t) is not Wrapper:
        return isinstance(t, torch.Tensor)
    return isinstance(t.child, PointerTensor)


def _check_factor(function: str, norm_factor: Any) -> None:
    if norm_factor is not None and not norm_factor > 0:
        raise ValueError(
            f"{function} was called with norm_factor={norm_factor}; it has to be a number above 0."
        )


def _with_corner(matrix: Any, corner: Any, start: int) -> Any:
    """The matrix with everything from (start, start) on replaced."""
    if start == 0:
        return corner
    below = torch.cat([matrix[start:, :start], corner], 1)
    return torch.cat([matrix[:start], below], 0)


__all__ = ["inv_sym", "qr"]
