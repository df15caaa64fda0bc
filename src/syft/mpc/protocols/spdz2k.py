"""Authenticated shares: a holder who changes what it sends is caught before the result is told.

Notation of SPDZ2k (Cramer, Damgard, Escudero, Scholl, Xing, "SPDZ2k: efficient MPC mod 2^k for dishonest majority",
CRYPTO 2018) with k = 64 and s = 46. A secret word x is shared as a number x' = x mod 2^64 of 110 bits, the upper 46
of which mean nothing, and so is its MAC m = alpha x' mod 2^110, alpha = sum of the holders' alpha_i, each uniform
below 2^46. Sums and products with public integers act on both. What is opened, is opened with all 110 bits, under a
mask of 110 bits.

NOTE [Why it holds]
Assumed: the provider is honest and colludes with nobody; one holder is honest; the others may do what they like. All
correlations, and the masks of what enters and leaves, come with MACs from the provider, so all that a holder can
change is what it sends in openings. Let e_j be the errors in what was opened, some e_j not 0 mod 2^64, of least
valuation v <= 63. The check passes only if alpha E = delta mod 2^110 for E = sum_j chi_j e_j and a delta that the
cheaters chose before they knew anything of alpha: alpha_i of the honest holder only ever met uniform MAC shares. The
coins chi_j < 2^46 are drawn after the e_j: E has valuation v + t or more with probability 2^-t, and then alpha E =
delta has probability at most 2^-min(46, 110 - v - t). Summed over t, for v = 63, that is below 48 * 2^-47 + 2^-46 <
2^-41. A bit's 40 tags, each the bit times a key bit, are guessed with probability 2^-40; GHASH adds at most (blocks)
2^-128. So cheating goes unnoticed with a probability below 2^-39 in each check. What is opened before the check is
uniform whatever the errors are, so a check that fails tells the cheaters nothing but that it failed.

NOTE [Entering and leaving]
A client knows no key. What enters is x - lambda, public, for a mask lambda with MAC (`Entrance`) that the provider
tells the client: [x] = (x - lambda) + [lambda]. What leaves is opened as y - omega among the holders, everything is
checked, and only then each holder hands y - omega to the client. The client compares the holders' copies, one of
which is honest, and adds the omega that the provider tells it. The holders never see y.

Truncation and comparison are those of `truncate` and `compare` with authenticated correlations (their sharing over both
rings: Damgard, Escudero, Frederiksen, Keller, Scholl, Volgushev, IEEE S&P 2019). May import `integrity`, all protocols.
"""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

import torch

from syft.exceptions import UnknownCommandError
from syft.mpc import ring
from syft.mpc.correlations import Mask, OneHot, Square, Triple, Truncation
from syft.mpc.integrity import linear as linear_operations
from syft.mpc.integrity import words
from syft.mpc.integrity.ledger import Seal
from syft.mpc.integrity.sealed import Entrance, Sealed
from syft.mpc.integrity.shares import Auth
from syft.mpc.kernels import Bilinear, floor_divide
from syft.mpc.party import Party, Program, on_cpu, sealed_twin
from syft.mpc.programs import OUTLINES, opening_program, party_program, program_named
from syft.mpc.protocols.beaver import MUL
from syft.mpc.protocols.registry import register_comparison
from syft.mpc.protocols.select import bitwise
from syft.mpc.protocols.truncate import OFFSET, _shifted

NAME = "spdz2k"
"""What users pass as `protocol`."""

COVERED = frozenset(
    """
    beaver.spdz_mul beaver.square truncate.truncate local.add local.zeros local.negate
    select.is_negative select.is_zero select.sign select.relu select.relu_with_bit select.absolute select.clamp
    select.maximum select.minimum select.argmax select.argmin select.max_with_indices
    derived.positive_part derived.largest derived.maximum_and_place derived.one_hot derived.leading_bit lookup.split_digit
    divide.divide_public divide.divide_shared divide.divide_bounded
    truncate.rescale select.cut_magnitude lookup.polynomial lookup.piecewise exponential.exponential
    """.split()
)
"""The programs that run on authenticated shares."""

