"""How a secret matrix is brought to entries below one, and results back.

NOTE [Equilibration]
A matrix of moments A = Z^T Z has |A_ij| <= sqrt(A_ii A_jj). With 2^i <= A_ii < 2^(i+1) in units and h = floor(i / 2) + 1,
the matrix R_ij = A_ij / 2^(h_i + h_j) has a diagonal in [1/4, 1) and nothing at or above 1. The h are as secret as the
variances they tell; the powers 2^(30 - h) that do it are read from the shared leading bits of the diagonal, and the
products with them are exact in the ring, so that nothing is lost but what R does not have: it is kept with BITS
fractional bits. R is about as well conditioned as scaling can make it (van der Sluis, "Condition numbers and
equilibration of matrices", 1969), whatever units the columns of Z are measured in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from syft.core.chain import Wrapper, new_wrapper
from syft.exceptions import ChainError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_ring as ring

#: Fractional bits of numbers in here: products of two below 2^7 fit the ring.
BITS = 24
ONE = 1 << BITS
#: Candidates for the leading bit of a moment in units, and the largest half exponent.
_LEADING, _TOP = 60, 30


def secret_matrix(tensor: Any, function: str) -> FixedPrecisionTensor:
    """The node of a matrix of reals in fixed precision; !! a sentence for anything else."""
    node = tensor.child if type(tensor) is Wrapper else None
    if not isinstance(node, FixedPrecisionTensor) or not node.is_real or node.is_fine:
        found = type(node).__name__ if node is not None else type(tensor).__name__
        raise ChainError(
            f"{function} was called with a {found}. It takes a matrix in fixed precision, shared or not: "
            "x.fix_precision(precision_fractional=6).share(...)."
        )
    if tensor.dim() != 2 or not tensor.numel():
        raise ValueError(f"{function} takes a matrix; a tensor of shape {tuple(tensor.shape)} was found.")
    return node


def number(child: Any, dtype: torch.dtype = torch.float64) -> Any:
    """Integers in units of 2^-BITS as a chain."""
    node = FixedPrecisionTensor(2, BITS, dtype)
    node.child = child
    return new_wrapper(node)


def units(tensor: Any) -> Any:
    """The integers of a chain."""
    return tensor.child.child


@dataclass(frozen=True)
class HalfExponents:
    """The h of NOTE [Equilibration] for some secret moments, as shared leading bits."""

    rows: Any

    @classmethod
    def of(cls, moments: Any) -> HalfExponents:
        """Of integers > 0; what is not has the gain 0."""
        return cls(ring.leading_bit(moments, _LEADING))

    @classmethod
    def of_norm(cls, child: Any) -> HalfExponents:
        """One h, with 2^(h - 1) <= |x| < 2^h for the norm of all of the integers; its square must be below 2^60."""
        return cls.of(ring.summed(ring.times(child, child), list(range(len(child.shape)))))

    def normed(self, child: Any) -> Any:
        """child / 2^h, as a chain: with `of_norm`, of a norm in [1/2, 1)."""
        return number(ring.truncate(ring.times(child, self.gains), 1 << (_TOP - BITS)))

    def power(self, offset: int, sign: int) -> Any:
        """Integers 2^(offset + sign * h); 0 where that is less than one."""
        exponents = [offset + sign * (i // 2 + 1) for i in range(_LEADING)]
        (made,) = ring.weighted_rows(self.rows, [1 << e if 0 <= e < 62 else 0 for e in exponents])
        return made

    @property
    def gains(self) -> Any:
        """Integers 2^(30 - h)."""
        return self.power(_TOP, -1)


def equilibrated(moments: Any, left: Any, right: Any) -> Any:
    """moments / 2^(h_left + h_right), as a chain; `left` and `right` are gains that broadcast."""
    return number(ring.truncate(ring.times(ring.times(moments, left), right), 1 << (2 * _TOP - BITS)))


def half_digits(scale: int) -> int:
    """c with 2^(2c) about `scale`, the units to the one of what was equilibrated."""
    return round((scale - 1).bit_length() / 2)


def to_precision_of(tensor: Any, like: FixedPrecisionTensor) -> Any:
    """A chain of this file's numbers in the precision and dtype of a node."""
    node = FixedPrecisionTensor(like.base, like.precision_fractional, like.presented_dtype)
    node.child = approx.rescaled(units(tensor), like.scale / ONE, 2.0**14 * ONE)
    return new_wrapper(node)
