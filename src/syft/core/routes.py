"""Overloads of public torch names, as records: which function of a type takes a call, and what it is handed.

How they are written is said in `syft.core.overload`, how they are called is `syft.core.levels`'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syft.core.public_names import METADATA_METHODS, is_property_access, names_of

#: What an overload is handed: the level below (with or without the node itself), the nodes, or the chains.
BELOW_WITH_SELF, BELOW, NODES, CHAINS = "below with self", "below", "nodes", "chains"


@dataclass(frozen=True)
class Overload:
    """One public name as a tensor type overloads it."""

    function: Callable[..., Any]
    takes: str
    name: str = ""


class Module:
    """A namespace of overloaded functions, filled by a function decorated with `@overloaded.module`."""

    def __call__(self, module: Any) -> None:
        """Put the functions into another namespace."""
        for name, function in vars(self).items():
            setattr(module, name, function)


def collect_overloads(cls: type) -> dict[str, Overload]:
    """The overloads written in the body of a class, by public name."""
    found: dict[str, Overload] = {}
    for name, value in vars(cls).items():
        value = getattr(value, "__func__", value)  # staticmethod
        if isinstance(value, Module):
            _collect_module(name, value, found)
        elif hasattr(value, "overload"):
            found[name] = Overload(value.overload.function, value.overload.takes, name)
    return found


def _collect_module(path: str, module: Module, found: dict[str, Overload]) -> None:
    for name, value in vars(module).items():
        full = f"{path}.{name}"
        if isinstance(value, Module):
            _collect_module(full, value, found)
        elif hasattr(value, "overload"):
            found[full] = Overload(value.overload.function, value.overload.takes, full)
        elif callable(value):
            found[full] = Overload(value, NODES, full)


#: A type's answer for a function it does not overload but wants to hear of.
OBSERVE = Overload(lambda: None, "observe")


def route(cls: Any, func: Any) -> Overload | None:
    """How `cls` treats the public function `func`; resolved once per type and function."""
    try:
        return cls.public_routes[func]  # type: ignore[no-any-return]
    except KeyError:
        pass
    answer = None
    if not is_property_access(func):
        for name in names_of(func):
            answer = cls.public_overloads.get(name)
            if answer is not None:
                break
        else:
            if cls.observes_calls and names_of(func)[0] not in METADATA_METHODS:
                answer = OBSERVE
    cls.public_routes[func] = answer
    return answer
