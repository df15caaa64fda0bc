"""`LoggingTensor`: says what is done to it, then does it.

The example to read before writing a tensor type of your own: it overloads a method, functions of
`torch` and of `torch.nn.functional`, and listens to everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from syft.core.abstract import AbstractTensor, Command
from syft.core.hook_args import default_register_tensor, hook_response, unwrap_args_from_method
from syft.core.overload import Module, overloaded


class LoggingTensor(AbstractTensor):
    """Prints the public name of every operation. Set `LoggingTensor.sink = None` to keep it quiet."""

    #: Where the lines go.
    sink: ClassVar[Callable[[str], Any] | None] = print

    @classmethod
    def say(cls, line: str) -> None:
        if cls.sink is not None:
            cls.sink(line)

    @overloaded.method
    def add(self: Any, _self: Any, *args: Any, **kwargs: Any) -> Any:
        """`self` is this node; `_self` and the arguments are already one level down."""
        self.say("Log method add")
        return _self.add(*args, **kwargs)

    def manual_add(self, *args: Any, **kwargs: Any) -> Any:
        """`add` written by hand: unwrap the arguments, call the level below, wrap what it returns."""
        new_self, new_args, new_kwargs = unwrap_args_from_method("add", self, args, kwargs)
        self.say("Log method manual_add")
        return hook_response("add", new_self.add(*new_args, **new_kwargs), wrap_type=type(self))

    @staticmethod
    @overloaded.module
    def torch(module: Module) -> None:
        @overloaded.function
        def add(x: Any, *args: Any, **kwargs: Any) -> Any:
            """With `@overloaded.function` the arguments are one level down, too."""
            import torch

            LoggingTensor.say("Log function torch.add")
            return torch.add(x, *args, **kwargs)

        module.add = add  # type: ignore[attr-defined]

        @overloaded.module
        def nn(module: Module) -> None:
            @overloaded.module
            def functional(module: Module) -> None:
                @overloaded.function
                def relu(x: Any, inplace: bool = False) -> Any:
                    import torch

                    LoggingTensor.say("Log function torch.nn.functional.relu")
                    return torch.nn.functional.relu(x, inplace)

                module.relu = relu  # type: ignore[attr-defined]

            module.functional = functional  # type: ignore[attr-defined]

        module.nn = nn  # type: ignore[attr-defined]

    @classmethod
    def on_function_call(cls, command: Command) -> None:
        """Everything that is not overloaded above."""
        name, _, _, _ = command
        cls.say(f"Default log {name}")


default_register_tensor(LoggingTensor)
