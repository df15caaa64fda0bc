"""What moving frames raises.

TransportError (SyftError)
├── ConnectionClosed (ConnectionError)   one of the two ends closed the connection in good order
├── ConnectionLost (ConnectionError)     it ended otherwise: a cut, a dead process, a peer that stopped
│   └── FrameRefused                     it was ended here, for what the peer sent
├── CannotConnect (ConnectionError)      nobody answers at that address
│   └── HandshakeRefused                 somebody does, and it is not one to talk to
├── CannotListen (OSError)               the address is taken, or not one of this machine
└── FrameTooLarge (ValueError)           a frame was not sent, because it is larger than allowed

A call that waited as long as it was told to raises the builtin TimeoutError, and nothing is lost by it. A bad address or
a bad TLS context is a ValueError.
"""

from __future__ import annotations

from syft.exceptions import SyftError


class TransportError(SyftError):
    """Base of the errors of this room."""


class ConnectionClosed(TransportError, ConnectionError):
    """The connection, or the listener, was closed in good order."""


class ConnectionLost(TransportError, ConnectionError):
    """The connection ended without a goodbye; what was on its way may be lost."""


class FrameRefused(ConnectionLost):
    """The peer sent something that is not taken here, and the connection was ended for it."""

    def __init__(self, message: str, is_too_long: bool = False) -> None:
        super().__init__(message)
        self.is_too_long = is_too_long


class CannotConnect(TransportError, ConnectionError):
    """No connection was made."""


class HandshakeRefused(CannotConnect):
    """The two ends do not go together: another protocol, TLS on one side only, an unverified certificate.

    `is_definite` says that trying again would end the same way; not so where the other end was silent, or went away.
    """

    def __init__(self, message: str, is_definite: bool = True) -> None:
        super().__init__(message)
        self.is_definite = is_definite


class CannotListen(TransportError, OSError):
    """No listener was made."""


class FrameTooLarge(TransportError, ValueError):
    """A frame larger than the limit was to be sent. Nothing of it was, and the connection is unharmed."""


def again(error: TransportError) -> TransportError:
    """The same error for another caller, with a traceback of its own."""
    return type(error)(*error.args)
