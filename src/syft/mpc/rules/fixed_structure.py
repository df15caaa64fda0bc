"""Rearrangements and sums: operations that run on the integers exactly as they run on the reals.

Plain floating-point tensors among the operands are encoded first; plain integer and boolean tensors are
indices and masks and stay as they are. Numbers that are values (`fill`, padding) are encoded.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.chain import map_tensors
from syft.exceptions import UnsupportedOperationError, ValueNotHereError
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_bits
from syft.mpc.rules import fixed_constants as constants
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule, rule_with_func
from syft.tensors.multi_pointer import MultiPointerTensor

aten = torch.ops.aten

#: By name, all overloads. A node below has to interpret these; each moves, copies or adds elements only.
STRUCTURAL = frozenset(
    """
    _reshape_alias _unsafe_view alias_copy as_strided as_strided_copy as_strided_scatter atleast_1d atleast_2d
    atleast_3d block_diag cat chunk clone concat concatenate constant_pad_nd copy cumsum detach_copy diag
    diag_embed diagonal diagonal_backward diagonal_copy diagonal_scatter embedding expand expand_copy fill
    flip fliplr flipud gather hstack index index_add index_copy index_fill index_put index_select lift
    lift_fresh lift_fresh_copy masked_scatter masked_select movedim narrow narrow_copy neg new_zeros permute
    permute_copy pixel_shuffle pixel_unshuffle put reflection_pad1d reflection_pad2d reflection_pad3d repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape resolve_conj resolve_neg
    roll rot90 scatter scatter_add select select_backward select_copy select_scatter slice slice_backward
    slice_copy slice_scatter split split_copy split_with_sizes split_with_sizes_copy squeeze squeeze_copy
    stack sum t t_copy take take_along_dim tile trace transpose transpose_copy tril triu unbind unbind_copy
    unfold unfold_backward unfold_copy unsqueeze unsqueeze_copy view view_copy vstack zeros_like empty_like
    new_empty channel_shuffle native_channel_shuffle
    """.split()
)

#: Operations whose plain integer operands are values, too.
JOINS = frozenset({"cat", "stack", "concat", "concatenate", "hstack", "vstack", "block_diag"})

#: Names of schema arguments that say WHERE: never secret here.
WHERE = frozenset({"index", "indices", "mask", "repeats"})
VALUES = frozenset({"value", "fill_value"})
#: Keywords about the storage of a float tensor.
FLOAT_KEYWORDS = ("dtype", "layout", "pin_memory", "device")


def run_structural(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a structural operation on the children and put the nodes back."""
    name = func._schema.name.split("::")[1]
    if kwargs.get("reduce", "add") != "add":
        raise UnsupportedOperationError(
            f"{func} with reduce={kwargs['reduce']!r}",
            FixedPrecisionTensor,
            "Values are set or added where an index says; multiply with torch.gather and a product.",
        )
    like = kinds.template_of(args, kwargs)
    wanted = kwargs.get("dtype")
    inner_kwargs = {k: v for k, v in kwargs.items() if k not in FLOAT_KEYWORDS}
    values = [kinds.is_real(n) for n in kinds.nodes_in(args, kwargs)]
    reals = any(values) or _has_plain_reals((args, kwargs))
    parameters = func._schema.arguments
    positional = [
        _operand(func, name, parameters[i].name, value, like, reals) for i, value in enumerate(args)
    ]
    named = {k: _operand(func, name, k, v, like, reals) for k, v in inner_kwargs.items()}
    response = on_children(func, *positional, **named)
    dtype = _presented(name, like, args, reals, wanted)

    def named_again(child: Any) -> Any:
        return kinds.real(child, like, dtype) if reals else kinds.whole(child, like, dtype)

    made = map_tensors(named_again, response)
    if args and len(values) == 1:
        fixed_bits.hand_on(
            func, name, args[0], made, lambda bits: on_children(func, bits, *positional[1:], **named)
        )
        constants.hand_on(func, name, args[0], made)
    return made


def _has_plain_reals(values: Any) -> bool:
    found: list[bool] = []
    map_tensors(lambda t: found.append(kinds.is_real(t)), values)
    return any(found)


def _presented(
    name: str, like: FixedPrecisionTensor, args: Any, reals: bool, wanted: torch.dtype | None
) -> torch.dtype:
    if wanted is not None:
        return wanted
    if name in JOINS:
        dtype = None
        for value in args[0]:
            dtype = (
                kinds.dtype_of(value) if dtype is None else torch.promote_types(dtype, kinds.dtype_of(value))
            )
        if dtype is not None:
            return dtype
    if not reals and name in ("sum", "cumsum"):
        return torch.int64
    return like.presented_dtype if like.is_real or not reals else torch.get_default_dtype()


