"""Optimizer state follows its parameter from worker to worker."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from syft.core.chain import Wrapper
from syft.tensors import transfer
from syft.tensors.pointer import PointerTensor

#: State that torch's optimizers keep as single numbers on this machine wherever the parameter is (NAdam's, ASGD's).
LOCAL_STATE = frozenset({"step", "mu_product", "eta", "mu"})

_registered: list[Any] = []


def follow_parameters() -> None:
    """From the first model that travels on, every optimizer step looks where its parameters are.

    Programs that send no model pay nothing.
    """
    if not _registered:
        _registered.append(register_optimizer_step_pre_hook(_bring_state))


def _bring_state(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if not optimizer.state:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if state:
                place = _place(parameter)
                for name, value in state.items():
                    if (
                        name not in LOCAL_STATE
                        and isinstance(value, torch.Tensor)
                        and _place(value) is not place
                    ):
                        state[name] = _bring(value, place)


def _place(tensor: Any) -> Any:
    if type(tensor) is Wrapper and isinstance(tensor.child, PointerTensor):
        return tensor.child.location
    return None


def _bring(value: Any, place: Any) -> Any:
    if place is None:
        return transfer.fetch(value)
    if _place(value) is None:
        return transfer.send(value, place)
    return transfer.move(value, place)
