"""Ids in messages, which are numbers or texts."""

from __future__ import annotations

from typing import Any


def set_protobuf_id(field: Any, id: int | str) -> None:
    """Write an id into a field that has one place for numbers and one for texts."""
    if isinstance(id, int) and not isinstance(id, bool):
        field.number = id
    elif isinstance(id, str):
        field.text = id
    else:
        raise TypeError(f"set_protobuf_id() was given a {type(id).__name__}. An id is a number or a text.")


def get_protobuf_id(field: Any) -> int | str:
    """The id that `set_protobuf_id` wrote."""
    found: int | str = getattr(field, field.WhichOneof("kind"))
    return found
