"""`Outline`: what a program takes from the provider and what it gives, found without any secret.

The client needs it so as not to wait: the kinds of correlations for the provider, the metadata of the results for its
pointers. A program takes the same path whatever its secrets are, so it is run once on tensors without values; where
something in it wants values (numpy, ciphers) it is run on zeros, by the lockstep driver. Outlines are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from syft.mpc.correlations import Correlation, Tensors
from syft.mpc.drivers import Lockstep, NoSource, Shares
from syft.mpc.network.programs import program_named
from syft.mpc.party import Party
from syft.mpc.provider import Deal, Provider


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
class Outline:
    """`results` is a `Made`, None, or a tuple of such; `needs_provider` says whether it takes part online."""

    kinds: tuple[Correlation, ...]
    results: Any
    needs_provider: bool


@lru_cache(maxsize=1024)
def outline_of(
    name: str, holders: int, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]
) -> Outline:
    """The outline of a program for arguments of which the shares are `Secret`s."""
    program = program_named(name)
    try:
        kinds, results = _without_values(program, holders, args, dict(kwargs))
    except Exception:  # noqa: BLE001  (if it is the caller's fault, the other way says so, with values in it)
        kinds, results = _on_zeros(program, holders, args, dict(kwargs))
    return Outline(tuple(kinds), _described(results), getattr(program, "provider_online", False))


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return Made(tuple(value.shape), value.dtype)
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
        return tuple(torch.empty(one.shape, dtype=torch.int64) for one in (*kind.base, *kind.derived))


def _without_values(
    program: Callable[..., Any], holders: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Correlation], Any]:
    recorder = _Recorder()
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        party = Party(0, holders, recorder)
        given = [_filled(a, torch.empty) for a in args]
        running = program(party, *given, **{k: _filled(v, torch.empty) for k, v in kwargs.items()})
        reply: Any = None
        while True:
            try:
                one = running.send(reply)
            except StopIteration as done:
                return recorder.kinds, done.value
            received = {
                rank: tuple(torch.empty(e.shape, dtype=e.dtype) for e in expected)
                for rank, expected in one.incoming.items()
            }
            reply = one.finish(received)


def _filled(value: Any, make: Callable[..., torch.Tensor]) -> Any:
    return make(value.shape, dtype=value.dtype) if isinstance(value, Secret) else value


class _NotingProvider(Provider):
    """Remembers what it made, in order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kinds: list[Correlation] = []

    def make(self, kind: Correlation, meant: bytes) -> Deal:
        self.kinds.append(kind)
        return super().make(kind, meant)


def _on_zeros(
    program: Callable[..., Any], holders: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Correlation], Any]:
    provider = _NotingProvider(holders)

    def shares(value: Any) -> Any:
        return (
            Shares(_filled(value, torch.zeros) for _ in range(holders))
            if isinstance(value, Secret)
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
