"""`AutogradTensor`: a node with a name for chains that are meant to be differentiated.

It computes no gradient, because there is none left to compute: torch's autograd sits above every chain
and differentiates the `Wrapper`, whatever stands below (see NOTE [Levels and autograd] in
`syft.core.chain`). Programs that put an `AutogradTensor` into their chains keep working, and find the
gradient where torch keeps it, in `.grad` of the wrapper, or in `.grad` of the node.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, map_tensors, new_wrapper
from syft.core.hook_args import default_register_tensor
from syft.core.overload import Module, overloaded
from syft.exceptions import ChainError


class AutogradTensor(AbstractTensor):
    """Asks torch to follow the chain it is put on.

    data                what the node stands on; or leave it out and call `.on(tensor)`
    requires_grad       the chain is a leaf that collects a gradient (data that has none, integers, stays as it is)
    retain_grad         a chain that is not a leaf keeps its gradient, too
    preinitialize_grad  a leaf has a gradient of zeros at once
    """

    def __init__(
        self,
        data: Any = None,
        requires_grad: bool = True,
        owner: Any = None,
        id: Any = None,
        preinitialize_grad: bool = False,
        retain_grad: bool = False,
        **kwargs: Any,
    ) -> None:
        if data is not None:
            kwargs["child"] = data.child if getattr(data, "is_wrapper", False) else data
        super().__init__(owner=owner, id=id, **kwargs)
        self.requires_grad = requires_grad
        self.retain_grad = retain_grad
        self.preinitialize_grad = preinitialize_grad

    def get_class_attributes(self) -> dict[str, Any]:
        # Whether a result is followed is torch's decision, not the node's.
        return {"requires_grad": False}

    def on(self, tensor: Any, wrap: bool = True) -> Any:
        chain = super().on(tensor, wrap)
        return self._followed(chain) if wrap and isinstance(tensor, torch.Tensor) else chain

    def wrap(self, type: Any = None, register: bool = False, **kwargs: Any) -> torch.Tensor:
        return self._followed(super().wrap(type, register, **kwargs))

    def _followed(self, chain: torch.Tensor) -> torch.Tensor:
        if self.requires_grad and (chain.is_floating_point() or chain.is_complex()):
            chain.requires_grad_()
        if self.retain_grad and chain.requires_grad:
            chain.retain_grad()
        if self.preinitialize_grad and chain.requires_grad and chain.is_leaf and chain.grad is None:
            chain.grad = torch.zeros_like(chain)
        self.belong_to(chain)
        return chain

    # -- what programs ask of the node instead of the chain ------------------------------------------

    @property
    def data(self) -> AutogradTensor:
        """The same value without its history. A node has no history: that is the wrapper's."""
        return self

    @data.setter
    def data(self, new_data: Any) -> None:
        chain = self.chain()
        if chain is None:
            self.child = new_data.child if type(new_data) in (Wrapper, AutogradTensor) else new_data
        else:
            chain.data = new_data if isinstance(new_data, torch.Tensor) else new_wrapper(new_data)
            self.child = chain.child.child
            chain.child = self

    def attr(self, attr_name: str) -> Any:
        """`grad` of the chain; every other attribute is asked of the remote tensor below."""
        if attr_name == "grad":
            return self.grad
        return new_wrapper(self.child).attr(attr_name)  # type: ignore[attr-defined]

    def backward(self, grad: Any = None) -> None:
        """Differentiate the chain of this node."""
        chain = self.chain()
        if chain is None:
            raise ChainError(
                "backward() was called on a bare AutogradTensor whose chain is gone, and the chain has the history. "
                "Call `.backward()` on the tensor that the operation returned."
            )
        chain.backward(grad)

    def float_precision(self) -> Any:
        """The values below in floating point."""
        return self.wrap().float_precision()  # type: ignore[attr-defined]

    float_prec = float_precision

    @staticmethod
    @overloaded.module
    def torch(module: Module) -> None:
        """No function of torch is different: gradients are its own."""

    # -- chains with and without this node go together -----------------------------------------------

    @classmethod
    def takes_in(cls, other: type) -> bool:
        """Every type but those that listen to public names, which would not be told."""
        return issubclass(other, AbstractTensor) and (other.observes_from_above or not other.observes_calls)

    @classmethod
    def is_transparent(cls) -> bool:
        return True

    @classmethod
    def pass_on(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().pass_on(func, map_tensors(_lifted, tuple(args)), map_tensors(_lifted, kwargs))


def _lifted(node: Any) -> Any:
    """A node of another type as it stands below an AutogradTensor."""
    if isinstance(node, AbstractTensor) and type(node) is not AutogradTensor:
        return AutogradTensor(requires_grad=False, child=node)
    return node


default_register_tensor(AutogradTensor)
