"""`Outline`: what a program takes from the provider and what it gives, found without any secret.

The client needs it so as not to wait: the kinds of correlations for the provider, the metadata of the results for its
pointers. A program takes the same path whatever its secrets are, so it is run once as one party, on zeros; programs that
talk to single peers are run by the lockstep driver. So an outline takes no longer than a holder does. It is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from syft.mpc import halves
from syft.mpc.correlations import Correlation, Mask, Place, Tensors, Triple
from syft.mpc.drivers import Lockstep, NoSource, Shares
from syft.mpc.integrity.ledger import Ledger
from syft.mpc.integrity.sealed import TAGS, Key
from syft.mpc.kernels import Bilinear
from syft.mpc.network.programs import OUTLINES, program_named
from syft.mpc.party import Party
from syft.mpc.protocols import beaver
from syft.mpc.protocols.beaver import MaskedOperand, masked
from syft.mpc.provider import Deal, Provider, ProviderCost


@dataclass(frozen=True)
class Made:
    """The metadata of one tensor among the results."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Secret:
    """Stands for a share among the arguments."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class MaskedSecret:
    """Stands for an operand that is masked already; `argument` says which of the arguments it is."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    argument: int

    @property
    def place(self) -> Place:
        """Stands for the place of its mask: NOTE [Places in outlines]."""
        return Place(-1 - self.argument, b"", 0)


@dataclass(frozen=True)
class MadeMasked:
    """The metadata of an operand among the results that is masked for later, and the place of its mask."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    place: Place


# NOTE [Places in outlines]
# An outline is remembered for all runs, and the kinds of triples with masked operands name places. Those of operands that
# were given have run -1 - argument, those of masks that the program draws have run 0 and the position at which it takes
# them. `correlations.placed` puts the real ones in.


@dataclass(frozen=True)
class Outline:
    """`results` is a `Made`, a `MadeMasked`, None, or a tuple of such; `needs_provider` says whether it takes part
    online.
    """

    kinds: tuple[Correlation, ...]
    results: Any
    needs_provider: bool


@lru_cache(maxsize=1024)
def outline_of(
    name: str, holders: int, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> Outline:
    """The outline of a program for arguments of which the shares are `Secret`s."""
    program = program_named(name)
    if name in OUTLINES:
        kinds, results = OUTLINES[name](
            lambda other, given, named: outline_of(other, holders, given, named), Made, args, kwargs
        )
        return Outline(tuple(kinds), results, False)
    if program in (beaver.spdz_mul, beaver.multiply_keeping):
        return _of_product(holders, program is beaver.multiply_keeping, *args, **dict(kwargs))
    try:
        kinds, results = _as_one_party(program, holders, args, dict(kwargs))
    except Exception:  # noqa: BLE001  (if it is the caller's fault, the other way says so)
        kinds, results = _on_zeros(program, holders, args, dict(kwargs))
    return Outline(tuple(kinds), _described(results), getattr(program, "provider_online", False))


def _of_product(
    holders: int, is_keeping: bool, x: Any, y: Any, op: Bilinear = beaver.MUL, rest: Any = None
) -> Outline:
    """The outline of `beaver.multiply_keeping` or `spdz_mul`, whose products of weights would take long on zeros."""
    kinds: list[Correlation] = []
    places: dict[str, Place] = {}
    given = {"x": x, "y": y}
    kept = ("y" if rest is None else rest) if is_keeping else ""
    for name, value in given.items():
        if isinstance(value, MaskedSecret):
            places[name] = value.place
        elif name in kept:
            places[name] = Place(0, b"", len(kinds))
            kinds.append(Mask(value.shape))
    is_split = halves.pay_for(holders, op, x.shape, y.shape) and (is_keeping or not rest)
    kinds.append(Triple(op, x.shape, y.shape, places.get("x"), places.get("y"), is_split))
    made = Made(tuple(op.output_shape(x.shape, y.shape)), torch.int64)
    if not is_keeping:
        return Outline(tuple(kinds), made, False)
    masked = (MadeMasked(given[name].shape, given[name].dtype, places[name]) for name in kept)
    return Outline(tuple(kinds), (made, *masked), False)


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Made(tuple(value.shape), value.dtype)
    if isinstance(value, MaskedOperand):
        return MadeMasked(tuple(value.shape), value.share.dtype, value.place)
    if isinstance(value, (tuple, list)):
        return tuple(_described(part) for part in value)
    if value is None:
        return None
    raise TypeError(f"A program gives tensors, and tuples of them; this one gave a {type(value).__name__}.")


class _Recorder(NoSource):
    """Notes what is taken, and hands out tensors of the right shapes."""

    def __init__(self) -> None:
        self.kinds: list[Correlation] = []

    def take(self, kind: Correlation) -> Tensors:
        self.kinds.append(kind)
        return tuple(torch.zeros(one.shape, dtype=torch.int64) for one in (*kind.base, *kind.derived))

    def mask(self, shape: Sequence[int]) -> tuple[Place, torch.Tensor]:
        (share,) = self.take(Mask(tuple(shape)))
        return Place(0, b"", len(self.kinds) - 1), share

    def key(self) -> Key:
        return Key(0, torch.zeros(TAGS, dtype=torch.int64))


def _as_one_party(
    program: Callable[..., Any], holders: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Correlation], Any]:
    recorder = _Recorder()
    with torch.no_grad():
        party = Party(0, holders, recorder, page=Ledger().pages()[0])
        given = [_filled(a, torch.zeros) for a in args]
        running = program(party, *given, **{k: _filled(v, torch.zeros) for k, v in kwargs.items()})
        reply: Any = None
        while True:
            try:
                one = running.send(reply)
            except StopIteration as done:
                return recorder.kinds, done.value
            received = {
                rank: tuple(torch.zeros(e.shape, dtype=e.dtype) for e in expected)
                for rank, expected in one.incoming.items()
            }
            reply = one.finish(received)


def _filled(value: Any, make: Callable[..., torch.Tensor]) -> Any:
    if isinstance(value, MaskedSecret):
        share, mask, opened = (make(value.shape, dtype=value.dtype) for _ in range(3))
        return masked(share, mask, opened, value.place)
    return make(value.shape, dtype=value.dtype) if isinstance(value, Secret) else value


class _NotingProvider(Provider):
    """Remembers what it made, in order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds: list[Correlation] = []

    def make(
        self,
        kind: Correlation,
        place: Place,
        also: ProviderCost | None = None,
        device: torch.device | None = None,
    ) -> Deal:
        self.kinds.append(kind)
        return super().make(kind, place, also, device)


def _on_zeros(
    program: Callable[..., Any], holders: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Correlation], Any]:
    provider = _NotingProvider(holders, next_run=0)

    def shares(value: Any) -> Any:
        return (
            Shares(_filled(value, torch.zeros) for _ in range(holders))
            if isinstance(value, (Secret, MaskedSecret))
            else value
        )

    with torch.no_grad():
        results = Lockstep(holders, provider).run(
            program, *map(shares, args), **{k: shares(v) for k, v in kwargs.items()}
        )
    return provider.kinds, _first(results)


def _first(results: Any) -> Any:
    """One party's part of what the lockstep driver gave."""
    return results[0] if isinstance(results, Shares) else tuple(_first(part) for part in results)
