"""Words of a round: a client's vector and its weight, under masks, and as narrow as the sum allows on the way.

One duty: what is added up, and its bytes. Imports `masks`, `packing`, `setting`.

NOTE [Narrow words]
With words of 64 bits, a vector and its weight behind it are one vector of Z_2^64. With 32 bits or fewer, numbers are
added in Z_2^32 and only the lower `word_bits` of each travel, packed: 2^word_bits divides 2^32, so the sum of what
travels is the sum mod 2^word_bits, in which it was given room (see `encoding`). The weight has 64 bits of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from syft.federated.packing import pack, packed_size, unpacked
from syft.federated.secure_aggregation.masks import add_masks
from syft.federated.secure_aggregation.setting import RoundSetting

_WEIGHT_BYTES = 8


class Words:
    """A vector of words and a weight, added up mod 2^word_bits and 2^64."""

    def __init__(self, setting: RoundSetting) -> None:
        self._setting = setting
        self._is_wide = setting.word_bits == 64
        self._vector = torch.zeros(
            setting.length + self._is_wide, dtype=torch.int64 if self._is_wide else torch.int32
        )
        self._weight = self._vector[-1:] if self._is_wide else torch.zeros(1, dtype=torch.int64)

    def set(self, encoded: Tensor, weight: int) -> None:
        """What a client is going to send: int64 words that the encoding made, and its weight's."""
        if self._is_wide:
            self._vector[:-1] = encoded
        else:
            self._vector.copy_(encoded)  # NB: the encoding has checked that the sum fits, so these do
        self._weight[0] = weight

    def add_masks(self, seeds: Iterable[tuple[int, bytes]]) -> None:
        add_masks(self._vector, seeds, None if self._is_wide else self._weight)

    def packed(self) -> Tensor:
        """As they travel."""
        if self._is_wide:
            return self._vector
        words, bits = self._vector.numpy(), self._setting.word_bits
        return torch.from_numpy(np.concatenate([pack(words, bits), self._weight.numpy().view(np.uint8)]))

    def add_packed(self, sent: Tensor) -> None:
        """Add what a client sent, whose shape and dtype were checked with `packed_like`."""
        if self._is_wide:
            self._vector += sent
            return
        data, bits = sent.numpy(), self._setting.word_bits
        words = self._vector.numpy()
        for start, block in unpacked(data, words.size, bits):
            words[start : start + block.size] += block
        weight = data[packed_size(words.size, bits) :]
        self._weight += torch.from_numpy(weight.copy().view(np.int64))

    def total(self) -> tuple[Tensor, int]:
        """The words of the sum, signed, and that of its weight."""
        if self._is_wide:
            return self._vector[:-1], int(self._weight)
        half = 1 << (self._setting.word_bits - 1)
        return (self._vector.to(torch.int64) + half).remainder(2 * half) - half, int(self._weight)


def packed_like(setting: RoundSetting) -> tuple[torch.dtype, int]:
    """The dtype and the length of what a client sends."""
    if setting.word_bits == 64:
        return torch.int64, setting.length + 1
    return torch.uint8, packed_size(setting.length, setting.word_bits) + _WEIGHT_BYTES
