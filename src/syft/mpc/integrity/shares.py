"""One holder's part of authenticated tensors: `Auth` of numbers, `AuthBits` of packed bits.

Both know the operations that are linear in them, so programs written for plain shares run on them where they only
add, scale and rearrange. Public values count in the value at the first holder and in the MAC at every holder:
whatever adds a public value must do so at all holders (`party.plus`, `party.inverted`), never behind `if party.first`.
May import `sealed`, `wide`, `words`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from syft.mpc.correlations import Tensors
from syft.mpc.integrity import wide, words
from syft.mpc.integrity.sealed import TAGS, Key, Sealed
from syft.mpc.kernels import Bilinear

Public = int | torch.Tensor

MUL = Bilinear("mul")


class Auth:
    """A share of x and a share of alpha x, both mod 2^110: `words` is (2, 2, *shape), `lo, hi` of the two (`words`)."""

    __slots__ = ("first", "key", "words")

    def __init__(self, key: Key, first: bool, words: torch.Tensor) -> None:
        self.key, self.first, self.words = key, first, words

    # -- forms -----------------------------------------------------------------------------------------

    @classmethod
    def unpacked(cls, key: Key, first: bool, kept: torch.Tensor) -> Auth:
        """From the four words per element that a holder keeps: `lo` of value and MAC, `hi` of value and MAC."""
        return cls(key, first, kept.reshape(2, 2, *kept.shape[1:]))

    def packed(self) -> torch.Tensor:
        """(4, *shape): what a holder keeps."""
        return words.masked(self.words).view(4, *self.shape)

    @classmethod
    def of_public(cls, key: Key, first: bool, value: torch.Tensor) -> Auth:
        """A public value as a holder's part of an authenticated one."""
        number = words.of_public(value)
        own = number if first else torch.zeros_like(number)
        return cls(key, first, torch.stack([own, words.scaled(number, key.word)], 1))

    @classmethod
    def of_limbs(cls, key: Key, first: bool, limbs: torch.Tensor) -> Auth:
        """From (5, 2, *shape) limbs."""
        return cls(key, first, words.of_limbs(limbs))

    def limbs(self) -> torch.Tensor:
        """(5, 2, *shape): normal limbs of value and MAC."""
        return words.as_limbs(self.words)

    @property
    def value(self) -> torch.Tensor:
        """(2, *shape): words of the share."""
        return self.words[:, 0]

    @property
    def mac(self) -> torch.Tensor:
        return self.words[:, 1]

    @property
    def shape(self) -> torch.Size:
        return self.words.shape[2:]

    @property
    def ndim(self) -> int:
        return self.words.ndim - 2

    @property
    def device(self) -> torch.device:
        return self.words.device

    def numel(self) -> int:
        return self.shape.numel()

    def like(self, made: torch.Tensor) -> Auth:
        return Auth(self.key, self.first, made)

    def public(self, value: torch.Tensor) -> Auth:
        return self.of_public(self.key, self.first, value)

    def _aligned(self, ndim: int) -> torch.Tensor:
        """The words with dimensions of size 1 in front, as torch broadcasts."""
        missing = ndim - self.ndim
        return self.words if missing <= 0 else self.words.reshape(2, 2, *[1] * missing, *self.shape)

    # -- arithmetic ------------------------------------------------------------------------------------

    def _combined(self, other: Any, function: Callable[..., torch.Tensor]) -> Auth:
        found = other if isinstance(other, Auth) else self.public(_tensor(other))
        ndim = max(self.ndim, found.ndim)
        return self.like(function(self._aligned(ndim), found._aligned(ndim)))

    def __add__(self, other: Any) -> Auth:
        return self._combined(other, words.added)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Auth:
        return self._combined(other, words.subtracted)

    def __neg__(self) -> Auth:
        return self.like(words.negated(self.words))

    def __rsub__(self, other: Public) -> Auth:
        return self.public(_tensor(other)) - self

    def __mul__(self, factor: Public) -> Auth:
        """Times a public integer, or element by element with public ones."""
        if isinstance(factor, Auth):
            raise TypeError("Two secrets are multiplied by a program.")
        public = _tensor(factor)
        return self.like(words.scaled(self._aligned(public.ndim), public))

    __rmul__ = __mul__

    def __lshift__(self, bits: int) -> Auth:
        return self * (1 << bits)

    def through(self, op: wide.Op, public: torch.Tensor, terms: int) -> Auth:
        """op(self, public) for a bilinear `op`, in which so many terms add up to an element."""
        if op == MUL:
            return self * public
        return self._product(op, public, terms)

    def under(self, op: wide.Op, public: torch.Tensor, terms: int) -> Auth:
        """op(public, self) for a bilinear `op`."""
        if op == MUL:
            return self * public
        return self._product(lambda own, other: op(other, own), public, terms)

    def _product(self, op: wide.Op, public: torch.Tensor, terms: int) -> Auth:
        other = wide.ready(wide.of_public(public), terms)
        each = [
            wide.product_of_ready(op, wide.ready(part, terms), other, terms)
            for part in self.limbs().unbind(1)
        ]
        return self.of_limbs(self.key, self.first, torch.stack(each, 1))

    def where(self, mask: torch.Tensor) -> Auth:
        """Self where a public word is all ones, 0 where it is 0."""
        return self.like(self.words & mask)

    def negated_where(self, mask: torch.Tensor) -> Auth:
        """-self where a public word is all ones."""
        return self.like(words.negated_where(self.words, mask))

    # -- in place, as programs write it: the object, not its memory --------------------------------------

    def _become(self, other: Auth) -> Auth:
        self.words = other.words
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
        where = index if isinstance(index, tuple) else (index,)
        return self.like(self.words[(slice(None), slice(None), *where)])

    def __iter__(self) -> Iterator[Auth]:
        return (self[k] for k in range(self.shape[0]))

    def __len__(self) -> int:
        return self.shape[0]

    def view(self, *shape: Any) -> Auth:
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in wanted and not self.numel():
            wanted = self.words[0, 0].reshape(wanted).shape
        return self.like(self.words.reshape(2, 2, *wanted))

    reshape = view

    def _axis(self, dim: int, ndim: int) -> int:
        return 2 + dim % ndim

    def movedim(self, source: int, destination: int) -> Auth:
        return self.like(
            self.words.movedim(self._axis(source, self.ndim), self._axis(destination, self.ndim))
        )

    def unsqueeze(self, dim: int) -> Auth:
        return self.like(self.words.unsqueeze(self._axis(dim, self.ndim + 1)))

    def gather(self, dim: int, index: torch.Tensor) -> Auth:
        wide_index = index.expand(2, 2, *index.shape)
        return self.like(self.words.gather(self._axis(dim, self.ndim), wide_index))

    def contiguous(self) -> Auth:
        return self

    def clone(self) -> Auth:
        return self.like(self.words.clone())

    @staticmethod
    def joined(function: Callable[..., torch.Tensor], parts: Sequence[Auth], dim: int = 0) -> Auth:
        """`torch.cat` or `torch.stack` of several."""
        ndim = parts[0].ndim + (function is torch.stack)
        return parts[0].like(function([part.words for part in parts], 2 + dim % ndim))


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

    @staticmethod
    def joined(function: Callable[..., torch.Tensor], parts: Sequence[AuthBits], dim: int = 0) -> AuthBits:
        """`torch.cat` or `torch.stack` of several, along a dimension that is counted from the first."""
        return parts[0].like(function([part.planes for part in parts], 1 + dim))


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
            made.append(Auth.unpacked(key, first, torch.stack([low, mac[0], next(uppers), mac[1]])))
    return made
