"""`OddSharingTensor`: a secret shared in Z_(2^64 - 1), as share_convert leaves it and msb takes it."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from syft.core.hook_args import (
    get_child,
    one,
    register_backward_func,
    register_forward_func,
    register_type_rule,
)
from syft.exceptions import UnsupportedOperationError
from syft.mpc.protocols.securenn import odd_add
from syft.mpc.shared_node import SharedNode
from syft.mpc.sharing import AdditiveSharingTensor


class OddSharingTensor(SharedNode):
    """Two shares that add up to the secret modulo 2^64 - 1. It can be opened and given to msb, no more."""

    field = 2**64 - 1

    @classmethod
    def over(cls, node: AdditiveSharingTensor) -> OddSharingTensor:
        """Shares that a program left in a node of the even ring, under their right name."""
        return cls(node.child, node.crypto_provider)

    @classmethod
    def interpret(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        raise UnsupportedOperationError(
            str(func),
            cls,
            "It is for msb(...) and .get() only; compute with the tensor that went into share_convert.",
        )

    def get_class_attributes(self) -> dict[str, Any]:
        return {"crypto_provider": self.crypto_provider}

    def get(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The secret as a signed integer; the shares are removed at the holders."""
        return odd_add(*(pointer.get_share() for pointer in self.pointers))

    def virtual_get(self) -> torch.Tensor:
        """The secret, read from holders in this process; the shares stay (for tests and debugging)."""
        return odd_add(*self.group.read(self))

    def __str__(self) -> str:
        return "[OddSharingTensor]" + "".join(f"\n\t-> {pointer}" for pointer in self.pointers)

    __repr__ = __str__


register_type_rule({OddSharingTensor: one})
register_forward_func({OddSharingTensor: get_child})
register_backward_func({OddSharingTensor: lambda node, **_kwargs: node})
