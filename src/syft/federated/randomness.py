"""Reproducible chance: seeds by purpose, and draws of a model that do not depend on what other threads do.

One duty: that a round gives the same numbers on every engine. Imports torch only. Nothing here is secret: masks,
shares and private noise come from `syft.mpc.randomness`.

NOTE [Dropout in threads]
torch's layers draw from one generator per process, so two clients in two threads would take numbers from each
other. `SeededDraws` sees every aten operation of its own thread and lends the process's generator the client's
state while a drawing one runs. That costs some microseconds per operation, so `train_locally` keeps it for
clients that were seen to draw in their first batch. What draws only later, or from Python's or numpy's own
generators (in a data set's transform), is not reproducible.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A seed for one purpose. Different purposes have unrelated seeds, however close they are."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def seeded(seed: int, *purpose: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


_LENDING = threading.Lock()


class SeededDraws(TorchDispatchMode):
    """Random operations of this thread draw from a state of its own. See NOTE [Dropout in threads]."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.has_drawn = False
        self.is_backward = False
        self._seed = seed
        self._states: dict[torch.device, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        if func.overloadpacket.__name__.endswith("_backward"):
            return func(*args, **kwargs)  # fused attention: it is given the seed that its forward drew
        if self.is_backward:
            # torch.utils.checkpoint restores the process's generator, which is not the one that was drawn from.
            raise RuntimeError(
                f"{func} draws random numbers in the backward pass. Activation checkpointing of random layers "
                "cannot be repeated in a client: leave checkpointing or dropout out of the model."
            )
        self.has_drawn = True
        device = _device(args, kwargs)
        shared = _generator(device)
        with _LENDING:
            outside = shared.get_state()
            if device not in self._states:
                self._states[device] = torch.Generator(device).manual_seed(self._seed).get_state()
            try:
                shared.set_state(self._states[device])
                result = func(*args, **kwargs)
                self._states[device] = shared.get_state()
            finally:
                shared.set_state(outside)
        return result


def _device(args: Any, kwargs: dict[str, Any]) -> torch.device:
    for value in args:
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device(kwargs.get("device") or "cpu")


def _generator(device: torch.device) -> torch.Generator:
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[device.index or 0]
