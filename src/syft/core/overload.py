"""`@overloaded.method`, `.function` and `.module`: how a tensor type changes public torch names.

    class Shouting(AbstractTensor):
        @overloaded.method                      # self: this node; _self and other: one level down
        def add(self, _self, other):
            return _self.add(other)

        @staticmethod
        @overloaded.module
        def torch(module):
            @overloaded.function                # arguments are one level down
            def mul(x, y):
                return x * y
            module.mul = mul

            def exp(x):                         # arguments are the nodes themselves
                return x + 1
            module.exp = exp

A name that is not overloaded goes to the dispatcher, and from there to `AbstractTensor.interpret`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syft.core.public_names import METADATA_METHODS, function_named, is_property_access, names_of
from syft.exceptions import UnknownCommandError

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


class Overloaded:
    """The decorators. `overloaded` is the instance to use."""

    def __init__(self) -> None:
        self.method = Overloaded.overload_method
        self.function = Overloaded.overload_function
        self.module = Overloaded.overload_module

    @staticmethod
    def overload_method(attr: Callable[..., Any]) -> Callable[..., Any]:
        """Overload a method: `attr(self, child of self, children of the arguments)`."""
        overload = Overload(attr, BELOW_WITH_SELF, attr.__name__)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            from syft.core.levels import call_on_nodes

            return call_on_nodes(type(self), overload, (self, *args), kwargs)

        return _marked(call, overload)

    @staticmethod
    def overload_function(attr: Callable[..., Any]) -> Callable[..., Any]:
        """Overload a function of a module: `attr(children of the arguments)`."""
        overload = Overload(attr, BELOW, attr.__name__)

        def call(*args: Any, **kwargs: Any) -> Any:
            from syft.core.chain import first_node
            from syft.core.levels import call_on_nodes

            return call_on_nodes(type(first_node(args, kwargs)), overload, args, kwargs)

        return _marked(call, overload)

    @staticmethod
    def overload_module(attr: Callable[[Module], Any]) -> Module:
        """Overload functions of a module: `attr` puts them on the `Module` it is given."""
        module = Module()
        attr(module)
        return module


def overloads_chain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function of an overloaded module that takes the chains exactly as the user passed them."""
    return _marked(function, Overload(function, CHAINS, function.__name__))


def _marked(call: Callable[..., Any], overload: Overload) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = overload.name
    call.__doc__ = overload.function.__doc__
    call.overload = overload  # type: ignore[attr-defined]
    return call


overloaded = Overloaded()


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


def run_public_command(cls: Any, command: tuple[str, Any, tuple[Any, ...], dict[str, Any]]) -> Any:
    """Run the public function named in `command` (name, self, args, kwargs) on nodes or chains."""
    from syft.core.levels import on_bare_nodes

    name, method_self, args, kwargs = command
    func = function_named(name)
    if func is None:
        raise UnknownCommandError(name)
    if method_self is not None:
        args = (method_self, *args)
    return on_bare_nodes(func, tuple(args), dict(kwargs or {}))
