"""How messages travel: every record of `syft.messaging.message`, and the metadata that replies carry."""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec

from syft.core.shapes import ALIAS, Answer
from syft.core.spec import TensorSpec
from syft.messaging import message
from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError
from syft.serde.reader import Reader
from syft.serde.registry import add_codec, checked, register, register_record
from syft.serde.writer import Writer

_CONTAINERS: dict[str | None, Any] = {None: None, "list": list, "tuple": tuple}


def _encode_answer(_worker: Any, answer: Answer) -> tuple[Any, ...]:
    kind = next(name for name, cls in _CONTAINERS.items() if cls is answer.kind)
    return answer.spec, answer.parts, kind, answer.asks


def _decode_answer(_worker: Any, fields: Any) -> Answer:
    spec, parts, kind, asks = fields
    if kind not in _CONTAINERS:
        raise SerdeError(f"An answer is in a {kind[:60]!r}; it can be in a list or a tuple.")
    return Answer(spec, tuple([_part(part) for part in parts]), _CONTAINERS[kind], asks)


def _part(part: Any) -> Any:
    # NB: whoever reads an answer compares with `is`.
    if type(part) is str and part == ALIAS:
        return ALIAS
    if part is None or isinstance(part, (TensorSpec, Answer, bool, int, float)):
        return part
    raise SerdeError(f"An answer describes tensors; it has a {type(part).__name__}.")


register(
    Answer,
    "Answer",
    _encode_answer,
    _decode_answer,
    fields=tuple[TensorSpec | None, tuple[Any, ...], str | None, bool],
)

#: Every message there is. A new one in that file travels without a word here.
MESSAGES: tuple[type, ...] = tuple(
    found
    for found in vars(message).values()
    if isinstance(found, type)
    and issubclass(found, msgspec.Struct)
    and found.__module__ == message.__name__
    and found is not message.MessageRecord
)
for _message in MESSAGES:
    if _message not in (message.Operation, message.PlanCallMessage, message.ObjectRequestMessage):
        register_record(_message)

register(
    message.Message,
    "Message",
    lambda _worker, made: (made.contents,),
    lambda _worker, parts: message.Message(*parts),
    fields=tuple[Any],
)


# -- operations: by far the most messages are these, and most of them refer to objects and little else -----------

_PLAIN = frozenset({type(None), bool, float, str})


def _write_parts(writer: Writer, values: Any) -> list[Any]:
    parts = []
    for value in values:
        cls = type(value)
        if cls is message.Ref and type(value.id) is int and 0 <= value.id < 1 << 63:
            parts.append(("Ref", value.id))
        elif cls in _PLAIN or (cls is int and -(1 << 63) <= value < 1 << 63):
            parts.append(value)
        else:
            parts.append(writer.write(value))
    return parts


_NO_KWARGS, _NO_IDS = ("dict",), ("tuple",)


def _write_operation(writer: Writer, op: message.Operation) -> Simple:
    kwargs: Any = op.cmd_kwargs
    args, ids = op.cmd_args, op.return_ids
    return (
        "Operation",
        op.cmd_name,
        None if op.cmd_owner is None else writer.write(op.cmd_owner),
        ("list", *_write_parts(writer, args)) if type(args) is list else writer.write(args),
        ("dict", *_write_parts(writer, chain.from_iterable(kwargs.items()))) if kwargs else _NO_KWARGS,
        ("tuple", ids[0])
        if len(ids) == 1 and type(ids[0]) is int and 0 <= ids[0] < 1 << 63
        else ("tuple", *_write_parts(writer, ids))
        if ids
        else _NO_IDS,
        op.wants_specs,
        op.user,
    )