def _operand(
    func: Any, name: str, parameter: str, value: Any, like: FixedPrecisionTensor, reals: bool
) -> Any:
    """One argument of a structural operation, as the operation on integers takes it."""
    if parameter in WHERE:
        value = map_tensors(_seen, value)
    if parameter in WHERE and kinds.nodes_in([value]):
        raise UnsupportedOperationError(
            str(func),
            FixedPrecisionTensor,
            "The index or mask is a secret: what is taken would show it. Use torch.where, "
            "torch.gather or a product "
            "with the mask, which touch every element.",
        )
    if parameter in VALUES and isinstance(value, (int, float)):
        return kinds.encode_fill(value, like) if reals else int(value)

    def lower(tensor: Any) -> Any:
        if isinstance(tensor, MultiPointerTensor):
            return tensor
        if kinds.is_node(tensor):
            return kinds.units(tensor, like) if reals else tensor.child
        if tensor.is_floating_point() or (name in JOINS and reals):
            return kinds.units(tensor, like)
        return tensor.to(torch.int64) if name in JOINS else tensor

    if isinstance(value, (torch.Tensor, FixedPrecisionTensor)):
        return lower(value)
    return map_tensors(lower, value) if isinstance(value, (list, tuple)) else value


def _seen(index: Any) -> Any:
    """An index or a mask; one whose integers are here is no secret, and a plain tensor for the operation."""
    if not kinds.is_node(index) or not isinstance(index.child, torch.Tensor):
        return index
    mask = fixed_bits.known(index)
    if mask is not None:
        return mask.to(torch.bool)
    return index if index.is_real else index.child


# -- making tensors like a secret one -----------------------------------------------------------------------


def _public_dtype(like: FixedPrecisionTensor, kwargs: dict[str, Any]) -> torch.dtype | None:
    """The dtype asked for if it is another kind than that of the node: such a constant is public."""
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype.is_floating_point != like.is_real:
        return dtype
    return None


def _zeros(like: FixedPrecisionTensor, size: Any, kwargs: dict[str, Any]) -> FixedPrecisionTensor:
    child = (
        on_children(aten.zeros_like.default, like.child)
        if size is None
        else on_children(aten.new_zeros.default, like.child, list(size))
    )
    return kinds.same_kind(child, like, kwargs.get("dtype"))


def _filled(like: FixedPrecisionTensor, size: Any, value: float, kwargs: dict[str, Any]) -> Any:
    public = _public_dtype(like, kwargs)
    if public is not None:
        return torch.full(like.shape if size is None else size, value, dtype=public)
    made = _zeros(like, size, kwargs)
    if value:
        made.child = ring.plus(made.child, kinds.encode_fill(value, like) if like.is_real else int(value))
    return made


@rule(FixedPrecisionTensor, aten.zeros_like.default, aten.empty_like.default)
def zeros_like(self: Any, **kwargs: Any) -> Any:
    return _filled(self, None, 0, kwargs)


@rule(FixedPrecisionTensor, aten.ones_like.default)
def ones_like(self: Any, **kwargs: Any) -> Any:
    if not self.shape and self.is_real and kwargs.get("dtype") in (None, self.presented_dtype):
        return constants.filled(self, 1)  # where a backward pass begins
    made = _filled(self, None, 1, kwargs)
    return constants.noted(made, 1) if kinds.is_node(made) else made


@rule(FixedPrecisionTensor, aten.full_like.default)
def full_like(self: Any, fill_value: float, **kwargs: Any) -> Any:
    return _filled(self, None, fill_value, kwargs)


@rule(FixedPrecisionTensor, aten.new_zeros.default, aten.new_empty.default)
def new_zeros(self: Any, size: Any, **kwargs: Any) -> Any:
    return _filled(self, size, 0, kwargs)


@rule(FixedPrecisionTensor, aten.new_empty_strided.default)
def new_empty_strided(self: Any, size: Any, stride: Any, **kwargs: Any) -> Any:
    return _filled(self, size, 0, kwargs)


@rule(FixedPrecisionTensor, aten.new_ones.default)
def new_ones(self: Any, size: Any, **kwargs: Any) -> Any:
    return _filled(self, size, 1, kwargs)


@rule(FixedPrecisionTensor, aten.new_full.default)
def new_full(self: Any, size: Any, fill_value: float, **kwargs: Any) -> Any:
    return _filled(self, size, fill_value, kwargs)


