"""Operations of aten that are linear in their secrets, on authenticated shares, by name: a closed list.

`described` is the client's side: it takes an operation's arguments apart into a template and the secrets in it. `run`
is a holder's. May import `shares`, `wide`.

NOTE [Templates]
("s", i) is the i-th secret; ("p", i) the i-th public tensor as a summand, ("f", i) as a factor, ("t", i) as it is;
("n", n) a public number as a summand; ("l", parts) a list; ("v", value) anything else, as it is. Templates are
hashable.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from syft.exceptions import UnknownCommandError
from syft.mpc.integrity import wide
from syft.mpc.integrity.errors import NoMacsError
from syft.mpc.integrity.shares import MUL, Auth
from syft.mpc.kernels import Bilinear

aten = torch.ops.aten

MOST_TERMS = 1 << 17
"""Products of limbs that add up to one element without a carry: 44 bits each, three of them, in 63."""


def _named(names: str) -> dict[str, Any]:
    found = {}
    for name in names.split():
        packet = getattr(aten, name)
        for overload in packet.overloads():
            one = getattr(packet, overload)
            if not one._schema.is_mutable:
                found[f"{name}.{overload}"] = one
    return found


#: They move elements, or put zeros beside them: each word of a share by itself.
MOVING = _named(
    """
    view _unsafe_view reshape _reshape_alias t transpose permute expand squeeze unsqueeze select slice narrow
    as_strided unfold diagonal split split_with_sizes unsafe_split unbind chunk clone contiguous flip roll rot90
    repeat tile gather index index_select take tril triu diag_embed select_backward slice_backward diagonal_backward
    pixel_shuffle pixel_unshuffle channel_shuffle movedim swapaxes repeat_interleave reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d zeros_like new_zeros lift_fresh
    alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy
    split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy
    detach_copy lift_fresh_copy native_channel_shuffle embedding alias detach constant_pad_nd
    cat stack block_diag index_copy index_fill slice_scatter select_scatter as_strided_scatter
    diagonal_scatter copy put masked_scatter fill
    """
)
#: They add elements up: limb by limb.
SUMMING = _named(
    """
    sum neg cumsum trace unfold_backward embedding_dense_backward add sub index_add scatter scatter_add index_put
    """
)
#: They multiply by a public tensor.
SCALING = _named("mul mm bmm matmul mv dot convolution")

for _name in [name for name in MOVING if name.startswith("repeat_interleave") and "Tensor" in name]:
    del MOVING[_name]  # its size depends on values

_FRESH = {"empty_like": "zeros_like", "new_empty": "new_zeros", "new_empty_strided": "new_zeros"}
#: Options about memory, which shares do not follow.
_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"})


def name_of(func: Any) -> str:
    """The name of an overload in the lists above; !! UnsupportedOperationError for others."""
    packet, overload = func._schema.name.partition("::")[2], func._overloadname
    name = f"{packet.removesuffix('_')}.{overload}" if func._schema.is_mutable else f"{packet}.{overload}"
    if packet == "zero_":
        return "zeros_like.default"
    if packet in _FRESH:
        return f"{_FRESH[packet]}.default"
    if name in MOVING or name in SUMMING or name in SCALING:
        return name
    raise NoMacsError(str(func), "Share without protocol='spdz2k' to use it.")


def described(
    func: Any, args: Any, kwargs: dict[str, Any], secret: type, summand: type
) -> tuple[Any, list[Any], list[torch.Tensor]]:
    """A template of the arguments, the secrets and the public tensors among them. `secret`, `summand`: their types."""
    secrets: list[Any] = []
    tensors: list[torch.Tensor] = []
    is_scaling = name_of(func) in SCALING

    def kept(tag: str, value: torch.Tensor) -> Any:
        tensors.append(value)
        return (tag, len(tensors) - 1)

    def one(value: Any) -> Any:
        if isinstance(value, secret):
            secrets.append(value)
            return ("s", len(secrets) - 1)
        if isinstance(value, summand):
            public = value.value  # type: ignore[attr-defined]
            return kept("p", public) if isinstance(public, torch.Tensor) else ("n", int(public))
        if isinstance(value, torch.Tensor):
            return kept("f" if is_scaling else "t", value)
        if isinstance(value, (list, tuple)) and any(
            isinstance(v, (secret, summand, torch.Tensor)) for v in value
        ):
            return ("l", tuple(one(v) for part in value for v in _places(part)))
        if isinstance(value, (list, tuple, torch.Size)):
            return ("v", tuple(value))
        if value is None or isinstance(value, (bool, int, float, str)):
            return ("v", value)
        raise NoMacsError(
            str(func),
            f"Its argument is a {type(value).__name__}. Places that only the holders know have no MACs.",
        )

    named = tuple((k, one(v)) for k, v in kwargs.items() if k not in _OPTIONS)
    return (tuple(one(value) for value in args), named), secrets, tensors


def _places(index: Any) -> tuple[Any, ...]:
    """A public mask among indices as the places where it is true: results have shapes that are known beforehand."""
    is_mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
    return index.nonzero(as_tuple=True) if is_mask else (index,)


def run(name: str, template: Any, shares: Sequence[Auth], tensors: Sequence[torch.Tensor]) -> Any:
    """The operation at one holder. !! UnknownCommandError for names that are not in the lists"""
    args, named = template
    if name in SCALING:
        return _scaled(SCALING[name], args, shares, tensors)
    func = MOVING.get(name) or SUMMING.get(name)
    if func is None:
        raise UnknownCommandError(name)
    if name in _AT_ONCE and not named and all(tag in "spn" for tag, _ in args):
        return _AT_ONCE[name](*(_operand(one, shares, tensors) for one in args))
    is_moving = name in MOVING
    planes = [_planes(share, is_moving) for share in shares]
    public = {
        i: _planes(shares[0].public(tensors[i].to(torch.int64)), is_moving) for i in _summands(args, named)
    }

    def filled(value: Any, plane: int) -> Any:
        tag, found = value
        if tag == "s":
            return planes[found][plane]
        if tag == "p":
            return public[found][plane]
        if tag == "n":
            return int(_planes(shares[0].public(torch.tensor(found)), is_moving)[plane])
        if tag == "t":
            return tensors[found]
        if tag == "l":
            return [filled(part, plane) for part in found]
        return found

    each = [
        func(*(filled(a, plane) for a in args), **{k: filled(v, plane) for k, v in named})
        for plane in range(4 if is_moving else 2 * wide.COUNT)
    ]
    return _joined(shares[0], each)


#: Without limbs: element by element.
_AT_ONCE: dict[str, Callable[..., Auth]] = {
    "add.Tensor": operator.add,
    "sub.Tensor": operator.sub,
    "neg.default": operator.neg,
}


def _operand(one: Any, shares: Sequence[Auth], tensors: Sequence[torch.Tensor]) -> Any:
    tag, found = one
    return shares[found] if tag == "s" else tensors[found].to(torch.int64) if tag == "p" else found


def _planes(share: Auth, is_moving: bool) -> Sequence[torch.Tensor]:
    """What a linear operation works on one by one: packed words where nothing is added up, else limbs."""
    return share.packed().unbind() if is_moving else share.limbs().flatten(0, 1).unbind()


def _summands(args: Any, named: Any) -> list[int]:
    found = []
    for tag, value in (*args, *(v for _, v in named)):
        if tag == "p":
            found.append(value)
        elif tag == "l":
            found += _summands(value, ())
    return found


def terms_of(
    op: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: Sequence[int], y: Sequence[int]
) -> int:
    """The most products that one element of op(x, y) is the sum of.

    !! ValueError where limbs could not add them up without a carry
    """
    return _terms_of(op, tuple(x), tuple(y)) if isinstance(op, Bilinear) else _counted(op, x, y)


def _counted(op: Any, x: Sequence[int], y: Sequence[int]) -> int:
    if op == MUL:
        return 1
    if op == MATMUL:
        terms = x[-1]
    else:
        found = op(torch.ones(tuple(x)), torch.ones(tuple(y)))
        terms = int(found.max()) if found.numel() else 0
    if terms > MOST_TERMS:
        raise ValueError(
            f"A product under protocol='spdz2k' adds up to {MOST_TERMS} terms for each element, and this one has "
            f"{terms}. Multiply smaller parts and add them."
        )
    return terms


_terms_of = lru_cache(maxsize=1024)(_counted)
MATMUL = Bilinear("matmul")


def _joined(like: Auth, planes: list[Any]) -> Any:
    """Results per plane as shares."""
    if isinstance(planes[0], (list, tuple)):
        return tuple(_joined(like, list(parts)) for parts in zip(*planes, strict=True))
    if len(planes) == 4:
        return Auth.unpacked(like.key, like.first, torch.stack(planes))
    made = torch.stack(planes).view(wide.COUNT, 2, *planes[0].shape)
    return like.of_limbs(like.key, like.first, made)


def _scaled(func: Any, args: Sequence[Any], shares: Sequence[Auth], tensors: Sequence[torch.Tensor]) -> Auth:
    """A bilinear operation of one secret and one public tensor."""
    kinds = [tag for tag, _ in args[:2]]
    rest = [value for _, value in args[2:]]
    if sorted(kinds) != ["f", "s"] or len(shares) != 1:
        raise NoMacsError(str(func), "One factor is public here, and one is secret.")
    share, public = shares[0], tensors[args[kinds.index("f")][1]].to(torch.int64)
    op: Callable[..., torch.Tensor] = lambda x, y: func(x, y, *rest)  # noqa: E731
    if func is aten.mul.Tensor:
        return share * public
    given = (share.shape, public.shape) if kinds[0] == "s" else (public.shape, share.shape)
    terms = terms_of(op, *given)
    return share.through(op, public, terms) if kinds[0] == "s" else share.under(op, public, terms)
