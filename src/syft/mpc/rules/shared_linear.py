"""What is linear on shares: every holder does it to its own share, nobody says anything.

Public values: a sum adds them at the first holder only, a product multiplies every share by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from syft.core.nested import found_in
from syft.core.ops import facts_of, written_argument
from syft.core.shapes import contiguous_spec
from syft.core.spec import TensorSpec
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc import authenticated
from syft.mpc.placing import placed
from syft.mpc.reuse import note_view, remembered
from syft.mpc.rules.registry import rule, rule_with_func
from syft.mpc.sharing import AdditiveSharingTensor as AST
from syft.tensors.multi_pointer import MultiPointerTensor
from syft.tensors.pointer import PointerTensor

aten = torch.ops.aten
CPU = torch.device("cpu")


def shares_spec(spec: TensorSpec) -> TensorSpec:
    """The metadata of a share of a tensor of that spec."""
    return contiguous_spec(tuple(spec.shape), torch.int64)


def shared_nodes(value: Any) -> list[AST]:
    """The secrets among arguments."""
    return list(found_in(value, AST))


@dataclass(frozen=True)
class Addend:
    """A public value (an int64 tensor or an int) that counts once: itself at the first holder, zero elsewhere."""

    value: Any

    def at(self, first: bool, device: torch.device) -> Any:
        if isinstance(self.value, int):
            return self.value if first else 0
        if first:
            return placed(self.value, device)
        return placed(torch.zeros((), dtype=torch.int64), device).expand(self.value.shape)


def at_holder(value: Any, holder_id: Any, first: bool, device: torch.device = CPU) -> Any:
    """Arguments as one holder uses them, whose share lies on that device."""
    if isinstance(value, AST):
        return value.child[holder_id]
    if isinstance(value, torch.Tensor):
        return value if value.device == device else placed(value, device)
    if isinstance(value, MultiPointerTensor):
        return own_of(value, holder_id)
    if isinstance(value, Addend):
        return value.at(first, device)
    if isinstance(value, dict):
        return {k: at_holder(v, holder_id, first, device) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(at_holder(v, holder_id, first, device) for v in value)
    return value


def own_of(value: MultiPointerTensor, holder_id: Any) -> PointerTensor:
    """The pointer that a holder has of a value sent to all of them."""
    if holder_id not in value.child:
        raise ChainError(
            f"A secret that {holder_id} holds a share of met pointers to {', '.join(map(str, value.child))}. Send the "
            "value to every holder: value.send(*x.locations)."
        )
    own: PointerTensor = value.child[holder_id]
    return own


def at_every_holder(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an aten operation at each holder on its shares; returns secrets in the structure of the result."""
    nodes = shared_nodes((args, kwargs))
    template, facts = nodes[0], facts_of(func)
    if facts.mutates:
        _note_writing(func, args, kwargs)
    for node in nodes[1:]:
        template.check_same_holders(node)
    if authenticated.is_authenticated(template):
        return authenticated.at_every_holder(func, args, kwargs, nodes, (AST, Addend))
    results = []
    for rank, holder_id in enumerate(template.child):
        first = rank == 0
        results.append(
            PointerTensor.interpret(
                func,
                at_holder(args, holder_id, first, template.public_device),
                at_holder(kwargs, holder_id, first, template.public_device),
            )
        )
    made = _joined(template, results, all(node.was_shared_there for node in nodes))
    if facts.mutates:
        written = written_argument(facts, 0, args, kwargs)
        return written if isinstance(written, AST) else made
    if is_view(func) and isinstance(args[0], AST):
        for position, one in enumerate(made if isinstance(made, (list, tuple)) else [made]):
            note_view(func, position, args, kwargs, args[0], one)
    return made


