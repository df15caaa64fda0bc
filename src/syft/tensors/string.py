"""`String` and `StringPointer`: text that can live on a worker, with the methods of `str`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from syft.core.ids import ID_PROVIDER
from syft.core.objects import AbstractObject
from syft.messaging.message import CallMethodMessage
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS, as_argument, owned, send_object

#: The methods of `str` that a String has, here and remotely.
METHODS = tuple(
    name
    for name in dir(str)
    if not name.startswith("_") and name not in ("format", "format_map", "maketrans")
)
_OPERATORS = (
    "__add__",
    "__mul__",
    "__getitem__",
    "__contains__",
    "__len__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
)


class String(AbstractObject):
    """A `str` with an id, an owner and tags. Methods that return text return a String."""

    pointer_kind: ClassVar[str] = "string"
    remote_methods: ClassVar[frozenset[str]] = frozenset(METHODS) | {"__add__", "__mul__", "__getitem__"}

    def __init__(
        self,
        object: Any = "",
        encoding: str | None = None,
        errors: str | None = None,
        id: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(id=id, **kwargs)
        if encoding is None and errors is None:
            self.child = str(object)
        else:  # bytes, as for `str`
            self.child = str(object, encoding or "utf-8", errors or "strict")

    def send(self, location: Any, garbage_collect_data: bool = True) -> Any:
        """Send the text to a worker; returns a StringPointer."""
        return send_object(self, location, garbage_collect_data)

    def on(self, object: Any, wrap: bool = True) -> String:
        """Take another text; returns self, which is its own wrapper (`wrap` is for tensors)."""
        self.child = str(object)
        return self

    def format(self, *args: Any, **kwargs: Any) -> String:
        """`str.format`, here. A text on a worker has no `format`: its fields could reach into objects there."""
        return String(self.child.format(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()}))

    def __mod__(self, values: Any) -> String:
        plain = tuple(map(_plain, values)) if isinstance(values, tuple) else _plain(values)
        return String(self.child % plain)

    def add_string(self, _self: Any, other: Any) -> String:
        """`_self + other`, as texts."""
        return String(_plain(_self) + _plain(other))

    @staticmethod
    def create_pointer(
        obj: Any,
        location: Any = None,
        id_at_location: Any = None,
        register: bool = False,
        owner: Any = None,
        ptr_id: Any = None,
        garbage_collect_data: bool = True,
    ) -> Any:
        """A StringPointer to a text that a worker holds already."""
        return ObjectPointer.create_pointer(
            obj, location, id_at_location, register, owner, ptr_id, garbage_collect_data
        )

    def __eq__(self, other: object) -> bool:
        return bool(self.child == _plain(other))

    def __hash__(self) -> int:
        return hash(self.child)

    def __str__(self) -> str:
        return str(self.child)

    def __repr__(self) -> str:
        return f"String({self.child!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> String:
        return String(self.child, id=self._id, tags=self.tags, description=self.description)


def _plain(value: Any) -> Any:
    if isinstance(value, String):
        return value.child
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _rich(value: Any) -> Any:
    if isinstance(value, str):
        return String(value)
    return type(value)(_rich(v) for v in value) if isinstance(value, (list, tuple)) else value


def _local(name: str) -> Callable[..., Any]:
    function = getattr(str, name)

    def method(self: String, *args: Any, **kwargs: Any) -> Any:
        return _rich(
            function(self.child, *[_plain(a) for a in args], **{k: _plain(v) for k, v in kwargs.items()})
        )

    method.__name__, method.__doc__ = name, function.__doc__
    return method


class StringPointer(ObjectPointer):
    """Points to a String. Methods run there and return pointers; operators, too."""


def _remote(name: str) -> Callable[..., Any]:
    def method(self: StringPointer, *args: Any, **kwargs: Any) -> Any:
        message = CallMethodMessage(
            self.id_at_location,
            name,
            tuple(as_argument(a, self) for a in args),
            {k: as_argument(v, self) for k, v in kwargs.items()},
            ID_PROVIDER.pop(),
        )
        return owned(self._speaker().pointer_from(self.ask(message), self.location))

    method.__name__, method.__doc__ = name, f"str.{name}, where the text is."
    return method


for _name in (*METHODS, *_OPERATORS):
    setattr(String, _name, _local(_name))
for _name in sorted(String.remote_methods):
    setattr(StringPointer, _name, _remote(_name))
POINTERS["string"] = StringPointer
