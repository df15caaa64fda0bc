"""One holder's part of authenticated tensors: `Auth` of numbers, `AuthBits` of packed bits.

Both know the operations that are linear in them, so programs written for plain shares run on them where they only
add, scale and rearrange. Public values count in the value at the first holder and in the MAC at every holder:
whatever adds a public value must do so at all holders (`party.plus`, `party.inverted`), never behind `if party.first`.
May import `sealed`, `wide`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from syft.mpc.correlations import Tensors
from syft.mpc.integrity import wide
from syft.mpc.integrity.sealed import TAGS, Key, Sealed

Public = int | torch.Tensor
_SMALL = 1 << 16  # factors up to which limbs are scaled as they are


class Auth:
    """A share of x and a share of alpha x, both mod 2^110."""

    __slots__ = ("first", "key", "mac", "value")

    def __init__(self, key: Key, first: bool, value: wide.Limbs, mac: wide.Limbs) -> None:
        self.key, self.first = key, first
        self.value, self.mac = value, mac

    # -- forms -----------------------------------------------------------------------------------------

    @classmethod
    def unpacked(cls, key: Key, first: bool, words: torch.Tensor) -> Auth:
        """From the four words per element that a holder keeps: of the value and of the MAC."""
        return cls(key, first, wide.unpacked(words[0], words[1]), wide.unpacked(words[2], words[3]))

    def packed(self) -> torch.Tensor:
        """(4, *shape): what a holder keeps."""
        return torch.stack([*wide.packed(self.value), *wide.packed(self.mac)])

    @property
    def planes(self) -> tuple[torch.Tensor, ...]:
        return self.value + self.mac

    @property
    def shape(self) -> torch.Size:
        return self.value[0].shape

    @property
    def ndim(self) -> int:
        return self.value[0].ndim

    @property
    def device(self) -> torch.device:
        return self.value[0].device

    def numel(self) -> int:
        return self.value[0].numel()

    def like(self, value: Sequence[torch.Tensor], mac: Sequence[torch.Tensor]) -> Auth:
        return Auth(self.key, self.first, tuple(value), tuple(mac))

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Auth:
        """A linear function without public summands, on every limb."""
        return self.like([function(v) for v in self.value], [function(m) for m in self.mac])

    def normal(self) -> Auth:
        return self.like(wide.normal(self.value), wide.normal(self.mac))

    @classmethod
    def of_public(cls, key: Key, first: bool, value: torch.Tensor) -> Auth:
        """A public value as a holder's part of an authenticated one."""
        limbs = wide.of_public(value)
        zero = torch.zeros_like(value)
        own = wide.normal((*limbs, zero, zero)) if first else (zero,) * wide.COUNT
        return cls(key, first, own, wide.product(torch.mul, key.limbs, limbs))

    def public(self, value: torch.Tensor) -> Auth:
        return self.of_public(self.key, self.first, value)

    # -- arithmetic ------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Auth:
        found = other if isinstance(other, Auth) else self._public(other)
        return self.like(wide.add(self.value, found.value), wide.add(self.mac, found.mac)).normal()

    __radd__ = __add__

    def __neg__(self) -> Auth:
        return self.map(torch.neg).normal()

    def __sub__(self, other: Any) -> Auth:
        found = other if isinstance(other, Auth) else self._public(other)
        return self.like(wide.sub(self.value, found.value), wide.sub(self.mac, found.mac)).normal()

    def __rsub__(self, other: Public) -> Auth:
        return self._public(other) - self

    def __mul__(self, factor: Public) -> Auth:
        """Times a public integer, or element by element with public ones."""
        if isinstance(factor, Auth):
            raise TypeError("Two secrets are multiplied by a program.")
        if isinstance(factor, int) and abs(factor) < _SMALL:
            return self.map(lambda limb: limb * factor).normal()
        return self.through(torch.mul, _tensor(factor))

    __rmul__ = __mul__

    def __lshift__(self, bits: int) -> Auth:
        return self * (1 << bits)

    def through(self, op: wide.Op, public: torch.Tensor) -> Auth:
        """op(self, public) for a bilinear `op`."""
        limbs = wide.of_public(public)
        return self.like(wide.product(op, self.value, limbs), wide.product(op, self.mac, limbs))

    def under(self, op: wide.Op, public: torch.Tensor) -> Auth:
        """op(public, self) for a bilinear `op`."""
        limbs = wide.of_public(public)
        return self.like(wide.product(op, limbs, self.value), wide.product(op, limbs, self.mac))

    def where(self, mask: torch.Tensor) -> Auth:
        """Self where a public word is all ones, 0 where it is 0."""
        return self.map(lambda limb: limb & mask)

    def negated_where(self, mask: torch.Tensor) -> Auth:
        """-self where a public word is all ones: -x = ~x + 1, limb by limb."""
        return self.map(lambda limb: (limb ^ mask).sub_(mask)).normal()

    def _public(self, value: Public) -> Auth:
        return self.public(_tensor(value))

    # -- in place, as programs write it: the object, not its memory --------------------------------------

    def _become(self, other: Auth) -> Auth:
        self.value, self.mac = other.value, other.mac
        return self

    def add_(self, other: Any) -> Auth:
        return self._become(self + other)

    def sub_(self, other: Any) -> Auth:
        return self._become(self - other)

    def mul_(self, factor: Public) -> Auth:
        return self._become(self * factor)

    def neg_(self) -> Auth:
        return self._become(-self)

    # -- rearranging -----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Auth:
        return self.map(lambda limb: limb[index])

    def __iter__(self) -> Iterator[Auth]:
        return (self[k] for k in range(self.shape[0]))

    def __len__(self) -> int:
        return self.shape[0]

    def view(self, *shape: Any) -> Auth:
        return self.map(lambda limb: limb.reshape(*shape))

    reshape = view

    def movedim(self, source: int, destination: int) -> Auth:
        return self.map(lambda limb: limb.movedim(source, destination))

    def unsqueeze(self, dim: int) -> Auth:
        return self.map(lambda limb: limb.unsqueeze(dim))

    def sum(self, dim: int) -> Auth:
        return self.map(lambda limb: limb.sum(dim)).normal()

    def gather(self, dim: int, index: torch.Tensor) -> Auth:
        return self.map(lambda limb: limb.gather(dim, index))

    def contiguous(self) -> Auth:
        return self

    def clone(self) -> Auth:
        return self.map(torch.clone)

    @staticmethod
    def joined(function: Callable[..., torch.Tensor], parts: Sequence[Auth], *args: Any) -> Auth:
        """`torch.cat` or `torch.stack` of several, limb by limb."""
        value = [function([one.value[k] for one in parts], *args) for k in range(wide.COUNT)]
        mac = [function([one.mac[k] for one in parts], *args) for k in range(wide.COUNT)]
        return parts[0].like(value, mac)


