"""`AutogradTensor`: a node with a name for chains that are meant to be differentiated.

It computes no gradient, because there is none left to compute: torch's autograd sits above every chain
and differentiates the `Wrapper`, whatever stands below (see NOTE [Levels and autograd] in
`syft.core.chain`). Programs that put an `AutogradTensor` into their chains keep working, and find the
gradient where torch keeps it, in `.grad` of the wrapper.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor


class AutogradTensor(AbstractTensor):
    """Asks torch to follow the chain it is put on.

    data           what the node stands on; or leave it out and call `.on(tensor)`
    requires_grad  the chain is a leaf that collects a gradient (data that has none, integers, stays as it is)
    retain_grad    a chain that is not a leaf keeps its gradient, too
    """

    def __init__(
        self, data: Any = None, requires_grad: bool = True, retain_grad: bool = False, **kwargs: Any
    ) -> None:
        if data is not None:
            kwargs["child"] = data.child if getattr(data, "is_wrapper", False) else data
        super().__init__(**kwargs)
        self.requires_grad = requires_grad
        self.retain_grad = retain_grad

    def get_class_attributes(self) -> dict[str, Any]:
        # Whether a result is followed is torch's decision, not the node's.
        return {"requires_grad": False}

    def on(self, tensor: Any, wrap: bool = True) -> Any:
        chain = super().on(tensor, wrap)
        return self._followed(chain) if wrap and isinstance(tensor, torch.Tensor) else chain

    def wrap(self, type: Any = None, **kwargs: Any) -> torch.Tensor:
        return self._followed(super().wrap(type, **kwargs))

    def _followed(self, chain: torch.Tensor) -> torch.Tensor:
        if self.requires_grad and (chain.is_floating_point() or chain.is_complex()):
            chain.requires_grad_()
        if self.retain_grad and chain.requires_grad:
            chain.retain_grad()
        return chain


default_register_tensor(AutogradTensor)