def _note_writing(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Tell the secrets that an operation writes to. NOTE [Versions] in `syft.mpc.reuse`"""
    parameters = func._schema.arguments
    given = dict(zip((one.name for one in parameters), args, strict=False)) | kwargs
    for one in parameters:
        if one.alias_info is not None and one.alias_info.is_write:
            for node in shared_nodes([given.get(one.name)]):
                remembered(node).written()


@lru_cache(maxsize=1024)
def is_view(func: Any) -> bool:
    """Whether the results of an operation may be views of its first argument."""
    schema = func._schema
    return schema.name in _SILENT_VIEWS or any(
        one.alias_info is not None and not one.alias_info.is_write for one in schema.returns
    )


#: Views that their schemas do not tell of.
_SILENT_VIEWS = frozenset({"aten::_unsafe_view", "aten::_reshape_alias"})


def _joined(template: AST, results: list[Any], there: bool) -> Any:
    first = results[0]
    if isinstance(first, PointerTensor):
        made = template.of(results)
        made.was_shared_there = there
        return made
    if isinstance(first, (list, tuple)):
        return type(first)(_joined(template, [r[i] for r in results], there) for i in range(len(first)))
    return first


def _overloads(names: str) -> list[Any]:
    """Every overload of these operations that writes nowhere, and that adds or moves elements only."""
    packets = [getattr(aten, name) for name in names.split()]
    return [
        overload
        for packet in packets
        for overload in (getattr(packet, name) for name in packet.overloads())
        if not overload._schema.is_mutable
    ]


#: Operations that rearrange, copy or add up elements of their secret arguments.
REARRANGING = _overloads(
    """
    view _unsafe_view reshape _reshape_alias t transpose permute expand squeeze unsqueeze select slice narrow
    as_strided unfold diagonal split split_with_sizes unsafe_split unbind chunk clone contiguous flip roll rot90
    repeat tile gather index index_select take sum neg cumsum tril triu diag_embed trace select_backward
    slice_backward diagonal_backward unfold_backward embedding_dense_backward pixel_shuffle pixel_unshuffle
    channel_shuffle movedim swapaxes repeat_interleave reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d zeros_like new_zeros empty_like new_empty
    new_empty_strided lift_fresh masked_select alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy
    permute_copy select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy
    unbind_copy unfold_copy unsqueeze_copy view_copy detach_copy lift_fresh_copy native_channel_shuffle
    """
)

#: The same, where public numbers and tensors among the arguments are values.
JOINING = _overloads(
    """
    cat stack block_diag index_put index_add index_copy index_fill scatter scatter_add slice_scatter select_scatter
    as_strided_scatter diagonal_scatter copy put masked_scatter fill
    """
)

#: Names of arguments that are values, and of those that say where: these are public.
VALUES = frozenset({"self", "src", "values", "source", "value", "tensors"})
WHERE = frozenset({"index", "indices", "mask", "repeats"})


def _check_public_places(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    for name, value in (*zip((a.name for a in func._schema.arguments), args, strict=False), *kwargs.items()):
        if name in WHERE and shared_nodes(value):
            raise UnsupportedOperationError(
                str(func),
                AST,
                f"Its `{name}` is a secret, and the place that is looked at would show it. Use a product with a "
                "one-hot comparison, (torch.arange(n) == secret), which touches every element.",
            )


@rule_with_func(AST, *REARRANGING, aten.zero_.default)
def rearrange(func: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("dtype", None)
    _check_public_places(func, args, kwargs)
    return at_every_holder(func, args, kwargs)


@rule(AST, aten.embedding.default)
def embedding(weight: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """Rows of a secret table at public indices."""
    _check_public_places(aten.embedding.default, (weight, indices), {})
    return at_every_holder(aten.embedding.default, (weight, indices, *args), kwargs)


@rule(AST, aten.add.Tensor, aten.add.Scalar)
def add(x: Any, y: Any, alpha: int = 1) -> Any:
    return _sum(aten.add.Tensor, x, y, alpha)


@rule(AST, aten.add_.Tensor)
def add_(x: Any, y: Any, alpha: int = 1) -> Any:
    """In place at the holders, where both are secrets without MACs."""
    if not isinstance(y, AST) or authenticated.is_authenticated(x):
        return join_values(aten.copy_.default, x, add(x, y, alpha))
    return at_every_holder(aten.add_.Tensor, (x, y), {"alpha": int(alpha)} if alpha != 1 else {})


@rule(AST, aten.sub_.Tensor)
def sub_(x: Any, y: Any, alpha: int = 1) -> Any:
    """As `add_`."""
    if not isinstance(y, AST) or authenticated.is_authenticated(x):
        return join_values(aten.copy_.default, x, sub(x, y, alpha))
    return at_every_holder(aten.sub_.Tensor, (x, y), {"alpha": int(alpha)} if alpha != 1 else {})


@rule(AST, aten.sub.Tensor, aten.sub.Scalar)
def sub(x: Any, y: Any, alpha: int = 1) -> Any:
    return _sum(aten.sub.Tensor, x, y, alpha)


@rule(AST, aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(x: Any, y: Any, alpha: int = 1) -> Any:
    return _sum(aten.sub.Tensor, y, x, alpha)


def _sum(func: Any, x: Any, y: Any, alpha: int) -> Any:
    return at_every_holder(func, (_value(x), _value(y)), {"alpha": int(alpha)} if alpha != 1 else {})


def _value(value: Any) -> Any:
    return value if isinstance(value, AST) else Addend(as_public(value))


def as_public(value: Any) -> Any:
    """A public operand as an int64 tensor; a float here means that fix_precision() was forgotten."""
    if isinstance(value, AST):
        return value
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(
            f"The shared integers met the number {value}. To compute with reals, call fix_precision() before share()."
        )
    if isinstance(value, (bool, int, float)):
        return torch.tensor(int(value), dtype=torch.int64)
    if value.is_floating_point():
        raise ValueError(
            "Shared integers were combined with a tensor of floats. To compute with reals, call fix_precision() before "
            "share()."
        )
    return value.to(torch.int64)


def _value_argument(name: str, value: Any) -> Any:
    """One argument of a joining operation: public values count once, everything else is as it is."""
    if name not in VALUES or isinstance(value, AST):
        return value
    if isinstance(value, (list, tuple)):
        return [_value(v) for v in value]
    public = as_public(value)
    return Addend(public if isinstance(value, torch.Tensor) else int(public))


@rule_with_func(AST, *JOINING, aten.copy_.default)
def join_values(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Concatenation, scattering, filling: secrets and public values side by side."""
    if func is aten.copy_.default and not isinstance(args[0], AST):
        raise TypeError("A secret cannot be copied into a public tensor. Call `.get()` on it first.")
    if kwargs.get("reduce", "add") != "add":
        raise UnsupportedOperationError(str(func), AST, "Scattered values are set or added, not multiplied.")
    _check_public_places(func, args, kwargs)
    parameters = func._schema.arguments
    values = tuple(_value_argument(parameters[i].name, value) for i, value in enumerate(args))
    return at_every_holder(func, values, {k: _value_argument(k, v) for k, v in kwargs.items()})


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
def to_copy(x: AST, dtype: Any = None, device: Any = None, **_options: Any) -> Any:
    if dtype is not None and dtype.is_floating_point:
        raise TypeError("Shared integers have no floating-point form. Call fix_precision() before share().")
    wanted = x.home if device is None else torch.device(device)
    holder = x.locations[0]
    is_fixed = not holder.is_in_process or holder.device is not None or authenticated.is_authenticated(x)
    if wanted == x.device or is_fixed:
        # Its owner says where a worker keeps its shares: what is opened comes to the device.
        made = at_every_holder(aten.clone.default, (x,), {})
        made.device = x.device if holder.is_in_process else wanted
    else:
        made = at_every_holder(aten._to_copy.default, (x,), {"device": wanted})
        made.device = wanted
    made.home = wanted
    return made
