"""What operations mean on residues: sums and products of each residue, and moving about.

Comparison by size and division need the whole number: they are done on values that are here, and refused on shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from syft.core.chain import map_tensors
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc import limbs
from syft.mpc.crt_precision import CRTPrecisionTensor as CRT
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.moving import JOINING, MOVING
from syft.mpc.rules.registry import on_children, rule, rule_with_func

aten = torch.ops.aten

#: Shared residues are reduced before an operation could take them past this.
LARGEST = 1 << 61


def _is_node(value: Any) -> bool:
    return isinstance(value, CRT)


def _template(*values: Any) -> CRT:
    nodes = [v for v in values if _is_node(v)]
    first: CRT = next((n for n in nodes if n.is_shared), nodes[0])
    for other in nodes:
        if other.moduli != first.moduli or other.base != first.base:
            raise ChainError(
                f"Residues of different kinds met: base {first.base} modulo {first.moduli}, and base {other.base} modulo "
                f"{other.moduli}. Encode both with the same field_type and base."
            )
    return first


def _dtype(*values: Any) -> torch.dtype:
    """What torch would make of these operands."""
    examples = [torch.empty([1] * len(v.shape), dtype=v.dtype) if _is_node(v) else v for v in values]
    found = torch.result_type(*examples)
    return found if found.is_floating_point else torch.get_default_dtype()


def _lifted(value: Any, like: CRT) -> CRT:
    """A public operand as a node: whole numbers without fractional digits, reals with those of `like`."""
    if _is_node(value):
        made: CRT = value
        return made
    real = value.is_floating_point() if isinstance(value, torch.Tensor) else isinstance(value, float)
    bare = like.with_residues(
        {m: torch.zeros(0, dtype=torch.int64) for m in like.moduli},
        magnitude=0,
        precision_fractional=like.precision_fractional if real else 0,
    )
    return bare.over(bare.encode(value))


def _reduced(node: CRT) -> CRT:
    """The same numbers, with residues below their moduli (of shares: in size)."""
    if not node.is_shared:
        return node.with_residues({m: r % m for m, r in node.child.items()})
    if node.magnitude <= max(node.moduli):
        return node
    made = {m: ring.minus(r, ring.times(ring.truncate(r, m), m)) for m, r in node.child.items()}
    return node.with_residues(made, magnitude=max(node.moduli))


def _size(node: CRT) -> int:
    """A bound of the residues."""
    return node.magnitude if node.is_shared else max(node.moduli)


def _each(function: Any, one: CRT, other: CRT) -> dict[int, Any]:
    return {m: function(one.child[m], other.child[m]) for m in one.moduli}


# -- sums --------------------------------------------------------------------------------------------------


def _same_digits(one: CRT, other: CRT) -> tuple[CRT, CRT]:
    """Both with the fractional digits of the finer one."""
    digits = max(one.precision_fractional, other.precision_fractional)

    def finer(node: CRT) -> CRT:
        missing = digits - node.precision_fractional
        if not missing:
            return node
        factor = node.base**missing
        if not node.is_shared:
            return node.over(_array(node.integers() * factor), precision_fractional=digits)
        small = _reduced(node)
        made = {m: ring.times(r, factor % m) for m, r in small.child.items()}
        return node.with_residues(
            made, precision_fractional=digits, magnitude=small.magnitude * max(node.moduli)
        )

    return finer(one), finer(other)


def _array(values: Any) -> Any:
    return values if isinstance(values, np.ndarray) else limbs.objects([values], ())


def _plus(self: Any, other: Any, sign: int) -> Any:
    template = _template(self, other)
    one, two = _same_digits(_lifted(self, template), _lifted(other, template))
    dtype = _dtype(self, other)
    if not one.is_shared and not two.is_shared:
        a, b = one.integers(), two.integers()
        return one.over(_array(a + b if sign > 0 else a - b), dtype=dtype)
    if _size(one) + _size(two) > LARGEST:
        one, two = _reduced(one), _reduced(two)
    residues = _each(ring.plus if sign > 0 else ring.minus, one, two)
    return template.with_residues(
        residues,
        dtype=dtype,
        magnitude=_size(one) + _size(two),
        precision_fractional=one.precision_fractional,
    )


@rule(CRT, aten.add.Tensor, aten.add.Scalar)
def add(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _plus(self, other if alpha == 1 else _scaled(other, alpha), 1)


@rule(CRT, aten.sub.Tensor, aten.sub.Scalar)
def subtract(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _plus(self, other if alpha == 1 else _scaled(other, alpha), -1)


@rule(CRT, aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_from(self: Any, other: Any, alpha: Any = 1) -> Any:
    return subtract(other, self, alpha)


def _scaled(value: Any, factor: Any) -> Any:
    return multiply(value, factor) if _is_node(value) else value * factor


@rule(CRT, aten.neg.default)
def negative(self: Any) -> Any:
    if self.is_shared:
        return self.with_residues({m: ring.negated(r) for m, r in self.child.items()})
    return self.over(_array(-self.integers()))


@rule(CRT, aten.sum.default, aten.sum.dim_IntList)
def total(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    rank = len(self.shape)
    dims = sorted({d % rank for d in dim}) if dim else list(range(rank))
    presented = dtype or self.presented_dtype
    if not self.is_shared:
        found = self.integers().sum(axis=tuple(dims), keepdims=keepdim)
        return self.over(_array(found), dtype=presented)
    count = max(int(np.prod([self.shape[d] for d in dims])), 1)
    small = self if self.magnitude * count <= LARGEST else _reduced(self)
    made = {m: ring.summed(r, dims, keepdim) if dims else r for m, r in small.child.items()}
    return self.with_residues(made, dtype=presented, magnitude=small.magnitude * count)


# -- products ----------------------------------------------------------------------------------------------


@rule(CRT, aten.mul.Tensor, aten.mul.Scalar)
def multiply(self: Any, other: Any) -> Any:
    return _product(self, other, lambda a, b: a * b, ring.times, 1)


def _product(self: Any, other: Any, local: Any, shared: Any, terms: int) -> Any:
    """NOTE [Products keep their digits]."""
    template = _template(self, other)
    one, two = _lifted(self, template), _lifted(other, template)
    changes = {
        "dtype": _dtype(self, other),
        "precision_fractional": one.precision_fractional + two.precision_fractional,
    }
    if not one.is_shared and not two.is_shared:
        return one.over(_array(local(one.integers(), two.integers())), **changes)
    one, two = _reduced(one), _reduced(two)
    magnitude = _size(one) * _size(two) * max(terms, 1)
    if magnitude > LARGEST:
        raise ValueError(f"A product of shared residues adds up {terms} terms; split it into smaller ones.")
    return template.with_residues(_each(shared, one, two), magnitude=magnitude, **changes)


@rule(CRT, aten.mm.default)
def mm(self: Any, mat2: Any) -> Any:
    return _matrix_product(self, mat2, aten.mm.default)


@rule(CRT, aten.bmm.default)
def bmm(self: Any, mat2: Any) -> Any:
    return _matrix_product(self, mat2, aten.bmm.default)


def _matrix_product(self: Any, other: Any, func: Any) -> Any:
    one, two = tuple(self.shape), tuple(other.shape)
    if one[-1] != two[-2] or one[:-2] != two[:-2]:
        raise RuntimeError(f"Matrices of shapes {one} and {two} cannot be multiplied.")

    def local(a: Any, b: Any) -> Any:
        shape = (*one[:-1], two[-1])
        return a @ b if a.size and b.size else limbs.objects([0] * int(np.prod(shape)), shape)

    return _product(self, other, local, lambda a, b: on_children(func, a, b), one[-1])


def _shaped(value: Any, shape: Any) -> Any:
    return rearrange(aten.reshape.default, value, list(shape)) if _is_node(value) else value.reshape(shape)


@rule(CRT, aten.mv.default)
def mv(self: Any, vec: Any) -> Any:
    return _shaped(mm(self, _shaped(vec, [*vec.shape, 1])), self.shape[:1])


@rule(CRT, aten.dot.default)
def dot(self: Any, tensor: Any) -> Any:
    return _shaped(mm(_shaped(self, [1, *self.shape]), _shaped(tensor, [*tensor.shape, 1])), [])


@rule(CRT, aten.addmm.default)
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = mm(mat1, mat2) if _is_node(mat1) or _is_node(mat2) else mat1 @ mat2
    return add(_scaled(self, beta) if beta != 1 else self, product, alpha)


@rule(CRT, aten.div.Tensor, aten.div.Scalar)
def divide(self: Any, other: Any) -> Any:
    template = _template(self, other)
    if any(_is_node(v) and v.is_shared for v in (self, other)):
        raise _needs_size("division")
    one, two = _lifted(self, template), _lifted(other, template)
    if any(not v for v in two.integers().flat):
        raise ZeroDivisionError(
            "A tensor of residues was divided by zero, or by a number that rounds to zero at this precision."
        )
    digits = template.precision_fractional
    above, below = two.base ** (two.precision_fractional + digits), two.base**one.precision_fractional
    made = np.frompyfunc(lambda a, b: _rounded(a * above, b * below), 2, 1)(one.integers(), two.integers())
    return one.over(_array(made), dtype=_dtype(self, other), precision_fractional=digits)


def _rounded(above: int, below: int) -> int:
    if below < 0:
        above, below = -above, -below
    return (2 * above + below) // (2 * below)


def _needs_size(what: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        what,
        CRT,
        "Residues do not tell which of two secrets is larger, nor can they be rounded. Use storage='large', or "
        "fix_precision() without storage.",
    )


# -- comparison: 0 and 1, without fractional digits --------------------------------------------------------------


def _bits(template: CRT, values: Any) -> CRT:
    return template.over(_array(values), precision_fractional=0)


def _compared(self: Any, other: Any, local: Any) -> Any:
    template = _template(self, other)
    if any(_is_node(v) and v.is_shared for v in (self, other)):
        raise _needs_size("a comparison by size")
    one, two = _same_digits(_lifted(self, template), _lifted(other, template))
    found = np.frompyfunc(lambda a, b: int(local(a, b)), 2, 1)(one.integers(), two.integers())
    return _bits(template, found)


def _is_same(self: Any, other: Any) -> CRT:
    """1 where two are equal: all residues of the difference are 0, of shares without opening any."""
    template = _template(self, other)
    if not any(_is_node(v) and v.is_shared for v in (self, other)):
        made: CRT = _compared(self, other, lambda a, b: a == b)
        return made
    small = _reduced(subtract(self, other))
    zeros = [ring.equals_zero(r) for r in small.child.values()]
    count = zeros[0]
    for more in zeros[1:]:
        count = ring.plus(count, more)
    bit = ring.equals_zero(ring.minus(count, len(zeros)))
    # NB: a secret for each modulus, since opening one removes its shares.
    bits = {m: on_children(aten.clone.default, bit) for m in template.moduli}
    return template.with_residues(bits, magnitude=1, precision_fractional=0)


@rule(CRT, aten.eq.Tensor, aten.eq.Scalar)
def equal_to(self: Any, other: Any) -> Any:
    return _is_same(self, other)


@rule(CRT, aten.ne.Tensor, aten.ne.Scalar)
def not_equal_to(self: Any, other: Any) -> Any:
    return subtract(1, _is_same(self, other))


@rule(CRT, aten.lt.Tensor, aten.lt.Scalar)
def less_than(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a < b)


@rule(CRT, aten.gt.Tensor, aten.gt.Scalar)
def greater_than(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a > b)


@rule(CRT, aten.le.Tensor, aten.le.Scalar)
def less_or_equal(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a <= b)


@rule(CRT, aten.ge.Tensor, aten.ge.Scalar)
def greater_or_equal(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a >= b)


# -- moving about ------------------------------------------------------------------------------------------------


@rule_with_func(CRT, *MOVING, aten.clone.default)
def rearrange(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The same for every residue."""
    if func.overloadpacket in JOINING:
        template = _template(*args[0])
        nodes = [_lifted(v, template) for v in args[0]]
        finest = max(nodes, key=lambda n: n.precision_fractional)
        nodes = [_same_digits(n, finest)[0] for n in nodes]
        args = (nodes, *args[1:])
        template = _template(*nodes).with_residues(
            _template(*nodes).child, precision_fractional=finest.precision_fractional
        )
        magnitude = max(_size(n) for n in nodes)
    else:
        template = args[0]
        magnitude = template.magnitude
    residues: list[dict[int, Any]] = []
    several: Any = None
    for modulus in template.moduli:
        down = lambda v, m=modulus: v.child[m] if _is_node(v) else v  # noqa: E731
        found = on_children(func, *map_tensors(down, args), **map_tensors(down, kwargs))
        several = type(found) if isinstance(found, (list, tuple)) else None
        parts = list(found) if several else [found]
        residues = residues or [{} for _ in parts]
        for made, part in zip(residues, parts, strict=True):
            made[modulus] = part
    kept = {"magnitude": magnitude if template.is_shared else 0}
    results = [template.with_residues(made, **kept) for made in residues]
    if func.is_view:
        map_tensors(template.note_view, results)
    return several(results) if several else results[0]


