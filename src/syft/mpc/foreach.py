"""Plain steps of SGD on secrets write all parameters by one operation, as torch's `foreach=True` asks for.

By default torch does so on GPUs only. On secrets it spares a program for each parameter but the first. Whoever says
`foreach=` themselves gets what they say, and an optimizer is between its steps as it was made.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from syft.mpc.sharing import secret_of

#: Groups of parameters whose `foreach` was chosen here for the step at hand.
_chosen: weakref.WeakKeyDictionary[Any, list[dict[str, Any]]] = weakref.WeakKeyDictionary()
_MORE_THAN_A_SUM = ("momentum", "weight_decay", "nesterov", "maximize", "differentiable", "fused")


def choose_foreach(optimizer: torch.optim.Optimizer, _args: Any = (), _kwargs: Any = None) -> None:
    """Before a step."""
    if type(optimizer) is torch.optim.SGD:
        found = [group for group in optimizer.param_groups if _is_plain(group)]
        for group in found:
            group["foreach"] = True
        if found:
            _chosen[optimizer] = found


def restore_foreach(optimizer: torch.optim.Optimizer, _args: Any = (), _kwargs: Any = None) -> None:
    """After a step."""
    for group in _chosen.pop(optimizer, ()):
        group["foreach"] = None


def _is_plain(group: dict[str, Any]) -> bool:
    return (
        group["foreach"] is None
        and type(group["lr"]) in (int, float)
        and not any(group.get(name) for name in _MORE_THAN_A_SUM)
        and all(secret_of(getattr(one, "child", None)) is not None for one in group["params"])
    )
