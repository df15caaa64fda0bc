"""What a client raises for a reply that is a failure, or that will never come."""

from __future__ import annotations

from typing import Any

from syft.core.call_sites import Site, shown
from syft.exceptions import NetworkError, ProtocolError, SyftError, WorkerRestartedError
from syft.serde.error_types import EXCEPTIONS
from syft.transport import session_frames as frames
from syft.transport.session_frames import Head

#: Either of these flags says that a reply is an exception.
A_FAILURE = frames.FAILED | frames.FAILED_EARLIER


def failure(head: Head, value: Any, name: str, site: Site) -> Exception:
    """The exception of a reply, with what the user has to know about it."""
    if not isinstance(value, Exception) or type(value).__name__ not in EXCEPTIONS:
        return ProtocolError(f"The worker says that a command failed, with a {type(value).__name__}.")
    if head.flags & frames.FAILED_EARLIER:
        value.add_note(
            f"An earlier command to {name} failed with this; commands are not waited for. The call that told you was "
            f"not run: repeat it if you want its result.{shown(site)}"
        )
    return value


def restarted(name: str) -> WorkerRestartedError:
    return WorkerRestartedError(
        f"{name} was restarted, or has given up this session. What it held for you is gone, except data it keeps on "
        "disk; commands that it had not confirmed may not have run. A new session has begun: send your data again, or "
        "search for what is kept."
    )


def again(loss: SyftError | None, name: str) -> SyftError:
    """Why a session ended, for one more who waited for it."""
    return NetworkError(f"The session with {name} has ended.") if loss is None else type(loss)(*loss.args)
