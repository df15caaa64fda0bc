"""Copies of modules are those that `copy.deepcopy` makes."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from syft.federated.module_copies import copied


class _Own(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.seen: list[Any] = [torch.ones(2)]


class _CopiesItself(nn.Linear):
    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = _CopiesItself(self.in_features, self.out_features)
        memo[id(self)] = made
        return made


def _tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(3, 3))
    model[3].weight = layer.weight
    return model


def _with_extras() -> nn.Module:
    model = nn.Sequential(OrderedDict(first=nn.Linear(3, 3), norm=nn.BatchNorm1d(3), off=nn.Dropout(0.5)))
    model.first.weight.requires_grad_(False)
    model.first.bias.grad = torch.ones(3)
    model.first.note = [model.first.bias, {"also": model.norm}]  # type: ignore[assignment]
    model.norm.eval()
    return model


def _hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[1].register_forward_hook(_doubled)
    return model


def _doubled(_module: Any, _given: Any, made: Any) -> Any:
    return made * 2


MODULES: list[Callable[[], nn.Module]] = [
    lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)),
    lambda: nn.LSTM(3, 4, num_layers=2),
    lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten()),
    lambda: nn.MultiheadAttention(4, 2),
    lambda: nn.TransformerEncoderLayer(4, 2),
    lambda: nn.ModuleDict({"one": nn.Linear(3, 3), "more": nn.ModuleList([_Own(), _CopiesItself(3, 3)])}),
    lambda: nn.CrossEntropyLoss(weight=torch.ones(3)),
    lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    _Own,
    _tied,
    _with_extras,
    _hooked,
]


def _facts(module: nn.Module) -> Any:
    """All there is about a module, with numbers in the place of objects, in the order in which they are met."""
    numbers: dict[int, int] = {}

    def told(value: Any) -> Any:
        if isinstance(value, (nn.Module, torch.Tensor, list, dict, set)):
            if id(value) in numbers:
                return numbers[id(value)]
            numbers[id(value)] = len(numbers)
        if isinstance(value, nn.Module):
            return type(value), told(value.__dict__)
        if isinstance(value, torch.Tensor):
            grad = None if value.grad is None else value.grad.tolist()
            return type(value), value.tolist(), value.stride(), value.requires_grad, grad
        if isinstance(value, dict):
            return type(value), [(key, told(one)) for key, one in value.items()]
        if isinstance(value, (list, tuple)):
            return type(value), [told(one) for one in value]
        return value if isinstance(value, (int, float, str, bool, type(None))) else type(value)

    return told(module)


@pytest.mark.parametrize("made", MODULES)
def test_a_copy_is_that_of_deepcopy(made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = made()
    wanted, before = _facts(copy.deepcopy(module)), _facts(module)
    found = copied(module)
    if not any(isinstance(part, _CopiesItself) for part in module.modules()):
        assert _facts(found) == wanted
    shared = {id(part) for part in module.modules()} & {id(part) for part in found.modules()}
    assert not shared
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(1)
    assert _facts(module) == before


def test_what_was_copied_before_is_found_again() -> None:
    layer = nn.Linear(3, 3)
    memo: dict[int, Any] = {}
    model = copied(nn.Sequential(layer), memo)
    assert copied(layer, memo) is model[0] is copy.deepcopy(layer, memo)


def test_a_layer_with_a_copy_of_its_own_makes_it() -> None:
    module = nn.Sequential(_CopiesItself(3, 3))
    assert not torch.equal(copied(module)[0].weight, module[0].weight)
