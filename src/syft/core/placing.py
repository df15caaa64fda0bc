"""Where a worker keeps tensors: on the CPU, or on a device that its owner names (`device=`).

What arrives at a worker with a device, what its owner gives it and what is computed there lies on that device. A client
says nothing about it: a `device` among the arguments of an operation means the worker's own.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.core.identity import give_identity, known_identity


def device_of_worker(device: Any, worker_id: Any) -> torch.device | None:
    """The device that an owner names, with its number; None for the CPU. !! ValueError if there is none such here"""
    if device is None:
        return None
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"Worker {worker_id!r} was given device={device!r}, which names no device. Write 'cpu', 'cuda' or 'cuda:0'."
        ) from error
    if named.type == "cpu":
        return None
    if named.type != "cuda":
        raise ValueError(
            f"Worker {worker_id!r} was given device={device!r}. Workers keep tensors on the CPU or on a CUDA device: "
            "write 'cpu', 'cuda' or 'cuda:0'."
        )
    count = torch.cuda.device_count()
    number = torch.cuda.current_device() if named.index is None and count else named.index or 0
    if number >= count:
        raise ValueError(
            f"Worker {worker_id!r} was given device={device!r}, and torch finds {count or 'no'} CUDA "
            f"device{'s' * (count != 1)} on this machine. Leave device= out to keep tensors on the CPU."
        )
    return torch.device("cuda", number)


def on_device(value: Any, device: torch.device | None) -> Any:
    """A plain tensor, or several in a list or tuple, on a device; everything else as it is."""
    if device is None:
        return value
    if isinstance(value, torch.Tensor) and "child" not in value.__dict__:  # chains lie where their ends do
        return _moved(value, device)
    if type(value) in (list, tuple):
        return type(value)(on_device(part, device) for part in value)
    return value


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device == device:
        return tensor
    moved = tensor.detach().to(device)
    known = known_identity(tensor)
    if known is not None:
        give_identity(moved, known)
    return moved