_MOST_PENDING = 256 << 20
"""Bytes that wait for a check; then one is made, whether something leaves or not."""


register_comparison(bitwise(NAME, 4))


def _checked_if_much(seal: Seal) -> Program[None]:
    if seal.page.nbytes > _MOST_PENDING:
        yield from seal.check()


def _kept(result: Any) -> Any:
    """A result as holders keep it."""
    if isinstance(result, Auth):
        return result.packed()
    if isinstance(result, (tuple, list)):
        return tuple(_kept(part) for part in result)
    return result


# -- what users' calls become ------------------------------------------------------------------------------


@party_program
@on_cpu
def apply(party: Party, program: str, *args: Any, **kwargs: Any) -> Program[Any]:
    """Another program, of `COVERED`, on authenticated shares; every tensor among the arguments is one."""
    if program not in COVERED:
        raise UnknownCommandError(program)
    seal = Seal.begin(party)
    yield from _checked_if_much(seal)
    given = [seal.part(a) if isinstance(a, torch.Tensor) else a for a in args]
    result = yield from program_named(program)(party, *given, **kwargs)
    return _kept(result)


@party_program
@on_cpu
def linear(party: Party, op: str, template: Any, secrets: int, *tensors: torch.Tensor) -> Program[Any]:
    """An operation of aten that is linear in its secrets, the first of `tensors`; without rounds."""
    seal = Seal.begin(party)
    shares = [seal.part(share) for share in tensors[:secrets]]
    return _kept(linear_operations.run(op, template, shares, tensors[secrets:]))
    yield  # pragma: no cover  (makes this a party program)


@party_program
@on_cpu
def entrance(party: Party, shape: Any) -> Program[torch.Tensor]:
    """Shares of a mask that the client is told. NOTE [Entering and leaving]"""
    seal = Seal.begin(party)
    (mask,) = seal.take(Entrance(tuple(shape)))
    return _kept(mask)
    yield  # pragma: no cover


@party_program
@on_cpu
def enter(party: Party, mask: torch.Tensor, masked: torch.Tensor) -> Program[torch.Tensor]:
    """Shares of `masked`, public, plus the mask."""
    seal = Seal.begin(party)
    return _kept(seal.part(mask) + masked)
    yield  # pragma: no cover


