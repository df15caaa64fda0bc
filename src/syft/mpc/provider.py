"""The crypto provider: a party of its own that deals correlated randomness and never sees an opening.

One duty: make each correlation once, hand every holder its part once, and count what that costs. The
provider and holder i share a seed; base fields are read from it on both sides, derived fields cost ONE
correction, sent to the last holder. In one process `Provider.begin().source(rank)` hands out what was made; on a
network the provider sends `Dealing.corrections(kind)` and the holder calls `expand`: the tensors are the same bit
by bit (tests compare them). May import `binding`, `correlations`, `integrity.sealed`, `party`, `randomness`.

NOTE [A run is atomic]
What a run takes belongs to its `Dealing`: the run's number and the position in it name a correlation, no queue that
parties read one after the other. A run that is abandoned half way (an interrupt, an error) takes its correlations with
it, and nothing that a later run draws depends on how far it came. Runs of several threads do not meet.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as counted
from typing import Any

import numpy as np
import torch

from syft.exceptions import SyftError
from syft.mpc import halves
from syft.mpc.binding import purpose
from syft.mpc.correlations import Correlation, Field, Kept, Mask, Place, Shape, Tensors, placed
from syft.mpc.integrity.sealed import Key
from syft.mpc.parcels import parcels
from syft.mpc.party import RoundMismatchError
from syft.mpc.randomness import SEED_BYTES, WIDE_KEY_BYTES, BoundStream, Stream, new_seed
from syft.mpc.taken import Taken, note_taken

Draw = Callable[[int, Shape], torch.Tensor]
"""Uniform words of a shape from the stream of a holder's rank."""


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

    def add(self, other: ProviderCost) -> None:
        self.correlations += other.correlations
        self.bytes += other.bytes
        self.messages += other.messages
        self.seconds += other.seconds


def expand(
    kind: Correlation, drawn: Iterator[torch.Tensor], received: Callable[[], Tensors], corrected: bool
) -> Iterator[torch.Tensor]:
    """A holder's fields, in order: from what it draws (`drawn_shapes`), and from what `Provider.corrections` gave for it,
    which is asked for when all else is read.

    Everybody draws the base fields. The last holder (`corrected`) is sent all derived fields, the others only the common
    ones.
    """
    for _ in kind.base:
        yield next(drawn)
    if corrected:
        yield from received()
        return
    common = iter(received())
    for one in kind.derived:
        yield next(common if one.common else drawn)


def drawn_shapes(kind: Correlation, corrected: bool) -> list[Shape]:
    """What a holder draws of a correlation, in order; the last holder (`corrected`) is sent the derived fields."""
    derived = () if corrected else kind.derived
    return [one.shape for one in kind.base] + [one.shape for one in derived if not one.common]


@dataclass(eq=False)
class Deal:
    """One correlation, cut into one part per holder; each part can be taken once, and is erased by it."""

    kind: Correlation
    parts: list[Tensors | None]
    place: Place
    """Where it was drawn."""
    device: torch.device | None = None

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

    @property
    def whole(self) -> bool:
        return all(part is not None for part in self.parts)


