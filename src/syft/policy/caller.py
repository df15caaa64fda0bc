"""Who speaks: the user for whom a worker handles the message at hand.

In one process a message names its user, and is believed. On a network the connection has proved who it is: then
that user counts, whatever the message claims.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_UNPROVED: Any = object()
_proved_user: ContextVar[Any] = ContextVar("syft_proved_user", default=_UNPROVED)
_peer: ContextVar[str] = ContextVar("syft_peer", default="")


@contextlib.contextmanager
def speaking_for(user: str | None, peer: str = "") -> Iterator[None]:
    """Inside, every message speaks for `user` (None: somebody who proved no name), who is at the address `peer`."""
    user_before, peer_before = _proved_user.set(user), _peer.set(peer)
    try:
        yield
    finally:
        _peer.reset(peer_before)
        _proved_user.reset(user_before)


def current_peer() -> str:
    """The address from which the message at hand came; empty in one process."""
    return _peer.get()


def user_of(message: Any) -> str | None:
    """The user for whom a message speaks: the one that was proved, else the one it names."""
    proved = _proved_user.get()
    if proved is not _UNPROVED:
        return proved  # type: ignore[no-any-return]
    return getattr(message, "user", None)


def proved_user(otherwise: str | None) -> str | None:
    """The user who was proved; `otherwise` in one process, where nobody is."""
    proved = _proved_user.get()
    return otherwise if proved is _UNPROVED else proved


def is_proved() -> bool:
    """Whether the message at hand came over a connection that knows its user."""
    return _proved_user.get() is not _UNPROVED
