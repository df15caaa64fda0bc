"""How messages travel: every record of `syft.messaging.message`, and the metadata that replies carry."""

from __future__ import annotations

from typing import Any

import msgspec

from syft.core.shapes import ALIAS, Answer
from syft.core.spec import TensorSpec
from syft.messaging import message
from syft.serde.errors import SerdeError
from syft.serde.registry import register, register_record

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
    and found is not message.Message
)
for _message in MESSAGES:
    register_record(_message)