@dataclass(eq=False)
class Provider:
    """Deals to `holders` parties, on demand or ahead of time (`provide`). Runs are numbered from `next_run` on."""

    holders: int
    seeds: Sequence[bytes] | None = None
    cost: ProviderCost = field(default_factory=ProviderCost)
    next_run: int = 1
    is_recording: bool = True
    """Whether what it often makes on a CUDA device is recorded; nothing else may use the device meanwhile."""
    most_mask_bytes: int = 0
    """Masks that products name (those of weights) are drawn for each product; so many bytes of them are kept."""

    def __post_init__(self) -> None:
        if self.holders < 2:
            raise ValueError(f"Secrets are shared among at least two holders, got {self.holders}.")
        seeds = [new_seed() for _ in range(self.holders)] if self.seeds is None else list(self.seeds)
        if len(set(seeds)) != self.holders:
            raise ValueError(f"{self.holders} holders need as many different seeds, got {len(set(seeds))}.")
        self.seeds = None  # the streams are all that is needed from here on
        self._streams = [BoundStream(seed) for seed in seeds]
        self._making = threading.RLock()
        self._recordings: Any = None
        self._runs = counted(self.next_run)
        self._ready: dict[tuple[Correlation, torch.device | None], deque[Deal]] = {}
        #: The last used at the end, and their bytes.
        self._masks: dict[Kept, torch.Tensor] = {}
        self.mask_bytes = 0
        self.cost.bytes += SEED_BYTES * self.holders
        self.cost.messages += self.holders

    # -- dealing ---------------------------------------------------------------------------------------

    def begin(
        self, run: int | None = None, program: bytes = b"", device: torch.device | None = None
    ) -> Dealing:
        """The correlations of one run: the next one, or (on a network) the one that the client numbered.

        `device` is where the provider makes them for shares that lie on a device, which may be the CPU; None: for shares
        on the CPU. NOTE [Wide words] in `randomness`.
        """
        return Dealing(self, next(self._runs) if run is None else run, program, device)

    def provide(self, *kinds: Correlation, count: int = 1, device: torch.device | None = None) -> None:
        """Make correlations ahead of time: `count` of each kind, used first in, first out."""
        dealing = self.begin(device=device)
        for kind in kinds:
            for _ in range(count):
                made = dealing.make(kind)
                with self._making:
                    self._ready.setdefault((kind, made.device), deque()).append(made)

    def provide_again(self, taken: Sequence[Taken]) -> None:
        """Make once more what a call took (`syft.mpc.ahead`): masks are new, and so are the products that name them."""
        dealings: dict[torch.device | None, Dealing] = {}
        places: dict[Place, Place] = {}
        for one in taken:
            if one.device not in dealings:
                dealings[one.device] = self.begin(device=one.device)
            made = dealings[one.device].make(placed(one.kind, places))
            if isinstance(one.kind, Mask):
                places[one.place] = made.place
            with self._making:
                self._ready.setdefault((made.kind, made.device), deque()).append(made)

    def ready(self, kind: Correlation, device: torch.device | None = None) -> int:
        """Correlations of this kind that nobody has begun to use."""
        return sum(deal.whole for deal in self._ready.get((kind, device), ()))

    def take_ready(self, kind: Correlation, rank: int) -> Tensors | None:
        """A holder's part of the oldest correlation made ahead of time that it has not had; None if there is none."""
        with self._making:
            for deal in self._ready.get((kind, None), ()):
                if deal.parts[rank] is not None:
                    part = deal.take(rank)
                    if deal.spent:
                        self._remove(deal)
                    return part
        return None

    def _whole(self, kind: Correlation, device: torch.device | None) -> Deal | None:
        """The oldest correlation made ahead of time of which no part was taken; it is the caller's from here on."""
        with self._making:
            for deal in self._ready.get((kind, device), ()):
                if deal.whole:
                    self._remove(deal)
                    return deal
        return None

    def _remove(self, deal: Deal) -> None:
        queue = self._ready[deal.kind, deal.device]
        queue.remove(deal)
        if not queue:
            del self._ready[deal.kind, deal.device]

    def make(
        self,
        kind: Correlation,
        place: Place,
        also: ProviderCost | None = None,
        device: torch.device | None = None,
    ) -> Deal:
        """One correlation, drawn at a place that is used once. What it costs is noted in `also`, too."""
        device = None if kind.on_cpu else device
        with self._making:
            start = time.perf_counter()
            meant = purpose(place.run, place.program, place.position, kind, device is not None)
            parts: list[list[torch.Tensor]] | list[Tensors] | None = kind.deal(self._streams, meant)
            if parts is None:
                parts = self._deal(kind, meant, device)
            self.count(kind, time.perf_counter() - start, also)
            return Deal(kind, [tuple(part) for part in parts], place, device)

    def corrections(
        self,
        kind: Correlation,
        place: Place,
        also: ProviderCost | None = None,
        device: torch.device | None = None,
    ) -> list[Tensors]:
        """Like `make`, but only what has to be sent, by holder. What they draw themselves is not kept."""
        values = self._values_to_send(kind, place, also) if device is None or kind.on_cpu else None
        if values is None:
            deal, start = self.make(kind, place, also, device), len(kind.base)
            values = [deal.take(rank)[start:] for rank in range(self.holders)][-1]
        common = tuple(t for t, one in zip(values, kind.derived, strict=True) if one.common)
        return [*[common] * (self.holders - 1), values]

    def _values_to_send(self, kind: Correlation, place: Place, also: ProviderCost | None) -> Tensors | None:
        """The last holder's derived fields, without a buffer for each share; None for kinds with ways of their own."""
        own = type(kind)
        is_of_parts = own.derive_from_parts is not Correlation.derive_from_parts
        if own.deal is not Correlation.deal or (is_of_parts and not kind.reads_in_order):
            return None
        with self._making:
            start = time.perf_counter()
            meant = purpose(place.run, place.program, place.position, kind, False)
            kept = [self.mask(one) for one in kind.kept]
            first, *others = [stream.at(meant) for stream in self._streams]
            found: Tensors | None
            if is_of_parts:
                shapes = [one.shape for one in kind.base]
                drawn: list[Any] = [map(stream.words, shapes) for stream in (first, *others)]
                found = kind.derive_from_parts(drawn)
            else:
                plain = [
                    first.words_with(others, _joining(one, self.holders), one.shape) for one in kind.base
                ]
                found = kind.derive(*kept, *plain)
            values = [value.contiguous() for value in found or ()]
            for value, one in zip(values, kind.derived, strict=True):
                for stream in (first, *others[:-1]) if not one.common else ():
                    stream.combine(one.numbers(value), np.bitwise_xor if one.bits else np.subtract)
            self.count(kind, time.perf_counter() - start, also)
            return tuple(values)

    def count(self, kind: Correlation, seconds: float = 0.0, also: ProviderCost | None = None) -> None:
        """Count what one correlation costs to make and to send."""
        derived = kind.derived
        sizes, common = [one.nbytes for one in derived], [one.nbytes for one in derived if one.common]
        others = self.holders - 1
        messages = (len(parcels(sizes)) if sizes else 0) + (others * len(parcels(common)) if common else 0)
        cost = ProviderCost(1, sum(sizes) + others * sum(common), messages, seconds)
        for noted in (self.cost, also):
            if noted is not None:
                noted.add(cost)

    def mask(self, kept: Kept, device: torch.device | None = None) -> torch.Tensor:
        """The value of a mask that was drawn before, drawn again, or kept. It is not written to."""
        known = self._masks.pop(kept, None) if device is None else None
        if known is not None:
            self._masks[kept] = known
            return known
        place, kind = kept.place, Mask(kept.shape)
        meant = purpose(place.run, place.program, place.position, kind, device is not None)
        value = taken_of(kept, [stream.at(meant).draw(kept.shape, device) for stream in self._streams])
        if device is None and value.nbytes <= self.most_mask_bytes:
            self._masks[kept] = value
            self.mask_bytes += value.nbytes
            while self._masks and self.mask_bytes > self.most_mask_bytes:
                self.mask_bytes -= self._masks.pop(next(iter(self._masks))).nbytes
        return value

    def _deal(self, kind: Correlation, meant: bytes, device: torch.device | None) -> list[list[torch.Tensor]]:
        kept = [self.mask(one, device) for one in kind.kept]
        streams = [stream.at(meant) for stream in self._streams]
        found = self._recorded(kind, streams, device) if device is not None and not kept else None
        if found is not None:
            return found
        last = self.holders - 1
        drawn = [
            stream.draw_all(drawn_shapes(kind, rank == last), device) for rank, stream in enumerate(streams)
        ]
        return self._fields(kind, kept, lambda rank, _shape: next(drawn[rank]))

    def _fields(
        self, kind: Correlation, kept: Sequence[torch.Tensor], draw: Draw
    ) -> list[list[torch.Tensor]]:
        """The fields of a correlation, a list per holder, from `draw(rank, shape)`."""
        parts = [[draw(rank, one.shape) for one in kind.base] for rank in range(self.holders)]
        if kind.derived:
            values = kind.derive_from_parts(parts)
            if values is None:
                plain = [joined([part[i] for part in parts], one) for i, one in enumerate(kind.base)]
                values = kind.derive(*kept, *plain)
            for value, one in zip(values, kind.derived, strict=True):
                for part, share in zip(parts, self._cut(value, one, draw), strict=True):
                    part.append(share)
        return parts

    def _recorded(
        self, kind: Correlation, streams: Sequence[Stream], device: torch.device
    ) -> list[list[torch.Tensor]] | None:
        """The same by a recording of the device's work: see `syft.mpc.cuda.graphs`."""
        if device.type != "cuda" or not self.is_recording:
            return None
        from syft.mpc.cuda import graphs

        if self._recordings is None:
            self._recordings = graphs.Recordings()
        return graphs.deal_fields(
            self._recordings,
            kind,
            device,
            lambda rank: streams[rank].raw(WIDE_KEY_BYTES),
            lambda draw: self._fields(kind, (), draw),
        )

    def tell(self, run: int, program: bytes, kind: Correlation) -> torch.Tensor:
        """The value of the first field of the first correlation of a run: an `Entrance`, told to the client."""
        meant = purpose(run, program, 0, kind)
        with self._making:
            shares = [stream.at(meant).words(kind.base[0].shape) for stream in self._streams]
        return joined(shares, kind.base[0])

    def key(self, rank: int) -> Key:
        """A holder's part of the MAC key."""
        with self._making:
            return Key.of(self._streams[rank])

    def _cut(self, value: torch.Tensor, kind: Field, draw: Draw) -> list[torch.Tensor]:
        """A derived value as one tensor per holder: drawn, all but the last, which is what is missing."""
        if kind.common:
            return [value] * self.holders
        shares = [draw(rank, kind.shape) for rank in range(self.holders - 1)]
        for share in shares:
            if kind.bits:
                value.bitwise_xor_(share)
            else:
                kind.numbers(value).sub_(kind.numbers(share))
        return [*shares, value]


