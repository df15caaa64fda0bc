"""Lists of tensors that one operation updates, as optimizers do with all their parameters (`foreach=True`)."""

from __future__ import annotations

from typing import Any

import torch

from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import later
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


@rule(FixedPrecisionTensor, aten._foreach_add_.List)
def add_lists_(self: Any, other: Any, *, alpha: float = 1) -> None:
    """self[i] += alpha * other[i]; of secrets all products are truncated by one program."""
    steps = _scaled(self, other, alpha)
    if steps is None:
        for target, value in zip(self, other, strict=True):
            FixedPrecisionTensor.interpret(aten.add_.Tensor, (target, value), {"alpha": alpha})
        return
    for target, (step, sign) in zip(self, steps, strict=True):
        on_children(aten.add_.Tensor if sign > 0 else aten.sub_.Tensor, target.child, step)
        target.forget()


def _scaled(targets: Any, values: Any, number: float) -> Any:
    """(units, sign) of number * value for each, from one program; None if these are no secrets of one precision."""
    nodes = (*targets, *values)
    plain = not all(kinds.is_node(node) and node.is_real and not node.is_fine for node in nodes)
    if plain or any(a.shape != b.shape for a, b in zip(targets, values, strict=True)):
        return None
    kinds.template_of(*nodes)
    children = [value.child for value in values]
    if number and len({type(node.child) for node in nodes}) == 1:
        undone = later.scaled_together(children, number)
        if undone is not None:
            return undone
    own = ring.fused(values[0].child, "rescaled_together")
    multiplier, divisor = kinds.public_factor(number)
    if own is None or divisor == 1 or len({type(node.child) for node in nodes}) > 1:
        return None
    return [(step, 1) for step in own(children[1:], multiplier, divisor)]
