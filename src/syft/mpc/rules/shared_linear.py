"""What is linear on shares: every holder does it to its own share, nobody says anything.

Public values: a sum adds them at the first holder only, a product multiplies every share by them.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.shapes import contiguous_spec
from syft.core.spec import TensorSpec
from syft.mpc.rules.registry import rule, rule_with_func
from syft.mpc.sharing import AdditiveSharingTensor as AST
from syft.mpc.sharing import share_integers
from syft.tensors.pointer import PointerTensor

aten = torch.ops.aten


def shares_spec(spec: TensorSpec) -> TensorSpec:
    """The metadata of a share of a tensor of that spec."""
    return contiguous_spec(tuple(spec.shape), torch.int64)


def shared_nodes(value: Any) -> list[AST]:
    """The secrets among arguments."""
    if isinstance(value, AST):
        return [value]
    if isinstance(value, dict):
        return shared_nodes(tuple(value.values()))
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [node for item in value for node in shared_nodes(item)]
    return []


def at_holder(value: Any, holder_id: Any, first: bool, additive: bool = False) -> Any:
    """Arguments as one holder uses them; `additive` public tensors count at the first holder only."""
    if isinstance(value, AST):
        return value.child[holder_id]
    if isinstance(value, torch.Tensor):
        value = value.to(torch.int64) if value.dtype == torch.bool and additive else value
        return torch.zeros_like(value) if additive and not first else value
    if isinstance(value, dict):
        return {k: at_holder(v, holder_id, first, additive) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(at_holder(v, holder_id, first, additive) for v in value)
    return value


def at_every_holder(func: Any, args: Any, kwargs: dict[str, Any], additive: bool = False) -> Any:
    """Run an aten operation at each holder on its shares; returns secrets in the structure of the result."""
    nodes = shared_nodes((args, kwargs))
    template = nodes[0]
    for node in nodes[1:]:
        template.check_same_holders(node)
    results = []
    for rank, holder_id in enumerate(template.child):
        first = rank == 0
        results.append(
            PointerTensor.interpret(
                func,
                at_holder(args, holder_id, first, additive),
                at_holder(kwargs, holder_id, first, additive),
            )
        )
    return _joined(template, results)


def _joined(template: AST, results: list[Any]) -> Any:
    first = results[0]
    if isinstance(first, PointerTensor):
        return template.of(results)
    if isinstance(first, (list, tuple)):
        return type(first)(_joined(template, [r[i] for r in results]) for i in range(len(first)))
    return first


#: Operations that rearrange, copy or add up elements of their secret arguments.
REARRANGING = frozenset(
    overload
    for packet in (
        aten.view, aten._unsafe_view, aten.reshape, aten._reshape_alias, aten.t, aten.transpose, aten.permute,
        aten.expand, aten.squeeze, aten.unsqueeze, aten.select, aten.slice, aten.narrow, aten.as_strided,
        aten.unfold, aten.diagonal, aten.split, aten.split_with_sizes, aten.unsafe_split, aten.unbind, aten.chunk,
        aten.clone, aten.contiguous, aten.flip, aten.roll, aten.rot90, aten.repeat, aten.tile, aten.gather,
        aten.index, aten.index_select, aten.take, aten.sum, aten.neg, aten.cumsum, aten.tril, aten.triu,
        aten.diag_embed, aten.trace, aten.select_backward, aten.slice_backward, aten.diagonal_backward,
        aten.unfold_backward, aten.embedding_dense_backward, aten.pixel_shuffle, aten.pixel_unshuffle,
        aten.channel_shuffle, aten.upsample_nearest2d, aten.movedim, aten.swapaxes, aten.repeat_interleave,
        aten.reflection_pad1d, aten.reflection_pad2d, aten.replication_pad1d, aten.replication_pad2d,
        aten.zeros_like, aten.new_zeros, aten.empty_like, aten.new_empty, aten.new_empty_strided, aten.zero_,
        aten.lift_fresh, aten.expand_copy, aten.view_copy, aten.masked_select,
    )
    for overload in (getattr(packet, name) for name in packet.overloads())
    if not overload._schema.is_mutable or packet is aten.zero_
)  # fmt: skip

#: The same, where public tensors among the arguments are values: they count at the first holder only.
JOINING = frozenset(
    overload
    for packet in (
        aten.cat, aten.stack, aten.index_put, aten.index_add, aten.index_copy, aten.scatter, aten.scatter_add,
        aten.slice_scatter, aten.select_scatter, aten.as_strided_scatter, aten.copy_, aten.copy, aten.diagonal_scatter,
    )
    for overload in (getattr(packet, name) for name in packet.overloads())
    if not overload._schema.is_mutable or packet is aten.copy_
)  # fmt: skip


@rule_with_func(AST, *REARRANGING)
def rearrange(func: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("dtype", None)
    return at_every_holder(func, args, kwargs)


@rule(AST, aten.embedding.default)
def embedding(weight: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """Rows of a secret table at public indices."""
    return at_every_holder(aten.embedding.default, (weight, indices, *args), kwargs)


@rule(AST, aten.add.Tensor, aten.add.Scalar)
def add(x: Any, y: Any, alpha: int = 1) -> Any:
    return _sum(aten.add.Tensor, x, y, alpha)


@rule(AST, aten.sub.Tensor, aten.sub.Scalar)
def sub(x: Any, y: Any, alpha: int = 1) -> Any:
    return _sum(aten.sub.Tensor, x, y, alpha)


@rule(AST, aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(x: Any, y: Any, alpha: int = 1) -> Any:
    return _sum(aten.sub.Tensor, y, x, alpha)


def _sum(func: Any, x: Any, y: Any, alpha: int) -> Any:
    x, y = as_public(x), as_public(y)
    return at_every_holder(func, (x, y), {"alpha": int(alpha)} if alpha != 1 else {}, additive=True)


def as_public(value: Any) -> Any:
    """A public operand as an int64 tensor; a float here means that fix_precision() was forgotten."""
    if isinstance(value, AST):
        return value
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(
            f"The shared integers met the number {value}. Call fix_precision() before share() to compute with reals."
        )
    if isinstance(value, (bool, int, float)):
        return torch.tensor(int(value), dtype=torch.int64)
    if value.is_floating_point():
        raise ValueError(
            "The shared integers met a tensor of floats. Call fix_precision() before share() to compute with reals."
        )
    return value.to(torch.int64)


@rule_with_func(AST, *JOINING)
def join_values(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Concatenation and friends: public parts are values (indices are passed as they are)."""
    if func is aten.copy_.default and not isinstance(args[0], AST):
        raise TypeError("A secret cannot be copied into a public tensor. Call `.get()` on it first.")
    if func._schema.name in ("aten::cat", "aten::stack", "aten::copy_", "aten::copy"):
        return at_every_holder(func, args, kwargs, additive=True)
    if all(isinstance(a, AST) for a in _values_of(func, args)):
        return at_every_holder(func, args, kwargs)
    self, values = args[0], list(args)
    for position, argument in enumerate(func._schema.arguments):
        if argument.name in _VALUE_NAMES and position < len(values) and not isinstance(values[position], AST):
            template = shared_nodes(args)[0]
            values[position] = trivial(template, as_public(values[position]))
    return at_every_holder(func, (self if isinstance(self, AST) else values[0], *values[1:]), kwargs)


