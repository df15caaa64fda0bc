"""The errors of authenticated shares."""

from __future__ import annotations

from syft.exceptions import SyftError, UnsupportedOperationError


class IntegrityError(SyftError, RuntimeError):
    """A party of a program on authenticated shares did not do its part; which one cannot be told."""


class NoMacsError(UnsupportedOperationError):
    """An operation has no form for authenticated shares, and a result without MACs is never given in its place."""

    def __init__(self, operation: str, cure: str) -> None:
        self.operation = operation
        SyftError.__init__(self, f"{operation} has no form with MACs (protocol='spdz2k'). {cure}")
