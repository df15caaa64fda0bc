"""A model's state as names and tensors, and its updates as one flat vector.

One duty: reading, writing, and the order of what is aggregated. Imports `core`, `records`.

NOTE [What is in an update]
Trainable parameters, then buffers that `state_dict` keeps (the statistics of BatchNorm), each as a difference to
the state the round began with. Frozen parameters do not come back from clients, and go to workers on a network once
(see `network_clients`). Integers are averaged as differences and rounded: ten clients that saw five batches each
advance `num_batches_tracked` by five.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from syft.core.chain import Wrapper
from syft.federated.records import State


def named_state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and kept buffers, the tensors themselves. Tied ones appear once."""
    kept = model.state_dict(keep_vars=True)
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    tensors.update((name, buffer) for name, buffer in model.named_buffers() if name in kept)
    return tensors


def read_state(model: nn.Module) -> State:
    """A copy of a model's state, here on the CPU."""
    return {name: t.detach().to("cpu", copy=True) for name, t in named_state(model).items()}


def write_state(model: nn.Module, state: Mapping[str, Tensor], besides: Collection[str] = ()) -> None:
    """Copy a state into a model, whose tensors stay the same objects. !! ValueError when it does not fit.

    besides   the names of tensors that are in no state, and stay as they are
    """
    tensors = {name: tensor for name, tensor in named_state(model).items() if name not in besides}
    if fault := state_fault(state, {name: tuple(t.shape) for name, t in tensors.items()}):
        raise ValueError(
            f"The state does not fit the model: {fault}. Both ends have to build the same model."
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(state[name])


def state_fault(state: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """What is wrong with the names and shapes of a state, or None."""
    if missing := [name for name in shapes if name not in state]:
        return f"{_some(missing)} is missing"
    if unknown := [str(name) for name in state if name not in shapes]:
        return f"{_some(unknown)} is not in the model"
    for name, shape in shapes.items():
        tensor = state[name]
        if not isinstance(tensor, Tensor) or type(tensor) is Wrapper:
            return f"{name!r} is a {type(tensor).__name__} and not a plain tensor"
        if tuple(tensor.shape) != shape:
            return f"{name!r} has the shape {tuple(tensor.shape)} instead of {shape}"
    return None


def frozen_state(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that no training moves, the tensors themselves."""
    return {name: p for name, p in model.named_parameters() if not p.requires_grad}


def _some(names: list[str]) -> str:
    return repr(names[0]) if len(names) == 1 else f"{names[0]!r} (and {len(names) - 1} more)"


@dataclass(frozen=True)
class Entry:
    """One tensor's place in a flat update."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_parameter: bool

    @property
    def numel(self) -> int:
        return prod(self.shape) * (2 if self.dtype.is_complex else 1)


@dataclass(frozen=True)
class Layout:
    """See NOTE [What is in an update]. Parameters come first."""

    entries: tuple[Entry, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, model: nn.Module, besides: Collection[str] = ()) -> Layout:
        """The layout of a model's updates. !! ValueError for a model that is not here, or has nothing to train.

        besides   the names of tensors that are in no update, as they stay with clients
        """
        tensors = named_state(model)
        if remote := [name for name, t in tensors.items() if type(t) is Wrapper]:
            raise ValueError(
                f"{_some(remote)} of the model is not a plain tensor. Fetch the model with model.get() before it is "
                "given to a trainer, which sends it to the clients itself."
            )
        parameters = {name for name, p in model.named_parameters() if p.requires_grad}
        if not parameters:
            raise ValueError(
                "The model has no trainable parameter. Set requires_grad on what is to be trained."
            )
        frozen = {name for name, _ in model.named_parameters()} - parameters
        entries = [
            Entry(name, tuple(t.shape), t.dtype, name in parameters)
            for name, t in tensors.items()
            if name not in frozen and name not in besides
        ]
        entries.sort(key=lambda entry: not entry.is_parameter)  # stable
        dtype = torch.float64 if any(e.dtype in _DOUBLE for e in entries) else torch.float32
        return cls(tuple(entries), dtype)

    @property
    def size(self) -> int:
        return sum(entry.numel for entry in self.entries)

    @property
    def trainable(self) -> int:
        """How many numbers at the head of a vector are parameters."""
        return sum(entry.numel for entry in self.entries if entry.is_parameter)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {entry.name: entry.shape for entry in self.entries}

    def difference(self, after: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> State:
        """The update between two states."""
        with torch.no_grad():
            return {
                e.name: (_number(after[e.name]).to("cpu") - _number(before[e.name])).detach()
                for e in self.entries
            }

    def flatten(self, update: Mapping[str, Tensor]) -> Tensor:
        """One vector of an update whose names and shapes were checked."""
        return torch.cat([_real(update[e.name].detach()).to("cpu", self.dtype) for e in self.entries])

    def unflatten(self, vector: Tensor) -> State:
        """The tensors of the head of a vector: all of it, or its parameters. Numbers stay as they are."""
        parts: State = {}
        start = 0
        for entry in self.entries:
            if start + entry.numel > vector.numel():
                break
            part = vector[start : start + entry.numel]
            start += entry.numel
            if entry.dtype.is_complex:
                part = torch.complex(part[0::2], part[1::2])
            parts[entry.name] = part.reshape(entry.shape)
        return parts

    def moved(self, state: Mapping[str, Tensor], step: Tensor) -> State:
        """`state` moved by a vector: a new state, in the types of the old one."""
        new = dict(state)
        parts = self.unflatten(step)
        for entry in self.entries:
            old, part = state[entry.name], parts[entry.name]
            if entry.dtype is torch.bool:
                new[entry.name] = (old.to(self.dtype) + part) > 0.5
            elif entry.dtype.is_floating_point or entry.dtype.is_complex:
                new[entry.name] = (old + part).to(entry.dtype)
            else:
                new[entry.name] = (old.to(torch.int64) + part.round().to(torch.int64)).to(entry.dtype)
        return new


_DOUBLE = (torch.float64, torch.complex128)


def _number(tensor: Tensor) -> Tensor:
    """Booleans and unsigned numbers cannot be subtracted."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor
    return tensor.to(torch.int64)


def _real(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
