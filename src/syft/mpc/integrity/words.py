"""Integers mod 2^110 as two words, `lo, hi` along the first dimension: what is done to them element by element.

Bits of `hi` beyond the 46 are whatever the arithmetic mod 2^128 leaves there, and count for nothing: `masked` removes
them where something leaves. Public factors and summands are int64 read as unsigned, the same at every holder, in value
and MAC. Matrix products and long sums need limbs: `wide`. Imports nothing of ours but `wide`.

NOTE [Carries]
A sum of words wraps iff it is below one of them, unsigned. numpy compares words as unsigned, and multiplies them in
halves (Knuth, "The art of computer programming", volume 2, section 4.3.1); in pieces that stay in the cache.
"""

from __future__ import annotations

import numpy as np
import torch

from syft.mpc.integrity import wide

_UPPER = (1 << wide.EXTRA) - 1
_HALF, _LOW = np.uint64(32), np.uint64((1 << 32) - 1)
_BLOCK = 1 << 13


def _unsigned(words: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    return words.numpy().view(np.uint64)


def _is_below(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.asarray(np.less(_unsigned(x), _unsigned(y))))


def masked(words: torch.Tensor) -> torch.Tensor:
    """The same numbers, and nothing beyond their 110 bits; in memory of their own."""
    out = words.clone(memory_format=torch.contiguous_format)
    out[1].bitwise_and_(_UPPER)
    return out


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.add(x, y)
    out[1].add_(_is_below(out[0], x[0]))
    return out


def subtracted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.sub(x, y)
    out[1].sub_(_is_below(x[0], y[0]).to(torch.int64))
    return out


def negated(x: torch.Tensor) -> torch.Tensor:
    out = x.neg()
    out[1].sub_((x[0] != 0).to(torch.int64))
    return out


def negated_where(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """-x where a public word is all ones, x where it is 0: -x = ~x + 1."""
    out = x ^ mask
    out[0].sub_(mask)
    out[1].sub_((x[0] == 0) * mask)
    return out


def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Times public words, element by element; `factor` broadcasts with `x[0]`."""
    shape = torch.broadcast_shapes(x.shape[1:], factor.shape)
    out = torch.empty((2, *shape), dtype=torch.int64)
    if not out.numel():
        return out
    f = factor.expand(shape[-factor.ndim :] if factor.ndim else ())
    if x.shape[1:] == shape and factor.ndim <= len(shape) and x.is_contiguous():
        # Rows of x, each as long as the factor: value and MAC have the same.
        rows = x.view(2, -1, f.numel()) if f.numel() > 1 or not factor.ndim else x.view(2, 1, -1)
        made, by = out.view(2, rows.shape[1], -1), f.reshape(-1)
        for start in range(0, rows.shape[2], _BLOCK):
            part = slice(start, start + _BLOCK)
            _scale(rows[:, :, part], by[part] if by.numel() > 1 else by, made[:, :, part])
    else:
        _scale(x.expand(2, *shape), factor, out)
    return out


def _scale(x: torch.Tensor, factor: torch.Tensor, out: torch.Tensor) -> None:
    lo, hi, by, made = _unsigned(x[0]), _unsigned(x[1]), _unsigned(factor), _unsigned(out)
    np.multiply(lo, by, out=made[0])
    np.multiply(hi, by, out=made[1])
    b0, b1 = by & _LOW, by >> _HALF
    a0, a1 = lo & _LOW, lo >> _HALF
    middle = a0 * b0
    middle >>= _HALF
    middle += a1 * b0
    a0 *= b1
    a0 += middle & _LOW
    a0 >>= _HALF
    middle >>= _HALF
    a1 *= b1
    made[1] += a1
    made[1] += middle
    made[1] += a0


def of_public(value: torch.Tensor) -> torch.Tensor:
    """Public words as numbers."""
    return torch.stack([value, torch.zeros_like(value)])


def shifted_by_word(words: torch.Tensor) -> torch.Tensor:
    """2^64 times the number."""
    return torch.stack([torch.zeros_like(words[0]), words[0]])


def as_limbs(words: torch.Tensor) -> torch.Tensor:
    return wide.unpacked(words[0], words[1])


def of_limbs(limbs: torch.Tensor) -> torch.Tensor:
    return wide.packed(limbs)
