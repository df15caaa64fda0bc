"""What the documented functions take: a shared tensor as a node or a chain, workers by object or id.

A function computes on the AdditiveSharingTensor and gives back what it was given: a node for a node, a chain
for a chain, reals in fixed precision for those where that makes sense. It stands outside autograd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syft.core.chain import Wrapper, new_wrapper
from syft.core.session import session
from syft.exceptions import ChainError
from syft.mpc.precision import FixedPrecisionTensor, MixedPrecisionError
from syft.mpc.rules import fixed_bits, fixed_kinds
from syft.mpc.sharing import FIELD, AdditiveSharingTensor


@dataclass(frozen=True)
class Secret:
    """A shared argument: its node, the fixed-precision node above it if there is one, and whether it is a chain."""

    node: AdditiveSharingTensor
    fixed: FixedPrecisionTensor | None
    is_chain: bool

    def same(self, node: AdditiveSharingTensor) -> Any:
        """A result on the scale of this argument."""
        return self._chain(node if self.fixed is None else self.fixed.like(node))

    def bits(self, node: AdditiveSharingTensor) -> Any:
        """A result of zeros and ones; numbers in fixed precision, as comparisons are, where the argument was."""
        if self.fixed is None:
            return self._chain(node)
        return self._chain(fixed_bits.as_number(fixed_kinds.bits(node, self.fixed)))

    def integers(self, node: AdditiveSharingTensor) -> Any:
        """A result of integers: indices."""
        return self._chain(node if self.fixed is None else fixed_kinds.whole(node, self.fixed))

    def _chain(self, head: Any) -> Any:
        return new_wrapper(head) if self.is_chain else head


def secret(function: str, value: Any) -> Secret:
    """The shared argument of `function`, or an error that tells how to share."""
    head = value.child if type(value) is Wrapper else value
    fixed = head if isinstance(head, FixedPrecisionTensor) else None
    node = head if fixed is None else fixed.child
    if not isinstance(node, AdditiveSharingTensor):
        what = type(node).__name__ if type(value) is Wrapper or fixed is not None else type(value).__name__
        raise ChainError(
            f"{function} takes shared tensors, and got a {what}. Share it first: "
            "x.share(alice, bob, crypto_provider=carol)."
        )
    return Secret(node, fixed, type(value) is Wrapper)


def integers(function: str, cure: str, *values: Any) -> list[Secret]:
    """Shared arguments that are read as integers: reals in fixed precision are refused with the cure.

    What a comparison gave is 0 or 1, and taken as that.
    """
    found = [_as_integers(secret(function, value)) for value in values]
    if any(one.fixed is not None and one.fixed.is_real for one in found):
        raise ChainError(
            f"{function} works on integers, and a tensor in fixed precision came in: its result would be in other "
            f"units. Write {cure}, which keeps the units, or pass the integers, x.child.child."
        )
    return found


def _as_integers(found: Secret) -> Secret:
    if found.fixed is None:
        return found
    whole = fixed_bits.as_integers(found.fixed)
    return found if whole is found.fixed else Secret(whole.child, whole, found.is_chain)


def check_same_precision(one: Secret, other: Secret) -> None:
    """Two arguments of which the result may be either."""
    if one.fixed is None and other.fixed is None:
        return
    if one.fixed is None or other.fixed is None:
        raise ChainError(
            "A tensor in fixed precision met shared integers. Bring both to fixed precision before sharing: "
            "x.fix_precision().share(...)."
        )
    if not one.fixed.same_precision(other.fixed):
        raise MixedPrecisionError(one.fixed, other.fixed)


def worker(who: Any) -> Any:
    """A worker, given as itself or by its id."""
    return session.require_local_worker().get_worker(who, fail_hard=True)


def check_field(function: str, field: int | None) -> None:
    if field not in (None, FIELD, 2**64):
        raise ValueError(
            f"{function} was called with field={field}, and shares live in the ring of 2**64 elements, which "
            f"programs know as field={FIELD}. "
            "Pass field=x_sh.field, or None."
        )
