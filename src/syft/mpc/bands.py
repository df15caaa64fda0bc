"""Convolutions of large pictures, a band of results at a time: its patches stay in the cache.

One duty: be as fast as the product of two matrices is. torch copies all patches before it multiplies: for 64 channels, a
kernel of 3 x 3 and 56 x 56 results these are 14 MB, most of them fresh pages (one picture 5.1 ms, four 27.7 ms; in bands
4.0 and 15.9). For int64 on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from syft.mpc.threads import share_out

#: Words of the patches of a band, and the fewest results: a product with fewer columns is slow.
_WORDS, _FEWEST = 1 << 18, 448

Band = tuple[int, int, int]
"""A picture, and the rows of its results."""


def pay_for(inner: int, outs: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether a picture has several bands. `inner`: the words of a patch; `outs`: rows and columns of the results."""
    return dtype == torch.int64 and len(outs) == 2 and math.prod(outs) >= 2 * _results(inner)


def _results(inner: int) -> int:
    return max(_FEWEST, _WORDS // inner)


def multiplied(patches: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The convolution (N, O, rows, columns) by `weight` (O, ...), from a view of patches (N, ..., rows, columns)."""
    batch, rows, columns = patches.shape[0], *patches.shape[-2:]
    count, flat = weight.shape[0], weight.reshape(weight.shape[0], -1)
    inner = flat.shape[1]
    height = max(1, _results(inner) // columns)
    out = torch.empty((batch, count, rows * columns), dtype=torch.int64)

    def work(bands: Sequence[Band]) -> None:
        memory = torch.empty(inner * height * columns, dtype=torch.int64)
        for picture, first, last in bands:
            band = memory[: inner * (last - first) * columns]
            band.view(*patches.shape[1:-2], last - first, columns).copy_(patches[picture, ..., first:last, :])
            place = out[picture, :, first * columns : last * columns]
            torch.mm(flat, band.view(inner, -1), out=place)

    bands = [(n, first, min(rows, first + height)) for n in range(batch) for first in range(0, rows, height)]
    share_out(work, bands)
    return out.view(batch, count, rows, columns)
