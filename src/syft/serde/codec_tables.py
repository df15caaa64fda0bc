"""`Codec`: how one type travels, and the tables in which codecs are found. `registry` fills them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syft.core.rooms import FilledLater, load_rest

if TYPE_CHECKING:
    from syft.serde.reader import Reader
    from syft.serde.writer import Writer

#: What stands for an object in a header: a primitive, or a tuple of its code and its contents.
Simple = Any


@dataclass(frozen=True, slots=True)
class Codec:
    """How one type travels. `write` makes the simple form, which begins with the code; `read` takes it."""

    cls: type
    code: str
    write: Callable[[Writer, Any], Simple]
    read: Callable[[Reader, Any], Any]


#: codec of exactly this type
BY_TYPE: dict[type, Codec] = {}
#: codec of this type and of all below it
BY_FAMILY: dict[type, Codec] = {}
#: codec by the code in the header
BY_CODE: FilledLater[str, Codec] = FilledLater()


def codec_of(cls: type) -> Codec | None:
    """The codec of a type: its own, or that of the nearest registered family."""
    found = BY_TYPE.get(cls)
    if found is None and BY_FAMILY:
        found = next((BY_FAMILY[base] for base in cls.__mro__ if base in BY_FAMILY), None)
    return codec_of(cls) if found is None and load_rest() else found