def _read_operation(reader: Reader, simple: Any) -> message.Operation:
    try:
        _code, name, owner, args, kwargs, ids, wants_specs, user = simple
    except ValueError:
        raise SerdeError(f"An Operation with {len(simple) - 1} fields was found; it has 7.") from None
    if type(args) is list and args and args[0] == "list":
        args = _read_parts(reader, args)
    else:
        args = reader.read(args)
    made = message.Operation(
        name,
        None if owner is None else reader.read(owner),
        args,
        {} if kwargs == ["dict"] else reader.read(kwargs),
        (ids[1],)
        if type(ids) is list and len(ids) == 2 and ids[0] == "tuple" and type(ids[1]) is int
        else tuple(_read_parts(reader, ids))
        if type(ids) is list and ids and ids[0] == "tuple"
        else reader.read(ids),
        wants_specs,
        user,
    )
    if (
        type(name) is not str
        or type(made.cmd_kwargs) is not dict
        or type(made.return_ids) is not tuple
        or type(wants_specs) is not bool
        or not (user is None or type(user) is str)
        or type(args) not in (list, tuple)
        or (made.cmd_kwargs and not all(type(key) is str for key in made.cmd_kwargs))
    ):
        raise SerdeError("The contents of an Operation are not what they must be: a field has another type.")
    return made


def _read_parts(reader: Reader, simple: list[Any]) -> list[Any]:
    values: list[Any] = []
    for part in simple[1:]:
        kind = type(part)
        if kind is list and len(part) == 2 and part[0] == "Ref" and type(part[1]) is int:
            values.append(message.Ref(part[1]))
        elif kind is int or kind in _PLAIN:
            values.append(part)
        else:
            values.append(reader.read(part))
    reader.count(len(values))
    return values


def _write_plan_call(writer: Writer, call: message.PlanCallMessage) -> Simple:
    plan, handle, ids = call.plan, call.handle, call.return_ids
    if handle is not None or type(plan) is not int or not 0 <= plan < 1 << 63:
        plan, handle = _write_parts(writer, (plan, handle))
    return (
        "PlanCallMessage",
        plan,
        ("tuple", *_write_parts(writer, call.args)),
        ("tuple", *call.differentiable),
        handle,
        ("tuple", ids[0])
        if len(ids) == 1 and type(ids[0]) is int and 0 <= ids[0] < 1 << 63
        else ("tuple", *_write_parts(writer, ids)),
        ("tuple", *call.rates),
        call.wants_specs,
        call.user,
    )


def _read_plan_call(reader: Reader, simple: Any) -> message.PlanCallMessage:
    names = message.PlanCallMessage.__struct_fields__
    if len(simple) != len(names) + 1:
        raise SerdeError(f"A PlanCallMessage with {len(simple) - 1} fields was found; it has {len(names)}.")
    values: dict[str, Any] = {}
    for name, part in zip(names, simple[1:], strict=True):
        kind = type(part)
        if kind in _PLAIN or kind is int:
            values[name] = part
        elif part == _EMPTY_TUPLE:
            values[name] = ()
        elif kind is list and part and part[0] == "tuple":
            values[name] = tuple(_read_parts(reader, part))
        else:
            values[name] = reader.read(part)
    reader.count(len(names))
    made: message.PlanCallMessage = checked(values, message.PlanCallMessage, "PlanCallMessage")
    return made


_EMPTY_TUPLE = ["tuple"]


def _write_request(writer: Writer, asked: message.ObjectRequestMessage) -> Simple:
    obj_id, user, reason = request = asked.request
    if type(obj_id) is int and 0 <= obj_id < 1 << 63 and type(reason) is str and user is None:
        return "ObjectRequestMessage", ("tuple", obj_id, user, reason), asked.keep, asked.is_random
    return "ObjectRequestMessage", writer.write(request), asked.keep, asked.is_random


def _read_request(reader: Reader, simple: Any) -> message.ObjectRequestMessage:
    names = message.ObjectRequestMessage.__struct_fields__
    if len(simple) != len(names) + 1:
        raise SerdeError(
            f"An ObjectRequestMessage with {len(simple) - 1} fields was found; it has {len(names)}."
        )
    values = dict(zip(names, reader.read_all(simple[1:]), strict=True))
    made: message.ObjectRequestMessage = checked(values, message.ObjectRequestMessage, "ObjectRequestMessage")
    return made


add_codec(Codec(message.Operation, "Operation", _write_operation, _read_operation))
add_codec(Codec(message.PlanCallMessage, "PlanCallMessage", _write_plan_call, _read_plan_call))
add_codec(Codec(message.ObjectRequestMessage, "ObjectRequestMessage", _write_request, _read_request))