@rule(CRT, aten._to_copy.default)
def to_copy(self: Any, *, dtype: Any = None, **_storage: Any) -> Any:
    if dtype is not None and not dtype.is_floating_point:
        raise UnsupportedOperationError(
            f"a conversion to {dtype}", CRT, "Decode first, with float_precision(): it presents reals."
        )
    made = rearrange(aten.clone.default, self)
    made.presented_dtype = dtype or self.presented_dtype
    return made


# -- in place ------------------------------------------------------------------------------------------------------


def _in_place(name: str) -> None:
    """`name_` writes what `name` returns."""
    packet, twin = getattr(aten, name + "_"), getattr(aten, name)
    for kind in packet.overloads():
        meaning = CRT.aten_rules.get(getattr(twin, kind, None))
        if meaning is not None:
            CRT.aten_rules[getattr(packet, kind)] = _writing(name, meaning)


def _writing(name: str, meaning: Any) -> Any:
    def run(cls: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        target, made = args[0], meaning(cls, func, args, kwargs)
        if not _is_node(target):
            raise ChainError(
                f"{name}_() was called on a plain tensor with residues, which it cannot hold. Write x = x + y."
            )
        target.check_writable(name, made)
        target.precision_fractional, target.magnitude = made.precision_fractional, made.magnitude
        target.child = made.child
        return target

    return run


for _name in "add sub mul div neg".split():
    _in_place(_name)


# -- reading ---------------------------------------------------------------------------------------------------------


def _read(self: Any, asked: str) -> Any:
    if self.is_shared:
        next(iter(self.child.values())).refuse_reading(asked)
    return self.integers()


@rule(CRT, aten._local_scalar_dense.default, aten.item.default)
def read_value(self: Any) -> Any:
    _read(self, "`.item()` (also bool(), float(), int(), `if tensor:`)")
    return self.decode().item()


@rule(CRT, aten.is_nonzero.default)
def is_nonzero(self: Any) -> bool:
    return bool(_read(self, "`if tensor:`").item())


@rule(CRT, aten.equal.default)
def is_equal(self: Any, other: Any) -> bool:
    for value in (self, other):
        if _is_node(value):
            _read(value, "`torch.equal`")
    return self.shape == other.shape and bool(all_nonzero(equal_to(self, other)))


@rule(CRT, aten.all.default)
def all_nonzero(self: Any) -> torch.Tensor:
    return torch.tensor(all(v != 0 for v in _read(self, "`torch.all`").flat))


@rule(CRT, aten.any.default)
def any_nonzero(self: Any) -> torch.Tensor:
    return torch.tensor(any(v != 0 for v in _read(self, "`torch.any`").flat))
