"""`FrameworkHook`: torch's functions and methods by name, as callables that work on every kind of tensor.

The callables need no interception: torch asks the tensors themselves. They exist because programs ask for
them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.levels import on_bare_nodes
from syft.core.public_names import function_named
from syft.exceptions import UnknownCommandError
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor

Hooked = Callable[..., Any]


def _resolve(attr: Any) -> Callable[..., Any]:
    found: Callable[..., Any] | None = attr if callable(attr) else function_named(attr)
    if found is None:
        raise UnknownCommandError(attr)
    return found


def _named(function: Hooked, name: str, kind: str) -> Hooked:
    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__doc__ = f"{name} on {kind}."
    return function


class FrameworkHook:
    """Hooked callables by name."""

    @classmethod
    def create_shape(cls, shape_dims: Any) -> Any:
        """A shape in torch's own type."""
        return torch.Size(shape_dims)

    @classmethod
    def create_wrapper(cls, wrapper_type: Any, *args: Any, **kwargs: Any) -> Any:
        """An empty wrapper, to be given a child."""
        return wrapper_type(*args, **kwargs)

    @classmethod
    def create_zeros(cls, shape: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return torch.zeros(shape, dtype=dtype, **kwargs)

    @classmethod
    def get_hooked_func(cls, attr: Any) -> Hooked:
        """A torch function ('torch.add', or the function) that takes plain tensors, chains and bare nodes."""
        function = _resolve(attr)

        def hooked(*args: Any, **kwargs: Any) -> Any:
            return on_bare_nodes(function, args, kwargs)

        return _named(hooked, getattr(function, "__name__", str(attr)), "any kind of tensor")

    @classmethod
    def _get_hooked_func(cls, public_module_name: str, func_api_name: str, attr: Any) -> Hooked:
        """The same for the function `attr`, known to users as `func_api_name` of `public_module_name`."""
        name = func_api_name if "." in func_api_name else f"{public_module_name}.{func_api_name}"
        return _named(cls.get_hooked_func(attr if callable(attr) else name), name, "any kind of tensor")

    @classmethod
    def get_hooked_method(cls, method_name: str) -> Hooked:
        """A method for plain tensors and chains, by name: `f(self, *args, **kwargs)`."""
        function = _resolve(method_name)

        def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
            return on_bare_nodes(function, (self, *args), kwargs)

        return _named(hooked, method_name, "torch tensors and chains")

    @classmethod
    def get_hooked_syft_method(cls, attr: str) -> Hooked:
        """A method for bare nodes of a chain; returns bare nodes."""
        return cls._method_of(AbstractTensor, attr)

    @classmethod
    def get_hooked_pointer_method(cls, attr: str) -> Hooked:
        """A method for bare PointerTensors: runs where they point to."""
        return cls._method_of(PointerTensor, attr)

    @classmethod
    def get_hooked_multi_pointer_method(cls, attr: str) -> Hooked:
        """A method for bare MultiPointerTensors: runs on every worker."""
        return cls._method_of(MultiPointerTensor, attr)

    @classmethod
    def get_hooked_additive_shared_method(cls, attr: str) -> Hooked:
        """A method for bare nodes that stand for shares: runs on every share holder."""
        return cls._method_of(AbstractTensor, attr)

    @classmethod
    def _method_of(cls, kind: type, attr: str) -> Hooked:
        function = _resolve(attr)

        def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(self, kind):
                raise TypeError(
                    f"This {attr} is for a {kind.__name__} and was called on a {type(self).__name__}. "
                    f"Call tensor.{attr}(...) itself, which takes every kind."
                )
            return on_bare_nodes(function, (self, *args), kwargs)

        return _named(hooked, attr, f"a bare {kind.__name__}")

    _get_hooked_method = get_hooked_method
    _get_hooked_syft_method = get_hooked_syft_method
    _get_hooked_pointer_method = get_hooked_pointer_method
    _get_hooked_multi_pointer_method = get_hooked_multi_pointer_method
    _get_hooked_additive_shared_method = get_hooked_additive_shared_method
