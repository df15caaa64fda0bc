"""Paillier keys. Primes come from OpenSSL, the randomness of ciphertexts from the operating system.

The arithmetic is that of python-paillier (`phe`, an optional dependency), which uses GMP where `gmpy2` is installed.
It does not run in constant time.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric import rsa

from syft.exceptions import DependencyError
from syft.serde import SerdeError, UnserializableError, register

#: Sizes of the modulus that are accepted, here and from the wire.
MIN_BITS, MAX_BITS = 1024, 8192


def _phe() -> Any:
    """(paillier, util) of python-paillier; !! DependencyError."""
    try:
        from phe import paillier, util
    except ImportError:
        raise DependencyError("phe", "'resyft[paillier]'") from None
    return paillier, util


@dataclass(frozen=True)
class PaillierPublicKey:
    """Encrypts, and computes on what is encrypted. Made by `keygen()`; it may be sent to anybody."""

    n: int

    def __post_init__(self) -> None:
        if type(self.n) is not int or not 1 << (MIN_BITS - 1) <= self.n < 1 << MAX_BITS or self.n % 2 == 0:
            raise ValueError(
                f"A Paillier public key is an odd number of {MIN_BITS} to {MAX_BITS} bits, the product of two primes. "
                "Make one with syft.keygen()."
            )

    @property
    def bits(self) -> int:
        """The size of the modulus."""
        return self.n.bit_length()

    @cached_property
    def n_squared(self) -> int:
        return self.n * self.n

    @property
    def cipher_bytes(self) -> int:
        """The size of one ciphertext."""
        return (self.n_squared.bit_length() + 7) // 8

    def plain(self, value: int) -> int:
        """A ciphertext of a public value, with no randomness in it: (1 + n)^m = 1 + n m mod n^2."""
        return 1 + self.n * (value % self.n)

    def encrypt(self, value: int) -> int:
        """A ciphertext of a signed integer."""
        return self.blind(self.plain(value))

    def blind(self, cipher: int) -> int:
        """Another ciphertext of the same value, which tells nothing of how the first was made: c r^n."""
        _, util = _phe()
        r = 1 + secrets.randbelow(self.n - 1)
        return int(util.mulmod(cipher, util.powmod(r, self.n, self.n_squared), self.n_squared))

    def add(self, one: int, other: int) -> int:
        """A ciphertext of the sum."""
        return int(_phe()[1].mulmod(one, other, self.n_squared))

    def scale(self, cipher: int, factor: int) -> int:
        """A ciphertext of the value times a public integer."""
        _, util = _phe()
        if factor < 0:
            return int(util.powmod(util.invert(cipher, self.n_squared), -factor, self.n_squared))
        return int(util.powmod(cipher, factor, self.n_squared))

    def __repr__(self) -> str:
        print_of = hashlib.sha256(self.n.to_bytes((self.bits + 7) // 8, "big")).hexdigest()[:12]
        return f"<PaillierPublicKey {self.bits} bits {print_of}>"

    __str__ = __repr__


class PaillierPrivateKey:
    """Decrypts. It stays where it was made: it is neither serialised nor pickled nor copied.

    To keep one, store `p` and `q` as you store secrets, and make it again with PaillierPrivateKey(public_key, p, q).
    """

    def __init__(self, public_key: PaillierPublicKey, p: int, q: int) -> None:
        paillier, _ = _phe()
        if p * q != public_key.n or p == q:
            raise ValueError(
                "These two numbers are not the primes of the public key. Pass the p and q that it was made of."
            )
        self.public_key, self.p, self.q = public_key, p, q
        self._key = paillier.PaillierPrivateKey(paillier.PaillierPublicKey(public_key.n), p, q)

    def decrypt(self, cipher: int) -> int:
        """The signed integer of a ciphertext."""
        value = int(self._key.raw_decrypt(cipher))
        return value if 2 * value < self.public_key.n else value - self.public_key.n

    def __repr__(self) -> str:
        return f"<PaillierPrivateKey of {self.public_key}>"

    def _refuse(self, *_args: Any) -> NoReturn:
        raise UnserializableError(
            "A Paillier private key does not travel and is not copied. Send the ciphertexts to where the key is, or "
            "send the public key."
        )

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


def keygen(n_bits: int = 2048) -> tuple[PaillierPublicKey, PaillierPrivateKey]:
    """A new pair of keys (public, private). 2048 bits are about 112 bits of security, 3072 about 128."""
    if type(n_bits) is not int or not MIN_BITS <= n_bits <= MAX_BITS or n_bits % 2:
        raise ValueError(
            f"keygen(n_bits={n_bits}): a key has an even number of bits from {MIN_BITS} to {MAX_BITS}; 2048 is the "
            "least that protects data today."
        )
    _phe()
    # Both schemes need the same: two secret random primes of the same size.
    primes = rsa.generate_private_key(public_exponent=65537, key_size=n_bits).private_numbers()
    public = PaillierPublicKey(primes.p * primes.q)
    return public, PaillierPrivateKey(public, primes.p, primes.q)


register(
    PaillierPublicKey,
    "PaillierPublicKey",
    lambda _me, key: (key.n.to_bytes((key.bits + 7) // 8, "big"),),
    lambda _me, parts: PaillierPublicKey(int.from_bytes(parts[0], "big")),
    fields=tuple[bytes],
)


def _no_private_key(_me: Any, _parts: Any) -> NoReturn:
    raise SerdeError("A frame holds what it calls a Paillier private key. Those do not travel.")


# Registered so that it is refused with its own sentence.
register(PaillierPrivateKey, "PaillierPrivateKey", lambda _me, key: key._refuse(), _no_private_key)
