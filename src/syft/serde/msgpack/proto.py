"""The number of each type that travels."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from syft.exceptions import UndefinedProtocolTypeError, UndefinedProtocolTypePropertyError
from syft.serde.codec_tables import BY_FAMILY, BY_TYPE, codec_of

#: Types that are taken apart here, in the order of their numbers.
NATIVE: tuple[type, ...] = (
    dict,
    list,
    range,
    set,
    slice,
    str,
    tuple,
    type(...),
    np.ndarray,
    np.float32,
    np.float64,
    np.int32,
    np.int64,
    torch.Tensor,
    torch.nn.Parameter,
    torch.device,
    torch.Size,
    torch.memory_format,
)
#: Types that are in simple form already.
PRIMITIVES: frozenset[type] = frozenset({type(None), bool, int, float, bytes})
_FORCED = 1 << 16


class TypeInfo:
    """What is known of a type by its name: its `code`, and the `forced_code` of its full form if it has one."""

    def __init__(self, name: str, obj: dict[str, int]) -> None:
        self.name, self.obj = name, obj

    @property
    def code(self) -> int:
        """The number of the type."""
        return self._property("code")

    @property
    def forced_code(self) -> int:
        """The number of the full form of the type: that of a worker with all that it holds."""
        return self._property("forced_code")

    def _property(self, name: str) -> int:
        if name not in self.obj:
            raise UndefinedProtocolTypePropertyError(f"The type {self.name} has no {name}.")
        return self.obj[name]


def fullname(cls: type) -> str:
    """The module and the name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def proto_type_info(cls: type) -> TypeInfo:
    """The numbers of a type, or of the one it inherits them from. !! UndefinedProtocolTypeError if it does not travel"""
    found = codec_of(cls)
    code = codes().get(cls) or (None if found is None else codes().get(found.cls))
    if code is None:
        raise UndefinedProtocolTypeError(
            f"Objects of {fullname(cls)} do not travel. Register the type: syft.serde.register({cls.__name__}, ...)."
        )
    numbers = {"code": code}
    if hasattr(cls, "force_simplify"):
        numbers["forced_code"] = _FORCED + code
    return TypeInfo(fullname(cls), numbers)


def codes() -> dict[type, int]:
    """The number of each type; types that are registered later are counted then."""
    return _counted(len(BY_TYPE) + len(BY_FAMILY))


@cache
def _counted(_how_many: int) -> dict[type, int]:
    registered: list[Any] = sorted({*BY_TYPE, *BY_FAMILY} - set(NATIVE) - PRIMITIVES, key=fullname)
    return {cls: number for number, cls in enumerate((*NATIVE, *registered), start=1)}


def type_of(code: Any) -> tuple[type, bool]:
    """The type that a number stands for, and whether it is that of its full form."""
    is_forced = type(code) is int and code > _FORCED
    number = code - _FORCED if is_forced else code
    found = next((cls for cls, own in codes().items() if own == number), None)
    if found is None:
        raise UndefinedProtocolTypeError(f"{code!r} is the number of no type.")
    return found, is_forced