_VALUE_NAMES = ("self", "src", "values", "source", "value")


def _values_of(func: Any, args: Any) -> list[Any]:
    return [a for a, s in zip(args, func._schema.arguments, strict=False) if s.name in _VALUE_NAMES]


def trivial(template: AST, value: torch.Tensor) -> AST:
    """A public value as a secret of the same holders."""
    return share_integers(value.contiguous(), template.locations, template.crypto_provider, template.protocol)


@rule(AST, aten.full_like.default, aten.ones_like.default)
def full_like(x: AST, value: int = 1, **_options: Any) -> Any:
    zeros = at_every_holder(aten.zeros_like.default, (x,), {})
    return add(zeros, int(value))


@rule(AST, aten.fill_.Scalar, aten.fill_.Tensor)
def fill_(x: AST, value: Any) -> Any:
    return join_values(aten.copy_.default, x, as_public(value).expand(x.shape))


@rule(AST, aten.constant_pad_nd.default)
def constant_pad(x: AST, pad: Any, value: Any = 0) -> Any:
    padded = at_every_holder(aten.constant_pad_nd.default, (x, pad, 0), {})
    if not value:
        return padded
    border = aten.constant_pad_nd.default(torch.zeros(x.shape, dtype=torch.int64), pad, int(value))
    return add(padded, border)


@rule(AST, aten.is_same_size.default)
def is_same_size(x: Any, y: Any) -> bool:
    return bool(x.shape == y.shape)


@rule(AST, aten._local_scalar_dense.default, aten.item.default, aten.equal.default, aten.is_nonzero.default)
def read_value(x: AST, *_args: Any) -> Any:
    return x.refuse_reading("`.item()` (also bool(), float(), int(), `if tensor:`)")


@rule(AST, aten._to_copy.default)
def to_copy(x: AST, dtype: Any = None, **_options: Any) -> Any:
    if dtype is not None and dtype.is_floating_point:
        raise TypeError("Shared integers have no floating-point form. Call fix_precision() before share().")
    return at_every_holder(aten.clone.default, (x,), {})
