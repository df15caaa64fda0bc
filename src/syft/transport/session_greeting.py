"""The client's side of the first frames of a connection, and reaching a worker that does not answer at once."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

from syft.exceptions import NetworkError, ProtocolError, SyftError, WorkerUnreachableError
from syft.serde.error_types import EXCEPTIONS
from syft.transport import Connection, HandshakeRefused
from syft.transport import session_frames as frames
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_MANY_RETRIES = 8
_WHAT_IS_KEPT = " Commands that it has not confirmed are kept, and sent when it can be reached."


def greet(connection: Connection, hello: handshake.Hello, timeout: float) -> handshake.Welcome:
    """Say who we are. !! what the worker refuses us for, which is final"""
    connection.send(frames.encode(Head(Kind.HELLO), [handshake.encode(hello)]))
    while True:
        head, payload = frames.decode(connection.receive(timeout=timeout))
        if head.kind == Kind.REFUSAL:
            raise refusal(payload)
        if head.kind == Kind.WELCOME:
            welcome: handshake.Welcome = handshake.decode(payload, handshake.Welcome)
            return welcome
        if head.kind != Kind.HEARTBEAT:  # it is busy with what we sent before, and lives
            raise ProtocolError(f"The worker answered a greeting with a frame of kind {head.kind}.")


def refusal(payload: memoryview) -> SyftError:
    """The error that a worker names, by a name from a closed list, never as a class from the wire."""
    record = handshake.decode(payload, handshake.Refusal)
    kind = EXCEPTIONS.get(record.error)
    error = (kind if kind is not None and issubclass(kind, SyftError) else NetworkError)(record.reason)
    error._syft_final = True  # type: ignore[attr-defined]
    if not isinstance(error, SyftError):
        raise ProtocolError(f"The worker refused us with a {type(error).__name__}.")
    return error


def is_final(error: BaseException | None) -> bool:
    """Whether trying again would give the same answer."""
    while error is not None:
        if getattr(error, "_syft_final", False) or isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__
    return False


class Attempts:
    """Counts connections that broke, one after the other, before anything got through."""

    def __init__(self) -> None:
        self.vain, self._since = 0, 0.0

    def begin(self, name: str, patience: float) -> None:
        """Note one more. !! WorkerUnreachableError when there were many, for longer than `patience`"""
        if not self.vain:
            self._since = time.monotonic()
        elif self.vain > _MANY_RETRIES:
            if time.monotonic() - self._since > patience:
                vain, self.vain = self.vain, 0
                raise WorkerUnreachableError(
                    f"{name} was reached {vain} times in {patience:g} s, and each time the connection ended before "
                    "anything got through. Is there something between that cuts connections?"
                )
            time.sleep(0.05)
        self.vain += 1

    def succeed(self) -> None:
        """Something got through."""
        self.vain = 0


def reach(
    opener: Callable[[], Connection],
    say: Callable[[Connection], None],
    name: str,
    patience: float,
    is_given_up: Callable[[], bool],
    is_first: bool = False,
) -> Connection:
    """A connection on which `say` succeeded; tried again and again for as long as `patience` lasts.

    `is_first`: there has never been one, so two ends that do not go together never did, and the user is told at once.
    Later a worker that is being restarted, or what stands before it, may answer so for a while.
    """
    until = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        connection = None
        try:
            connection = opener()
            say(connection)
            return connection
        except OSError as error:
            if connection is not None:
                connection.close()
            if is_final(error) or (is_first and isinstance(error, HandshakeRefused) and error.is_definite):
                raise
            if is_given_up():
                raise NetworkError(f"The connection to {name} was closed.") from error
            if time.monotonic() + pause > until:
                raise WorkerUnreachableError(
                    f"{name[:1].upper()}{name[1:]} cannot be reached, after {patience:g} s of trying. "
                    f"{_sentence(error)} Is the address right?{'' if is_first else _WHAT_IS_KEPT}"
                ) from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


def _sentence(error: OSError) -> str:
    said = str(error)
    return said if said.endswith((".", "?")) else f"{said}."
