"""The ring Z_2^64 in int64 tensors: shares, signed values, and bits packed into words.

One duty: what a share IS. int64 arithmetic wraps, so a sum of shares needs no reduction, and a
reconstructed word read as signed is the value for everything in [-2^63, 2^63). Additive shares add up to
the secret; Boolean shares (of words, bit by bit) XOR to it. Shares are random, and marked so for whoever sends them.
May import `randomness`.

NOTE [Planes]
Protocols on bits work on 64 of them at a time. A vector of n elements is laid out as p = ceil(n / c) planes
of c = ceil(n / 64) words, element k * c + w being word w of plane k. `pack` puts bit j of every group of
`radix` neighbouring bits of a word aside, for the `radix` planes k, k + 1, ... of a group in ONE word:
where the word of plane k has its group's bits, the packed word has bit j of that group for each of the
planes. After log_radix(64) such steps one bit per element is left, and bit k of word w belongs to element k
* c + w: `unpack_bits` is one broadcast shift. No bit is ever moved across words by hand, no word is sent
half empty, and a pairing of adjacent bits (what a carry tree needs) comes out of masks and shifts of whole
vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch

from syft.mpc.randomness import Stream
from syft.serde import mark_incompressible

BITS = 64
WORD_BYTES = 8
MIN, MAX = -(1 << 63), (1 << 63) - 1
TOP = MIN  # the word with only its sign bit set
ONES = -1  # the word with every bit set


def signed(value: int) -> int:
    """The residue of `value` mod 2^64 as the int64 that stands for it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# -- shares --------------------------------------------------------------------------------------------


def share(secret: torch.Tensor, count: int, stream: Stream) -> list[torch.Tensor]:
    """`count` additive shares: all but the last uniform, the last what is missing to the secret."""
    *masks, last = _masks_and_secret(secret, count, stream)
    for mask in masks:
        last.sub_(mask)
    return [mark_incompressible(part) for part in (*masks, last)]


def share_bits(secret: torch.Tensor, count: int, stream: Stream) -> list[torch.Tensor]:
    """`count` Boolean shares of the words of `secret`."""
    *masks, last = _masks_and_secret(secret, count, stream)
    for mask in masks:
        last.bitwise_xor_(mask)
    return [mark_incompressible(part) for part in (*masks, last)]


def _masks_and_secret(secret: torch.Tensor, count: int, stream: Stream) -> list[torch.Tensor]:
    if count < 2:
        raise ValueError(f"A secret is shared among at least two holders, got {count}.")
    if secret.dtype != torch.int64:
        raise TypeError(
            f"Only int64 tensors are shared, got {secret.dtype}: encode with fix_precision() first."
        )
    device = None if secret.device.type == "cpu" else secret.device
    masks = [stream.draw(secret.shape, device) for _ in range(count - 1)]
    return [*masks, secret.clone(memory_format=torch.contiguous_format)]


def reconstruct(shares: Iterable[torch.Tensor]) -> torch.Tensor:
    """The secret behind additive shares, as signed values."""
    first, *rest = shares
    total = first.clone() if not rest else first + rest[0]
    for other in rest[1:]:
        total.add_(other)
    return total


def reconstruct_bits(shares: Iterable[torch.Tensor]) -> torch.Tensor:
    """The words behind Boolean shares."""
    first, *rest = shares
    total = first.clone() if not rest else first ^ rest[0]
    for other in rest[1:]:
        total.bitwise_xor_(other)
    return total


def zero_shares(shape: Sequence[int], count: int, stream: Stream) -> list[torch.Tensor]:
    """Fresh additive shares of zero: added to shares of anything, they make them fresh shares of it."""
    return share(torch.zeros(tuple(shape), dtype=torch.int64), count, stream)


# -- bits in words ---------------------------------------------------------------------------------------


