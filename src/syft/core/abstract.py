"""`AbstractTensor`: the base of every tensor type that can stand in a chain.

What a chain is, and what its links are asked, is said in `syft.core.node`. Here is what a link does with chains: it
stands on one, is wrapped for torch, and is called by any function of torch.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.levels import on_bare_nodes, put_on_top, wrap_node
from syft.core.node import MISSED as MISSED
from syft.core.node import Command as Command
from syft.core.node import Node
from syft.core.objects import initialize_object
from syft.core.public_names import function_named
from syft.exceptions import ChainError, NoRemoteValueError, UnknownCommandError


class AbstractTensor(Node):
    """One link of a chain. Subclass it, overload some names, register it: that is a new tensor type."""

    # -- building chains ---------------------------------------------------------------------------

    def on(self, tensor: Any, wrap: bool = True) -> Any:
        """Put this node on top of `tensor` (below its wrapper, if it has one); returns the new chain.

        A leaf that requires grad gives a leaf that requires grad. A tensor with a history stays
        connected to it.
        """
        if isinstance(tensor, torch.Tensor):
            return put_on_top(self, tensor, wrap)
        if not isinstance(tensor, AbstractTensor):
            raise ChainError(
                f"{type(self).__name__}().on() was given a {type(tensor).__name__}. It stands on tensors: pass "
                "torch.tensor(value), or a chain."
            )
        self.child = tensor
        return self.wrap() if wrap else self

    def wrap(self, type: Any = None, register: bool = False, **kwargs: Any) -> torch.Tensor:
        """This node as something torch understands: `Wrapper > self > ...`; `register` makes its owner keep it."""
        chain = wrap_node(self)
        if register:
            self.owner.register_obj(chain, self.id)
        return chain

    @property
    def grad(self) -> Any:
        """The gradient that torch keeps for the chain of this node; None if it has none."""
        chain = self.chain()
        return None if chain is None else chain.grad

    @grad.setter
    def grad(self, value: Any) -> None:
        chain = self.chain()
        if chain is None:
            raise ChainError(
                f"`.grad` of a bare {type(self).__name__} was set, and its chain is gone or never was. Gradients belong "
                "to chains: set `.grad` of the tensor whose `.child` it is."
            )
        if isinstance(value, AbstractTensor):
            value = value.wrap()
        chain.grad = value

    # -- calls -----------------------------------------------------------------------------------------

    @classmethod
    def handle_func_command(cls, command: Command) -> Any:
        """Run the public torch function named in `command` on nodes or chains of this type."""
        return run_public_command(cls, command)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Any torch function takes a bare node: it is wrapped for the call and unwrapped after."""
        return on_bare_nodes(func, args, kwargs or {})

    def copy(self) -> Any:
        """A copy, with a value of its own."""
        return torch.clone(self)  # type: ignore[arg-type]

    def refresh(self) -> Any:
        """The same node over fresh shares; only secrets have them."""
        if not isinstance(self.child, AbstractTensor):
            raise ChainError(
                f"refresh() was called on a {type(self).__name__} without shares. Call share(...) first."
            )
        return self.like(self.child.refresh())

    # -- moving ------------------------------------------------------------------------------------

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Fetch what the chain points to; the types above the pointer stay on top."""
        return self.like(_as_child(self.child.get(*args, **kwargs))).wrap()

    def place(self) -> AbstractTensor:
        """Something like this node that holds no value: it can only `put_back`."""
        return self.like(self.child.place())

    def get_garbage_collect_data(self) -> bool:
        """Whether the remote values below go when the last reference to them goes."""
        return bool(self._remote_child("get_garbage_collect_data").get_garbage_collect_data())

    def set_garbage_collect_data(self, value: bool) -> None:
        """Choose whether the remote values below go when the last reference to them goes."""
        self._remote_child("set_garbage_collect_data").set_garbage_collect_data(value)

    def _remote_child(self, request: str) -> Any:
        if not self.is_remote:
            raise NoRemoteValueError(request, f"a {type(self).__name__} on this machine")
        return self.child

    def put_back(self, value: Any) -> AbstractTensor:
        """The inverse of `get`: a local value (a node of this type, or a plain tensor) where this chain keeps its own."""
        below = value.child if type(value) is type(self) else value
        return self.like(self.child.put_back(below))


def run_public_command(cls: Any, command: Command) -> Any:
    """Run the public function named in `command` (name, self, args, kwargs) on nodes or chains."""
    name, method_self, args, kwargs = command
    func = function_named(name)
    if func is None:
        raise UnknownCommandError(name)
    if method_self is not None:
        args = (method_self, *args)
    return on_bare_nodes(func, tuple(args), dict(kwargs or {}))


def initialize_tensor(
    hook: Any, obj: Any, owner: Any = None, id: Any = None, init_args: Any = (), init_kwargs: Any = None
) -> Any:
    """Give a tensor an owner and an id, and let the owner keep it. A tensor is made already: it takes no arguments."""
    if init_args or init_kwargs:
        raise TypeError(
            "initialize_tensor() was given arguments for a tensor that is made already. Leave them out."
        )
    initialize_object(hook, obj, owner, False, id)
    obj.owner.register_obj(obj, obj.id)
    return obj


def _as_child(value: Any) -> Any:
    return value.child if getattr(value, "is_wrapper", False) else value
