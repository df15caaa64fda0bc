"""`Writer`: from an object to its simple form, and the raw buffers beside it.

The simple form consists of None, bool, int, float, str and bytes, and of tuples `(code, *contents)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syft.serde.codec_tables import BY_TYPE, Simple, codec_of
from syft.serde.errors import SerdeError, UnserializableError
from syft.serde.limits import DEFAULT_LIMITS, Limits

#: Types that stand for themselves in a header. (An int may be too large for one; bytes may be better outside.)
_THEMSELVES = frozenset({type(None), bool, float, str})
#: Buffers up to this many bytes stand in the header: beside it, each would be padded to the next 64.
INLINE_BYTES = 256


class Writer:
    """One serialisation. `buffers` collects (memory, may it be compressed).

    inline  buffers stand in the simple form itself
    pins    buffers will be looked at after the call that makes them
    keeps_gradients  a leaf goes with its gradient
    """

    __slots__ = (
        "_depth",
        "_objects",
        "buffers",
        "incompressible",
        "inline",
        "keeps_gradients",
        "limits",
        "pins",
        "worker",
    )

    def __init__(
        self,
        worker: Any = None,
        inline: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        pins: bool = False,
        keeps_gradients: bool = False,
    ) -> None:
        self.worker = worker
        self.inline = inline
        self.pins = pins
        self.keeps_gradients = keeps_gradients
        self.limits = limits
        self.buffers: list[tuple[memoryview, bool]] = []
        self.incompressible = 0
        self._depth = 0
        self._objects = 0

    def write(self, obj: Any) -> Simple:
        """The simple form of an object."""
        self._objects += 1
        cls = type(obj)
        if cls in _THEMSELVES:
            return obj
        codec = BY_TYPE.get(cls) or codec_of(cls)
        if codec is None:
            raise UnserializableError(_no_codec(cls))
        self._depth += 1
        if self._depth > self.limits.max_depth or self._objects > self.limits.max_objects:
            self._refuse_size()
        simple = codec.write(self, obj)
        self._depth -= 1
        return simple

    def write_all(self, values: Iterable[Any]) -> list[Simple]:
        """The simple form of each, without a call for those that stand for themselves."""
        simple: list[Simple] = []
        plain = 0
        for obj in values:
            cls = type(obj)
            if cls in _THEMSELVES or (cls is int and -(1 << 63) <= obj < 1 << 64):
                plain += 1
                simple.append(obj)
            else:
                simple.append(self.write(obj))
        self._objects += plain
        if self._objects > self.limits.max_objects:
            self._refuse_size()
        return simple

    def buffer(self, memory: memoryview | bytes, compressible: bool = True) -> Simple:
        """What stands for raw memory: its number among the buffers, or the bytes themselves."""
        if self.inline or len(memory) <= INLINE_BYTES:
            return bytes(memory)
        self.buffers.append((memoryview(memory), compressible and not self.incompressible))
        return len(self.buffers) - 1

    def _refuse_size(self) -> None:
        limits = self.limits
        if self._depth > limits.max_depth:
            raise SerdeError(
                f"The object is nested deeper than {limits.max_depth} levels, or contains itself. Flatten it, or "
                "send its parts one by one."
            )
        raise SerdeError(
            f"The object has more than {limits.max_objects} parts. Put numbers into a tensor instead of a list, "
            "or send the parts one by one."
        )


def _no_codec(cls: type) -> str:
    name = f"{cls.__module__}.{cls.__qualname__}"
    near = next((base for base in cls.__mro__[1:] if base in BY_TYPE or base in _THEMSELVES), None)
    cure = (
        f"Convert it to a {near.__name__} first"
        if near is not None
        else "Send what it is made of (numbers, strings, tensors, containers of them)"
    )
    return f"A {name} cannot be serialised. {cure}, or register its type with syft.serde.register."
