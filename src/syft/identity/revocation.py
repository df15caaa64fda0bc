"""The list of tokens that were taken back: a text file, one id per line, read anew when it has changed."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from syft.exceptions import AuthenticationError

TOKEN_ID = re.compile(r"[0-9a-f]{32}")


class RevocationList:
    """Ids of tokens that are no longer accepted. Without a path it lives in memory only.

    A `#` begins a comment. Nobody is let in while the file cannot be understood: a misspelt line would
    otherwise let in the very user it was to keep out.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._revoked: frozenset[str] = frozenset()
        self._seen: tuple[int, int, int] | None = None
        self._lock = threading.Lock()

    def __contains__(self, token_id: object) -> bool:
        return token_id in self.ids()

    def ids(self) -> frozenset[str]:
        """The ids on the list now. !! AuthenticationError if the file cannot be understood"""
        with self._lock:
            if self.path is not None:
                self._read_if_changed(self.path)
            return self._revoked

    def add(self, token_id: str) -> None:
        """Put an id on the list; it is on the disk when this returns."""
        if not TOKEN_ID.fullmatch(token_id):
            raise ValueError(
                f"The id of a token is 32 hexadecimal digits, got {token_id[:40]!r}. `TokenAuthority.revoke` takes a "
                "whole token, too."
            )
        if self.path is None:
            with self._lock:
                self._revoked |= {token_id}
            return
        if token_id in self.ids():
            return
        # NB: one write to a file opened for appending, so that two who revoke at once do not mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # A first line break ends what somebody's editor may have left without one.
            os.write(descriptor, f"\n{token_id}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read_if_changed(self, path: Path) -> None:
        try:
            found = path.stat()
        except FileNotFoundError:
            if self._seen is None:
                return  # nothing has been revoked yet
            raise AuthenticationError(
                f"The list of revoked tokens, {path}, has disappeared. Nobody is let in until it is back."
            ) from None
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        if stamp == self._seen:
            return
        self._revoked = _parse(path)
        self._seen = stamp


def _parse(path: Path) -> frozenset[str]:
    revoked = set()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthenticationError(
            f"The list of revoked tokens, {path}, cannot be read ({error}). Nobody is let in until it is mended."
        ) from error
    for number, line in enumerate(lines, 1):
        token_id = line.partition("#")[0].strip().lower()
        if not token_id:
            continue
        if not TOKEN_ID.fullmatch(token_id):
            raise AuthenticationError(
                f"Line {number} of the list of revoked tokens, {path}, is not the id of a token (32 hexadecimal "
                "digits). Nobody is let in until it is mended."
            )
        revoked.add(token_id)
    return frozenset(revoked)
