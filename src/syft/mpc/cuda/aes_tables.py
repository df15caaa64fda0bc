"""The tables of AES-128 that `mpc.cuda.fss` looks its rounds up in, made from their definitions. No Triton here."""

from __future__ import annotations

import functools

import numpy as np

ROUNDS = 10


def _twice(x: int) -> int:
    """Twice a byte in GF(2^8). FIPS 197, section 4.2.1"""
    return (x << 1) ^ (0x11B if x & 0x80 else 0)


def substitutions() -> list[int]:
    """The S-box: the inverse in GF(2^8), then an affine map. FIPS 197, section 5.1.1"""
    powers, x = [], 1
    for _ in range(255):  # 3 generates the field's units
        powers.append(x)
        x ^= _twice(x)
    inverse = {power: powers[-place % 255] for place, power in enumerate(powers)} | {0: 0}
    found = []
    for x in range(256):
        b = inverse[x]
        rotations = [((b << by) | (b >> (8 - by))) & 255 for by in range(5)]
        found.append(functools.reduce(int.__xor__, rotations) ^ 0x63)
    return found


def round_table() -> np.ndarray:
    """What one byte adds to its column in a round: (2, 1, 1, 3) times S(x), the first byte lowest."""
    entries = [_twice(s) | s << 8 | s << 16 | (_twice(s) ^ s) << 24 for s in substitutions()]
    return np.array(entries, dtype=np.uint32).view(np.int32)


def round_keys(key: bytes) -> np.ndarray:
    """The expanded key as 44 words, the first byte lowest. FIPS 197, section 5.2"""
    box, words, constant = substitutions(), [list(key[i : i + 4]) for i in range(0, 16, 4)], 1
    for i in range(4, 4 * (ROUNDS + 1)):
        word = words[-1]
        if i % 4 == 0:
            word = [box[b] for b in (*word[1:], word[0])]
            word[0] ^= constant
            constant = _twice(constant)
        words.append([a ^ b for a, b in zip(words[-4], word, strict=True)])
    return np.frombuffer(bytearray(b for word in words for b in word), dtype=np.int32)
