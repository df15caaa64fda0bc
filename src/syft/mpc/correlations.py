"""The kinds of correlated randomness: what the holders get, and how the provider derives it.

One duty: describe each correlation as data. A kind names its `base` fields, uniform and drawn by every
holder from its own seed, and its `derived` fields, functions of the base values that only the provider can
compute (`derive`); the derived ones cost one correction, to one holder. Kinds are frozen and hashable: they
travel as a request and are the key of what was made ahead of time. Adding one is one class here. May import
`halves`, `ring`, `kernels`, `randomness`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch

from syft.mpc import halves, ring
from syft.mpc.kernels import Bilinear, floor_divide
from syft.mpc.randomness import BoundStream

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Field:
    """One tensor of a correlation: additively shared, or (`bits`) Boolean-shared words.

    A derived field may be `common`: the same, unshared, for every holder (the correction words of a key). With `lanes`,
    a word holds so many numbers, each shared mod 2^(64 / lanes). With `less`, the value is the first of two holders'
    words less the other's: NOTE [One product] in `halves`.
    """

    shape: Shape
    bits: bool = False
    common: bool = False
    lanes: int = 1
    less: bool = False

    @property
    def nbytes(self) -> int:
        return ring.WORD_BYTES * math.prod(self.shape)

    def numbers(self, words: torch.Tensor) -> torch.Tensor:
        """What is shared one by one of a field's words: a view."""
        return words if self.lanes == 1 else words.view(LANES[self.lanes])


LANES = {4: torch.int16, 2: torch.int32}
"""The dtype of numbers of which a word holds so many; the most first."""


@dataclass(frozen=True)
class Place:
    """Where a correlation was drawn: the run, what its randomness was bound to, and the position in it.

    It names a `Mask`: the provider draws that again from the seeds it shares with the holders and remembers nothing.
    What is drawn at a place is bound to the kind, too, so no other correlation can be had as a mask.
    """

    run: int
    program: bytes
    position: int


class Kept(NamedTuple):
    """The mask of an operand that is masked already, as a kind names it; with `dim`, as `halves` takes it."""

    place: Place
    shape: Shape
    dim: int | None = None


class Correlation:
    """Base of all kinds. A holder receives its shares of `base`, then of `derived`, as one tuple."""

    #: It is made and kept on the CPU wherever the shares lie: NOTE [On the CPU] in `drivers`.
    on_cpu: ClassVar[bool] = False
    #: Its `derive_from_parts` reads each holder's fields once and in order, so it may be given iterators.
    reads_in_order: ClassVar[bool] = False

    @property
    def base(self) -> tuple[Field, ...]:
        raise NotImplementedError

    @property
    def derived(self) -> tuple[Field, ...]:
        return ()

    @property
    def kept(self) -> tuple[Kept, ...]:
        """Masks of operands that are masked already, whose values `derive` gets in front of the base values."""
        return ()

    def derive(self, *base: torch.Tensor) -> Tensors:
        """The derived values from the base values; the provider's work. It is given fresh tensors, and writes
        to those it gets back: none of them may be returned twice.
        """
        return ()

    def deal(self, streams: Sequence[BoundStream], meant: bytes) -> list[Tensors] | None:
        """Every holder's part, for kinds that are cut in a way of their own; None for all others."""
        return None

    def derive_from_parts(self, parts: Sequence[Sequence[torch.Tensor]]) -> Tensors | None:
        """For kinds whose derived values depend on each holder's own base fields; None for all others."""
        return None


@dataclass(frozen=True)
class Mask(Correlation):
    """A uniform mask of one operand, for all its products: NOTE [Masked operands] in `protocols.beaver`."""

    shape: Shape

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape),)


