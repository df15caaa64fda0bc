"""Shamir's t-of-n sharing of 32-byte secrets ("How to share a secret", 1979).

One duty: split and recover. The field is that of the Mersenne prime 2^521 - 1 (Robinson 1952; the field of NIST's
curve P-521). It is far larger than the secrets on purpose: shares that do not belong together recover a random
element, which is below 2^256 with probability 2^-265, so wrong shares are noticed. Imports `errors`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from syft.federated.secure_aggregation.errors import ProtocolViolationError

PRIME = (1 << 521) - 1
SECRET_BYTES = 32
SHARE_BYTES = 66

Entropy = Callable[[int], bytes]


def split(
    secret: bytes, threshold: int, places: Sequence[int], entropy: Entropy = secrets.token_bytes
) -> list[bytes]:
    """One share per place (1, 2, ...). Any `threshold` of them recover the secret, fewer tell nothing about it."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"A secret of {SECRET_BYTES} bytes is shared, got {len(secret)}.")
    if not 1 <= threshold <= len(places):
        raise ValueError(f"The threshold is from 1 to the {len(places)} places, got {threshold}.")
    _check_places(places)
    coefficients = [_element(entropy) for _ in range(threshold - 1)]
    coefficients.append(int.from_bytes(secret, "big"))
    return [_evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in places]


def recover(shares: Mapping[int, bytes], weights: Mapping[int, int] | None = None) -> bytes:
    """The secret behind shares by place; exactly those of `weights`, which many secrets can have in common."""
    weights = lagrange(list(shares)) if weights is None else weights
    total = 0
    for place, weight in weights.items():
        total += weight * share_value(shares[place])
    total %= PRIME
    if total >> (8 * SECRET_BYTES):
        raise ProtocolViolationError(
            "These shares do not belong to one secret: one of them is wrong, or too few were given."
        )
    return total.to_bytes(SECRET_BYTES, "big")


def lagrange(places: Sequence[int]) -> dict[int, int]:
    """What each share is multiplied with: the interpolating polynomial at 0."""
    _check_places(places)
    weights = {}
    for x in places:
        above = below = 1
        for other in places:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        weights[x] = above * pow(below, -1, PRIME) % PRIME
    return weights


def share_value(share: bytes) -> int:
    """The field element of a share."""
    value = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise ProtocolViolationError(
            f"A share is {SHARE_BYTES} bytes of a number below 2^521 - 1; this is none."
        )
    return value


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    """Horner's rule, highest power first."""
    value = 0
    for coefficient in coefficients:
        value = (value * x + coefficient) % PRIME
    return value


def _element(entropy: Entropy) -> int:
    """Uniform over the field: 521 bits, drawn again in the one case of 2^521 that is the prime itself."""
    while True:
        value = int.from_bytes(entropy(SHARE_BYTES), "big") & PRIME
        if value != PRIME:
            return value


def _check_places(places: Sequence[int]) -> None:
    if not places or len(set(places)) != len(places) or min(places) < 1:
        raise ValueError("Shares have places 1, 2, ..., each once: place 0 would be the secret itself.")
