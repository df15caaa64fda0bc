"""Paillier keys. Primes come from OpenSSL, the randomness of ciphertexts from the operating system.

The formulas stand in `scheme`, with what is known of the time they take.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric import rsa

from syft.mpc.paillier import scheme
from syft.serde import SerdeError, UnserializableError, register

#: Sizes of the modulus that are accepted, here and from the wire. OpenSSL makes no smaller primes.
MIN_BITS, MAX_BITS = 1024, 8192
#: Below this, `keygen` warns: 2048 bits are about 112 bits of security.
SAFE_BITS = 2048


class ShortKeyWarning(UserWarning):
    """A key was made that does not protect data today."""


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
        """A ciphertext of a public value, with no randomness in it."""
        return scheme.unblinded(self.n, value)

    def encrypt(self, value: int) -> int:
        """A ciphertext of a signed integer."""
        return self.blind(self.plain(value))

    def blind(self, cipher: int) -> int:
        """Another ciphertext of the same value, which tells nothing of how the first was made."""
        r = 0
        while (
            math.gcd(r, self.n) != 1
        ):  # NB: a common factor would be a prime of the key; nobody will see a second turn
            r = 1 + secrets.randbelow(self.n - 1)
        return scheme.blinded(self.n, cipher, r)

    def add(self, one: int, other: int) -> int:
        """A ciphertext of the sum."""
        return scheme.added(self.n, one, other)

    def scale(self, cipher: int, factor: int) -> int:
        """A ciphertext of the value times a public integer."""
        return scheme.scaled(self.n, cipher, factor)

    def __repr__(self) -> str:
        print_of = hashlib.sha256(self.n.to_bytes((self.bits + 7) // 8, "big")).hexdigest()[:12]
        return f"<PaillierPublicKey {self.bits} bits {print_of}>"

    __str__ = __repr__


class PaillierPrivateKey:
    """Decrypts. It stays where it was made: it is neither serialised nor pickled nor copied.

    To keep one, store `p` and `q` as you store secrets, and make it again with PaillierPrivateKey(public_key, p, q).
    """

    def __init__(self, public_key: PaillierPublicKey, p: int, q: int) -> None:
        if p * q != public_key.n or p == q:
            raise ValueError(
                "These two numbers are not the primes of the public key. Pass the p and q that it was made of."
            )
        self.public_key, self.p, self.q = public_key, p, q
        self._decryption = scheme.Decryption(p, q)

    def decrypt(self, cipher: int) -> int:
        """The signed integer of a ciphertext."""
        return scheme.as_signed(self.public_key.n, self._decryption.decrypted(cipher))

    def __repr__(self) -> str:
        return f"<PaillierPrivateKey of {self.public_key}>"

    def _refuse(self, *_args: Any) -> NoReturn:
        raise UnserializableError(
            "A Paillier private key does not travel and is not copied. Send the ciphertexts to where the key is, or "
            "send the public key."
        )

    __reduce__ = __reduce_ex__ = __copy__ = __deepcopy__ = _refuse


def keygen(
    n_length: int = SAFE_BITS, *, n_bits: int | None = None
) -> tuple[PaillierPublicKey, PaillierPrivateKey]:
    """A new pair of keys (public, private) with a modulus of `n_length` bits; `n_bits` is another name for it.

    2048 bits are about 112 bits of security, 3072 about 128. From 1024 to 2046 bits a key is made with a
    ShortKeyWarning, for tests; below that it is refused.
    """
    name, length = ("n_length", n_length) if n_bits is None else ("n_bits", n_bits)
    if n_bits is not None and n_length != SAFE_BITS:
        raise TypeError(
            f"keygen(n_length={n_length}, n_bits={n_bits}): both name the size of the key. Pass one of them."
        )
    if type(length) is not int or not MIN_BITS <= length <= MAX_BITS or length % 2:
        raise ValueError(
            f"keygen({name}={length}): a key has an even number of bits from {MIN_BITS} to {MAX_BITS}; {SAFE_BITS} is "
            "the least that protects data today."
        )
    if length < SAFE_BITS:
        warnings.warn(
            f"keygen({name}={length}) makes a key that does not protect data: take {SAFE_BITS} bits or more for anything "
            "but tests.",
            ShortKeyWarning,
            stacklevel=2,
        )
    # Both schemes need the same: two secret random primes of the same size.
    primes = rsa.generate_private_key(public_exponent=65537, key_size=length).private_numbers()
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