@rule_with_func(
    FixedPrecisionTensor,
    aten.rand_like.default,
    aten.randn_like.default,
    aten.randint_like.default,
    aten.randint_like.low_dtype,
)
def random_like(func: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Noise is public: everybody draws it, nobody's secret is in it."""
    dtype = kwargs.pop("dtype", None) or (self.presented_dtype if self.is_real else torch.get_default_dtype())
    return func(torch.empty(self.shape, dtype=dtype), *args, dtype=dtype, **kwargs)


@rule_with_func(
    FixedPrecisionTensor,
    aten.bernoulli_.float,
    aten.uniform_.default,
    aten.normal_.default,
    aten.exponential_.default,
    aten.cauchy_.default,
    aten.geometric_.default,
    aten.log_normal_.default,
    aten.random_.default,
    aten.random_.to,
    getattr(aten.random_, "from"),
)
def fill_with_noise(func: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """In place, from torch's generator: noise is public."""
    dtype = self.presented_dtype if self.is_real else torch.get_default_dtype()
    noise = func(torch.empty(self.shape, dtype=dtype), *args, **kwargs)
    return write(self, noise)


# -- dtype and copies ---------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten._to_copy.default)
def to_copy(self: Any, *, dtype: torch.dtype | None = None, **_storage: Any) -> Any:
    """Real to real only changes the presented dtype; real to integer cuts the fraction off, to bool asks
    `!= 0`.
    """
    from syft.mpc.rules import fixed_compare, fixed_rounding

    if dtype is None or dtype == self.presented_dtype:
        return kinds.same_kind(on_children(aten.clone.default, self.child), self)
    if dtype.is_complex:
        kinds.is_real(torch.empty(0, dtype=dtype))  # says what is wrong
    if dtype.is_floating_point:
        bits = fixed_bits.known(self)
        if bits is not None:
            made = fixed_bits.as_number(kinds.bits(bits, self))
            made.presented_dtype = dtype
            return made
        return kinds.real(on_children(aten.clone.default, kinds.units(self, self)), self, dtype)
    if dtype == torch.bool:
        return kinds.bits(on_children(aten.clone.default, fixed_compare.as_bit(self)), self)
    bits = fixed_bits.known(self)
    if bits is not None:
        return kinds.whole(on_children(aten.clone.default, bits), self, dtype)
    if self.is_real:
        return kinds.whole(fixed_rounding.toward_zero(self.child, self.scale), self, dtype)
    return kinds.whole(on_children(aten.clone.default, self.child), self, dtype)


def write(target: Any, source: Any) -> Any:
    """Write values into the integers that a node stands for, so that views and aliases see them."""
    if not kinds.is_node(target):
        raise UnsupportedOperationError(
            "writing a fixed-precision value into a plain tensor",
            FixedPrecisionTensor,
            "Use the operation without the underscore, or encode the target with fix_precision() first.",
        )
    if kinds.is_node(source):
        kinds.template_of(target, source)
    if target.is_real:
        child = kinds.units(source, target)
    elif kinds.is_real(source):
        raise UnsupportedOperationError(
            f"writing reals into a tensor of {target.presented_dtype}",
            FixedPrecisionTensor,
            "Convert the target with `.float()` first.",
        )
    else:
        child = kinds.integers(source)
    on_children(aten.copy_.default, target.child, child)
    target.forget()
    return target


@rule(FixedPrecisionTensor, aten.copy_.default)
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    return write(self, src)


@rule(FixedPrecisionTensor, aten.copy.default)
def copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not kinds.is_node(self):
        return kinds.same_kind(on_children(aten.expand.default, src.child, list(self.shape)), src)
    made = kinds.same_kind(on_children(aten.clone.default, self.child), self)
    return write(made, src)


# -- values that are read ------------------------------------------------------------------------------


def _here(node: FixedPrecisionTensor, request: str) -> torch.Tensor:
    if not isinstance(node.child, torch.Tensor):
        raise ValueNotHereError(request, f"a {type(node.child).__name__}")
    return node.decode()


@rule(FixedPrecisionTensor, aten._local_scalar_dense.default)
def item(self: Any) -> Any:
    return _here(self, "`.item()` (also bool(), float(), int(), `if tensor:`)").item()


@rule(FixedPrecisionTensor, aten.equal.default)
def equal(self: Any, other: Any) -> bool:
    a, b = (
        _here(v, "torch.equal, which returns a Python value,") if kinds.is_node(v) else v
        for v in (self, other)
    )
    return torch.equal(a.to(torch.float64), b.to(torch.float64))


@rule(
    FixedPrecisionTensor, aten.isnan.default, aten.isinf.default, aten.isposinf.default, aten.isneginf.default
)
def never(self: Any) -> torch.Tensor:
    """Fixed precision has no such numbers."""
    return torch.zeros(self.shape, dtype=torch.bool)
