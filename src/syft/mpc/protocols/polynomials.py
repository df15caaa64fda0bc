"""A polynomial from one opening.

NOTE [Polynomials of what is masked]
Let y mod 2^64 be from 2^63 to 2^64, and t in [-1, 1) say where. z = y + r is opened, r uniform. With w and q in [-1, 1)
for the 63 lowest bits of z and r, and their highest bits a and b, t = w - q + s: s = -1 where a and b differ, so that
z - r borrows nothing from the highest bit, and s = 1 elsewhere. By Taylor's theorem

    p(t) = sum_i (-q)^i p^(i)(w + s) / i!,

the factors of q^i being public but for s. With E_i and F_i half the sum and half the difference of what they are for
s = 1 and s = -1, and s = (1 - 2a) (1 - 2b),

    p(t) = sum_i q^i E_i(w) + (1 - 2a) sum_i (1 - 2b) q^i F_i(w).

The provider deals q^i and (1 - 2b) q^i (`PowersOfFraction`), E and F are polynomials of w: one product with a public
matrix. All of it is linear in what is dealt, so the opening is the only round. (Polynomials of masked values from dealt
powers of the mask: PowerMix of Lu, Yurek, Kulshreshtha, Govind, Kate, Miller, "HoneyBadgerMPC", CCS 2019.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from syft.mpc.correlations_of_functions import PowersOfFraction, centred
from syft.mpc.kernels import Bilinear, is_on_cuda
from syft.mpc.party import Party, Program, primitive
from syft.mpc.protocols.lookup import packed, placed

#: Bits of the powers that are dealt, of their public factors, of the powers of w, and of the matrix.
DEALT_BITS, FACTOR_BITS = 31, 29
_POWER_BITS, _MATRIX_BITS = 30, 29
#: Bits of what comes out.
RESULT_BITS = DEALT_BITS + FACTOR_BITS
_MATMUL = Bilinear("matmul")
_BLOCK = 1 << 13


def matrix_of(coefficients: Sequence[float]) -> bytes:
    """The coefficients of E, then those of F, lowest first, a row for each i. All that they give must be below 4."""
    degree = len(coefficients) - 1
    rows = np.zeros((2, degree + 1, degree + 1))
    for place, s in enumerate((1, -1)):
        for i in range(degree + 1):
            for j in range(i, degree + 1):
                for k in range(j - i + 1):
                    term = coefficients[j] * math.comb(j, i) * math.comb(j - i, k) * s ** (j - i - k)
                    rows[place, i, k] += (-1) ** i * term
    both = np.concatenate([rows[0] + rows[1], rows[0] - rows[1]]) / 2
    return packed(*np.rint(both * 2.0**_MATRIX_BITS).astype(np.int64).tolist())


@primitive
def polynomial_of_fraction(
    party: Party, y: torch.Tensor, degree: int, matrix: bytes
) -> Program[torch.Tensor]:
    """p(t) at RESULT_BITS bits, for y = 2^63 + (t + 1) 2^62 mod 2^64. NOTE [Polynomials of what is masked]"""
    count = y.numel()
    r, powers = party.take(PowersOfFraction(count, degree, DEALT_BITS))
    z = yield party.open(r.add_(y.reshape(-1)))
    out = torch.empty_like(z)
    public = placed(matrix, degree + 1, z.device)
    step = max(count, 1) if is_on_cuda(z) else _BLOCK
    for start in range(0, count, step):
        part = slice(start, start + step)
        here = z[part]
        factors = _MATMUL(public, _powers(centred(here) >> (63 - _POWER_BITS), degree))
        factors.bitwise_right_shift_(_POWER_BITS + _MATRIX_BITS - FACTOR_BITS)
        # 1 - 2a is -1 where z is negative.
        factors[degree + 1 :].mul_((here >> 63).bitwise_or_(1))
        constant, others = factors[0], factors[1:].mul_(powers[:, part])
        total = torch.sum(others, 0, out=out[part])
        if party.first:
            total.add_(constant.bitwise_left_shift_(DEALT_BITS))
    return out.view(y.shape)


def _powers(w: torch.Tensor, degree: int) -> torch.Tensor:
    """(degree + 1, n): 1, w, w^2, ... at _POWER_BITS bits."""
    made = w.new_empty((degree + 1, w.numel()))
    made[0] = 1 << _POWER_BITS
    made[1] = w
    for exponent in range(2, degree + 1):
        torch.mul(made[exponent - 1], w, out=made[exponent]).bitwise_right_shift_(_POWER_BITS)
    return made
