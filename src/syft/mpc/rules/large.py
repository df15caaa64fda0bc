"""What operations mean on numbers of large precision: on Python's integers where the limbs are here, on shared limbs
elsewhere.

Public operands (plain tensors, numbers) are encoded in the precision of the node they meet.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch

from syft.core.chain import map_tensors
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc import limbs
from syft.mpc.large_precision import LargePrecisionTensor as Large
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.moving import JOINING, MOVING, moved, nodes_in
from syft.mpc.rules.registry import on_children, rule, rule_with_func

aten = torch.ops.aten


def _is_node(value: Any) -> bool:
    return isinstance(value, Large)


def _template(*values: Any) -> Large:
    """The node whose attributes a result has; !! if two of different precision met."""
    nodes = [v for v in values if _is_node(v)]
    first = next((n for n in nodes if n.is_shared), nodes[0])
    for other in nodes:
        if other.scale != first.scale:
            raise ChainError(
                f"A tensor with base={first.base} and precision_fractional={first.precision_fractional} met one with "
                f"base={other.base} and precision_fractional={other.precision_fractional}. Bring both to the same "
                "precision: decode one with float_precision() and encode it again."
            )
    made: Any = first.like(first.child)
    made.presented_dtype = _dtype(values)
    return made


def _dtype(values: Any) -> torch.dtype:
    """What torch would make of these operands."""
    examples: list[Any] = [
        torch.empty([1] * len(v.shape), dtype=v.dtype) if isinstance(v, Large) else v
        for v in values
        if isinstance(v, (Large, torch.Tensor, bool, int, float))
    ]
    found = torch.result_type(examples[0], examples[1]) if len(examples) > 1 else examples[0].dtype
    return found if found.is_floating_point else torch.get_default_dtype()


def _units(value: Any, like: Large) -> Any:
    """An operand in units, as Python integers."""
    return value.integers() if _is_node(value) else like.encode(value)


def _rounded(above: int, below: int) -> int:
    """above / below to the nearest integer."""
    if below < 0:
        above, below = -above, -below
    return (2 * above + below) // (2 * below)


def _array(values: Any) -> Any:
    """What numpy made of object arrays: an array also where it made a single number."""
    return values if isinstance(values, np.ndarray) else limbs.objects([values], ())


def _each(function: Any, *arrays: Any) -> Any:
    return _array(np.frompyfunc(function, len(arrays), 1)(*arrays))


# -- shared limbs -----------------------------------------------------------------------------------------


class Rows:
    """Limbs along dimension 0 over a shape, a bound of them and of the value: NOTE [Redundant limbs]."""

    def __init__(self, child: Any, bits: int, magnitude: int) -> None:
        self.child, self.bits, self.magnitude = child, bits, magnitude

    @classmethod
    def of(cls, value: Any, like: Large) -> Rows:
        if _is_node(value) and value.is_shared:
            last = len(value.child.shape) - 1
            order = [last, *range(last)]
            return cls(on_children(aten.permute.default, value.child, order), value.bits, value.magnitude)
        return _public(_units(value, like))

    @property
    def shape(self) -> list[int]:
        return list(self.child.shape[1:])

    def broadcast(self, shape: Any) -> Rows:
        if self.shape == list(shape):
            return self
        missing = len(shape) - len(self.shape)
        own = list(self.child.shape)
        wide = on_children(aten.reshape.default, self.child, [own[0], *[1] * missing, *own[1:]])
        child = on_children(aten.expand.default, wide, [own[0], *shape])
        return Rows(on_children(aten.clone.default, child), self.bits, self.magnitude)

    def tidy(self) -> Rows:
        """Carried, in as many limbs as the bits ask for."""
        child = limbs.resized(self.child, limbs.count_for(self.bits))
        return Rows(limbs.carried(child, self.magnitude), self.bits, limbs.TIDY)

    def ready(self) -> Rows:
        """Tidy if it is not."""
        fits = self.child.shape[0] == limbs.count_for(self.bits)
        return self if self.magnitude <= limbs.TIDY and fits else self.tidy()

    def plus(self, other: Rows, sign: int = 1) -> Rows:
        one, two = self, other
        if self.magnitude + other.magnitude > limbs.LARGEST:
            one, two = self.tidy(), other.tidy()
        shape = torch.broadcast_shapes(tuple(one.shape), tuple(two.shape))
        bits = max(one.bits, two.bits) + 1
        count = max(limbs.count_for(bits), one.child.shape[0], two.child.shape[0])
        left, right = (limbs.resized(rows.broadcast(shape).child, count) for rows in (one, two))
        child = ring.plus(left, right) if sign > 0 else ring.minus(left, right)
        return Rows(child, bits, one.magnitude + two.magnitude)

    def times(self, other: Rows) -> Rows:
        one, two = self.ready(), other.ready()
        shape = torch.broadcast_shapes(tuple(one.shape), tuple(two.shape))
        left, right = one.broadcast(shape).child, two.broadcast(shape).child
        terms = min(left.shape[0], right.shape[0])
        return Rows(limbs.product(left, right), one.bits + two.bits, terms * limbs.TIDY**2)

    def matrix_times(self, other: Rows) -> Rows:
        one, two = self.ready(), other.ready()
        terms = one.shape[-1]
        magnitude = min(one.child.shape[0], two.child.shape[0]) * limbs.TIDY**2 * max(terms, 1)
        if magnitude > limbs.LARGEST:
            raise ValueError(
                f"A product of shared matrices adds up {terms} terms; split it into smaller ones."
            )
        bits = one.bits + two.bits + max(terms - 1, 0).bit_length()
        return Rows(limbs.matrix_product(one.child, two.child), bits, magnitude)

    def fraction(self, above: Any, below: Any) -> Rows:
        """value * above / below, for arrays of public integers: off by less than 1.001.

        The value times above / below to K limbs after the point, R = round(B^K above / below), and K limbs dropped. The
        error of R counts less than 2^-WIDTH: K is that much longer than the value.
        """
        if all(a % b == 0 for a, b in zip(above.flat, below.flat, strict=True)):
            return self.times(_public(_each(lambda a, b: a // b, above, below)))
        larger = max(a.bit_length() - b.bit_length() for a, b in zip(above.flat, below.flat, strict=True))
        places = -(-self.bits // limbs.WIDTH) + 1
        shift = limbs.WIDTH * places
        made = self.times(_public(_each(lambda a, b: _rounded(a << shift, b), above, below))).tidy()
        kept = limbs.resized(made.child, max(made.child.shape[0], places + 1))
        return Rows(limbs.dropped(kept, places), max(self.bits + larger + 3, 2), limbs.TIDY).tidy()

    def sign(self) -> Any:
        found = limbs.sign(self.tidy().child)
        return on_children(aten.reshape.default, found, self.shape)


def _public(integers: Any) -> Rows:
    bits = max(limbs.widest(integers), 1)
    return Rows(limbs.public(integers, limbs.count_for(bits)), bits, limbs.BASE)


def _one(value: int) -> Any:
    return limbs.objects([value], ())


def _shared(template: Large, rows: Rows) -> Large:
    """A node over shared limbs; they are carried before they get too large to be added a few more times."""
    if rows.magnitude > 1 << 40:
        rows = rows.tidy()
    order = [*range(1, len(rows.child.shape)), 0]
    return template.with_limbs(
        on_children(aten.permute.default, rows.child, order), rows.bits, rows.magnitude
    )


def _any_shared(*values: Any) -> bool:
    return any(_is_node(v) and v.is_shared for v in values)


# -- sums -------------------------------------------------------------------------------------------------


def _plus(self: Any, other: Any, sign: int) -> Any:
    template = _template(self, other)
    if _any_shared(self, other):
        return _shared(template, Rows.of(self, template).plus(Rows.of(other, template), sign))
    one, two = _units(self, template), _units(other, template)
    return template.over(_array(one + two if sign > 0 else one - two))


@rule(Large, aten.add.Tensor, aten.add.Scalar)
def add(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _plus(self, other if alpha == 1 else _scaled(other, alpha), 1)


@rule(Large, aten.sub.Tensor, aten.sub.Scalar)
def subtract(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _plus(self, other if alpha == 1 else _scaled(other, alpha), -1)


@rule(Large, aten.rsub.Tensor, aten.rsub.Scalar)
def subtract_from(self: Any, other: Any, alpha: Any = 1) -> Any:
    return subtract(other, self, alpha)


def _scaled(value: Any, factor: Any) -> Any:
    return multiply(value, factor) if _is_node(value) else value * factor


@rule(Large, aten.neg.default)
def negative(self: Any) -> Any:
    if self.is_shared:
        return self.with_limbs(ring.negated(self.child), self.bits, self.magnitude)
    return self.over(_array(-self.integers()))


@rule(Large, aten.abs.default)
def absolute(self: Any) -> Any:
    if self.is_shared:
        negative_ones = less_than(self, 0)
        return subtract(self, multiply(multiply(self, negative_ones), 2))
    return self.over(_array(abs(self.integers())))


@rule(Large, aten.sum.default, aten.sum.dim_IntList)
def total(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    rank = len(self.shape)
    dims = sorted({d % rank for d in dim}) if dim else list(range(rank))
    made: Any
    if self.is_shared:
        count = int(np.prod([self.shape[d] for d in dims]))
        rows = Rows.of(self, self)
        if rows.magnitude * max(count, 1) > limbs.LARGEST:
            rows = rows.tidy()
        child = ring.summed(rows.child, [d + 1 for d in dims], keepdim) if dims else rows.child
        bits = rows.bits + max(count - 1, 0).bit_length()
        made = _shared(self, Rows(child, bits, rows.magnitude * max(count, 1)))
    else:
        made = self.over(_array(self.integers().sum(axis=tuple(dims), keepdims=keepdim)))
    made.presented_dtype = dtype or self.presented_dtype
    return made


@rule(Large, aten.mean.default, aten.mean.dim)
def mean(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    made = total(self, dim, keepdim, dtype=dtype)
    count = self.shape.numel() // max(made.shape.numel(), 1)
    if not count:
        raise ValueError("mean() was asked of no elements, which have none.")
    return divide(made, count)


# -- products ---------------------------------------------------------------------------------------------


@rule(Large, aten.mul.Tensor, aten.mul.Scalar)
def multiply(self: Any, other: Any) -> Any:
    template = _template(self, other)
    if _any_shared(self, other):
        for node, factor in ((self, other), (other, self)):
            if not _any_shared(factor):
                found = _units(factor, template)
                if not any(v % template.scale for v in found.flat):  # whole numbers: nothing is rounded
                    whole = _public(_each(lambda v: v // template.scale, found))
                    return _shared(template, Rows.of(node, template).times(whole))
        product = Rows.of(self, template).times(Rows.of(other, template))
        return _shared(template, product.fraction(_one(1), _one(template.scale)))
    exact = _array(_units(self, template) * _units(other, template))
    return template.over(_each(lambda v: _rounded(v, template.scale), exact))


@rule(Large, aten.div.Tensor, aten.div.Scalar)
def divide(self: Any, other: Any) -> Any:
    template = _template(self, other)
    if not _any_shared(self, other):
        scale, divisors = template.scale, _units(other, template)
        if any(not d for d in divisors.flat):
            raise ZeroDivisionError(
                "A tensor in large precision was divided by zero, or by a number that rounds to zero at this precision."
            )
        return template.over(_each(lambda v, d: _rounded(v * scale, d), _units(self, template), divisors))
    if _any_shared(other):
        raise UnsupportedOperationError(
            "a quotient by secret numbers",
            Large,
            "Shared numbers of large precision are divided by plain numbers only. Open the divisor, or use "
            "fix_precision() without storage='large'.",
        )
    above, below = _ratios(other, template)
    return _shared(template, Rows.of(self, template).fraction(below, above))


def _ratios(divisor: Any, like: Large) -> tuple[Any, Any]:
    """Public divisors as fractions, signs below: arrays of numerators and denominators."""
    if _is_node(divisor):
        numbers, shape = [Fraction(v, divisor.scale) for v in divisor.integers().flat], divisor.shape
    elif isinstance(divisor, torch.Tensor):
        like.encode(divisor)  # refuses what is not finite
        numbers, shape = divisor.flatten().tolist(), divisor.shape
    else:
        like.encode(divisor)
        numbers, shape = [divisor], ()
    found = [number.as_integer_ratio() for number in numbers]
    above = [abs(_checked(a)) for a, _ in found]
    below = [b if a > 0 else -b for a, b in found]
    return limbs.objects(above, shape), limbs.objects(below, shape)


def _checked(divisor: int) -> int:
    if not divisor:
        raise ZeroDivisionError("A tensor in large precision was divided by zero.")
    return divisor


@rule(Large, aten.remainder.Scalar, aten.remainder.Tensor)
def remainder(self: Any, other: Any) -> Any:
    template = _template(self, other)
    if _any_shared(self, other):
        raise UnsupportedOperationError(
            "%", Large, "The remainder of a secret of large precision is not made."
        )
    return template.over(_each(lambda v, d: v % _checked(d), _units(self, template), _units(other, template)))


@rule(Large, aten.pow.Tensor_Scalar)
def power(self: Any, exponent: Any) -> Any:
    if int(exponent) != exponent or exponent < 1:
        raise ValueError(
            f"Numbers of large precision are raised to the powers 1, 2, 3, ..., not to {exponent}."
        )
    made = self
    for bit in bin(int(exponent))[3:]:
        made = multiply(made, made)
        if bit == "1":
            made = multiply(made, self)
    return made


@rule(Large, aten.mm.default, aten.bmm.default)
def mm(self: Any, mat2: Any) -> Any:
    template = _template(self, mat2)
    one, two = tuple(self.shape), tuple(mat2.shape)
    if one[-1] != two[-2] or one[:-2] != two[:-2]:
        raise RuntimeError(f"Matrices of shapes {one} and {two} cannot be multiplied.")
    if not _any_shared(self, mat2):
        left, right = _units(self, template), _units(mat2, template)
        exact = left @ right if left.size and right.size else _zeros((*one[:-1], two[-1]))
        return template.over(_each(lambda v: _rounded(v, template.scale), exact))
    if len(one) == 3:
        parts = [mm(_row(self, i), _row(mat2, i)) for i in range(one[0])]
        return rearrange(aten.stack.default, parts)
    product = Rows.of(self, template).matrix_times(Rows.of(mat2, template))
    return _shared(template, product.fraction(_one(1), _one(template.scale)))


def _zeros(shape: Any) -> Any:
    return limbs.objects([0] * int(np.prod(shape)), shape)


def _row(value: Any, index: int) -> Any:
    return rearrange(aten.select.int, value, 0, index) if _is_node(value) else value[index]


def _shaped(value: Any, shape: Any) -> Any:
    return rearrange(aten.reshape.default, value, list(shape)) if _is_node(value) else value.reshape(shape)


@rule(Large, aten.mv.default)
def mv(self: Any, vec: Any) -> Any:
    return _shaped(mm(self, _shaped(vec, [*vec.shape, 1])), self.shape[:1])


@rule(Large, aten.dot.default)
def dot(self: Any, tensor: Any) -> Any:
    return _shaped(mm(_shaped(self, [1, *self.shape]), _shaped(tensor, [*tensor.shape, 1])), [])


@rule(Large, aten.addmm.default)
def addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = mm(mat1, mat2) if _is_node(mat1) or _is_node(mat2) else mat1 @ mat2
    return add(_scaled(self, beta) if beta != 1 else self, product, alpha)


# -- comparison: 0 and 1 in large precision -----------------------------------------------------------------


def _compared(self: Any, other: Any, local: Any, shared: Any) -> Any:
    template = _template(self, other)
    if not _any_shared(self, other):
        bits = _each(lambda a, b: int(local(a, b)), _units(self, template), _units(other, template))
        return template.over(_array(bits * template.scale))
    difference = Rows.of(self, template).plus(Rows.of(other, template), -1)
    bits = shared(difference.sign())
    one = Rows(on_children(aten.unsqueeze.default, bits, 0), 1, 1)
    return _shared(template, one.times(_public(_one(template.scale))))


def _less(sign: Any) -> Any:
    return ring.less_than_zero(sign)


def _greater(sign: Any) -> Any:
    return ring.less_than_zero(ring.negated(sign))


@rule(Large, aten.lt.Tensor, aten.lt.Scalar)
def less_than(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a < b, _less)


@rule(Large, aten.gt.Tensor, aten.gt.Scalar)
def greater_than(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a > b, _greater)


@rule(Large, aten.ge.Tensor, aten.ge.Scalar)
def greater_or_equal(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a >= b, lambda s: ring.from_public(1, _less(s)))


@rule(Large, aten.le.Tensor, aten.le.Scalar)
def less_or_equal(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a <= b, lambda s: ring.from_public(1, _greater(s)))


@rule(Large, aten.eq.Tensor, aten.eq.Scalar)
def equal_to(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a == b, ring.equals_zero)


@rule(Large, aten.ne.Tensor, aten.ne.Scalar)
def not_equal_to(self: Any, other: Any) -> Any:
    return _compared(self, other, lambda a, b: a != b, lambda s: ring.from_public(1, ring.equals_zero(s)))


# -- moving about ------------------------------------------------------------------------------------------


@rule_with_func(Large, *MOVING)
def rearrange(func: Any, *args: Any, **kwargs: Any) -> Any:
    nodes = nodes_in(Large, args, kwargs)
    template = _template(*nodes)
    if func.overloadpacket in JOINING:
        args = ([_joinable(v, template) for v in args[0]], *args[1:])
        nodes = nodes_in(Large, args)
    flat, bits, magnitude = _elements(nodes, template)

    def taken(places: torch.Tensor) -> Any:
        chosen = on_children(aten.index_select.default, flat, 0, places.contiguous().view(-1))
        child = on_children(aten.reshape.default, chosen, [*places.shape, flat.shape[-1]])
        return template.with_limbs(child, bits, magnitude) if bits else template.like(child)

    made = moved(func, args, kwargs, Large, taken)
    if func.is_view:
        map_tensors(nodes[0].note_view, made)
    return made


def _joinable(value: Any, template: Large) -> Large:
    made: Large = value if _is_node(value) else template.over(template.encode(value))
    return made


def _elements(nodes: list[Large], template: Large) -> tuple[Any, int, int]:
    """The limbs of all elements, one row each, and the bounds of shared ones (0 of local ones)."""
    if not template.is_shared:
        count = max(n.child.shape[-1] for n in nodes)
        if len(nodes) > 1 and any(n.child.shape[-1] != count for n in nodes):
            width, kind = template.internal_precision, template.internal_type
            parts = [limbs.split(n.integers(), width, count, kind) for n in nodes]
        else:
            parts = [n.child for n in nodes]
        return torch.cat([p.reshape(-1, count) for p in parts]), 0, 0
    rows = [Rows.of(n, template) for n in nodes]
    bits, count = max(r.bits for r in rows), max(r.child.shape[0] for r in rows)
    flat = []
    for r in rows:
        wide = limbs.resized(r.child, max(count, limbs.count_for(bits)))
        flat.append(
            on_children(
                aten.t.default,
                on_children(aten.reshape.default, wide, [wide.shape[0], int(np.prod(r.shape))]),
            )
        )
    joined = flat[0] if len(flat) == 1 else on_children(aten.cat.default, flat, 0)
    return joined, bits, max(r.magnitude for r in rows)


@rule(Large, aten.clone.default)
def clone(self: Any, *, memory_format: Any = None) -> Any:
    return self.like(on_children(aten.clone.default, self.child))


@rule(Large, aten._to_copy.default)
def to_copy(self: Any, *, dtype: Any = None, **_storage: Any) -> Any:
    if dtype is not None and not dtype.is_floating_point:
        raise UnsupportedOperationError(
            f"a conversion to {dtype}", Large, "Decode first, with float_precision(): it presents reals."
        )
    made = clone(self)
    made.presented_dtype = dtype or self.presented_dtype
    return made


@rule(Large, aten.zeros_like.default)
def zeros_like(self: Any, **_options: Any) -> Any:
    return self.like(on_children(aten.zeros_like.default, self.child))


# -- in place ----------------------------------------------------------------------------------------------


def _in_place(name: str) -> None:
    """`name_` writes what `name` returns."""
    packet, twin = getattr(aten, name + "_"), getattr(aten, name)
    for kind in packet.overloads():
        meaning = Large.aten_rules.get(getattr(twin, kind, None))
        if meaning is not None:
            Large.aten_rules[getattr(packet, kind)] = _writing(name, meaning)


def _writing(name: str, meaning: Any) -> Any:
    def run(cls: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return _written(name, args[0], meaning(cls, func, args, kwargs))

    return run


def _written(name: str, target: Any, made: Large) -> Any:
    if not _is_node(target):
        raise ChainError(
            f"{name}_() was called on a plain tensor with one in large precision, which it cannot hold. Write x = x + y."
        )
    target.check_writable(name, made)
    target.child, target.bits, target.magnitude = None, made.bits, made.magnitude
    target.child = made.child
    return target


for _name in "add sub mul div neg abs remainder pow".split():
    _in_place(_name)


@rule(Large, aten.copy_.default, aten.fill_.Scalar, aten.fill_.Tensor)
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    like = _template(self)
    source = src if _is_node(src) else like.over(like.encode(src))
    _template(self, source)
    return _written("copy", self, clone(rearrange(aten.expand.default, source, list(self.shape))))


# -- reading -----------------------------------------------------------------------------------------------


def _read(self: Any, asked: str) -> Any:
    if self.is_shared:
        self.child.refuse_reading(asked)
    return self.integers()


@rule(Large, aten._local_scalar_dense.default, aten.item.default)
def read_value(self: Any) -> Any:
    _read(self, "`.item()` (also bool(), float(), int(), `if tensor:`)")
    return self.decode().item()


@rule(Large, aten.is_nonzero.default)
def is_nonzero(self: Any) -> bool:
    return bool(_read(self, "`if tensor:`").item())


@rule(Large, aten.equal.default)
def is_equal(self: Any, other: Any) -> bool:
    if _any_shared(self, other):
        (self if _any_shared(self) else other).child.refuse_reading("`torch.equal`")
    template = _template(self, other)
    one, two = _units(self, template), _units(other, template)
    return one.shape == two.shape and bool((one == two).all())


@rule(Large, aten.all.default)
def all_nonzero(self: Any) -> torch.Tensor:
    return torch.tensor(all(v != 0 for v in _read(self, "`torch.all`").flat))


@rule(Large, aten.any.default)
def any_nonzero(self: Any) -> torch.Tensor:
    return torch.tensor(any(v != 0 for v in _read(self, "`torch.any`").flat))
