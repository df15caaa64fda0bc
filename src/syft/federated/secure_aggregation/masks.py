"""Masks: pseudo-random words over the whole ring, expanded from seeds and added to a vector.

One duty: `add_masks`, fast. A block of the vector takes all masks before the next one is touched, so that block and
key stream stay in the cache and no mask is ever there as a whole. Imports `keys`, `mpc.randomness`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from syft.federated.secure_aggregation.keys import derive
from syft.mpc.randomness import SEED_BYTES, Stream

_BLOCK = 1 << 14  # words: 128 kB of vector and as much key stream
_SLACK = 16  # bytes behind the key stream that `Stream.fill` asks for


def pair_seed(agreed: bytes, transcript: bytes, one: str, other: str) -> bytes:
    """The seed of the mask between two clients; the order of the two does not matter."""
    low, high = sorted((one, other))
    return derive(agreed, SEED_BYTES, "pairwise mask", transcript, low, high)


def self_seed(secret: bytes, transcript: bytes, client: str) -> bytes:
    """The seed of a client's own mask."""
    return derive(secret, SEED_BYTES, "self mask", transcript, client)


def pair_sign(client: str, other: str) -> int:
    """+1 for one of the two and -1 for the other, so that their masks cancel (Bonawitz et al. 2017, section 4)."""
    return 1 if client > other else -1


def add_masks(
    vector: torch.Tensor, seeds: Iterable[tuple[int, bytes]], weight: torch.Tensor | None = None
) -> torch.Tensor:
    """Add (+1) or subtract (-1) the mask of every seed, in place and mod 2^64 or 2^32, as the words are; the vector.

    weight   a vector of other words, which go on where the streams of the first one ended
    """
    streams = [(sign, Stream(seed)) for sign, seed in seeds]
    raw = np.empty(8 * _BLOCK + _SLACK, dtype=np.uint8)
    view = memoryview(raw.data)
    for tensor in (vector,) if weight is None else (vector, weight):
        words = tensor.numpy()  # NB: numpy's arithmetic on arrays of integers wraps, without a word
        mask = raw[: words.itemsize * _BLOCK].view(words.dtype)
        for start in range(0, words.size, _BLOCK):
            block = words[start : start + _BLOCK]
            part = mask[: block.size]
            for sign, stream in streams:
                stream.fill(view, words.itemsize * block.size)
                if sign > 0:
                    np.add(block, part, out=block)
                else:
                    np.subtract(block, part, out=block)
    return vector
