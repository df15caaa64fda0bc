"""Frames of nothing but plain commands, read by one call of msgspec.

Most frames that a worker reads hold operations on objects and numbers, calls of plans, requests for their results,
and ids of what has gone. The types below say how these look in a frame, so that msgspec reads and checks all of them
at once. What does not look exactly like that is read as everything else is, with the same result or the same error:
`plain_commands` says None, and never raises.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from syft.core.structs import prepared
from syft.messaging import message
from syft.serde.limits import Limits
from syft.serde.wire import MAGIC, PREAMBLE, VERSION

#: What is read here is no deeper than this.
_DEPTH = 8


class _Form(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """How a message looks in a frame: its code, then its fields."""


class _Ref(_Form, frozen=True, tag="Ref", gc=False):
    id: int


_Nothing = tuple[Literal["tuple"]]
#: The code of a container, and what is in it.
_Ids = list[str | int]
_Arguments = list[_Ref | str | int | float | bool | None]


class _Operation(_Form, frozen=True, tag="Operation", gc=False):
    name: str
    owner: None
    args: _Arguments
    kwargs: tuple[Literal["dict"]]
    return_ids: _Ids
    wants_specs: bool
    user: None


class _PlanCall(_Form, frozen=True, tag="PlanCallMessage", gc=False):
    plan: int
    args: _Arguments
    differentiable: _Nothing
    handle: None
    return_ids: _Ids
    rates: _Nothing
    wants_specs: bool
    user: None


class _Request(_Form, frozen=True, tag="ObjectRequestMessage", gc=False):
    request: tuple[Literal["tuple"], int, None, str]
    keep: bool
    is_random: bool


class _Gone(_Form, frozen=True, tag="PointersGoneMessage", gc=False):
    ids: _Ids


class _Sync(_Form, frozen=True, tag="SyncMessage", gc=False):
    pass


_Frame = tuple[list[_Operation | _PlanCall | _Request | _Gone | _Sync], tuple[()]]
_decoder = msgspec.msgpack.Decoder(prepared(_Frame))
_SYNC = message.SyncMessage()


def plain_commands(frame: memoryview, limits: Limits) -> list[Any] | None:
    """The commands of a frame in which there are no others than those above; None if it is anything else."""
    if not PREAMBLE.size < len(frame) <= min(limits.max_bytes, limits.max_header, limits.max_objects):
        return None
    magic, version, reserved, length, buffers = PREAMBLE.unpack_from(frame)
    if (
        magic != MAGIC
        or version != VERSION
        or reserved
        or buffers
        or PREAMBLE.size + length != len(frame)
        or limits.max_depth < _DEPTH
    ):
        return None
    try:
        forms, _ = _decoder.decode(frame[PREAMBLE.size :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    made: list[Any] = []
    for form in forms:
        kind = type(form)
        if kind is _Operation:
            args, ids = form.args, form.return_ids
            if not args or args[0] != "list" or not _are_ids(ids):
                return None
            del args[0], ids[0]
            for place, value in enumerate(args):
                if type(value) is _Ref:
                    args[place] = message.Ref(value.id)
            made.append(message.Operation(form.name, None, args, {}, tuple(ids), form.wants_specs))
        elif kind is _PlanCall:
            args, ids = form.args, form.return_ids
            if not args or args[0] != "tuple" or not _are_ids(ids):
                return None
            del args[0], ids[0]
            for place, value in enumerate(args):
                if type(value) is not _Ref:
                    return None
                args[place] = message.Ref(value.id)
            call = message.PlanCallMessage(form.plan, tuple(args), (), None, tuple(ids), (), form.wants_specs)
            made.append(call)
        elif kind is _Request:
            made.append(message.ObjectRequestMessage(form.request[1:], form.keep, form.is_random))
        elif kind is _Gone:
            if not _are_ids(form.ids):
                return None
            made.append(message.PointersGoneMessage(tuple(form.ids[1:])))
        else:
            made.append(_SYNC)
    return made


def _are_ids(ids: list[Any]) -> bool:
    """Whether this is a tuple of numbers."""
    if not ids or ids[0] != "tuple":
        return False
    if len(ids) == 2:  # as most have
        return type(ids[1]) is int
    return all(type(obj_id) is int for obj_id in ids[1:])
