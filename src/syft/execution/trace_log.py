"""A list of the torch functions that were called, for people to look at. Plans are built by `syft.execution.trace`.

log = Trace()
with log.enabled():
    (x + 1).sum()
log.logs    # [(("add", x, (1,), {}), tensor), (("sum", tensor, (), {}), tensor)]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from syft.core.public_names import is_property_access
from syft.execution.vocabulary import METADATA, name_of

#: The logs that are switched on in this context, the innermost last.
_active: ContextVar[tuple[Trace, ...]] = ContextVar("active_traces", default=())


class Trace:
    """What was called while it was switched on.

    logs    pairs of a command (name, self, args, kwargs) and what it returned
    """

    def __init__(self) -> None:
        self.active = False
        self.out_of_operation = True
        self.logs: list[tuple[tuple[Any, ...], Any]] = []

    def clear(self) -> None:
        """Forget what was called."""
        self.logs = []

    @contextmanager
    def enabled(self) -> Iterator[Trace]:
        """Write down every public torch function that is called inside."""
        before = _active.set((*_active.get(), self))
        self.active = True
        try:
            with _Listening(self):
                yield self
        finally:
            _active.reset(before)
            self.active = self in _active.get()

    def note(self, command: tuple[Any, ...], response: Any) -> None:
        self.logs.append((command, response))


class _Listening(TorchFunctionMode):
    def __init__(self, log: Trace) -> None:
        super().__init__()
        self.log = log

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.log.out_of_operation = False
        try:
            result = func(*args, **kwargs)
        finally:
            self.log.out_of_operation = True
        name = "" if is_property_access(func) else name_of(func)
        if name and name not in METADATA:
            is_method = not name.startswith("torch.") and bool(args) and isinstance(args[0], torch.Tensor)
            target, rest = (args[0], tuple(args[1:])) if is_method else (None, tuple(args))
            self.log.note((name, target, rest, dict(kwargs)), result)
        return result


def tracer(
    func_name: str | None = None, method_name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: calls of the function are written down, under this name, by the logs that are switched on.

    With `method_name` the first argument is the object that the method belongs to.
    """
    if (func_name is None) == (method_name is None):
        raise TypeError("tracer() takes func_name or method_name, and one of them only.")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            for log in _active.get():
                target, rest = (None, args) if method_name is None else (args[0], args[1:])
                log.note((func_name or method_name, target, tuple(rest), dict(kwargs)), result)
            return result

        return call

    return decorate
