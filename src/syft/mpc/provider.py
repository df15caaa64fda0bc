"""The crypto provider: a party of its own that deals correlated randomness and never sees an opening.

One duty: make each correlation once, hand every holder its part once, and count what that costs. The
provider and holder i share a seed; base fields are read from it on both sides, derived fields cost ONE
correction, sent to the last holder. In one process `Provider.source(rank)` hands out what was made; on a
network the provider sends `corrections(kind)` and the holder calls `expand`: the tensors are the same bit
by bit (tests compare them). May import `correlations`, `randomness`, `ring`.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from syft.exceptions import SyftError
from syft.mpc.correlations import Correlation, Field, Mask, Tensors
from syft.mpc.randomness import SEED_BYTES, Stream, new_seed


class CorrelationReusedError(SyftError, RuntimeError):
    """Correlated randomness was asked for a second time.

    Two openings under one mask reveal their difference.
    """


@dataclass
class ProviderCost:
    """The offline cost: what was made, what went over the wire for it, and how long it took."""

    correlations: int = 0
    bytes: int = 0
    messages: int = 0
    seconds: float = 0.0


def expand(kind: Correlation, stream: Stream, received: Tensors, corrected: bool) -> Tensors:
    """A holder's fields from its seed and from what `Provider.corrections` gave for it.

    Everybody draws the base fields. The last holder (`corrected`) was sent all derived fields, the others
    only the common ones.
    """
    base = tuple(stream.words(one.shape) for one in kind.base)
    if corrected:
        return base + received
    common = iter(received)
    return base + tuple(next(common) if one.common else stream.words(one.shape) for one in kind.derived)


@dataclass(eq=False)
class Deal:
    """One correlation, cut into one part per holder; each part can be taken once, and is erased by it."""

    kind: Correlation
    parts: list[Tensors | None]
    handle: int | None = None

    def take(self, rank: int) -> Tensors:
        part = self.parts[rank]
        if part is None:
            raise CorrelationReusedError(
                f"Holder {rank} asked twice for the same {type(self.kind).__name__}. "
                "Correlated randomness is consumed once: ask the source for a fresh one."
            )
        self.parts[rank] = None
        return part

    @property
    def spent(self) -> bool:
        return all(part is None for part in self.parts)


@dataclass(eq=False)
class Provider:
    """Deals to `holders` parties, on demand or ahead of time (`provide`)."""

    holders: int
    seeds: Sequence[bytes] | None = None
    cost: ProviderCost = field(default_factory=ProviderCost)

    def __post_init__(self) -> None:
        if self.holders < 2:
            raise ValueError(f"Secrets are shared among at least two holders, got {self.holders}.")
        seeds = [new_seed() for _ in range(self.holders)] if self.seeds is None else list(self.seeds)
        if len(set(seeds)) != self.holders:
            raise ValueError(f"{self.holders} holders need as many different seeds, got {len(set(seeds))}.")
        self.seeds = None  # the streams are all that is needed from here on
        self._streams = [Stream(seed) for seed in seeds]
        self._ready: dict[Correlation, deque[Deal]] = defaultdict(deque)
        self._kept: dict[int, torch.Tensor] = {}
        self._released: dict[int, set[int]] = {}
        self._next_handle = 0
        self.cost.bytes += SEED_BYTES * self.holders
        self.cost.messages += self.holders

    # -- dealing ---------------------------------------------------------------------------------------

    def provide(self, *kinds: Correlation, count: int = 1) -> None:
        """Make correlations ahead of time: `count` of each kind, used first in, first out."""
        for kind in kinds:
            for _ in range(count):
                self._ready[kind].append(self._make(kind))

    def ready(self, kind: Correlation) -> int:
        """Correlations of this kind that nobody has begun to use."""
        return sum(all(part is not None for part in deal.parts) for deal in self._ready.get(kind, ()))

    def corrections(self, kind: Correlation) -> list[Tensors]:
        """Make one correlation and give only what has to be sent, by holder."""
        deal, start = self._make(kind), len(kind.base)
        parts = [deal.take(rank)[start:] for rank in range(self.holders)]
        common = [
            tuple(t for t, one in zip(part, kind.derived, strict=True) if one.common) for part in parts[:-1]
        ]
        return [*common, parts[-1]]

    def _make(self, kind: Correlation) -> Deal:
        start = time.perf_counter()
        base, derived = kind.base, kind.derived
        kept = [self._lookup(handle) for handle in kind.kept]
        parts = [[stream.words(one.shape) for one in base] for stream in self._streams]
        if derived:
            plain = [_joined([part[i] for part in parts], one) for i, one in enumerate(base)]
            found = kind.derive_from_parts(parts)
            values = kind.derive(*kept, *plain) if found is None else found
            for value, one in zip(values, derived, strict=True):
                for part, share in zip(parts, self._cut(value, one), strict=True):
                    part.append(share)
        self.cost.correlations += 1
        self.cost.bytes += sum(one.nbytes * (self.holders if one.common else 1) for one in derived)
        self.cost.messages += self.holders if any(one.common for one in derived) else bool(derived)
        self.cost.seconds += time.perf_counter() - start
        return Deal(kind, [tuple(part) for part in parts])

    def _cut(self, value: torch.Tensor, kind: Field) -> list[torch.Tensor]:
        """A derived value as one tensor per holder: drawn, all but the last, which is what is missing."""
        if kind.common:
            return [value] * self.holders
        shares = [stream.words(kind.shape) for stream in self._streams[:-1]]
        for share in shares:
            if kind.bits:
                value.bitwise_xor_(share)
            else:
                value.sub_(share)
        return [*shares, value]

    # -- kept masks --------------------------------------------------------------------------------------

    def keep(self, deal: Deal) -> int:
        """Remember the value of a `Mask` just made, under a handle of its own."""
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        shares: list[torch.Tensor] = [part[0] for part in deal.parts if part is not None]
        self._kept[handle] = _joined(shares, deal.kind.base[0])
        self._released[handle] = set()
        return handle

    def _lookup(self, handle: int) -> torch.Tensor:
        try:
            return self._kept[handle]
        except KeyError:
            raise CorrelationReusedError(
                f"The mask {handle} was released, so nothing can be multiplied under it any more. "
                "Mask the operand again."
            ) from None

    def release(self, handle: int, rank: int) -> None:
        """Forget a kept mask once every holder has released it."""
        if handle in self._released:
            self._released[handle].add(rank)
            if len(self._released[handle]) == self.holders:
                del self._kept[handle], self._released[handle]

    # -- taking ------------------------------------------------------------------------------------------

    def source(self, rank: int) -> LocalSource:
        """Holder `rank`'s side of this provider, in the same process."""
        return LocalSource(self, rank)

    def _next(self, kind: Correlation, rank: int) -> Deal:
        """The oldest correlation of this kind that `rank` has not had; a new one if there is none."""
        queue = self._ready[kind]
        for deal in queue:
            if deal.parts[rank] is not None:
                return deal
        queue.append(self._make(kind))
        return queue[-1]

    def _drop_spent(self, kind: Correlation) -> None:
        queue = self._ready[kind]
        while queue and queue[0].spent:
            queue.popleft()
        if not queue:
            del self._ready[kind]


@dataclass(eq=False)
class LocalSource:
    """`party.CorrelationSource` over a provider in the same process."""

    provider: Provider
    rank: int

    def take(self, kind: Correlation) -> Tensors:
        part = self.provider._next(kind, self.rank).take(self.rank)
        self.provider._drop_spent(kind)
        return part

    def mask(self, shape: Sequence[int]) -> tuple[int, torch.Tensor]:
        """A mask that the provider remembers: its handle and this holder's share."""
        kind = Mask(tuple(shape))
        deal = self.provider._next(kind, self.rank)
        if deal.handle is None:
            deal.handle = self.provider.keep(deal)
        (share,) = deal.take(self.rank)
        self.provider._drop_spent(kind)
        return deal.handle, share

    def release(self, handle: int) -> None:
        self.provider.release(handle, self.rank)


def _joined(shares: Sequence[torch.Tensor], kind: Field) -> torch.Tensor:
    total = shares[0] ^ shares[1] if kind.bits else shares[0] + shares[1]
    for share in shares[2:]:
        if kind.bits:
            total.bitwise_xor_(share)
        else:
            total.add_(share)
    return total
