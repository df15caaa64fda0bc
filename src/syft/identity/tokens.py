"""Tokens: a signed text that says who somebody is, for how long, and to which worker.

    syft1.PAYLOAD.SIGNATURE      both base64url without padding; Ed25519 over "syft1.PAYLOAD"

Whoever has the text is believed to be the user, so it travels over TLS only and is never logged. The owner keeps
the signing key; a worker needs the public key and the list of revoked tokens.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from syft.core.structs import prepared
from syft.exceptions import AuthenticationError, ExpiredTokenError, InvalidTokenError, RevokedTokenError
from syft.identity.files import make_private_directory, write_file
from syft.identity.issued import IssuedToken, IssuedTokens
from syft.identity.names import check_user_name, is_user_name
from syft.identity.revocation import TOKEN_ID, RevocationList

PREFIX = "syft1"
MAX_LENGTH = 4096
#: How far the clocks of issuer and worker may be apart, in seconds.
CLOCK_SKEW = 30
MAX_LIFETIME = datetime.timedelta(days=3650)

KEY_FILE, PUBLIC_FILE, REVOKED_FILE, ISSUED_FILE = "token.key", "token.pub", "revoked.txt", "issued.jsonl"

_SHAPE = re.compile(rf"{PREFIX}\.([A-Za-z0-9_-]{{1,{MAX_LENGTH}}})\.([A-Za-z0-9_-]{{86}})")


_Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    user: str
    worker: str | None  # None: any
    issued: _Time
    expires: _Time
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Identity:
    """What a token proved."""

    user: str
    token_id: str
    expires: float
    scopes: tuple[str, ...] = ()


class TokenAuthority:
    """Holds the signing key and issues tokens."""

    def __init__(
        self, key: Ed25519PrivateKey, revoked: RevocationList, issued: IssuedTokens | None = None
    ) -> None:
        self._key = key
        self.revoked = revoked
        #: What was issued, where there is a directory for the list.
        self.issued = issued

    @classmethod
    def create(cls, directory: str | Path, overwrite: bool = False) -> TokenAuthority:
        """Make a signing key in a directory. !! FileExistsError unless `overwrite`, which ends all tokens"""
        home = Path(directory)
        make_private_directory(home)
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        write_file(home / KEY_FILE, private, private=True, overwrite=overwrite)
        write_file(home / PUBLIC_FILE, public, private=False, overwrite=True)
        return cls(key, RevocationList(home / REVOKED_FILE), IssuedTokens(home / ISSUED_FILE))

    @classmethod
    def open(cls, directory: str | Path) -> TokenAuthority:
        """The authority whose key is in a directory. !! AuthenticationError"""
        home = Path(directory)
        try:
            key = serialization.load_pem_private_key(_read(home / KEY_FILE), None)
        except (ValueError, TypeError) as error:
            raise AuthenticationError(f"{home / KEY_FILE} is not a signing key: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise AuthenticationError(f"{home / KEY_FILE} is a key of another kind than Ed25519.")
        return cls(key, RevocationList(home / REVOKED_FILE), IssuedTokens(home / ISSUED_FILE))

    @property
    def public_key(self) -> Ed25519PublicKey:
        return self._key.public_key()

    def issue(
        self,
        user: str,
        lifetime: float | datetime.timedelta,
        worker: Any = None,
        scopes: Sequence[str] = (),
    ) -> str:
        """A token for `user`, good for `lifetime` (seconds), at one worker (by its id) or, without, at any."""
        if isinstance(scopes, str) or not all(type(scope) is str for scope in scopes):
            raise ValueError(f"scopes are a list of words, got {str(scopes)[:80]!r}.")
        now = int(time.time())
        payload = _Payload(
            secrets.token_hex(16),
            check_user_name(user),
            None if worker is None else str(worker),
            now,
            now + _seconds(lifetime),
            tuple(scopes),
        )
        signed = f"{PREFIX}.{_to_text(msgspec.json.encode(payload))}"
        token = f"{signed}.{_to_text(self._key.sign(signed.encode()))}"
        if len(token) > MAX_LENGTH:
            raise ValueError(
                f"The token would have {len(token)} characters; {MAX_LENGTH} is the most. Use fewer or shorter scopes."
            )
        if self.issued is not None:
            self.issued.add(
                IssuedToken(payload.id, payload.user, payload.worker, payload.issued, payload.expires)
            )
        return token

    def revoke(self, token: str) -> str:
        """Take back a token, given as its id or as its whole text; returns the id."""
        token = token.strip()
        token_id = token if TOKEN_ID.fullmatch(token) else token_id_of(token)
        self.revoked.add(token_id)
        return token_id

    def verifier(self, worker_id: Any) -> TokenVerifier:
        """The verifier for a worker that runs beside the authority."""
        return TokenVerifier(self.public_key, self.revoked, worker_id)


class TokenVerifier:
    """Tells who holds a token. Needs no secret."""

    def __init__(
        self,
        public_key: Ed25519PublicKey | bytes,
        revoked: RevocationList | None = None,
        worker_id: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._public_key = (
            Ed25519PublicKey.from_public_bytes(public_key) if isinstance(public_key, bytes) else public_key
        )
        self.revoked = RevocationList() if revoked is None else revoked
        self.worker_id = worker_id
        self._clock = clock

    @classmethod
    def open(cls, directory: str | Path, worker_id: Any) -> TokenVerifier:
        """The verifier for a directory with `token.pub` and `revoked.txt`. !! AuthenticationError"""
        home = Path(directory)
        try:
            key = serialization.load_pem_public_key(_read(home / PUBLIC_FILE))
        except ValueError as error:
            raise AuthenticationError(f"{home / PUBLIC_FILE} is not a public key: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise AuthenticationError(f"{home / PUBLIC_FILE} is a key of another kind than Ed25519.")
        return cls(key, RevocationList(home / REVOKED_FILE), worker_id)

    def verify(self, text: Any) -> Identity:
        """Who holds this token. !! InvalidTokenError, ExpiredTokenError, RevokedTokenError"""
        # Nothing of the payload is looked at before the signature is known to be good. Neither the text nor the
        # key is secret to a verifier, so there is nothing that the time of a comparison could tell.
        signed, payload_bytes, signature = _split(text)
        try:
            self._public_key.verify(signature, signed)
        except InvalidSignature:
            raise InvalidTokenError(
                "The signature of the token is not of this worker's authority: it was changed, or made by somebody "
                "else. Ask the owner of the worker for a token."
            ) from None
        payload = _decode(payload_bytes)
        if payload.worker is not None and payload.worker != str(self.worker_id):
            raise InvalidTokenError(
                f"The token was made for worker {payload.worker[:80]!r}, and this is {str(self.worker_id)[:80]!r}. Use "
                "the token that belongs to this worker."
            )
        now = self._clock()
        if payload.issued > now + CLOCK_SKEW:
            raise InvalidTokenError(
                f"The token was made {payload.issued - now:.0f} seconds in the future. Set the clocks of both machines."
            )
        identity = Identity(payload.user, payload.id, float(payload.expires), payload.scopes)
        self.check(identity)
        return identity

    def check(self, identity: Identity) -> None:
        """Whether what a token proved holds now, by the clock and the list of revoked tokens as it is now.

        !! ExpiredTokenError, RevokedTokenError; AuthenticationError if the list cannot be understood
        """
        now = self._clock()
        if identity.expires <= now - CLOCK_SKEW:
            raise ExpiredTokenError(
                f"The token of user {identity.user!r} expired {now - identity.expires:.0f} seconds ago. Ask the owner of "
                "the worker for a new one."
            )
        if identity.token_id in self.revoked:
            raise RevokedTokenError(
                f"The token of user {identity.user!r} was taken back by the owner of the worker. Ask them for a new one."
            )


def token_id_of(text: Any) -> str:
    """The id that a token claims, whoever signed it: enough to take it back, not to let anybody in."""
    return _decode(_split(text)[1]).id


def described_token(text: Any) -> IssuedToken:
    """What a token claims, whoever signed it. !! InvalidTokenError"""
    found = _decode(_split(text)[1])
    return IssuedToken(found.id, found.user, found.worker, found.issued, found.expires)


def read_token_file(path: str | os.PathLike[str]) -> str:
    """The token that a file holds, without blanks and line breaks around it. !! InvalidTokenError"""
    try:
        with Path(path).open("rb") as file:
            text = file.read(2 * MAX_LENGTH).decode("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTokenError(
            f"The token file {path} cannot be read: {error}. Pass the file into which `syft token new` was written."
        ) from error
    # NB: what is in the file is not quoted: a wrong file may hold another secret.
    if _SHAPE.fullmatch(text) is None or len(text) > MAX_LENGTH:
        found = "is empty" if not text else "holds something else than one token"
        raise InvalidTokenError(
            f"The token file {path} {found}. Pass the file into which `syft token new` was written."
        )
    return text


def _split(text: Any) -> tuple[bytes, bytes, bytes]:
    """(what was signed, payload, signature). !! InvalidTokenError"""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise InvalidTokenError(f"A token is a text of at most {MAX_LENGTH} characters.")
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise InvalidTokenError(
            f"The text is not a token: those look like {PREFIX}.PAYLOAD.SIGNATURE. Pass what `issue` returned, whole."
        )
    payload, signature = found.groups()
    return f"{PREFIX}.{payload}".encode(), _to_bytes(payload), _to_bytes(signature)


def _decode(data: bytes) -> _Payload:
    try:
        payload = msgspec.json.decode(data, type=prepared(_Payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidTokenError("The token does not hold what a token holds.") from None
    if not TOKEN_ID.fullmatch(payload.id) or not is_user_name(payload.user):
        raise InvalidTokenError("The token does not name a user and an id.")
    return payload


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _to_bytes(text: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        data = b""
    # NB: several texts decode to the same bytes; only one of them is what we would have written.
    if not data or _to_text(data) != text:
        raise InvalidTokenError("The token is not written in base64url.")
    return data


def _seconds(lifetime: float | datetime.timedelta) -> int:
    seconds = lifetime.total_seconds() if isinstance(lifetime, datetime.timedelta) else lifetime
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, (int, float))
        or not math.isfinite(seconds)
        or not 1 <= seconds <= MAX_LIFETIME.total_seconds()
    ):
        raise ValueError(
            f"The lifetime of a token is a number of seconds, from 1 to {MAX_LIFETIME.days} days, or a timedelta; got "
            f"{lifetime!r}."
        )
    return int(seconds)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AuthenticationError(
            f"{path} cannot be read ({error.strerror}). Make an authority with TokenAuthority.create(directory), or pass "
            "the directory where yours is."
        ) from error
