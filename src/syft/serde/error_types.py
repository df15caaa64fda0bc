"""How exceptions travel: by a name from a closed list, with their arguments and the text of their traceback.

    error.remote_traceback     where it was raised, as text
    error.__notes__            the same, so that Python prints it below the error

A class that is not in the list arrives as its nearest base that is. No constructor runs on arrival.
"""

from __future__ import annotations

import traceback
from typing import Any

from syft import exceptions
from syft.core.rooms import FilledLater
from syft.serde.class_methods import add_class_methods
from syft.serde.codec_tables import Codec, Simple
from syft.serde.errors import SerdeError, UnknownWorkerError, UnserializableError
from syft.serde.reader import Reader
from syft.serde.registry import add_codec, checked
from syft.serde.writer import Writer

_BUILTIN: tuple[type[Exception], ...] = (
    Exception,
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ConnectionError,
    EOFError,
    FileNotFoundError,
    FloatingPointError,
    ImportError,
    IndexError,
    KeyError,
    LookupError,
    MemoryError,
    ModuleNotFoundError,
    NameError,
    NotImplementedError,
    OSError,
    OverflowError,
    PermissionError,
    RecursionError,
    RuntimeError,
    StopIteration,
    TimeoutError,
    TypeError,
    ValueError,
    ZeroDivisionError,
)
_MAX_TEXT = 65536
#: All of them have one codec, and their name among its contents.
_CODE = "error"

#: name in frames -> class
EXCEPTIONS: FilledLater[str, type[Exception]] = FilledLater()
#: name -> the attributes that travel, beside the arguments
_ATTRIBUTES: dict[str, tuple[str, ...]] = {}
_NAMES: dict[type, str] = {}


def register_exception(cls: type[Exception], *attributes: str) -> None:
    """Let an exception arrive as itself, with these attributes (which have to be able to travel)."""
    name = cls.__name__
    if name in EXCEPTIONS:
        raise ValueError(
            f"An exception of the name {name} is registered already. Names are unique in frames."
        )
    EXCEPTIONS[name] = cls
    _ATTRIBUTES[name] = attributes
    _NAMES[cls] = name
    add_class_methods(cls, _CODE)


def _write_exception(writer: Writer, error: Exception) -> Simple:
    cls = next(base for base in type(error).__mro__ if base in _NAMES)
    name = _NAMES[cls]
    args = [_argument(arg) for arg in error.args]
    if cls is not type(error):
        args = [f"{type(error).__name__}: {str(error)[:_MAX_TEXT]}"]
    attributes = [writer.write(getattr(error, attribute, None)) for attribute in _ATTRIBUTES[name]]
    text = "".join(traceback.format_exception(error))[-_MAX_TEXT:]
    return _CODE, name, args, attributes, text.encode("utf-8", "replace").decode()


def _argument(value: Any) -> Any:
    if value is None or type(value) in (bool, float):
        return value
    if type(value) is int and abs(value) < 1 << 63:
        return value
    text = value if type(value) is str else repr(value)
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()


_Fields = tuple[str, list[bool | int | float | str | None], list[Any], str]


def _read_exception(reader: Reader, simple: Any) -> Exception:
    name, args, attributes, text = checked(simple[1:], _Fields, _CODE)
    cls = EXCEPTIONS.find(name)
    if cls is None or len(attributes) != len(_ATTRIBUTES[name]):
        raise SerdeError(
            f"An error of the name {name[:60]!r} was found, which is not in the list of those that travel."
        )
    error: Exception = cls.__new__(cls, *args)
    error.args = tuple(args)
    for attribute, value in zip(_ATTRIBUTES[name], attributes, strict=True):
        setattr(error, attribute, reader.read(value))
    error.remote_traceback = text  # type: ignore[attr-defined]
    error.add_note(f"Raised on the other side:\n{text.rstrip()}")
    return error


for _cls in _BUILTIN:
    register_exception(_cls)
_WITH_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    exceptions.DependencyError: ("package", "pypi_alias"),
    exceptions.ResponseSignatureError: ("ids_generated",),
    exceptions.ObjectNotFoundError: ("obj_id", "worker_id"),
    exceptions.UnsupportedOperationError: ("operation",),
    exceptions.UnknownCommandError: ("command",),
    exceptions.BudgetExceededError: ("left",),
}
for _found in (*vars(exceptions).values(), SerdeError, UnserializableError, UnknownWorkerError):
    if isinstance(_found, type) and issubclass(_found, exceptions.SyftError):
        register_exception(_found, *_WITH_ATTRIBUTES.get(_found, ()))

add_codec(Codec(Exception, _CODE, _write_exception, _read_exception), subclasses=True)
