"""Keys of one purpose each: agreed between two clients, bound to the round, its setting and its roster.

One duty: X25519 (RFC 7748), HKDF-SHA256 (RFC 5869), ChaCha20-Poly1305 (RFC 8439), Ed25519 (RFC 8032), all of
`cryptography`. Whatever a key is for is part of its derivation, so two parties that were shown different rosters or
settings cannot read each other's shares. Imports `errors`, `shamir`.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from syft.federated.secure_aggregation.errors import ProtocolViolationError
from syft.federated.secure_aggregation.shamir import Entropy

KEY_BYTES = 32
NONCE_BYTES = 12

Part = str | bytes | int


def label(*parts: Part) -> bytes:
    """An unambiguous encoding: no two lists of parts have the same."""
    return msgspec.msgpack.encode(parts)


def digest(*parts: Part) -> bytes:
    return hashlib.sha256(label(*parts)).digest()


# -- agreement -------------------------------------------------------------------------------------------


class KeyPair:
    """An X25519 key pair for one purpose in one round."""

    __slots__ = ("_private", "public")

    def __init__(self, private: bytes) -> None:
        try:
            self._private = X25519PrivateKey.from_private_bytes(private)
        except ValueError as error:
            raise ValueError(f"An X25519 key has {KEY_BYTES} bytes, got {len(private)}.") from error
        self.public = self._private.public_key().public_bytes_raw()

    @classmethod
    def new(cls, entropy: Entropy = secrets.token_bytes) -> KeyPair:
        return cls(entropy(KEY_BYTES))

    def private_bytes(self) -> bytes:
        return self._private.private_bytes_raw()

    def agree(self, public: bytes, whose: str) -> bytes:
        """The secret that only the owners of the two keys know."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as error:  # the wrong length, or a point of small order
            raise ProtocolViolationError(
                f"The public key of {whose!r} is not a usable X25519 key."
            ) from error


def derive(secret: bytes, size: int, purpose: str, *parts: Part) -> bytes:
    """A key for one purpose out of an agreed or shared secret."""
    return HKDF(
        hashes.SHA256(), size, salt=None, info=label("syft secure aggregation", purpose, *parts)
    ).derive(secret)


# -- sealed shares ---------------------------------------------------------------------------------------


def seal(
    agreed: bytes, transcript: bytes, sender: str, recipient: str, plain: bytes, entropy: Entropy
) -> bytes:
    """`plain`, readable by the recipient only and only as what this sender sent in this round."""
    key = derive(agreed, KEY_BYTES, "sealed share", transcript, sender, recipient)
    nonce = entropy(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plain, label(transcript, sender, recipient))


def unseal(agreed: bytes, transcript: bytes, sender: str, recipient: str, sealed: bytes) -> bytes:
    key = derive(agreed, KEY_BYTES, "sealed share", transcript, sender, recipient)
    nonce, body = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, body, label(transcript, sender, recipient))
    except (InvalidTag, ValueError) as error:
        raise ProtocolViolationError(
            f"The shares that {recipient!r} got as from {sender!r} were not made by {sender!r} for {recipient!r} in "
            "this round, with this setting and this roster. They were tampered with, replayed, or the two were shown "
            "different rosters."
        ) from error


# -- signatures ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """A client's long-lived Ed25519 key, and the public keys of those it may meet in a round.

    The keys have to come from somewhere that the server does not control: without that, a server can invent clients.
    """

    private: bytes = field(repr=False)
    trusted: dict[str, bytes]

    @classmethod
    def new_key(cls) -> tuple[bytes, bytes]:
        """A fresh (private, public) pair."""
        key = Ed25519PrivateKey.generate()
        return key.private_bytes_raw(), key.public_key().public_bytes_raw()

    def sign(self, purpose: str, *parts: Part) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(label(purpose, *parts))

    def check(self, signer: str, signature: bytes, purpose: str, *parts: Part) -> None:
        """!! ProtocolViolationError unless `signer` signed exactly this."""
        known = self.trusted.get(signer)
        if known is None:
            raise ProtocolViolationError(
                f"{signer!r} is in this round and no public key of it is known here. Add it to the trusted keys, or "
                "leave it out."
            )
        try:
            Ed25519PublicKey.from_public_bytes(known).verify(signature, label(purpose, *parts))
        except InvalidSignature as error:
            raise ProtocolViolationError(
                f"The signature of {signer!r} on its {purpose} was not made with its key."
            ) from error