def words_for(count: int) -> int:
    """Words that hold one bit for each of `count` elements."""
    return -(-count // BITS)


def padded(count: int) -> int:
    """Elements after padding to whole planes (NOTE [Planes])."""
    columns = words_for(count)
    return -(-count // columns) * columns if count else 0


@lru_cache(maxsize=64)
def run_mask(radix: int, width: int, part: int) -> int:
    """Runs of `width` ones: the `part`-th of every `radix` runs of a word."""
    run = (1 << width) - 1
    return signed(sum(run << start for start in range(part * width, BITS, radix * width)))


def pack(
    planes: torch.Tensor, radix: int, width: int, part: int, into: torch.Tensor | None = None
) -> torch.Tensor:
    """Bits `part` of all groups of `radix` runs of `width` bits, `radix` planes to a word (NOTE [Planes]).

    `planes` is (..., p, c); the result is (..., ceil(p / radix), c).
    """
    *batch, count, columns = planes.shape
    groups = -(-count // radix)
    out = planes.new_empty((*batch, groups, columns)) if into is None else into
    scratch: torch.Tensor | None = None
    for slot in range(min(radix, count)):
        plane = planes[..., slot::radix, :]
        target = out if slot == 0 else scratch
        if target is None:
            target = scratch = torch.empty_like(out)
        target = target[..., : plane.shape[-2], :]
        shift = (slot - part) * width
        mask = run_mask(radix, width, slot)
        if shift > 0:
            torch.bitwise_left_shift(plane, shift, out=target).bitwise_and_(mask)
        elif shift < 0:  # arithmetic: the copies of the sign it brings in lie outside the mask
            torch.bitwise_right_shift(plane, -shift, out=target).bitwise_and_(mask)
        else:
            torch.bitwise_and(plane, mask, out=target)
        if slot:
            out[..., : plane.shape[-2], :].bitwise_or_(target)
    return out


_FEW = 1 << 13  # words up to which one call over all parts beats cheaper calls one by one


def pack_all(planes: torch.Tensor, radix: int, width: int) -> torch.Tensor:
    """`pack` for every part: (..., p, c) becomes (radix, ..., ceil(p / radix), c)."""
    *batch, count, columns = planes.shape
    groups = -(-count // radix)
    if planes.numel() > _FEW:
        out = planes.new_empty((radix, *batch, groups, columns))
        sources = planes.reshape(-1, count, columns)
        step = max(1, 2 * _FEW // (count * columns))  # what stays in the cache
        for part in range(radix):
            targets = out[part].view(-1, groups, columns)
            for start in range(0, len(sources), step):
                where = slice(start, start + step)
                pack(sources[where], radix, width, part, into=targets[where])
        return out
    if count % radix:
        planes = torch.nn.functional.pad(planes, (0, 0, 0, groups * radix - count))
    steps = _counts(planes.device)[: radix * width : width]
    grouped = planes.reshape(*batch, groups, radix, columns)
    parts = grouped >> steps.view(radix, *[1] * grouped.ndim)
    parts.bitwise_and_(run_mask(radix, width, 0)).bitwise_left_shift_(steps.unsqueeze(1))
    return parts.sum(-2)  # the bits of different planes lie apart


_COUNTS = {torch.device("cpu"): torch.arange(BITS)}


def _counts(device: torch.device) -> torch.Tensor:
    """0 .. 63 on a device; remembered, and only read."""
    made = _COUNTS.get(device)
    if made is None:
        made = torch.arange(BITS, device=device)
        if type(made) is torch.Tensor:  # not one without values
            _COUNTS[device] = made
    return made


def unpack_bits(words: torch.Tensor, count: int) -> torch.Tensor:
    """One 0/1 int64 per element from words of bits in plane order (NOTE [Planes])."""
    columns = words.numel()
    if not columns:
        return words.new_empty(0)
    planes = -(-count // columns)
    shifts = _counts(words.device)[:planes].unsqueeze(1)
    bits = torch.bitwise_right_shift(words.view(1, -1), shifts).bitwise_and_(1)
    return bits.view(-1)[:count]


def pack_bits(bits: torch.Tensor) -> torch.Tensor:
    """The inverse of `unpack_bits`: a vector of 0/1 into words of bits in plane order."""
    count = bits.numel()
    columns = words_for(count)
    out = bits.new_zeros(columns)
    flat = bits.reshape(-1)
    for plane, start in enumerate(range(0, count, max(columns, 1))):
        part = flat[start : start + columns]
        out[: part.numel()].bitwise_or_(part << plane)
    return out


def regrouped(words: torch.Tensor, count: int, length: int, rows: torch.Tensor) -> torch.Tensor:
    """Bits in another order (NOTE [Planes]). Words (..., p, c) hold p times `count` bits, which are rows of `length` bits
    one after the other: word vector i of the result, (..., len(rows), c'), has the bits of rows[i], counted over all p.
    """
    *lead, _, columns = words.shape
    shifts = _counts(words.device).unsqueeze(1)
    planes = shifts[: -(-count // columns)]
    bits = torch.bitwise_right_shift(words.unsqueeze(-2), planes).bitwise_and_(1)
    bits = bits.flatten(-2)[..., :count].reshape(*lead, -1, length)
    chosen = bits[..., rows, :].flatten(-2)
    wanted = chosen.shape[-1]
    columns = words_for(wanted)
    chosen = torch.nn.functional.pad(chosen, (0, padded(wanted) - wanted))
    chosen = chosen.view(*lead, len(rows), -1, columns)
    return chosen.bitwise_left_shift_(shifts[: chosen.shape[-2]]).sum(-2)  # each bit at a place of its own
