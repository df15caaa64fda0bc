"""`Sealed(kind)`: a correlation whose fields come with MACs, and the key of these MACs.

An additive field of words becomes `lo, hi` of a number mod 2^110 that is the word mod 2^64, and its MAC; a Boolean field
becomes the words and 40 words of tags for each. The key is dealt with the seeds: holder i has alpha_i below 2^46 and 40
bits beta_i, drawn from the seed it has in common with the provider, who alone can add them up. Notation of SPDZ2k
(Cramer, Damgard, Escudero, Scholl, Xing, CRYPTO 2018): k = 64, s = 46. May import `correlations`, `wide`, `randomness`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from syft.mpc.correlations import Correlation, Field, Tensors
from syft.mpc.integrity import wide, words
from syft.mpc.randomness import BoundStream, Stream

TAGS = 40
"""Tag bits for each authenticated bit."""

_KEY = b"MAC key of authenticated shares"


@dataclass(frozen=True, eq=False)
class Key:
    """One holder's part of the MAC key."""

    alpha: int
    beta: torch.Tensor  # (40,) words, all ones or zero

    @classmethod
    def of(cls, stream: BoundStream) -> Key:
        """From the seed in common with the provider."""
        drawn = stream.at(_KEY)
        alpha = int.from_bytes(drawn.raw(8), "little") & ((1 << wide.EXTRA) - 1)
        return cls(alpha, drawn.bits(TAGS).neg_())

    @cached_property
    def limbs(self) -> torch.Tensor:
        return wide.of_public(self.word)

    @cached_property
    def word(self) -> torch.Tensor:
        return torch.tensor(self.alpha)


@dataclass(frozen=True)
class Entrance(Correlation):
    """A mask that the provider tells the client: what enters is sent under it, and what leaves."""

    shape: tuple[int, ...]

    @property
    def base(self) -> tuple[Field, ...]:
        return (Field(self.shape),)


@dataclass(frozen=True)
class Sealed(Correlation):
    """`kind` with MACs. Holders read its fields by `syft.mpc.integrity.shares.fields_of`."""

    on_cpu: ClassVar[bool] = True
    kind: Correlation

    def __post_init__(self) -> None:
        fields = (*self.kind.base, *self.kind.derived)
        if self.kind.kept or any(one.common or one.less or one.lanes > 1 for one in fields):
            raise TypeError(f"A {type(self.kind).__name__} of that form has no MACs.")

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.kind.base + self.kind.derived

    @cached_property
    def base(self) -> tuple[Field, ...]:
        """The words that every holder draws, and the upper bits of all numbers."""
        return self.kind.base + tuple(Field(one.shape) for one in self.fields if not one.bits)

    @cached_property
    def derived(self) -> tuple[Field, ...]:
        """The derived words, then the MAC of each field."""
        macs = [Field(((TAGS if one.bits else 2), *one.shape), one.bits) for one in self.fields]
        return self.kind.derived + tuple(macs)

    def deal(self, streams: Sequence[BoundStream], meant: bytes) -> list[Tensors]:
        """Every holder's part; those before the last draw theirs, in the order in which `provider.expand` does."""
        keys = [Key.of(stream) for stream in streams]
        drawn = [stream.at(meant) for stream in streams]
        parts = [[stream.words(one.shape) for one in self.base] for stream in drawn]
        inner = len(self.kind.base)
        plain = [
            _joined([part[i] for part in parts], one.bits, one.shape) for i, one in enumerate(self.kind.base)
        ]
        values = self.kind.derive_from_parts([part[:inner] for part in parts])
        values = self.kind.derive(*plain) if values is None else values
        lows = [[part[i] for part in parts] for i in range(inner)]
        for value, one in zip(values, self.kind.derived, strict=True):
            shares = [stream.words(one.shape) for stream in drawn[:-1]]
            last = value.clone()
            for share in shares:
                last = last.bitwise_xor_(share) if one.bits else last.sub_(share)
            lows.append([*shares, last])
            for part, share in zip(parts, lows[-1], strict=True):
                part.append(share)
        upper = inner
        for one, low in zip(self.fields, lows, strict=True):
            if one.bits:
                cut = _tagged(low, keys, drawn)
            else:
                cut = _authenticated(low, [part[upper] for part in parts], keys, drawn)
                upper += 1
            for part, share in zip(parts, cut, strict=True):
                part.append(share)
        return [tuple(part) for part in parts]


def _joined(shares: Sequence[torch.Tensor], bits: bool, shape: Sequence[int]) -> torch.Tensor:
    total = torch.zeros(tuple(shape), dtype=torch.int64)
    for share in shares:
        total = total.bitwise_xor_(share) if bits else total.add_(share)
    return total


def _authenticated(
    lows: Sequence[torch.Tensor],
    highs: Sequence[torch.Tensor],
    keys: Sequence[Key],
    drawn: Sequence[Stream],
) -> list[torch.Tensor]:
    """Shares of alpha x mod 2^110, for the number x that `lows` and `highs` add up to."""
    total = torch.stack([lows[0], highs[0]])
    for lo, hi in zip(lows[1:], highs[1:], strict=True):
        total = words.added(total, torch.stack([lo, hi]))
    rest = words.scaled(total, torch.tensor(sum(key.alpha for key in keys)))
    shares = [stream.words((2, *lows[0].shape)) for stream in drawn[:-1]]
    for share in shares:
        rest = words.subtracted(rest, share)
    rest[1].bitwise_and_((1 << wide.EXTRA) - 1)
    return [*shares, rest]


def _tagged(
    parts: Sequence[torch.Tensor], keys: Sequence[Key], drawn: Sequence[Stream]
) -> list[torch.Tensor]:
    """Boolean shares of the tags beta & w, for the words w behind `parts`."""
    plain = _joined(parts, True, parts[0].shape)
    beta = keys[0].beta
    for key in keys[1:]:
        beta = beta ^ key.beta
    last = beta.view(TAGS, *[1] * plain.ndim) & plain
    shares = [stream.words((TAGS, *plain.shape)) for stream in drawn[:-1]]
    for share in shares:
        last.bitwise_xor_(share)
    return [*shares, last]
