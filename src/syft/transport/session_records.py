"""Who speaks, and where a session stands: the first frames of a connection, as JSON that is checked while decoded."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from syft.core.structs import prepared
from syft.exceptions import ProtocolError

PROTOCOL = 1
_MAX_BYTES = 65_536
_Text = Annotated[str, msgspec.Meta(max_length=256)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The client: who I am, and which session I continue (none: a new one)."""

    protocol: int
    client: _Text
    token: Annotated[str, msgspec.Meta(max_length=8192)] | None = None
    session: _Text | None = None
    confirmed: _Number = 0
    expects: _Text | _Number | None = None
    compressions: Annotated[list[_Text], msgspec.Meta(max_length=16)] = []


class Welcome(msgspec.Struct, frozen=True):
    """The server: this is me, this is the session, and this is how far it came.

    `user` is the name under which the client may do things here; `is_new` says that the session begins; `failed` is
    the first command that failed and has not been told of; `admits_only_table` that it runs only operations of the table;
    `device` is where it keeps tensors, if not on the CPU.
    """

    protocol: int
    worker: str | int
    instance: str
    session: str
    is_new: bool
    executed: int
    user: str
    heartbeat: float
    max_message: int
    compressions: list[str]
    failed: int = 0
    admits_only_table: bool = False
    device: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """The server: no, because."""

    error: str
    reason: str


def encode(record: Hello | Welcome | Refusal) -> bytes:
    return msgspec.json.encode(record)


def decode(payload: memoryview, kind: Any) -> Any:
    """A record of the handshake; !! ProtocolError if it is none."""
    if len(payload) > _MAX_BYTES:
        raise ProtocolError(f"A handshake of {len(payload)} bytes arrived; {_MAX_BYTES} are allowed.")
    try:
        return msgspec.json.decode(payload, type=prepared(kind))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"The handshake cannot be read: {error}.") from error
