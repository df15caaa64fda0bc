"""Who speaks: the user for whom a worker handles the message at hand.

In one process a message names its user, and is believed. On a network the connection has proved who it is: then
that user counts, whatever the message claims.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

UNPROVED: Any = object()
_proved_user: ContextVar[Any] = ContextVar("syft_proved_user", default=UNPROVED)
#: The user who was proved; `UNPROVED` in one process, where nobody is.
user_or_unproved = _proved_user.get
_peer: ContextVar[str] = ContextVar("syft_peer", default="")


# NB: a class, because a generator would take longer than what most messages ask for.
class speaking_for:
    """Inside, every message speaks for `user` (None: somebody who proved no name), who is at the address `peer`."""

    __slots__ = ("_peer", "_peer_before", "_user", "_user_before")

    def __init__(self, user: str | None, peer: str = "") -> None:
        self._user, self._peer = user, peer

    def __enter__(self) -> None:
        self._user_before, self._peer_before = _proved_user.set(self._user), _peer.set(self._peer)

    def __exit__(self, *_exception: object) -> None:
        _peer.reset(self._peer_before)
        _proved_user.reset(self._user_before)


def current_peer() -> str:
    """The address from which the message at hand came; empty in one process."""
    return _peer.get()


def user_of(message: Any) -> str | None:
    """The user for whom a message speaks: the one that was proved, else the one it names."""
    proved = _proved_user.get()
    if proved is not UNPROVED:
        return proved  # type: ignore[no-any-return]
    return getattr(message, "user", None)


def proved_user(otherwise: str | None) -> str | None:
    """The user who was proved; `otherwise` in one process, where nobody is."""
    proved = _proved_user.get()
    return otherwise if proved is UNPROVED else proved


def is_proved() -> bool:
    """Whether the message at hand came over a connection that knows its user."""
    return _proved_user.get() is not UNPROVED
