"""A trainer on disk, between two rounds: model, strategy's memory, seed, history.

One duty: `save_checkpoint` and `load_checkpoint`. One safetensors file, written beside its place and moved there
when it is complete, so a crash leaves the round before or this one. No state of a generator is kept, because
everything random follows from the seed and the round (see `rounds`). Imports `history`, `records`, `serde`.
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
from syft.federated.history import History
from syft.federated.records import State
from syft.serde import SerdeError

_KEY = "trainer"
_VERSION = 1
_MODEL, _STRATEGY = "model/", "strategy/"


@dataclass(frozen=True)
class Checkpoint:
    """What a trainer needs to go on."""

    seed: int
    strategy: str
    settings: Mapping[str, float]
    state: State
    memory: Mapping[str, torch.Tensor]
    history: History


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    seed: int
    strategy: str
    settings: dict[str, float]
    history: dict[str, Any]


def save_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write it whole, or leave what was there."""
    tensors = {_MODEL + name: tensor for name, tensor in checkpoint.state.items()}
    tensors |= {_STRATEGY + name: tensor for name, tensor in checkpoint.memory.items()}
    about = _About(
        _VERSION,
        checkpoint.seed,
        checkpoint.strategy,
        dict(checkpoint.settings),
        checkpoint.history.to_dict(),
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
    )