@dataclass(eq=False)
class Dealing:
    """The correlations of one run, by position. NOTE [A run is atomic]"""

    provider: Provider
    run: int
    program: bytes = b""
    device: torch.device | None = None

    def __post_init__(self) -> None:
        self.cost = ProviderCost()
        self._made = 0
        self._deals: list[Deal | None] = []
        #: What was taken, by position, and where it was drawn.
        self.kinds: list[Correlation] = []
        self.places: list[Place] = []

    def make(self, kind: Correlation) -> Deal:
        """The next correlation that is made for this run."""
        position, self._made = self._made, self._made + 1
        place = Place(self.run, self.program, position)
        return self.provider.make(kind, place, self.cost, self.device)

    def corrections(self, kind: Correlation) -> list[Tensors]:
        """Make the next correlation and give only what has to be sent, by holder."""
        if not kind.derived:  # holders draw all of it themselves
            self._made += 1
            return [()] * self.provider.holders
        position, self._made = self._made, self._made + 1
        place = Place(self.run, self.program, position)
        return self.provider.corrections(kind, place, self.cost, self.device)

    def source(self, rank: int) -> LocalSource:
        """Holder `rank`'s side of this run, in the same process."""
        return LocalSource(self, rank)

    def at(self, position: int, kind: Correlation, rank: int) -> Deal:
        """What the parties take at this position: the first to come has it made, or takes one made ahead of time."""
        if position == len(self._deals):
            made = self.provider._whole(kind, self.device) or self.make(kind)
            self._deals.append(made)
            self.kinds.append(kind)
            self.places.append(made.place)
            note_taken(self.provider, kind, made.place, self.device)
        deal = self._deals[position]
        if deal is None or deal.kind != kind:
            found = "nothing is left" if deal is None else f"the others take a {type(deal.kind).__name__}"
            raise RoundMismatchError(
                f"Holder {rank} takes a {type(kind).__name__} at position {position} of run {self.run}, where {found}: "
                "their programs have diverged."
            )
        return deal

    def taken(self, position: int, deal: Deal) -> None:
        """Let go of a correlation of which every holder has its part."""
        if deal.spent:
            self._deals[position] = None


