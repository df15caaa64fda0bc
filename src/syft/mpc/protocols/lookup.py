"""Public tables, read at a digit of a secret: what functions that are known piece by piece are made of.

NOTE [A digit for the price of an opening]
z = x + r is open, with r uniform. With a = floor(z / 2^shift) and b = floor(r / 2^shift), x = 2^shift (a - b) + (z mod
2^shift - r mod 2^shift): the digit a - b of x, rounded down or up, and what is left of x, between -2^shift and 2^shift,
are found by one opening. a is public and b the dealer's, so the dealer's one-hot row of b, read from a downwards, is that
of a - b, and a table is read by a sum over it (the one-time tables of Ishai, Kushilevitz, Meldgaard, Orlandi, Paskin-
Cherniavsky, TCC 2013, section 3.1, kept as rows so that one serves several tables). Only b mod `size` is used, so the
digit is known mod `size`: the caller sees to it that it lies in a range of that size.

NOTE [Pieces of what is masked]
x = d + t, |t| < 1, with a digit d (in units of 2^shift): p_d(t) is the value of a polynomial that a table has for d. With
z = x + r open mod `size`, and the lowest bits zl, rl of z and r, t = zl - rl and

    p_d(zl - rl) = sum_k (-rl)^k q_k(zl) / 2^(k shift)

for the coefficients q_k of p_d(zl + t), which are public for each d that can be. The provider deals (-rl)^k in row rh of
a column that is 0 elsewhere (`DigitPowers`): the sum over all rows, each times the q_k of its digit, is the result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from syft.mpc.correlations import Digit
from syft.mpc.correlations_of_functions import DigitPowers
from syft.mpc.kernels import Bilinear, is_on_cuda
from syft.mpc.party import Party, Program, primitive, sealed_twin, stack
from syft.mpc.programs import party_program
from syft.mpc.protocols.beaver import spdz_mul, square
from syft.mpc.protocols.truncate import truncate

_MATMUL = Bilinear("matmul")
_BLOCK = 1 << 11
#: Up to so many tables are turned; with more of them it is the rows. And words of a block of rows then.
_FEW_TABLES, _CACHED_WORDS = 3, 1 << 15


def packed(*tables: list[int]) -> bytes:
    """Tables of one length as an argument of the programs below: hashed, compared and sent at once."""
    return np.asarray(tables, dtype=np.int64).tobytes()


# -- polynomials -----------------------------------------------------------------------------------------


def powers(party: Party, t: Any, degree: int, shift: int) -> Program[list[Any]]:
    """[t, t^2, ..., t^degree], all with `shift` fractional bits, by doubling. Two rounds for each."""
    made = [t]
    while len(made) < degree:
        taken, highest = made[: degree - len(made)], made[-1]
        if len(taken) == 1:
            product = (
                (yield from square(party, t))
                if highest is t
                else (yield from spdz_mul(party, taken[0], highest))
            )
            made.append((yield from truncate(party, product, 1 << shift)))
        else:
            products = yield from spdz_mul(party, stack(taken), highest.unsqueeze(0))
            made += list((yield from truncate(party, products, 1 << shift)))
    return made


@party_program
def polynomial(
    party: Party, t: torch.Tensor, coefficients: bytes, shift: int, bits: int
) -> Program[torch.Tensor]:
    """The value at t, |t| <= 1, which has `shift` fractional bits like the coefficients, lowest first, with `bits`."""
    constant, *others = np.frombuffer(coefficients, dtype=np.int64).tolist()
    made = yield from powers(party, t, len(others), shift)
    terms = [power * coefficient for power, coefficient in zip(made, others, strict=True)]
    total = yield from truncate(party, sum(terms[1:], start=terms[0]), 1 << (2 * shift - bits))
    return party.plus(total, (constant + ((1 << (shift - bits)) >> 1)) >> (shift - bits))


# -- tables ------------------------------------------------------------------------------------------------


@party_program
@primitive
def split_digit(
    party: Party, x: torch.Tensor, shift: int, size: int, tables: bytes
) -> Program[tuple[torch.Tensor, torch.Tensor]]:
    """(rest, read): x less its digit times 2^shift, and (tables, *shape) read at the digit. One round, 8 bytes.

    The digit is one of the two integers next to x / 2^shift, so |rest| < 2^shift.
    """
    kind = Digit(x.numel(), shift, size)
    entries = placed(tables, size, x.device)
    r, rest, rows = party.take(kind)
    z = yield party.open(r.add_(x.reshape(-1)))
    rest.neg_()
    if party.first:
        rest.add_(z & ((1 << shift) - 1))
    read = _read(rows, (z >> shift).bitwise_and_(size - 1), entries)
    return rest.view(x.shape), read.view(-1, *x.shape)


@lru_cache(maxsize=64)
def _entries(tables: bytes, size: int) -> torch.Tensor:
    """(tables, size)"""
    found = np.frombuffer(tables, dtype=np.int64)
    if not found.size or found.size % size:
        raise ValueError(f"Tables of {size} words each were expected, got {found.size} words.")
    return torch.from_numpy(found.copy()).view(-1, size)


_MOST_KEPT = 4096
_KEPT: dict[tuple[bytes, int, torch.device], torch.Tensor] = {}
"""Tables on devices. None is dropped: a recording of a program (`syft.mpc.cuda.graphs`) reads them where they are."""


def placed(tables: bytes, size: int, device: torch.device) -> torch.Tensor:
    """`_entries` on a device. While a program is recorded nothing can be copied there: it was run before."""
    if device.type == "cpu":
        return _entries(tables, size)
    found = _KEPT.get((tables, size, device))
    if found is None:
        found = _entries(tables, size).to(device)
        if len(_KEPT) < _MOST_KEPT:
            _KEPT[tables, size, device] = found
    return found


def _read(rows: torch.Tensor, digit: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
    """(tables, n): each table times each row (n, size), which is read from the digit downwards.

    Block by block on the CPU: what is moved stays in the cache. A few tables are turned instead of the rows.
    """
    count, size = rows.shape
    if rows.device.type == "cpu" and entries.shape[0] <= _FEW_TABLES and count > size:
        # sum_j row[digit - j] table[j] = sum_k row[k] table[digit - k]
        counts = torch.arange(size)
        return read_turned(rows, digit, entries[:, (counts.unsqueeze(1) - counts).bitwise_and_(size - 1)])
    counts = torch.arange(size, device=rows.device)
    out = rows.new_empty((entries.shape[0], count))
    step = count if is_on_cuda(rows) else _BLOCK
    for start in range(0, count, max(step, 1)):
        part = slice(start, start + step)
        places = (digit[part].unsqueeze(1) - counts).bitwise_and_(size - 1)
        out[:, part] = _MATMUL(entries, rows[part].gather(1, places).t())
    return out


def read_turned(rows: torch.Tensor, at: torch.Tensor, turned: torch.Tensor) -> torch.Tensor:
    """(tables, n): the sum over k of rows[n, k] turned[table, at[n], k]."""
    if rows.device.type != "cpu":
        return (turned[:, at] * rows).sum(-1)
    count, size = rows.shape
    all_rows, places, tables = rows.numpy(), at.numpy(), np.ascontiguousarray(turned.numpy())
    out = np.empty((len(tables), count), np.int64)
    step = max(1, _CACHED_WORDS // size)
    factors = np.empty((step, size), np.int64)
    for start in range(0, count, step):
        part = slice(start, start + step)
        block, here = all_rows[part], places[part]
        for table, into in zip(tables, out, strict=True):
            found = table.take(
                here, axis=0, out=factors[: len(here)], mode="clip"
            )  # NB: others make a copy; none is cut
            np.einsum("nk,nk->n", found, block, out=into[part])
    return torch.from_numpy(out)


@party_program
def piecewise(party: Party, x: torch.Tensor, shift: int, size: int, tables: bytes) -> Program[torch.Tensor]:
    """sum_k tables[k][d] t^k for x = d + t with a digit d and |t| < 1; all have `shift` fractional bits."""
    t, read = yield from split_digit(party, x, shift, size, tables)
    made = yield from powers(party, t, read.shape[0] - 1, shift)
    terms = yield from spdz_mul(party, read[1:], stack(made))
    total = yield from truncate(party, sum(terms[1:], start=terms[0]), 1 << shift)
    return read[0] + total


PIECE_BITS = 30
"""Bits of the powers that are dealt for `read_pieces`: its results have `shift` more."""


@primitive
def read_pieces(
    party: Party, x: torch.Tensor, shift: int, size: int, functions: int, tables: bytes
) -> Program[torch.Tensor]:
    """(functions, *shape): `piecewise` of some functions of one degree, their tables one after the other, at `shift` +
    PIECE_BITS bits and below 2^4. One round. NOTE [Pieces of what is masked]
    """
    public = placed(tables, size, x.device)
    degree = len(public) // functions - 1
    r, rows = party.take(DigitPowers(x.numel(), shift, size, degree, PIECE_BITS))
    z = yield party.open(r.add_(x.reshape(-1)).bitwise_and_((size << shift) - 1))
    counts = torch.arange(size, device=z.device)
    places = ((z >> shift).unsqueeze(1) - counts).bitwise_and_(size - 1)
    factors = public[:, places].view(functions, degree + 1, *places.shape)
    _move(factors, (z & ((1 << shift) - 1)).unsqueeze_(1), shift)
    return factors.mul_(rows).sum((1, 3)).view(functions, *x.shape)


def _move(coefficients: torch.Tensor, by: torch.Tensor, shift: int) -> None:
    """Coefficients (functions, degree + 1, ...) of p(t) become those of p(t + by / 2^shift), by repeated division."""
    degree = coefficients.shape[1] - 1
    for lowest in range(degree):
        for k in range(degree - 1, lowest - 1, -1):
            coefficients[:, k] += (coefficients[:, k + 1] * by).bitwise_right_shift_(shift)


@sealed_twin("lookup.split_digit")
def split_digit_sealed(
    party: Party, x: Any, shift: int, size: int, tables: bytes
) -> Program[tuple[Any, Any]]:
    """The same on authenticated shares."""
    entries = _entries(tables, size)
    r, lowest, rows = party.seal.take(Digit(x.numel(), shift, size))
    z = yield party.seal.open(r + x.reshape(-1))
    counts = torch.arange(size)
    places = ((z >> shift).unsqueeze(1) - counts).bitwise_and_(size - 1)
    read = rows.gather(1, places).through(_MATMUL, entries.t().contiguous(), size).movedim(1, 0)
    rest = -lowest + (z & ((1 << shift) - 1))
    return rest.reshape(*x.shape), read.reshape(entries.shape[0], *x.shape)
