"""Reals as words of Z_2^64, or of fewer bits, so that a sum of many clients' words is the word of the sum.

One duty: fixed point with headroom. Everything public about it (range, largest weight, number of clients) is
declared before the round; nothing is read off the updates. Imports `mpc.ring`.

NOTE [Headroom]
One client's word is at most max_weight * clip * 2^fraction_bits + noise_reach in size. The sum over all clients
must stay below 2^(word_bits - 1), or it wraps and nobody can tell. `fraction_bits` is the largest number for which it
does. The weight has a word of 64 bits of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch

from syft.mpc import ring

LARGEST_FRACTION = 52  # a double has no more
LEAST_FRACTION = 8  # that is taken without being asked for
#: The largest sum that is let in. One part in 2^10 below 2^63 pays for rounding in double precision.
_ROOM = ring.MAX - (1 << 53)
#: Bits of a word that travels, from and to, beside 64.
NARROW = (2, 32)


@dataclass(frozen=True)
class Encoding:
    """`value = word / 2^fraction_bits`, for values of at most `clip` times a weight of at most `max_weight`."""

    clip: float
    max_weight: float
    clients: int
    fraction_bits: int
    noise_reach: int = 0
    """How much a client's noise may add to a word, in units of 2^-fraction_bits."""
    word_bits: int = 64

    def __post_init__(self) -> None:
        if self.word_bits != 64 and not NARROW[0] <= self.word_bits <= NARROW[1]:
            raise ValueError(
                f"Words of {self.word_bits!r} bits were asked for: they have {NARROW[0]} to {NARROW[1]} bits, or 64."
            )
        for name, value in (("clip", self.clip), ("max_weight", self.max_weight)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is a finite number above 0, got {value!r}.")
        if self.clients < 1 or self.noise_reach < 0:
            raise ValueError(
                f"An encoding is for 1 client or more and a noise_reach of 0 or more, got {self.clients} and "
                f"{self.noise_reach}."
            )
        most = _most_bits(self.clip, self.max_weight, self.clients, self.noise_reach, self.word_bits)
        if not 0 <= self.fraction_bits <= min(most, LARGEST_FRACTION):
            raise ValueError(
                f"{self.fraction_bits} fractional bits do not fit: the sum of {self.clients} clients with values up "
                f"to {self.clip:g}, weights up to {self.max_weight:g} and noise up to {self.noise_reach} units has "
                f"room for {min(most, LARGEST_FRACTION)} at most in words of {self.word_bits} bits. Declare a smaller "
                "clip or max_weight."
            )

    @classmethod
    def fitting(cls, clip: float, max_weight: float, clients: int, word_bits: int = 64) -> Encoding:
        """The finest encoding that has room for the sum. !! ValueError when it is a coarse one"""
        for name, value in (("clip", clip), ("max_weight", max_weight)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is a finite number above 0, got {value!r}.")
        bits = min(_most_bits(clip, max_weight, clients, 0, word_bits), LARGEST_FRACTION)
        if bits < LEAST_FRACTION:
            raise ValueError(
                f"The sum of {clients} clients with values up to {clip:g} and weights up to {max_weight:g} leaves "
                f"{max(bits, 0)} bits for what is behind the point in words of {word_bits}, and fewer than "
                f"{LEAST_FRACTION} are not chosen without being asked for. Declare a smaller clip or max_weight."
            )
        return cls(clip, max_weight, clients, bits, 0, word_bits)

    @classmethod
    def narrowest(
        cls, clip: float, max_weight: float, clients: int, fraction_bits: int, noise_reach: int = 0
    ) -> Encoding:
        """The encoding of so many fractional bits with the shortest words that have room for the sum."""
        for word_bits in range(NARROW[0], NARROW[1] + 1):
            if _most_bits(clip, max_weight, clients, noise_reach, word_bits) >= fraction_bits:
                return cls(clip, max_weight, clients, fraction_bits, noise_reach, word_bits)
        return cls(clip, max_weight, clients, fraction_bits, noise_reach)

    @property
    def units(self) -> int:
        """Units per 1.0."""
        return 1 << self.fraction_bits

    @property
    def weight_bits(self) -> int:
        """Fractional bits of the word that carries the weight."""
        return min(_most_bits(1.0, self.max_weight, self.clients, 0), LARGEST_FRACTION)

    def encode(self, update: torch.Tensor, weight: float = 1.0) -> tuple[torch.Tensor, int]:
        """int64 words of weight * clamp(update), and how many values had to be clamped."""
        self.check_weight(weight)
        values = update.detach().to(device="cpu", dtype=torch.float64)
        strange = int((~values.isfinite()).sum())
        if strange:
            raise ValueError(
                f"An update has {strange} values that are NaN or infinite, and those have no place in a sum. Leave "
                "this client out of the round."
            )
        clamped = int((values.abs() > self.clip).sum())
        scaled = values.clamp(-self.clip, self.clip).mul_(float(weight) * self.units)
        return scaled.round_().to(torch.int64), clamped

    def encode_weight(self, weight: float) -> int:
        self.check_weight(weight)
        return round(Fraction(float(weight)) * (1 << self.weight_bits))

    def check_weight(self, weight: float) -> None:
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"A weight of {weight!r} was given: weights are finite numbers of 0 or more, e.g. of examples."
            )
        if weight > self.max_weight:
            raise ValueError(
                f"A weight of {weight!r} was given, and weights of this round are from 0 to {self.max_weight:g}: "
                "declare a larger max_weight."
            )

    def decode(self, words: torch.Tensor) -> torch.Tensor:
        """Reals in double precision."""
        return words.to(torch.float64) / self.units

    def decode_weight(self, word: int) -> float:
        return word / (1 << self.weight_bits)


def _most_bits(clip: float, max_weight: float, clients: int, noise_reach: int, word_bits: int = 64) -> int:
    """See NOTE [Headroom]; half a unit for rounding. Below 0 when not even whole numbers fit."""
    room = _ROOM if word_bits == 64 else (1 << (word_bits - 1)) - 1
    left = Fraction(room, clients) - noise_reach - 1
    if left < 1:
        return -1
    ratio = left / (Fraction(float(clip)) * Fraction(float(max_weight)))
    return math.floor(ratio).bit_length() - 1
