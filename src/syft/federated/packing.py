"""Words of a few bits each, one behind the other.

One duty: from words of 32 bits to bytes and back. Imports numpy only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_CHUNK = 1 << 14  # words at a time; a multiple of 8, so that chunks end with a byte


def packed_size(count: int, bits: int) -> int:
    """How many bytes so many words take."""
    return -(-count * bits // 8)


def pack(words: np.ndarray, bits: int) -> np.ndarray:
    """The lower `bits` (1 to 32) of each word, as bytes."""
    parts = [_packed(words[start : start + _CHUNK], bits) for start in range(0, words.size, _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)


def unpacked(data: np.ndarray, count: int, bits: int) -> Iterator[tuple[int, np.ndarray]]:
    """What `pack` made, some words at a time: where they begin, and the words as int32."""
    position = 0
    for start in range(0, count, _CHUNK):
        length = min(_CHUNK, count - start)
        size = packed_size(length, bits)
        yield start, _unpacked(data[position : position + size], length, bits)
        position += size


def _packed(words: np.ndarray, bits: int) -> np.ndarray:
    octets = words.astype(">u4").view(np.uint8).reshape(-1, 4)
    if bits % 8 == 0:
        return np.ascontiguousarray(octets[:, 4 - bits // 8 :]).reshape(-1)
    return np.packbits(np.unpackbits(octets, axis=1)[:, 32 - bits :])


def _unpacked(data: np.ndarray, count: int, bits: int) -> np.ndarray:
    octets = np.zeros((count, 4), dtype=np.uint8)
    if bits % 8 == 0:
        octets[:, 4 - bits // 8 :] = data.reshape(count, bits // 8)
    else:
        spread = np.zeros((count, 32), dtype=np.uint8)
        spread[:, 32 - bits :] = np.unpackbits(data, count=count * bits).reshape(count, bits)
        octets = np.packbits(spread, axis=1)
    return octets.reshape(-1).view(">u4").astype(np.uint32).view(np.int32)
