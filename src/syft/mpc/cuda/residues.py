"""A number as residues that fit int8, and back mod 2^64: the constants of the residue matrix product.

NOTE [Residues]
An integer v with |v| <= bound is told by its residues for coprime moduli m_i with M = prod m_i > 2 bound. Products and
sums of residues are residues of products and sums, so a matrix product of int64 is as many int8 products as there are
moduli. The residues are balanced, so every modulus up to 256 fits int8. Back, by the Chinese remainder theorem:
    v = sum c_i M / m_i - q M,    c_i = r_i (M / m_i)^-1 mod m_i,    q = round(sum c_i / m_i)
(explicit form: Bernstein and Sorenson, "Modular exponentiation via the explicit Chinese remainder theorem", 2007,
section 2). Only v mod 2^64 is wanted, so M / m_i and M are taken mod 2^64. q is found in floating point: v / M stays
MARGIN away from a half, more than the sum's rounding error. Imports torch only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173)
"""Coprime, the largest first: 255 = 3 5 17, 253 = 11 23, 247 = 13 19, 217 = 7 31."""

MARGIN = 1 / 64
MAX_INNER = 1 << 16
"""Longest inner dimension: a sum of so many products of residues fits int32."""


@dataclass(frozen=True)
class Moduli:
    """The constants for one number of moduli. Weights and the product are signed words mod 2^64."""

    moduli: tuple[int, ...]
    inverses: tuple[int, ...]  # of M / m_i mod m_i
    weights: tuple[int, ...]  # M / m_i mod 2^64
    product: int  # M mod 2^64


def _signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@lru_cache(maxsize=64)
def moduli_for(inner: int) -> Moduli:
    """As few moduli as tell a sum of `inner` products of int64 apart."""
    if not 1 <= inner <= MAX_INNER:
        raise ValueError(f"A residue product sums 1 to {MAX_INNER} products, got {inner}.")
    bound = inner << 126
    count, whole = 0, 1
    while whole * (1 - 2 * MARGIN) <= 2 * bound:
        whole *= MODULI[count]
        count += 1
    chosen = MODULI[:count]
    rests = [whole // m for m in chosen]
    return Moduli(
        chosen,
        tuple(pow(rest % m, -1, m) for rest, m in zip(rests, chosen, strict=True)),
        tuple(_signed(rest) for rest in rests),
        _signed(whole),
    )


def balanced(x: torch.Tensor, modulus: int) -> torch.Tensor:
    """x mod m as int8 in [-m/2, m/2)."""
    half = modulus // 2
    return (torch.remainder(torch.remainder(x, modulus) + half, modulus) - half).to(torch.int8)


def recombined(products: list[torch.Tensor], constants: Moduli) -> torch.Tensor:
    """The sum mod 2^64 behind int32 sums of products of residues. NOTE [Residues]"""
    total = torch.zeros_like(products[0], dtype=torch.int64)
    fraction = torch.zeros_like(products[0], dtype=torch.float32)
    for r, m, inverse, weight in zip(
        products, constants.moduli, constants.inverses, constants.weights, strict=True
    ):
        c = balanced(balanced(r, m).to(torch.int64) * inverse, m).to(torch.int64)
        total += c * weight
        fraction += c.to(torch.float32) / m
    return total - fraction.round().to(torch.int64) * constants.product


def matmul_by_residues(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x @ y` mod 2^64 of two matrices, step by step in torch: what the CUDA kernels are tested against."""
    constants = moduli_for(x.shape[1])
    products = [balanced(x, m).to(torch.int32) @ balanced(y, m).to(torch.int32) for m in constants.moduli]
    return recombined(products, constants)


assert math.lcm(*MODULI) == math.prod(MODULI)  # noqa: S101  (coprime)
