"""What ciphertexts can do: sums of each other and of plain values, products with plain values, and moving about."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc.paillier.keys import PaillierPublicKey
from syft.mpc.paillier.tensor import PaillierTensor, each, encode, kind_of, objects
from syft.mpc.rules.moving import JOINING, MOVING, moved, nodes_in
from syft.mpc.rules.registry import rule, rule_with_func

aten = torch.ops.aten


def _is_node(value: Any) -> bool:
    return isinstance(value, PaillierTensor)


def _node(
    key: PaillierPublicKey, child: Any, fraction: int, bound: int, dtype: torch.dtype, operation: str
) -> PaillierTensor:
    """A result; !! if it might not fit the key (NOTE [Numbers as ciphertexts])."""
    if bound > key.bits - 2:
        raise ChainError(
            f"{operation} could make numbers of {bound} bits, and a key of {key.bits} bits holds {key.bits - 2}. Every "
            "product with reals adds 128 bits, with integers 64: multiply by integers, or take a larger "
            "keygen(n_length=...)."
        )
    made = PaillierTensor(key, fraction, bound, dtype)
    made.child = child
    return made


def _key_of(*values: Any) -> PaillierPublicKey:
    keys = [v.key for v in values if _is_node(v)]
    if any(key != keys[0] for key in keys):
        raise ChainError(
            f"Two tensors were combined that are encrypted under different keys, {keys[0]} and "
            f"{next(k for k in keys if k != keys[0])}. Encrypt both under the same public key."
        )
    return keys[0]


def _dtype(one: Any, other: Any) -> torch.dtype:
    """What torch would make of these operands."""

    def example(value: Any) -> Any:
        return torch.empty([1] * len(value.shape), dtype=value.dtype) if _is_node(value) else value

    return torch.result_type(example(one), example(other))


def _raised(node: PaillierTensor, fraction: int) -> Any:
    """The ciphertexts with more fractional bits."""
    shift = fraction - node.fraction
    return each(lambda c: node.key.scale(c, 1 << shift), node.child) if shift else node.child


def _no_product(operation: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"{operation} of two encrypted tensors",
        PaillierTensor,
        "Paillier ciphertexts can be added to each other and multiplied by plain values, not by each other. Decrypt one "
        "of them, or use encrypt(protocol='mpc', ...).",
    )


# -- sums -----------------------------------------------------------------------------------------------


@rule(PaillierTensor, aten.add.Tensor, aten.add.Scalar)
def add(self: Any, other: Any, alpha: float = 1) -> Any:
    key = _key_of(self, other)
    dtype = _dtype(self, other)
    if alpha != 1:
        other = multiply(other, alpha) if _is_node(other) else other * alpha
    fraction = max(_kind(v)[0] for v in (self, other))
    bound = 1 + max(_kind(v)[1] + fraction - _kind(v)[0] for v in (self, other))
    # NB: before the work is done.
    result = _node(key, None, fraction, bound, dtype, "add")
    one, two = (
        _raised(v, fraction) if _is_node(v) else each(key.plain, encode(v, fraction)) for v in (self, other)
    )
    result.child = each(key.add, one, two)
    return result


def _kind(value: Any) -> tuple[int, int]:
    return (value.fraction, value.bound) if _is_node(value) else kind_of(value)


@rule(PaillierTensor, aten.neg.default)
def negative(self: Any) -> Any:
    made = each(lambda c: self.key.scale(c, -1), self.child)
    return _node(self.key, made, self.fraction, self.bound, self.presented_dtype, "neg")


@rule(PaillierTensor, aten.sub.Tensor, aten.sub.Scalar)
def subtract(self: Any, other: Any, alpha: float = 1) -> Any:
    return add(self, negative(other) if _is_node(other) else -other, alpha)


@rule(PaillierTensor, aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_from(self: Any, other: Any, alpha: float = 1) -> Any:
    return subtract(other, self, alpha)


@rule(PaillierTensor, aten.sum.default, aten.sum.dim_IntList)
def total(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    rank = self.child.ndim
    dims = sorted({d % rank for d in dim}) if dim else list(range(rank))
    kept = [d for d in range(rank) if d not in dims]
    moved = self.child.transpose(kept + dims).reshape([self.child.shape[d] for d in kept] + [-1])
    count = moved.shape[-1]
    shape = [1 if d in dims else n for d, n in enumerate(self.child.shape) if keepdim or d not in dims]
    presented = dtype or (self.presented_dtype if self.presented_dtype.is_floating_point else torch.int64)
    bound = self.bound + max(count - 1, 0).bit_length()
    result = _node(self.key, None, self.fraction, bound, presented, "sum")
    rows = moved.reshape(-1, count) if count else np.empty((int(np.prod(shape)), 0), dtype=object)
    result.child = objects([_product_of(self.key, row) for row in rows], shape)
    return result


def _product_of(key: PaillierPublicKey, ciphers: Any) -> int:
    """A ciphertext of the sum of what some ciphertexts hold."""
    made = 1  # of zero
    for cipher in ciphers:
        made = key.add(made, cipher)
    return made


@rule(PaillierTensor, aten.mean.default, aten.mean.dim)
def mean(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    made = total(self, dim, keepdim, dtype=dtype)
    return multiply(made, made.child.size / self.child.size)


# -- products with plain values ---------------------------------------------------------------------------


def _check_plain(operation: str, self: Any, other: Any) -> None:
    if _is_node(self) and _is_node(other):
        raise _no_product(operation)


@rule(PaillierTensor, aten.mul.Tensor, aten.mul.Scalar)
def multiply(self: Any, other: Any) -> Any:
    _check_plain("the product", self, other)
    node, plain = (self, other) if _is_node(self) else (other, self)
    fraction, bits = kind_of(plain)
    result = _node(node.key, None, node.fraction + fraction, node.bound + bits, _dtype(self, other), "mul")
    result.child = each(node.key.scale, node.child, encode(plain, fraction))
    return result


@rule(PaillierTensor, aten.div.Tensor, aten.div.Scalar)
def divide(self: Any, other: Any) -> Any:
    if not _is_node(self):
        raise UnsupportedOperationError(
            "the quotient of a plain and an encrypted tensor", PaillierTensor, "Divide by plain values only."
        )
    _check_plain("the quotient", self, other)
    inverse = 1.0 / (other.double() if isinstance(other, torch.Tensor) else other)
    made = multiply(self, inverse)
    dtype = _dtype(self, other)
    made.presented_dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    return made


def _matrix_product(operation: str, self: Any, other: Any) -> Any:
    """(..., i, k) times (..., k, j), one of them plain."""
    _check_plain(operation, self, other)
    node, plain = (self, other) if _is_node(self) else (other, self)
    fraction, bits = kind_of(plain)
    factors = encode(plain, fraction)
    left, right = (node.child, factors) if _is_node(self) else (factors, node.child)
    terms = left.shape[-1]
    if terms != right.shape[-2]:
        raise RuntimeError(
            f"{operation} was asked of shapes {left.shape} and {right.shape}: the second has to have as many rows as the "
            "first has columns."
        )
    bound = node.bound + bits + max(terms - 1, 0).bit_length()
    result = _node(node.key, None, node.fraction + fraction, bound, _dtype(self, other), operation)
    scale = node.key.scale if _is_node(self) else lambda factor, cipher: node.key.scale(cipher, factor)
    shape = (*left.shape[:-1], right.shape[-1])
    total = objects([1] * int(np.prod(shape)), shape)  # ciphertexts of zero
    for k in range(terms):
        total = each(node.key.add, total, each(scale, left[..., :, k, None], right[..., None, k, :]))
    result.child = total
    return result


@rule(PaillierTensor, aten.mm.default, aten.bmm.default)
def mm(self: Any, other: Any) -> Any:
    return _matrix_product("the matrix product", self, other)


@rule(PaillierTensor, aten.mv.default)
def mv(self: Any, vec: Any) -> Any:
    return _reshaped(mm(self, _unsqueezed(vec, 1)), [self.shape[0]])


@rule(PaillierTensor, aten.dot.default)
def dot(self: Any, tensor: Any) -> Any:
    return _reshaped(mm(_unsqueezed(self, 0), _unsqueezed(tensor, 1)), [])


@rule(PaillierTensor, aten.addmm.default)
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    product = mm(mat1, mat2) if _is_node(mat1) or _is_node(mat2) else mat1 @ mat2
    if alpha != 1:
        product = multiply(product, alpha) if _is_node(product) else product * alpha
    if beta == 0:
        return product
    return add(product, self, beta)


def _unsqueezed(value: Any, dim: int) -> Any:
    return rearrange(aten.unsqueeze.default, value, dim) if _is_node(value) else value.unsqueeze(dim)


def _reshaped(node: PaillierTensor, shape: list[int]) -> Any:
    node.child = node.child.reshape(shape)
    return node


# -- moving about -----------------------------------------------------------------------------------------


@rule_with_func(PaillierTensor, *MOVING)
def rearrange(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Let torch rearrange the places of the elements, and take the ciphertexts from where they were.

    The results are not fresh: who has seen the ciphertexts before could tell which were taken.
    """
    nodes = nodes_in(PaillierTensor, args, kwargs)
    if func.overloadpacket in JOINING and len(nodes) < len(args[0]):
        raise ChainError(
            "An encrypted and a plain tensor cannot be joined. Encrypt the plain one under the same key first."
        )
    key = _key_of(*nodes)
    fraction = max(n.fraction for n in nodes)
    bound = max(n.bound + fraction - n.fraction for n in nodes)
    dtype = nodes[0].presented_dtype
    for other in nodes[1:]:
        dtype = torch.promote_types(dtype, other.presented_dtype)
    result = _node(key, None, fraction, bound, dtype, str(func))
    ciphers = np.concatenate([_raised(n, fraction).reshape(-1) for n in nodes])

    def taken(value: torch.Tensor) -> Any:
        made = result.like(None)
        made.child = ciphers[value.contiguous().numpy().reshape(-1)].reshape(tuple(value.shape))
        return made

    return moved(func, args, kwargs, PaillierTensor, taken)


@rule(PaillierTensor, aten.clone.default)
def clone(self: Any, *, memory_format: Any = None) -> Any:
    """A copy that can be given away: NOTE [Blinding]."""
    return self.blinded() if not self.is_fresh else to_copy(self)


@rule(PaillierTensor, aten._to_copy.default)
def to_copy(self: Any, *, dtype: torch.dtype | None = None, **_storage: Any) -> Any:
    presented = dtype or self.presented_dtype
    if self.presented_dtype.is_floating_point and not presented.is_floating_point:
        raise UnsupportedOperationError(
            f"a conversion of reals to {presented}",
            PaillierTensor,
            "Decrypt first: ciphertexts cannot be rounded.",
        )
    made = self.like(None)
    made.child, made.presented_dtype, made.is_fresh = self.child, presented, self.is_fresh
    return made


@rule(
    PaillierTensor,
    aten._local_scalar_dense.default,
    aten.item.default,
    aten.equal.default,
    aten.is_nonzero.default,
)
def read_value(self: Any, *_args: Any) -> Any:
    raise ChainError(
        "The value of an encrypted tensor was asked for (item(), bool(), float(), `if tensor:`). Call "
        "decrypt(protocol='paillier', private_key=...) where the private key is."
    )