@dataclass(eq=False)
class LocalSource:
    """`party.CorrelationSource` over the dealing of one run, in the same process."""

    dealing: Dealing
    rank: int
    _position: int = 0

    def take(self, kind: Correlation) -> Tensors:
        return self._taken(kind)[1]

    def mask(self, shape: Sequence[int]) -> tuple[Place, torch.Tensor]:
        place, (share,) = self._taken(Mask(tuple(shape)))
        return place, share

    def _taken(self, kind: Correlation) -> tuple[Place, Tensors]:
        position, self._position = self._position, self._position + 1
        deal = self.dealing.at(position, kind, self.rank)
        part = deal.take(self.rank)
        self.dealing.taken(position, deal)
        return deal.place, part

    def key(self) -> Key:
        return self.dealing.provider.key(self.rank)


def _joining(kind: Field, holders: int) -> np.ufunc:
    """How holders' words give the value of a field. !! ValueError for one of two holders among others"""
    if not kind.less:
        return np.bitwise_xor if kind.bits else np.add
    if holders != halves.HOLDERS:
        raise ValueError(f"A product is split between two holders, and not among {holders}.")
    return np.subtract


def taken_of(kept: Kept, shares: Sequence[torch.Tensor]) -> torch.Tensor:
    """What a kind takes of the mask that it names, from its shares."""
    field = Field(kept.shape, less=kept.dim is not None)
    if kept.dim is None:
        return joined(shares, field)
    _joining(field, len(shares))
    return halves.difference(shares, kept.dim)


def joined(shares: Sequence[torch.Tensor], kind: Field) -> torch.Tensor:
    """The value behind the shares of a field."""
    function = _joining(kind, len(shares))
    total = shares[0].clone()
    for share in shares[1:]:
        if function is np.bitwise_xor:
            total.bitwise_xor_(share)
        elif function is np.subtract:
            total.sub_(share)
        else:
            kind.numbers(total).add_(kind.numbers(share))
    return total
