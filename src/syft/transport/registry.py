"""The transports by the scheme of their addresses, and `connect` and `listen`, which look there."""

from __future__ import annotations

import ssl
from typing import Protocol

from syft.transport.address import split
from syft.transport.base import DEFAULT_LIMITS, Connection, FrameLimits, Listener


class Backend(Protocol):
    """What a transport has to offer. `address` is checked by the backend itself, all but the scheme."""

    def connect(
        self, address: str, *, tls: ssl.SSLContext | None, timeout: float, limits: FrameLimits
    ) -> Connection: ...

    def listen(self, address: str, *, tls: ssl.SSLContext | None, limits: FrameLimits) -> Listener: ...


_backends: dict[str, Backend] = {}


def register(scheme: str, backend: Backend) -> None:
    """Make `connect` and `listen` use a backend for addresses that begin with `scheme://`."""
    if not scheme.isascii() or not scheme.isalnum() or scheme != scheme.lower():
        raise ValueError(f"register({scheme!r}): a scheme is made of small letters and digits.")
    if scheme in _backends:
        raise ValueError(
            f"register({scheme!r}): there is a transport of that scheme already. Choose another name."
        )
    _backends[scheme] = backend


def known_schemes() -> list[str]:
    return sorted(_backends)


def connect(
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    timeout: float = 10.0,
    limits: FrameLimits = DEFAULT_LIMITS,
) -> Connection:
    """A connection to whoever listens at `address`, handshakes done.

    `tls`, for tls:// and wss://, says whom to trust; without one, the authorities this system trusts.
    !! CannotConnect, or HandshakeRefused if the two ends do not go together.
    """
    if not timeout > 0:
        raise ValueError(f"connect({address!r}, timeout={timeout!r}): a timeout is above 0.")
    return _backend(address).connect(address, tls=tls, timeout=timeout, limits=limits)


def listen(
    address: str, *, tls: ssl.SSLContext | None = None, limits: FrameLimits = DEFAULT_LIMITS
) -> Listener:
    """Accept connections at `address`; port 0 takes a free one, which the listener's `address` then names.

    `tls`, needed for tls:// and wss://, holds the certificate of this server.
    """
    return _backend(address).listen(address, tls=tls, limits=limits)


def _backend(address: str) -> Backend:
    scheme, _rest = split(address)
    try:
        return _backends[scheme]
    except KeyError:
        raise ValueError(
            f"The address {address!r} has the scheme {scheme!r}; the known ones are "
            f"{', '.join(f'{known}://' for known in known_schemes())}."
        ) from None