@dataclass(frozen=True)
class Triple(Correlation):
    """a, b, c = op(a, b) for a bilinear `op` (Beaver 1991, section 2).

    Kept operands have no field of their own. If it is `split`, it is for one product for each of two holders: the masks
    stand for what they draw, U, V, S, T, and c is op(U - S, V - T). NOTE [One product] in `halves`
    """

    op: Bilinear
    x: Shape
    y: Shape
    kept_x: Place | None = None
    kept_y: Place | None = None
    split: bool = False

    def __post_init__(self) -> None:
        if self.split:
            _ = self.dims

    @cached_property
    def dims(self) -> tuple[int, int]:
        """The dimensions of x and of y that a split product sums over. !! ValueError if there are none"""
        found = halves.inner_dims(self.op, self.x, self.y)
        if found is None:
            raise ValueError(
                f"A {self.op.name} of {self.x} and {self.y} sums over no dimension of both, and cannot be split."
            )
        return found

    @property
    def masks(self) -> tuple[Field, ...]:
        """The operands that are not kept."""
        free = [(self.x, self.kept_x), (self.y, self.kept_y)]
        return tuple(Field(shape, less=self.split) for shape, mask in free if mask is None)

    @cached_property
    def base(self) -> tuple[Field, ...]:
        return self.masks

    @cached_property
    def derived(self) -> tuple[Field, ...]:
        return (Field(self.op.output_shape(self.x, self.y)),)

    @property
    def kept(self) -> tuple[Kept, ...]:
        dims = self.dims if self.split else (None, None)
        both = zip((self.kept_x, self.kept_y), (self.x, self.y), dims, strict=True)
        return tuple(Kept(mask, shape, dim) for mask, shape, dim in both if mask is not None)

    def derive(self, *base: torch.Tensor) -> Tensors:
        if self.kept_x is None and self.kept_y is not None:  # kept values come first
            base = (base[1], base[0])
        return (self.op(*base),)


def placed(kind: Correlation, places: Mapping[Place, Place]) -> Correlation:
    """A kind with other places for those among the keys."""
    if not isinstance(kind, Triple) or not kind.kept:
        return kind
    kept = [None if one is None else places.get(one, one) for one in (kind.kept_x, kind.kept_y)]
    return replace(kind, kept_x=kept[0], kept_y=kept[1])


@dataclass(frozen=True)
class Square(Correlation):
    """a, a * a."""

    shape: Shape

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field(self.shape),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        return (base[0] * base[0],)


@dataclass(frozen=True)
class And(Correlation):
    """Words a, b and a & b, bit by bit."""

    shape: Shape

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape, True), Field(self.shape, True))

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field(self.shape, True),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        return (base[0] & base[1],)


@dataclass(frozen=True)
class Conjunction(Correlation):
    """Masks of so many factors, words of one shape, and the product of each subset of the masks, bit by bit: at S that of
    the masks j whose bit j is in S, so all ones at 0.
    """

    factors: int
    shape: Shape

    def __post_init__(self) -> None:
        if not 1 <= self.factors <= 10:
            raise ValueError(f"A conjunction has 1 to 10 factors, got {self.factors}.")

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.factors, *self.shape), True),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((1 << self.factors, *self.shape), True),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        made = torch.empty(self.derived[0].shape, dtype=torch.int64, device=base[0].device)
        made[0] = ring.ONES
        for index, mask in enumerate(base[0]):
            half = 1 << index
            torch.bitwise_and(made[:half], mask, out=made[half : 2 * half])
        return (made,)


@dataclass(frozen=True)
class Truncation(Correlation):
    """r uniform, floor(r / divisor) of r read as signed, and the sign bit of r (1 where r < 0).

    Of a power of two, 2^k, the sign comes as -2^(64 - k) or 0, which is how it is used.
    """

    shape: Shape
    divisor: int

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field(self.shape), Field(self.shape))

    def derive(self, *base: torch.Tensor) -> Tensors:
        quotient, sign = floor_divide(base[0], self.divisor), base[0] >> 63
        if self.divisor & (self.divisor - 1) == 0:
            return quotient, sign.bitwise_left_shift_(ring.BITS + 1 - self.divisor.bit_length())
        return quotient, sign.neg_()


@dataclass(frozen=True)
class OneHot(Correlation):
    """r uniform, and (count, size): column j is 1 where r mod `size`, a power of two, is j."""

    count: int
    size: int

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.count,)),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((self.count, self.size)),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        rows = torch.zeros((self.count, self.size), dtype=torch.int64, device=base[0].device)
        return (rows.scatter_(1, (base[0] & (self.size - 1)).unsqueeze(1), 1),)


