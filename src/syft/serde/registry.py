"""The one registry: which types travel, under which code, and the pair of functions that does it.

A type of an upper room registers itself from there:

    serde.register(Plan, "Plan", Plan.simplify, Plan.detail)

`encode(worker, obj)` returns the parts of an object, any objects that can travel themselves; `decode(worker,
parts)` makes the object again. The worker is the one that was given to `serialize` or `deserialize`.

NOTE [Parts come from strangers]
What `decode` is given was read from a frame that anybody may have made: the parts have the types that `fields`
names and no others, or any type at all if it names none. Whatever `decode` raises becomes a `SerdeError`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from syft.core.structs import READY, prepared
from syft.serde.class_methods import add_class_methods
from syft.serde.codec_tables import BY_CODE, BY_FAMILY, BY_TYPE, Codec, Simple, codec_of
from syft.serde.errors import SerdeError

if TYPE_CHECKING:
    from syft.serde.reader import Reader
    from syft.serde.writer import Writer

Encode = Callable[[Any, Any], tuple[Any, ...]]
Decode = Callable[[Any, Any], Any]


def is_registered(cls: type) -> bool:
    """Whether objects of this type travel."""
    return codec_of(cls) is not None


def add_codec(codec: Codec, subclasses: bool = False) -> None:
    """Add a codec. A type and a code have one codec for good: frames outlive processes."""
    table = BY_FAMILY if subclasses else BY_TYPE
    if codec.cls in table or codec.code in BY_CODE:
        raise ValueError(
            f"{codec.cls.__name__} was registered with the code {codec.code!r}, and the type or the code has a "
            "codec already. Register a type once, under a code of its own."
        )
    table[codec.cls] = codec
    BY_CODE[codec.code] = codec
    add_class_methods(codec.cls, codec.code)


def register(
    cls: type,
    code: str,
    encode: Encode,
    decode: Decode,
    *,
    fields: Any = None,
    subclasses: bool = False,
    incompressible: bool = False,
) -> None:
    """Let a type travel.

    cls             exactly this type; with `subclasses` also everything below it
    code            its name in frames
    encode, decode  see the head of this file
    fields          the types of the parts, as msgspec checks them, e.g. tuple[int, str | None, torch.Tensor]
    incompressible  tensors inside are never compressed (secret shares, which are random)
    """

    def write(writer: Writer, obj: Any) -> Simple:
        if not incompressible:
            return (code, *writer.write_all(encode(writer.worker, obj)))
        writer.incompressible += 1
        simple = (code, *writer.write_all(encode(writer.worker, obj)))
        writer.incompressible -= 1
        return simple

    def read(reader: Reader, simple: Any) -> Any:
        parts: Any = tuple(reader.read_all(simple[1:]))
        if fields is not None:
            parts = checked(parts, fields, code)
        return decode(reader.worker, parts)

    add_codec(Codec(cls, code, write, read), subclasses)


def register_record(cls: Any, code: str | None = None) -> None:
    """Let a dataclass or a msgspec Struct travel: its fields in order, checked against their annotations."""
    names = (
        tuple(field.name for field in dataclasses.fields(cls))
        if dataclasses.is_dataclass(cls)
        else tuple(cls.__struct_fields__)
    )
    the_code = code or cls.__name__
    get_fields = attrgetter(*names) if names else lambda _obj: ()
    is_single = len(names) == 1
    takes_anything = all(kind is Any for kind in get_type_hints(cls).values())

    def write(writer: Writer, obj: Any) -> Simple:
        values = get_fields(obj)
        if is_single:
            return the_code, writer.write(values)
        return (the_code, *writer.write_all(values))

    def read(reader: Reader, simple: Any) -> Any:
        if len(simple) != len(names) + 1:
            raise SerdeError(
                f"A {the_code} with {len(simple) - 1} fields was found; it has {len(names)}. The sender may be of "
                "another version."
            )
        values = reader.read_all(simple[1:])
        if takes_anything:
            return cls(*values)
        return checked(dict(zip(names, values, strict=True)), cls, the_code)

    add_codec(Codec(cls, the_code, write, read))


def checked(value: Any, kind: Any, code: str) -> Any:
    """`value` as `kind`; !! SerdeError that says what is wrong with it."""
    try:
        return msgspec.convert(value, kind if kind in READY else prepared(kind))
    except msgspec.ValidationError as error:
        raise SerdeError(f"The contents of a {code} are not what they must be: {error}.") from error
