"""Reading and writing at a secret index: every element is touched, with a one-hot row per index.

A public index is a rearrangement (`fixed_structure`).
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import UnsupportedOperationError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules import fixed_structure as structure
from syft.mpc.rules.registry import on_children, rule_with_func

aten = torch.ops.aten


def _one_hot(index: Any, dim: int, size: int) -> Any:
    """(..., m, size) from an index with `dim` moved to the end."""
    last = on_children(aten.transpose.int, index.child, dim, -1)
    return ring.equals_zero(ring.minus(ring.unsqueezed(last, -1), torch.arange(size)))


def _cut(child: Any, shape: Any, dim: int) -> Any:
    """The leading part of a child that an index of `shape` can reach, all of `dim` kept."""
    for d, size in enumerate(shape):
        if d != dim and ring.shape_of(child)[d] != size:
            child = ring.sliced(child, d, 0, size)
    return child


@rule_with_func(FixedPrecisionTensor, aten.gather.default)
def gather(func: Any, self: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not kinds.is_node(index):
        return structure.run_structural(func, (self, dim, index), {})
    if not index.shape:
        return self
    (values,), like, reals = kinds.common(self) if kinds.is_node(self) else _public(self, index)
    dim %= len(index.shape)
    rows = _one_hot(index, dim, self.shape[dim])
    source = on_children(aten.transpose.int, _cut(values, index.shape, dim), dim, -1)
    read = ring.summed(ring.multiply_bit(rows, ring.unsqueezed(source, -2)), [-1])
    return kinds.result(on_children(aten.transpose.int, read, dim, -1), (self,), like, reals)


def _public(value: Any, like: FixedPrecisionTensor) -> tuple[list[Any], FixedPrecisionTensor, bool]:
    if kinds.is_real(value):
        return [kinds.units(value, like)], like, True
    return [kinds.integers(value)], like, False


@rule_with_func(FixedPrecisionTensor, aten.index_select.default)
def index_select(func: Any, self: Any, dim: int, index: Any) -> Any:
    if not kinds.is_node(index):
        return structure.run_structural(func, (self, dim, index), {})
    rows = ring.equals_zero(ring.minus(ring.unsqueezed(index.child, -1), torch.arange(self.shape[dim])))
    (values,), like, reals = kinds.common(self) if kinds.is_node(self) else _public(self, index)
    last = on_children(aten.transpose.int, values, dim, -1)
    read = ring.summed(ring.multiply_bit(rows, ring.unsqueezed(last, -2)), [-1])
    return kinds.result(on_children(aten.transpose.int, read, dim, -1), (self,), like, reals)


@rule_with_func(FixedPrecisionTensor, aten.embedding.default)
def embedding(func: Any, weight: Any, indices: Any, *_options: Any, **_named: Any) -> Any:
    """Rows of a table; with a secret index a product with one-hot rows."""
    if not kinds.is_node(indices):
        return structure.run_structural(func, (weight, indices), {})
    (table,), like, reals = kinds.common(weight) if kinds.is_node(weight) else _public(weight, indices)
    read = on_children(aten.mm.default, _flat_rows(indices, weight.shape[0]), table)
    shaped = on_children(aten.reshape.default, read, [*indices.shape, weight.shape[1]])
    return kinds.result(shaped, (weight,), like, reals)


def _flat_rows(indices: FixedPrecisionTensor, count: int) -> Any:
    """(n, count): one one-hot row per index."""
    rows = ring.equals_zero(ring.minus(ring.unsqueezed(indices.child, -1), torch.arange(count)))
    return on_children(aten.reshape.default, rows, [-1, count])


@rule_with_func(FixedPrecisionTensor, aten.embedding_dense_backward.default)
def embedding_backward(
    func: Any, grad_output: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """Gradients added up by row; `padding_idx` has none."""
    if scale_grad_by_freq:
        raise UnsupportedOperationError(
            str(func),
            FixedPrecisionTensor,
            "How often an index occurs is not counted: leave scale_grad_by_freq out.",
        )
    like = kinds.template_of(grad_output, indices)
    grad = kinds.units(grad_output, like)
    flat = on_children(aten.reshape.default, grad, [-1, ring.shape_of(grad)[-1]])
    if kinds.is_node(indices):
        rows = on_children(aten.t.default, _flat_rows(indices, num_weights))
        made = on_children(aten.mm.default, rows, flat)
    else:
        empty = on_children(aten.new_zeros.default, flat, [num_weights, ring.shape_of(flat)[-1]])
        made = on_children(aten.index_add.default, empty, 0, indices.reshape(-1), flat)
    if padding_idx >= 0:
        kept = torch.ones(num_weights, 1, dtype=torch.int64)
        kept[padding_idx] = 0
        made = ring.times(made, kept)
    return kinds.real(made, like)


@rule_with_func(FixedPrecisionTensor, aten.scatter.src, aten.scatter.value, aten.scatter_add.default)
def scatter(func: Any, self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None) -> Any:
    """Written at a secret index; where two indices are equal, `scatter` adds both (torch leaves open which
    wins).
    """
    if not kinds.is_node(index):
        return structure.run_structural(func, (self, dim, index, src if value is None else value), {})
    source = src if value is None else value
    like = kinds.template_of(self, index, source)
    reals = kinds.is_real(self)
    target = kinds.units(self, like) if reals else kinds.integers(self)
    written = kinds.units(source, like) if reals else kinds.integers(source)
    if not index.shape:
        return kinds.result(ring.plus(ring.times(target, 0), written), (self,), like, reals)
    dim %= len(index.shape)
    rows = _one_hot(index, dim, self.shape[dim])
    if not isinstance(written, int):
        part = written
        for d, size in enumerate(index.shape):
            part = ring.sliced(part, d, 0, size)
        written = ring.unsqueezed(on_children(aten.transpose.int, part, dim, -1), -1)
    added = _placed(ring.summed(ring.times(rows, written), [-2]), dim, self.shape)
    if func is not aten.scatter_add.default:
        kept = ring.from_public(1, _placed(ring.summed(rows, [-2]), dim, self.shape))
        target = ring.times(kept, target)
    return kinds.result(ring.plus(target, added), (self,), like, reals)


def _placed(child: Any, dim: int, shape: Any) -> Any:
    """A child with `dim` at the end, back in place and filled up with zeros to `shape`."""
    back = on_children(aten.transpose.int, child, dim, -1)
    pads: list[int] = []
    for have, want in reversed(list(zip(ring.shape_of(back), shape, strict=True))):
        pads += [0, want - have]
    return on_children(aten.constant_pad_nd.default, back, pads) if any(pads) else back
