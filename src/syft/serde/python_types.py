"""How Python's own types travel. Exactly these: a subclass may mean something else and is refused."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError
from syft.serde.reader import Reader
from syft.serde.registry import add_codec
from syft.serde.writer import Writer

#: Containers up to this size are built without a look at the hashes of their keys.
_FEW_KEYS = 256


def _write_int(writer: Writer, value: int) -> Simple:
    if -(1 << 63) <= value < 1 << 64:
        return value
    length = (value.bit_length() + 8) // 8
    return "int", writer.buffer(value.to_bytes(length, "little", signed=True), False)


def _read_int(reader: Reader, simple: Any) -> int:
    (data,) = simple[1:]
    return int.from_bytes(reader.buffer(data), "little", signed=True)


def _write_bytes(writer: Writer, value: bytes) -> Simple:
    stored = writer.buffer(value)
    return stored if type(stored) is bytes else ("bytes", stored)


def _read_bytes(reader: Reader, simple: Any) -> bytes:
    (data,) = simple[1:]
    return bytes(reader.buffer(data))


def _read_bytearray(reader: Reader, simple: Any) -> bytearray:
    (data,) = simple[1:]
    return bytearray(reader.buffer(data))


def _add_sequence(cls: type, make: Callable[[list[Any]], Any]) -> None:
    code = cls.__name__

    def write(writer: Writer, values: Any) -> Simple:
        return (code, *writer.write_all(values))

    def read(reader: Reader, simple: Any) -> Any:
        return make(reader.read_all(simple[1:]))

    add_codec(Codec(cls, code, write, read))


def _add_mapping(cls: type, make: Callable[[Iterable[Any]], Any]) -> None:
    code = cls.__name__

    def write(writer: Writer, values: Any) -> Simple:
        return (code, *writer.write_all(chain.from_iterable(values.items())))

    def read(reader: Reader, simple: Any) -> Any:
        parts = reader.read_all(simple[1:])
        if len(parts) % 2:
            raise SerdeError(f"A {code} has {len(parts)} keys and values, and they come in pairs.")
        keys = parts[::2]
        return _complete(make(zip(refuse_colliding(keys), parts[1::2], strict=True)), keys, code)

    add_codec(Codec(cls, code, write, read))


def _add_set(cls: type, make: Callable[[list[Any]], Any]) -> None:
    code = cls.__name__

    def write(writer: Writer, values: Any) -> Simple:
        return (code, *writer.write_all(values))

    def read(reader: Reader, simple: Any) -> Any:
        keys = reader.read_all(simple[1:])
        return _complete(make(refuse_colliding(keys)), keys, code)

    add_codec(Codec(cls, code, write, read))


def _complete(made: Any, keys: list[Any], code: str) -> Any:
    if len(made) != len(keys):
        raise SerdeError(f"A {code} has the same key twice.")
    return made


def refuse_colliding(keys: list[Any]) -> list[Any]:
    """The keys, unless many of them were chosen to have one hash: a table of those takes quadratic time."""
    if len(keys) > _FEW_KEYS and len({hash(key) for key in keys}) < len(keys) // 8:
        raise SerdeError(f"Most of the {len(keys)} keys of a table have the same hash. That is no accident.")
    return keys


def _add_constructed(
    cls: Any, code: str, parts: Callable[[Any], tuple[Any, ...]], count: int, kinds: Any
) -> None:
    """A type made by calling it with `count` parts of the given kinds."""

    def write(writer: Writer, value: Any) -> Simple:
        return (code, *[writer.write(part) for part in parts(value)])

    def read(reader: Reader, simple: Any) -> Any:
        found = [reader.read(part) for part in simple[1:]]
        if len(found) != count or any(type(part) not in kinds for part in found):
            names = ", ".join(type(part).__name__ for part in found)
            raise SerdeError(f"A {code} cannot be made of ({names}).")
        return cls(*found)

    add_codec(Codec(cls, code, write, read))


def _read_ellipsis(reader: Reader, simple: Any) -> Any:
    return ...


add_codec(Codec(int, "int", _write_int, _read_int))
add_codec(Codec(bytes, "bytes", _write_bytes, _read_bytes))
add_codec(Codec(bytearray, "bytearray", lambda w, v: ("bytearray", w.buffer(bytes(v))), _read_bytearray))
_add_sequence(list, lambda values: values)
_add_sequence(tuple, tuple)
_add_set(set, set)
_add_set(frozenset, frozenset)
_add_mapping(dict, dict)
_add_mapping(OrderedDict, OrderedDict)
_add_constructed(complex, "complex", lambda z: (z.real, z.imag), 2, (float,))
_add_constructed(range, "range", lambda r: (r.start, r.stop, r.step), 3, (int,))
add_codec(Codec(type(...), "Ellipsis", lambda w, v: ("Ellipsis",), _read_ellipsis))


def _write_slice(writer: Writer, value: slice) -> Simple:
    return "slice", writer.write(value.start), writer.write(value.stop), writer.write(value.step)


def _read_slice(reader: Reader, simple: Any) -> slice:
    start, stop, step = [reader.read(part) for part in simple[1:]]
    return slice(start, stop, step)


add_codec(Codec(slice, "slice", _write_slice, _read_slice))
