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
from typing import Any

from syft.core.chain import first_node
from syft.core.levels import call_on_nodes
from syft.core.routes import BELOW, BELOW_WITH_SELF, CHAINS, Overload
from syft.core.routes import Module as Module


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
            return call_on_nodes(type(self), overload, (self, *args), kwargs)

        return _marked(call, overload)

    @staticmethod
    def overload_function(attr: Callable[..., Any]) -> Callable[..., Any]:
        """Overload a function of a module: `attr(children of the arguments)`."""
        overload = Overload(attr, BELOW, attr.__name__)

        def call(*args: Any, **kwargs: Any) -> Any:
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
