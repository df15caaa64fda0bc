"""Numbers that are known to be 0 or 1, as comparisons return them.

NOTE [Known bits]
A comparison of fixed-precision values is a number in fixed precision: its integers are 0 and `scale`. The 0/1 integers
it was made of stay with it as `known["bits"]`, and with views and rearrangements of it. They are what a mask needs (as
it is, no second comparison) and what a product needs (a bit times a real needs no truncation). They are never the only
copy: a chain that travelled, or that was written into, has none, and every rule then works from the number itself.

A number and its views share one `Bits`, or one `written` mark, so that a write through any of them ends what all of
them know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring

#: Operations besides views whose elements are those of their only secret argument.
REARRANGING = frozenset(
    """
    _unsafe_view clone flip gather index index_select masked_select permute_copy repeat repeat_interleave reshape roll
    take take_along_dim tile
    """.split()
)


class Mark:
    """Whether a number or a view of it was written into since its bits were noted."""

    written = False


class Bits:
    """The 0/1 integers of a number, made when first asked for."""

    def __init__(self, make: Callable[[], Any], mark: Mark) -> None:
        self._make, self._made, self.mark = make, None, mark

    @property
    def integers(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made


def as_number(bits: FixedPrecisionTensor, *operands: Any) -> FixedPrecisionTensor:
    """Bits as the numbers 0 and 1 in the precision of the operands they came from; they remember the bits."""
    integers = bits.child
    dtype = next((node.presented_dtype for node in kinds.nodes_in(*operands) if node.is_real), None)
    made = kinds.real(ring.times(integers, bits.float_scale), bits, dtype)
    made.known["bits"] = Bits(lambda: integers, Mark())
    return made


def known(node: FixedPrecisionTensor) -> Any:
    """The 0/1 integers of a node that presents `bool` or is a number known to be 0 or 1; None for all others."""
    if node.presented_dtype == torch.bool:
        return node.child
    bits = node.known.get("bits")
    return None if bits is None or bits.mark.written else bits.integers


def as_integers(value: Any) -> Any:
    """An operand of a product; a number that is known to be 0 or 1 as a node of integers."""
    if not kinds.is_node(value) or not value.is_real:
        return value
    bits = known(value)
    return value if bits is None else kinds.whole(bits, value)


def hand_on(func: Any, name: str, source: Any, results: Any, run: Callable[[Any], Any]) -> None:
    """After a rearrangement of `source`: its results know their bits. `run` rearranges the bits alike."""
    bits = source.known.get("bits") if kinds.is_node(source) else None
    if bits is None or bits.mark.written or not (func.is_view or name in REARRANGING):
        return
    if kinds.is_node(results):
        results.known["bits"] = Bits(lambda: run(bits.integers), bits.mark)
        return
    for i, result in enumerate(results):
        result.known["bits"] = Bits(lambda i=i: run(bits.integers)[i], bits.mark)  # type: ignore[misc]
