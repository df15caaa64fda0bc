"""Paillier's scheme on plain integers: the formulas of the paper, for a modulus of any size.

After Paillier, "Public-key cryptosystems based on composite degree residuosity classes", EUROCRYPT 1999, with the
generator g = 1 + n. Which moduli are large enough to protect data is decided in `keys`. Nothing in here draws random
numbers. Imports nothing of ours; GMP does the arithmetic where `gmpy2` is installed, Python's own integers elsewhere.

NOTE [Time]
Python's integers do not take the same time for all values. With `gmpy2` the powers whose exponent is secret (those of
decryption) use GMP's `powm_sec`, whose time does not depend on the exponent; everything else still varies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

try:
    import gmpy2 as _gmp
except ImportError:
    _gmp = None  # type: ignore[assignment, unused-ignore]


def power(base: int, exponent: int, modulus: int) -> int:
    """base ^ exponent mod modulus, for an exponent >= 0 that is public."""
    return int(_gmp.powmod(base, exponent, modulus)) if _gmp else pow(base, exponent, modulus)


def power_of_secret(base: int, exponent: int, modulus: int) -> int:
    """The same for a secret exponent > 0 and an odd modulus, see NOTE [Time]."""
    return int(_gmp.powmod_sec(base, exponent, modulus)) if _gmp else pow(base, exponent, modulus)


def inverse(value: int, modulus: int) -> int:
    """The inverse mod modulus; !! ValueError for what has none."""
    try:
        return int(_gmp.invert(value, modulus)) if _gmp else pow(value, -1, modulus)
    except (ZeroDivisionError, ValueError):
        raise ValueError(
            "This number has no inverse modulo n^2, so it is no Paillier ciphertext: it was not made with the public "
            "key, or was changed on the way. Ask for it again."
        ) from None


def product(one: int, other: int, modulus: int) -> int:
    return int(_gmp.mpz(one) * other % modulus) if _gmp else one * other % modulus


def unblinded(n: int, plaintext: int) -> int:
    """g^m mod n^2 = 1 + m n: a ciphertext with no randomness in it (section 4, with g = 1 + n)."""
    return 1 + n * (plaintext % n)


def blinded(n: int, cipher: int, r: int) -> int:
    """c r^n mod n^2: another ciphertext of the same plaintext (section 8, self-blinding)."""
    return product(cipher, power(r, n, n * n), n * n)


def encrypted(n: int, plaintext: int, r: int) -> int:
    """g^m r^n mod n^2 (section 4, scheme 1)."""
    return blinded(n, unblinded(n, plaintext), r)


def added(n: int, one: int, other: int) -> int:
    """A ciphertext of the sum (section 8)."""
    return product(one, other, n * n)


def scaled(n: int, cipher: int, factor: int) -> int:
    """A ciphertext of the plaintext times a public integer (section 8)."""
    if factor < 0:
        return power(inverse(cipher, n * n), -factor, n * n)
    return power(cipher, factor, n * n)


@dataclass(frozen=True, repr=False)
class Half:
    """One prime of the private key: reads the plaintext modulo it (section 7, decryption by the remainder theorem)."""

    prime: int
    square: int
    factor: int

    @classmethod
    def of(cls, prime: int, n: int) -> Half:
        square = prime * prime
        # h_p = L_p(g^(p - 1) mod p^2)^-1 mod p, with L_p(u) = (u - 1) / p.
        return cls(prime, square, inverse((power(1 + n, prime - 1, square) - 1) // prime, prime))

    def read(self, cipher: int) -> int:
        """L_p(c^(p - 1) mod p^2) h_p mod p."""
        found = power_of_secret(cipher % self.square, self.prime - 1, self.square)
        return product((found - 1) // self.prime, self.factor, self.prime)


class Decryption:
    """Reads ciphertexts of n = p q."""

    def __init__(self, p: int, q: int) -> None:
        n = p * q
        if p == q or math.gcd(n, (p - 1) * (q - 1)) != 1:
            raise ValueError(
                "Paillier needs two different primes neither of which divides the other minus one. Take primes of the "
                "same size, as syft.keygen() does."
            )
        self.n, self.halves, self.p_inverse = n, (Half.of(p, n), Half.of(q, n)), inverse(p, q)

    def decrypted(self, cipher: int) -> int:
        """The plaintext in [0, n); !! ValueError for what is no ciphertext of this key."""
        if not 0 < cipher < self.n * self.n or math.gcd(cipher, self.n) != 1:
            raise ValueError(
                "This number is no ciphertext under the key: those are invertible and below n^2. It was made with "
                "another key, or was changed on the way."
            )
        at_p, at_q = self.halves
        m_p, m_q = at_p.read(cipher), at_q.read(cipher)
        return m_p + at_p.prime * product(m_q - m_p, self.p_inverse, at_q.prime)


def as_signed(n: int, plaintext: int) -> int:
    """A plaintext in [0, n) as the signed integer it stands for: the upper half is negative."""
    return plaintext if 2 * plaintext < n else plaintext - n


def has_gmp() -> bool:
    """Whether GMP does the arithmetic."""
    return _gmp is not None
