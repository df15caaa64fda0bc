"""Large products of fixed-point numbers, number by number, between two holders: five words are sent where six were.

NOTE [One opens]
Holders P and Q draw a_i, b_i, u_i, uniform. Q sends x_Q - a_Q and y_Q - b_Q, from which P has d = x - a_Q and
e = y - b_Q. P sends d - a_P, e - b_P and d e + u_P. The sum of the last with what Q computes from the others,

    (d - a_P) b_Q + a_Q (e - b_P) + a_Q b_Q + u_Q,

is z = x y + u - a_P b_Q - a_Q b_P, with u = u_P + u_Q: the product under a mask, as it is opened to be truncated
(NOTE [Masked product] in `scaled`), but to Q alone. All that P needs of z is whether z < 0 (NOTE [Wrap bit] in
`truncate`), and Q tells. The provider makes the truncation of r = u - a_P b_Q - a_Q b_P - 2^62.

What Q receives is under a_P, b_P and u_P, what P receives under a_Q, b_Q and u_Q: uniform words that the receiver has
not, and that mask nothing else. NB: u_Q is there for the sign. P could compute the rest of z for any x and y.

Each holder is Q for one half of the numbers, and P for the other. There are three rounds, of which the last carries one
bit for each number, so it is for large tensors. They are gone through in pieces that stay in the cache: a_i, b_i and u_i
are drawn together, for `PIECE` numbers at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch

from syft.mpc.correlations import Correlation, Field, Tensors
from syft.mpc.kernels import Bilinear
from syft.mpc.party import Expected, Party, Program, on_cpu, together
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import MUL
from syft.mpc.protocols.scaled import lanes_for, signs_in
from syft.mpc.protocols.truncate import OFFSET

HOLDERS = 2
#: Numbers of a piece, a multiple of 8. Holders and provider draw in this order.
PIECE = 1 << 15
#: From so many numbers on the bytes saved are worth a round.
_LEAST = 1 << 17
_MOST = 1 << 31

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
Shape = tuple[int, ...]


def pays_for(holders: int, op: Bilinear, x: Shape, y: Shape, divisor: int) -> bool:
    """Whether a product is made this way. Public: it depends on shapes."""
    is_power = 1 < divisor < OFFSET and not divisor & (divisor - 1)
    return holders == HOLDERS and op == MUL and x == y and is_power and _LEAST <= math.prod(x) <= _MOST


@dataclass(frozen=True)
class Crossed(Correlation):
    """a, b, u of each holder in pieces, and the truncation by 2^shift of r = u - a_0 b_1 - a_1 b_0 - 2^62.

    The quotient comes as floor(r / 2^shift) + 2^(62 - shift), which spares holders a step. Signs are -1 or 0: NOTE
    [Narrow signs] in `scaled`.
    """

    count: int
    shift: int

    on_cpu: ClassVar[bool] = True
    reads_in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.count <= _MOST:
            raise ValueError(f"A crossed product is of at most 2^31 numbers, got {self.count}.")
        if not 1 <= self.shift < 62:
            raise ValueError(f"A crossed product is divided by 2^1 to 2^61, got 2^{self.shift}.")

    @property
    def pieces(self) -> list[slice]:
        edges = [*range(0, self.count, PIECE), self.count]
        return [slice(begin, end) for begin, end in pairwise(edges)]

    @cached_property
    def base(self) -> tuple[Field, ...]:
        return tuple(Field((3, piece.stop - piece.start)) for piece in self.pieces)

    @cached_property
    def derived(self) -> tuple[Field, ...]:
        lanes = lanes_for(1 << self.shift)
        return Field((self.count,)), Field((-(-self.count // lanes),), lanes=lanes)

    def derive_from_parts(self, parts: Sequence[Any]) -> Tensors:
        if len(parts) != HOLDERS:
            raise ValueError(f"A crossed product is for two holders, got {len(parts)}.")
        quotient = torch.empty(self.count, dtype=torch.int64)
        words = torch.zeros(self.derived[1].shape, dtype=torch.int64)
        quotients, signs = quotient.numpy(), self.signs(words)
        r, product = _scratch(2)
        for piece, first, second in zip(self.pieces, *parts, strict=False):
            (a, b, u), (other_a, other_b, other_u) = first.numpy(), second.numpy()
            r, product = r[: a.size], product[: a.size]
            np.add(u, other_u, out=r)
            np.multiply(a, other_b, out=product)
            np.subtract(r, product, out=r)
            np.multiply(b, other_a, out=product)
            np.subtract(r, product, out=r)
            np.subtract(r, OFFSET, out=r)
            np.right_shift(r, self.shift, out=product)
            np.add(product, OFFSET >> self.shift, out=quotients[piece])
            np.right_shift(r, 63, out=r)
            np.copyto(signs[piece], r, casting="unsafe")
        return quotient, words

    def signs(self, words: torch.Tensor) -> Array:
        """The signs in words, by number: a view."""
        return signs_in(words, 1 << self.shift, (self.count,)).numpy()


@party_program
@on_cpu
def multiply_crossed(party: Party, x: torch.Tensor, y: torch.Tensor, shift: int) -> Program[torch.Tensor]:
    """A share of x * y / 2^shift: one of the two integers next to the quotient. Three rounds. NOTE [One opens]"""
    if party.holders != HOLDERS:
        raise ValueError(f"A crossed product is for two holders, got {party.holders}.")
    x, y = torch.broadcast_tensors(x, y)
    share = torch.empty(x.shape, dtype=torch.int64)
    flat = [one.reshape(-1).numpy() for one in (x, y, share)]
    middle = share.numel() // 2
    programs = []
    for opener, half in enumerate((slice(middle), slice(middle, None))):
        mine = [one[half] for one in flat]
        role = _opening if party.rank == opener else _answering
        programs.append(role(party, Crossed(mine[0].size, shift), *mine))
    yield from together(*programs)
    return share


def _opening(party: Party, kind: Crossed, x: Array, y: Array, share: Array) -> Program[None]:
    """What Q does with its shares of x and y; writes that of the quotient."""
    (peer,) = party.peers
    fields = party.fields(kind)
    drawn: list[torch.Tensor] = []
    masked = torch.empty((2, kind.count), dtype=torch.int64)
    of_x, of_y = masked.numpy()
    for piece, words in zip(kind.pieces, fields, strict=False):
        a, b, _ = words.numpy()
        np.subtract(x[piece], a, out=of_x[piece])
        np.subtract(y[piece], b, out=of_y[piece])
        drawn.append(words)
    yield party.exchange({peer: (masked,)})
    answers = yield party.exchange({}, {peer: (Expected((3, kind.count)),)})
    d, e, of_z = answers[peer][0].numpy()
    quotients, signs = _truncation(kind, fields)
    bits = torch.empty(-(-kind.count // 8), dtype=torch.uint8)
    packed, z, other, sign = bits.numpy(), *_scratch(2), np.empty(PIECE, signs.dtype)
    for piece, words in zip(kind.pieces, drawn, strict=True):
        a, b, u = words.numpy()
        z, other, sign = z[: a.size], other[: a.size], sign[: a.size]
        np.multiply(d[piece], b, out=z)
        np.add(z, of_z[piece], out=z)
        np.add(z, u, out=z)
        np.add(e[piece], b, out=other)
        np.multiply(other, a, out=other)
        np.add(z, other, out=z)
        negative = np.less(z, 0)
        packed[_bytes_of(piece)] = np.packbits(negative)
        # For z < 0 the sum wrapped unless r < 0: a word of 2^64 / 2^shift more. NOTE [Wrap bit] in `truncate`
        np.add(signs[piece], 1, out=sign)
        np.multiply(sign, negative, out=sign)
        np.left_shift(sign, 64 - kind.shift, out=other, dtype=np.int64)
        np.right_shift(z, kind.shift, out=z)
        np.add(z, other, out=z)
        np.subtract(z, quotients[piece], out=share[piece])
    yield party.exchange({peer: (bits,)})


def _answering(party: Party, kind: Crossed, x: Array, y: Array, share: Array) -> Program[None]:
    """What P does with its shares of x and y; writes that of the quotient."""
    (peer,) = party.peers
    fields = party.fields(kind)
    masked = yield party.exchange({}, {peer: (Expected((2, kind.count)),)})
    of_x, of_y = masked[peer][0].numpy()
    answer = torch.empty((3, kind.count), dtype=torch.int64)
    of_d, of_e, of_z = answer.numpy()
    d, e = _scratch(2)
    for piece, words in zip(kind.pieces, fields, strict=False):
        a, b, u = words.numpy()
        d, e = d[: a.size], e[: a.size]
        np.add(of_x[piece], x[piece], out=d)
        np.add(of_y[piece], y[piece], out=e)
        np.subtract(d, a, out=of_d[piece])
        np.subtract(e, b, out=of_e[piece])
        np.multiply(d, e, out=d)
        np.add(d, u, out=of_z[piece])
    yield party.exchange({peer: (answer,)})
    quotients, signs = _truncation(kind, fields)
    told = yield party.exchange({}, {peer: (Expected((-(-kind.count // 8),), torch.uint8),)})
    packed, (term,), sign = told[peer][0].numpy(), _scratch(1), np.empty(PIECE, signs.dtype)
    for piece in kind.pieces:
        size = piece.stop - piece.start
        term, sign = term[:size], sign[:size]
        np.multiply(signs[piece], np.unpackbits(packed[_bytes_of(piece)])[:size], out=sign)
        np.left_shift(sign, 64 - kind.shift, out=term, dtype=np.int64)
        np.subtract(term, quotients[piece], out=share[piece])


def _truncation(kind: Crossed, fields: Iterator[torch.Tensor]) -> tuple[Array, Array]:
    """This holder's shares of the quotient and of the signs, by number."""
    quotient, words = fields
    return quotient.numpy(), kind.signs(words)


def _scratch(count: int) -> list[Array]:
    return [np.empty(PIECE, np.int64) for _ in range(count)]


def _bytes_of(piece: slice) -> slice:
    """Where the bits of a piece lie."""
    return slice(piece.start // 8, -(-piece.stop // 8))
