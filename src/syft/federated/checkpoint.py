"""A trainer on disk, between two rounds: model, strategy's memory, seed, history.

One duty: `save_checkpoint` and `load_checkpoint`. One safetensors file, written beside its place and moved there
when it is complete, so a crash leaves the round before or this one. No state of a generator is kept, because
everything random follows from the seed and the round (see `rounds`). Imports `buffered`, `history`, `records`,
`serde`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch

from syft import serde
from syft.core.structs import prepared
from syft.federated.buffered import AtWork, Pending
from syft.federated.history import History
from syft.federated.records import State
from syft.serde import SerdeError

_KEY = "trainer"
_VERSION = 1
_MODEL, _STRATEGY, _ROUND = "model/", "strategy/", "round/"


@dataclass(frozen=True)
class Checkpoint:
    """What a trainer needs to go on."""

    seed: int
    strategy: str
    settings: Mapping[str, float]
    state: State
    memory: Mapping[str, torch.Tensor]
    history: History
    pending: Pending | None = None
    """Who was at work, in asynchronous rounds."""


class _Pending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, float]
    clock: float
    at_work: list[tuple[str, int, float]]


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    seed: int
    strategy: str
    settings: dict[str, float]
    history: dict[str, Any]
    pending: _Pending | None = None


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write it whole, or leave what was there."""
    tensors = {_MODEL + name: tensor for name, tensor in checkpoint.state.items()}
    tensors |= {_STRATEGY + name: tensor for name, tensor in checkpoint.memory.items()}
    pending = checkpoint.pending
    if pending is not None:
        tensors |= {
            f"{_ROUND}{n}/{name}": t for n, state in pending.states.items() for name, t in state.items()
        }
    about = _About(
        _VERSION,
        checkpoint.seed,
        checkpoint.strategy,
        dict(checkpoint.settings),
        checkpoint.history.to_dict(),
        None
        if pending is None
        else _Pending(
            dict(pending.settings), pending.clock, [(w.client, w.round, w.until) for w in pending.at_work]
        ),
    )
    # NB: the standard library's JSON, which keeps a loss that is NaN or infinite.
    serde.save(path, tensors, {_KEY: json.dumps(msgspec.to_builtins(about))})


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read one. !! SerdeError for what is none, FileNotFoundError"""
    tensors, metadata = serde.load(path)
    name = os.fspath(path)
    if _KEY not in metadata:
        raise SerdeError(f"{name!r} is a file of tensors, but not a trainer's checkpoint.")
    try:
        about = msgspec.convert(json.loads(metadata[_KEY]), prepared(_About))
        history = History.from_dict(about.history)
    except (ValueError, RecursionError) as error:  # msgspec's and json's errors are ValueErrors
        raise SerdeError(f"The checkpoint {name!r} cannot be read: {error}") from error
    if about.version != _VERSION:
        raise SerdeError(
            f"The checkpoint {name!r} is of version {about.version}; this library reads {_VERSION}. Update it."
        )
    return Checkpoint(
        about.seed,
        about.strategy,
        about.settings,
        {key.removeprefix(_MODEL): t for key, t in tensors.items() if key.startswith(_MODEL)},
        {key.removeprefix(_STRATEGY): t for key, t in tensors.items() if key.startswith(_STRATEGY)},
        history,
        None if about.pending is None else _pending(about.pending, tensors, name),
    )


def _pending(about: _Pending, tensors: Mapping[str, torch.Tensor], path: str) -> Pending:
    """!! SerdeError if a model is missing"""
    states: dict[int, State] = {}
    for key, tensor in tensors.items():
        number, _, name = key.removeprefix(_ROUND).partition("/")
        if key.startswith(_ROUND) and number.isdecimal():
            states.setdefault(int(number), {})[name] = tensor
    at_work = tuple(AtWork(*each) for each in about.at_work)
    if missing := [work.round for work in at_work if work.round not in states]:
        raise SerdeError(
            f"The checkpoint {path!r} cannot be read: the model of round {missing[0]} is not in it."
        )
    return Pending(about.settings, about.clock, at_work, states)
