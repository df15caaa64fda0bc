"""The list of tokens that an authority issued: who, until when, for which worker. Never the tokens themselves."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from syft.core.structs import prepared
from syft.exceptions import AuthenticationError


class IssuedToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that was issued. `worker` is None where it is good at any; times are seconds since 1970."""

    id: str
    user: str
    worker: str | None
    issued: int
    expires: int


class IssuedTokens:
    """A file with a line of JSON for each token."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def add(self, token: IssuedToken) -> None:
        """Put one on the list."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(token) + b"\n")
        finally:
            os.close(descriptor)

    def all(self) -> list[IssuedToken]:
        """Every one, oldest first. !! AuthenticationError"""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise AuthenticationError(f"The list of issued tokens cannot be read: {error}.") from error
        try:
            return [msgspec.json.decode(line, type=prepared(IssuedToken)) for line in lines if line.strip()]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AuthenticationError(f"{self.path} is not a list of issued tokens: {error}.") from error