@dataclass(frozen=True)
class Digit(Correlation):
    """r uniform, r mod 2^shift, and (count, size): which digit r has above its `shift` lowest bits.

    Column j is 1 where the digit mod `size`, a power of two, is j, and 0 elsewhere.
    """

    count: int
    shift: int
    size: int

    def __post_init__(self) -> None:
        width = self.size.bit_length() - 1
        if self.size < 1 or self.size & (self.size - 1):
            raise ValueError(f"A digit has a power of two of values, got {self.size}.")
        if self.shift < 1 or self.shift + width > ring.BITS:
            raise ValueError(
                f"A digit of {width} bits above {self.shift} lower ones is not inside a word of {ring.BITS}."
            )

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((self.count,)),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((self.count,)), Field((self.count, self.size)))

    def derive(self, *base: torch.Tensor) -> Tensors:
        column = (base[0] >> self.shift).bitwise_and_(self.size - 1).unsqueeze_(1)
        rows = torch.zeros((self.count, self.size), dtype=torch.int64, device=column.device)
        return base[0] & ((1 << self.shift) - 1), rows.scatter_(1, column, 1)


@dataclass(frozen=True)
class Bits(Correlation):
    """`count` random bits rho, packed and Boolean-shared, and as additive shares: doubly shared bits.

    With `values`, also a mask s for a tensor of each shape and rho * s, rho spread over the last dimension
    of a shape that has one more element per bit: what a selection by a shared bit consumes.
    """

    count: int
    values: tuple[int, ...] = ()  # elements per bit of each value

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field((ring.words_for(self.count),), True), *(Field((self.count, k)) for k in self.values))

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field((self.count,)), *(Field((self.count, k)) for k in self.values))

    def derive(self, *base: torch.Tensor) -> Tensors:
        rho = ring.unpack_bits(base[0], self.count)
        return (rho, *(rho.unsqueeze(1) * mask for mask in base[1:]))


@dataclass(frozen=True)
class Prefix(Correlation):
    """Masks a, b of words with a & (a << s) and a & (b << s): one level of a parallel prefix of carries."""

    shape: Shape
    shift: int

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape, True), Field(self.shape, True))

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field(self.shape, True), Field(self.shape, True))

    def derive(self, *base: torch.Tensor) -> Tensors:
        a, b = base
        return a & (a << self.shift), a & (b << self.shift)


@dataclass(frozen=True)
class MaskedWord(Correlation):
    """r uniform, shared both ways: additively, and bit by bit in natural order."""

    shape: Shape

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape),)

    @property
    def derived(self) -> tuple[Field, ...]:
        return (Field(self.shape, True),)

    def derive(self, *base: torch.Tensor) -> Tensors:
        return (base[0],)


# -- comparison ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Level:
    """One interactive level of a comparison tree: `radix` neighbours join, on (groups, columns) words."""

    radix: int
    width: int
    groups: int
    columns: int
    outputs: int  # 2: less and equal; 1: one of them
    less: bool  # whether `less` is among the outputs

    @property
    def masks(self) -> int:
        """Words masked besides the radix - 1 `equal` ones.

        The lowest neighbour's, then `less` of the inner ones.
        """
        return self.outputs + (self.radix - 2 if self.less else 0)

    @property
    def subsets(self) -> int:
        return 1 << (self.radix - 1)


FAN_INS: dict[int, tuple[int, ...]] = {2: (2,) * 6, 4: (4,) * 3}
"""Radices of the tree by fan-in; the first of them costs no round."""