def _tensor(value: Public) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.int64)


class AuthBits:
    """Boolean shares of words and of their 40 tags: `planes` is (41, *shape), the words first."""

    __slots__ = ("first", "key", "planes")

    def __init__(self, key: Key, first: bool, planes: torch.Tensor) -> None:
        self.key, self.first, self.planes = key, first, planes

    @property
    def shape(self) -> torch.Size:
        return self.planes.shape[1:]

    @property
    def device(self) -> torch.device:
        return self.planes.device

    def like(self, planes: torch.Tensor) -> AuthBits:
        return AuthBits(self.key, self.first, planes)

    @classmethod
    def of_public(cls, key: Key, first: bool, word: torch.Tensor) -> AuthBits:
        """Public words as a holder's part of authenticated ones."""
        beta = key.beta.view(TAGS, *[1] * word.ndim)
        own = word if first else torch.zeros_like(word)
        return cls(key, first, torch.cat([own.unsqueeze(0), beta & word]))

    def __xor__(self, other: Any) -> AuthBits:
        found = other if isinstance(other, AuthBits) else self.of_public(self.key, self.first, other)
        return self.like(self.planes ^ found.planes)

    def __and__(self, public: Any) -> AuthBits:
        return self.like(self.planes & public)

    def __lshift__(self, bits: int) -> AuthBits:
        return self.like(self.planes << bits)

    def __rshift__(self, bits: int) -> AuthBits:
        return self.like(self.planes >> bits)

    def __invert__(self) -> AuthBits:
        return self ^ torch.full(self.shape, -1, dtype=torch.int64)

    def bitwise_xor_(self, other: Any) -> AuthBits:
        self.planes = (self ^ other).planes
        return self

    def bitwise_and_(self, public: Any) -> AuthBits:
        self.planes = self.planes & public
        return self

    def __getitem__(self, index: Any) -> AuthBits:
        where = index if isinstance(index, tuple) else (index,)
        return self.like(self.planes[(slice(None), *where)])


def fields_of(key: Key, first: bool, sealed: Sealed, part: Tensors) -> list[Any]:
    """The fields of a sealed correlation, in the order of its kind: `Auth` and `AuthBits`."""
    kind = sealed.kind
    inner, plain = len(kind.base), len(sealed.base)
    lows = part[:inner] + part[plain : plain + len(kind.derived)]
    uppers = iter(part[inner:plain])
    macs = part[plain + len(kind.derived) :]
    made: list[Any] = []
    for one, low, mac in zip(sealed.fields, lows, macs, strict=True):
        if one.bits:
            made.append(AuthBits(key, first, torch.cat([low.unsqueeze(0), mac])))
        else:
            made.append(Auth(key, first, wide.unpacked(low, next(uppers)), wide.unpacked(mac[0], mac[1])))
    return made
