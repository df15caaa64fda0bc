"""Copies of modules, as `copy.deepcopy` makes them, in less time.

`deepcopy` of a layer of torch.nn asks Python how to take it apart, and walks a dozen empty dictionaries. A round copies a
small model for each of many clients. Imports nothing of this room.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

#: What is copied by being itself.
_UNCHANGING = frozenset({int, float, bool, str, type(None), torch.dtype})
_CONTAINERS = frozenset({dict, OrderedDict, set, list})


def copied(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """`copy.deepcopy(value, memo)`."""
    memo = {} if memo is None else memo
    return _copied_layer(value, memo) if _is_plain_layer(value) else copy.deepcopy(value, memo)


def _is_plain_layer(value: Any) -> bool:
    """Whether a value is a module of torch.nn that leaves its copies to Python."""
    kind: Any = type(value)
    return (
        isinstance(value, nn.Module)
        and kind.__module__.startswith("torch.nn.modules.")
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__getstate__ is object.__getstate__
        and kind.__setstate__ is nn.Module.__setstate__
        and not hasattr(kind, "__deepcopy__")
    )


def _copied_layer(layer: nn.Module, memo: dict[int, Any]) -> Any:
    known = memo.get(id(layer))
    if known is not None:
        return known
    made = memo[id(layer)] = object.__new__(type(layer))
    own = made.__dict__
    for name, value in layer.__dict__.items():
        kind = type(value)
        if kind in _UNCHANGING:
            own[name] = value
        elif kind in _CONTAINERS and not value and id(value) not in memo:
            own[name] = memo[id(value)] = kind()
        elif name == "_modules" and kind is dict:
            own[name] = memo[id(value)] = {key: copied(part, memo) for key, part in value.items()}
        else:
            own[name] = copy.deepcopy(value, memo)
    return made
