"""Numbers whose elements are all one public number.

NOTE [Known constants]
A backward pass begins with a node of ones, which a mean divides by its count and a difference negates, and multiplies
the first secret gradient by it. The number stays with such a node as `known["constant"]`, and with views and
rearrangements of it, so that the product takes one truncation or none, and the division no program at all. It is never
the only copy, and a node and its views share one mark, as NOTE [Known bits] says of bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_bits
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.fixed_folding import computed_later


@dataclass(frozen=True, eq=False)
class Constant:
    """The number, and whether a node or a view of it was written into since."""

    value: float
    mark: fixed_bits.Mark


def noted(node: FixedPrecisionTensor, value: float) -> FixedPrecisionTensor:
    """The node, which remembers that all of its elements are `value`."""
    if node.is_real and math.isfinite(value) and abs(value) < kinds.MASK:
        node.known["constant"] = Constant(float(value), fixed_bits.Mark())
    return node


def filled(like: FixedPrecisionTensor, value: float) -> FixedPrecisionTensor:
    """A node of reals of that shape with one number everywhere."""
    fill = kinds.encode_fill(value, like)
    child = computed_later(like.child, like.shape, lambda: ring.plus(ring.zeros_like(like.child), fill))
    return noted(kinds.real(child, like), value)


def known(value: Any) -> float | None:
    """The number that all elements of a node of reals are, if that is known."""
    constant = value.known.get("constant") if kinds.is_node(value) else None
    return None if constant is None or constant.mark.written else constant.value


def hand_on(func: Any, name: str, source: Any, results: Any) -> None:
    """After a rearrangement of `source`: its results are the same number."""
    constant = source.known.get("constant") if kinds.is_node(source) else None
    if constant is not None and (func.is_view or name in fixed_bits.REARRANGING):
        for result in (results,) if kinds.is_node(results) else results:
            result.known["constant"] = constant


def factor_of(one: FixedPrecisionTensor, other: FixedPrecisionTensor) -> float | None:
    """What `one` is as a factor of `other`, if it is a number that changes neither shape nor dtype."""
    value = known(one)
    if value is None or one.presented_dtype != other.presented_dtype:
        return None
    return value if torch.broadcast_shapes(one.shape, other.shape) == other.shape else None