@dataclass(frozen=True)
class Comparison(Correlation):
    """r shared additively, the products of its neighbouring bits, and the masks of the tree above them.

    `sign`: for the sign of a masked value; otherwise for its being zero. `select`: also rho, shared both
    ways, and rho * r, so that the masked value can be multiplied by the resulting bit without masking it
    again. `edges`: the one masked value is compared with so many public numbers, by as many trees side by side.
    """

    count: int
    fan_in: int = 4
    sign: bool = True
    select: bool = False
    edges: int = 1

    def __post_init__(self) -> None:
        if self.fan_in not in FAN_INS:
            raise ValueError(
                f"A comparison tree has a fan-in of {' or '.join(map(str, FAN_INS))}, got {self.fan_in}."
            )
        if self.edges < 1 or (self.select and self.edges > 1):
            raise ValueError(f"A comparison has an edge, and one only for a selection; got {self.edges}.")

    @cached_property
    def columns(self) -> int:
        return ring.words_for(self.count)

    @cached_property
    def planes(self) -> int:
        return ring.padded(self.count) // self.columns if self.count else 0

    @cached_property
    def radices(self) -> tuple[int, ...]:
        return FAN_INS[self.fan_in]

    @cached_property
    def groups(self) -> int:
        """Words per column after the first level, which is local."""
        return -(-self.planes // self.radices[0])

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        levels, groups, width = [], self.groups, self.radices[0]
        for index, radix in enumerate(self.radices[1:], start=2):
            groups = -(-groups // radix)
            outputs = 2 if self.sign and index < len(self.radices) else 1
            levels.append(Level(radix, width, groups, self.columns * self.edges, outputs, self.sign))
            width *= radix
        return tuple(levels)

    @cached_property
    def base(self) -> tuple[Field, ...]:
        fields = [Field((self.planes * self.columns,))]
        for level in self.levels:
            shape = (level.groups, level.columns)
            fields += [Field((level.radix - 1, *shape), True), Field((level.masks, *shape), True)]
        if self.select:
            fields.append(Field((self.columns,), True))
        return tuple(fields)

    @cached_property
    def derived(self) -> tuple[Field, ...]:
        fields = [Field(((1 << self.radices[0]) - 1, self.groups, self.columns), True)]
        for level in self.levels:
            shape = (level.groups, level.columns)
            products = level.subsets - level.radix
            fields += [Field((products, *shape), True)] if products else []
            fields.append(Field((level.subsets - 1, level.outputs, *shape), True))
        if self.select:
            fields += [Field((self.count,)), Field((self.count,))]
        return tuple(fields)

    def derive(self, *base: torch.Tensor) -> Tensors:
        r = base[0]
        results = [self.monomials(r)]
        for index, level in enumerate(self.levels):
            results += _level_products(level, base[1 + 2 * index], base[2 + 2 * index])
        if self.select:
            rho = ring.unpack_bits(base[-1], self.count)
            results += [rho, rho * r[: self.count]]
        return tuple(results)

    def monomials(self, r: torch.Tensor) -> torch.Tensor:
        """Products of every non-empty subset S of each group's bits of r, at index S - 1."""
        radix = self.radices[0]
        out = torch.empty(self.derived[0].shape, dtype=torch.int64, device=r.device)
        bits = ring.pack_all(r.view(self.planes, self.columns), radix, 1)
        for bit in range(radix):
            one = 1 << bit
            out[one - 1] = bits[bit]
            if one > 1:
                torch.bitwise_and(out[: one - 1], out[one - 1], out=out[one : 2 * one - 1])
        if self.sign:  # the sign bit takes no part in the products: see NOTE [Sign bit] in protocols/compare
            half = 1 << (radix - 1)
            out[half:].bitwise_and_(~top_mask(radix))
        return out


def top_mask(radix: int) -> int:
    """Where the packed words of the first level hold what belongs to the sign bit's group."""
    return ring.signed(((1 << radix) - 1) << (ring.BITS - radix))


def _level_products(level: Level, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """The products of masks one tree level consumes, in the order of `Comparison.derived`."""
    subsets = all_subsets(level, a, [])
    results = (
        [torch.stack([subsets[s] for s in range(1, level.subsets) if s & (s - 1)])] if level.radix > 2 else []
    )
    terms = torch.empty((level.subsets - 1, level.outputs, *a.shape[1:]), dtype=torch.int64, device=a.device)
    for s in range(1, level.subsets):
        torch.bitwise_and(subsets[s], b[: level.outputs], out=terms[s - 1])
    for s, product, inner in inner_terms(level):
        terms[s - 1, 0].bitwise_xor_(subsets[product] & b[level.outputs + inner - 1])
    return [*results, terms]


def all_subsets(level: Level, singles: torch.Tensor, products: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Products of the `equal` masks by subset; from given ones where there are any, else computed."""
    found: list[torch.Tensor] = [singles[0]] * level.subsets  # index 0 is never read
    given = iter(products)
    for s in range(1, level.subsets):
        low = s & -s
        if s == low:
            found[s] = singles[low.bit_length() - 1]
        else:
            found[s] = next(given) if len(products) else found[s ^ low] & found[low]
    return found


def inner_terms(level: Level) -> list[tuple[int, int, int]]:
    """(index, subset, inner neighbour): where `less` of an inner neighbour, times equals above it, joins in.

    Neighbour j, 0 < j < radix - 1, counts when all above it are equal: the term of the subset S of those
    above stands at index S | (2^j - 1), where the factors below j would have stood.
    """
    terms = []
    if level.less:
        for j in range(1, level.radix - 1):
            above = range(1 << j, level.subsets, 1 << j)
            terms += [(s | ((1 << j) - 1), s, j) for s in above]
    return terms