@opening_program  # NB: the provider tells the mask to the client, who may know a holder
@on_cpu
def leave(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """x minus a mask that the client is told, public to the holders, after all was checked. Five rounds."""
    seal = Seal.begin(party)
    share = seal.part(x)
    (mask,) = seal.take(Entrance(tuple(share.shape)))
    masked: torch.Tensor = yield seal.open(share - mask)
    yield from seal.check()
    return masked


@opening_program
@on_cpu
def reveal(party: Party, x: torch.Tensor) -> Program[torch.Tensor]:
    """Open a secret to all holders: everything before it is checked first, then the opening. Nine rounds."""
    seal = Seal.begin(party)
    share = seal.part(x)
    yield from seal.check()
    (mask,) = seal.take(Mask(tuple(share.shape)))
    upper = share.like(words.shifted_by_word(mask.words))
    value: torch.Tensor = yield seal.open(share + upper)
    yield from seal.check()
    return value


# -- outlines: what the above take and give, without running them ----------------------------------------------


def _outline_apply(ask: Any, make: Any, args: Any, kwargs: Any) -> Any:
    """Twins take what their primitives take, with MACs, in the same order."""
    program, *given = args
    if program not in COVERED:
        raise UnknownCommandError(program)
    plain = ask(program, tuple(_bare(a) for a in given), kwargs)

    def packed(result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(packed(part) for part in result)
        return None if result is None else make((4, *result.shape), result.dtype)

    return [Sealed(_whole(kind)) for kind in plain.kinds], packed(plain.results)


def _whole(kind: Any) -> Any:
    """The kind that a twin takes: products with MACs are not split (`halves`)."""
    return replace(kind, split=False) if getattr(kind, "split", False) else kind


def _bare(value: Any) -> Any:
    """A share without its MAC, among the arguments of an outline."""
    is_share = is_dataclass(value) and hasattr(value, "dtype")
    return type(value)(value.shape[1:], value.dtype) if is_share else value


def _outline_mask(_ask: Any, make: Any, args: Any, _kwargs: Any) -> Any:
    return [Sealed(Entrance(tuple(args[0])))], make((4, *args[0]), torch.int64)


def _outline_enter(_ask: Any, make: Any, args: Any, _kwargs: Any) -> Any:
    return [], make(args[0].shape, torch.int64)


def _outline_opened(kind: Any) -> Any:
    def outline(_ask: Any, make: Any, args: Any, _kwargs: Any) -> Any:
        shape = tuple(args[0].shape[1:])
        return [Sealed(kind(shape))], make(shape, torch.int64)

    return outline


OUTLINES |= {
    "spdz2k.apply": _outline_apply,
    "spdz2k.entrance": _outline_mask,
    "spdz2k.enter": _outline_enter,
    "spdz2k.leave": _outline_opened(Entrance),
    "spdz2k.reveal": _outline_opened(Mask),
}


# -- twins: NOTE [Twins] in `party` ------------------------------------------------------------------------


@sealed_twin("beaver.spdz_mul")
def multiply(party: Party, x: Auth, y: Auth, op: Bilinear = MUL) -> Program[Auth]:
    """Beaver 1991 on numbers of 110 bits: op(x, y) = c + op(d, y) + op(a, e)."""
    terms = linear_operations.terms_of(op, x.shape, y.shape)
    seal: Seal = party.seal
    a, b, c = seal.take(Triple(op, tuple(x.shape), tuple(y.shape)))
    d, e = yield seal.open(x - a, y - b)
    return y.under(op, d, terms) + a.through(op, e, terms) + c


@sealed_twin("beaver.square")
def square(party: Party, x: Auth) -> Program[Auth]:
    a, aa = party.seal.take(Square(tuple(x.shape)))
    d = yield party.seal.open(x - a)
    return (x + a) * d + aa


@sealed_twin("truncate.truncate")
def truncate(party: Party, x: Auth, divisor: int) -> Program[Auth]:
    """NOTE [Wrap bit] in `truncate`, with r, floor(r / d) and the sign of r authenticated."""
    if not 1 <= divisor < OFFSET:
        raise ValueError(f"Truncation divides by an integer from 1 to 2^62 - 1, got {divisor}.")
    if divisor == 1:
        return x
    r, quotient, sign = party.seal.take(Truncation(tuple(x.shape), divisor))
    z = yield party.seal.open(r + x + OFFSET)
    negative = z >> 63
    if divisor & (divisor - 1) == 0:
        shift = divisor.bit_length() - 1
        public = (z >> shift).sub_(OFFSET >> shift).add_(negative & ring.signed(1 << (64 - shift)))
        return sign.where(negative) - quotient + public
    z = z.bitwise_and(ring.MAX)
    whole = floor_divide(z, divisor)
    rest = z.sub_(whole * divisor)
    plus = _shifted(rest, OFFSET, divisor)
    below = _shifted(rest, -(1 << 63) - OFFSET, divisor)
    direct = _shifted(rest, -OFFSET, divisor)
    public = (plus - direct).bitwise_and_(negative).add_(direct).add_(whole)
    return sign * (below - plus).bitwise_and_(negative) - quotient + public


@sealed_twin("derived.one_hot")
def one_hot(party: Party, x: Auth, size: int) -> Program[Auth]:
    """The whole of x + r is opened, of which the lowest bits are used."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"A one-hot vector has a power of two of rows, got {size}.")
    r, rows = party.seal.take(OneHot(x.numel(), size))
    z = yield party.seal.open(r + x.reshape(-1))
    places = (z.unsqueeze(1) - torch.arange(size).unsqueeze(0)).bitwise_and_(size - 1)
    made: Auth = rows.gather(1, places).movedim(1, 0).reshape(size, *x.shape)
    return made
