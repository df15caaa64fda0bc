"""Which correlations a call takes, noted while it runs; `syft.mpc.ahead` has the same dealt for calls to come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from syft.mpc.correlations import Correlation, Place


@dataclass(frozen=True)
class Taken:
    """One correlation: the provider that dealt it, its kind, where it was drawn (which later kinds may name), and the
    device of the shares, if not the CPU.
    """

    provider: Any
    kind: Correlation
    place: Place
    device: torch.device | None = None


_TAKEN: ContextVar[list[Taken] | None] = ContextVar("taken", default=None)


@contextlib.contextmanager
def noting_taken() -> Iterator[list[Taken]]:
    """Note what the programs of this thread take."""
    taken: list[Taken] = []
    mark = _TAKEN.set(taken)
    try:
        yield taken
    finally:
        _TAKEN.reset(mark)


def note_taken(provider: Any, kind: Correlation, place: Place, device: torch.device | None = None) -> None:
    taken = _TAKEN.get()
    if taken is not None:
        taken.append(Taken(provider, kind, place, device))
