"""`fix_precision(storage=...)`: which type holds the integers of a tensor in fixed precision.

    "auto"    int64, unless the arguments ask for more (`internal_type=`, or a unit smaller than 2^-62): then "large"
    "large"   LargePrecisionTensor: several limbs each, numbers of any size
    "crt"     CRTPrecisionTensor: residues modulo several primes

A type that can be chosen derives from `StoredNumbers` and adds its function to `STORAGES`.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.levels import on_bare_nodes
from syft.exceptions import ChainError
from syft.mpc.made_there import is_open_there, made_there

#: name -> function(plain tensor, precision_fractional, base, **options) that returns a chain.
STORAGES: dict[str, Callable[..., Any]] = {}
#: Options that only one storage has.
_OPTIONS = {"internal_type": "large", "field_type": "crt"}


class LargePrecisionWarning(UserWarning):
    """What `verbose=True` tells: limbs were chosen without being asked for, or a result does not fit a float."""


class StoredNumbers(AbstractTensor):
    """A type that encodes reals in a form of its own.

    A result that is a view for torch (x[0], x.t()) has elements of its own here, so nothing is written in place while
    somebody holds another view of the same values: `check_writable`.
    """

    passes_unknown_ops = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        #: Nodes that are views of this one, and the node that this one is a view of.
        self.views: weakref.WeakSet[StoredNumbers] = weakref.WeakSet()
        self.viewed: StoredNumbers | None = None

    def note_view(self, view: StoredNumbers) -> None:
        """Remember that `view` has the values of this node."""
        base = self.viewed or self
        base.views.add(view)
        view.viewed = base

    def check_writable(self, method: str, made: AbstractTensor) -> None:
        """!! unless what a method made can be written into this node."""
        if self.viewed is not None or len(self.views):
            raise ChainError(
                f"{method}_() was called on a {type(self).__name__} that shares its values with a view (x[0], "
                "x.t(), ...). "
                "Those would not see the change: write x = x + y, or clone() first."
            )
        if made.shape != self.shape:
            raise RuntimeError(
                f"{method}_() would make a tensor of shape {tuple(made.shape)} of one of shape {tuple(self.shape)}."
            )

    def decode(self) -> torch.Tensor:
        """The values as a plain tensor."""
        raise NotImplementedError

    def shared_by(self, share: Callable[[torch.Tensor], Any]) -> AbstractTensor:
        """A node over secrets; `share` makes a secret of an int64 tensor."""
        raise NotImplementedError

    def virtual_get(self) -> AbstractTensor:
        """A node over what the secrets hold, which stay; only for workers in this process."""
        raise NotImplementedError


def with_any_integer(name: str) -> Any:
    """torch's method for chains and bare nodes, where `other` may be an integer that torch has no type for."""
    method = getattr(torch.Tensor, name)

    def call(self: Any, other: Any, **kwargs: Any) -> Any:
        if type(other) is int and not -(2**63) <= other < 2**63:
            head = self.child if isinstance(self, Wrapper) else self
            other = new_wrapper(head.over(head.encode(other)))
        if isinstance(self, AbstractTensor) or isinstance(other, AbstractTensor):
            return on_bare_nodes(method, (self, other), kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            return method(self, other, **kwargs)

    call.__doc__ = f"torch.Tensor.{name}, for integers of any size, too."
    return call


def stored(tensor: Any) -> StoredNumbers | None:
    """The head of a chain if it is such a type."""
    head = tensor.child if type(tensor) is Wrapper else None
    return head if isinstance(head, StoredNumbers) else None


def encoded_in(
    tensor: Any, storage: str, precision_fractional: Any, base: Any, options: dict[str, Any]
) -> Any:
    """The chain of another storage than int64, or None if int64 does; !! for options that nobody has."""
    if storage != "auto" and storage not in STORAGES:
        names = ", ".join(repr(name) for name in ("auto", *sorted(STORAGES)))
        raise ValueError(f"fix_precision(storage={storage!r}): the storages are {names}.")
    options = {name: value for name, value in options.items() if value is not None}
    chosen = storage
    if storage == "auto":
        asked = {owner for name, owner in _OPTIONS.items() if name in options}
        chosen = (
            asked.pop()
            if len(asked) == 1
            else "large"
            if _needs_limbs(precision_fractional, base)
            else storage
        )
    for name, owner in _OPTIONS.items():
        if name in options and owner != chosen:
            raise TypeError(
                f"fix_precision({name}=...) belongs to storage={owner!r}, and storage={storage!r} was asked "
                "for. Leave one "
                "of them out."
            )
    head = stored(tensor)
    if head is not None:
        raise ChainError(
            f"This tensor is a {type(head).__name__} already. Call float_precision() first to change it."
        )
    if chosen == "auto":
        return _checked(options)
    if (
        storage == "auto"
        and "internal_type" not in options
        and chosen == "large"
        and options.get("verbose", True)
    ):
        warnings.warn(
            f"fix_precision(base={base}, precision_fractional={precision_fractional}) does not fit 64 bits: "
            "the tensor is "
            "kept as a LargePrecisionTensor, which is slower. Say storage='large', or verbose=False, if that is meant.",
            LargePrecisionWarning,
            stacklevel=4,
        )
    if is_open_there(tensor) and not tensor.requires_grad:
        return made_there(tensor, "fix_precision", precision_fractional, base, storage=chosen, **options)
    if type(tensor) is Wrapper:
        raise ChainError(
            f"fix_precision(storage={chosen!r}) was called on a chain that begins with {type(tensor.child).__name__}. It "
            "encodes plain tensors: encode where the values are, then send or share."
        )
    return STORAGES[chosen](tensor, precision_fractional, base, **options)


def _needs_limbs(precision_fractional: Any, base: Any) -> bool:
    """Whether a unit is so small that a machine word holds no numbers in it."""
    return bool(base >= 2 and precision_fractional * math.log2(base) >= 62)


def _checked(options: dict[str, Any]) -> None:
    """Refuse options that int64 does not have."""
    unknown = set(options) - {"verbose", "field"}
    if unknown:
        raise TypeError(f"fix_precision() has no argument {min(unknown)!r}.")
