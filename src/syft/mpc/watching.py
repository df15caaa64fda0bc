"""Where operations on fixed precision and on secrets are watched: for bills (`metering`) and for checks (`checking`)."""

from __future__ import annotations

from typing import Any

from syft.mpc import checking, metering


def is_on() -> bool:
    """Whether anybody watches in this thread. Asked at every operation."""
    return checking.is_checking() or metering.is_measuring()


def interpreted(cls: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls._interpreted(func, args, kwargs)`, watched. An operation inside another is part of that."""
    with metering.operation(_name(func)):
        return checking.checked_call(cls, func, args, kwargs)


def _name(func: Any) -> str:
    return str(func._schema.name).rpartition("::")[2]
