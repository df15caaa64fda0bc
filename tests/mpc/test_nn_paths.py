"""Layers at their historical path, on shares, against plain torch: those that no other test has."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.frameworks.torch import nn

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "Conv3d": (lambda: nn.Conv3d(2, 2, 2), (1, 2, 3, 3, 3)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 3), (2, 3, 5)),
    "AvgPool1d": (lambda: nn.AvgPool1d(2), (2, 3, 6)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), (2, 3, 6)),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(2), (2, 3, 6)),
    "RNN, relu, two layers": (lambda: nn.RNN(3, 2, 2, nonlinearity="relu"), (3, 2, 3)),
    "GRU, both directions": (lambda: nn.GRU(3, 2, bidirectional=True), (3, 2, 3)),
    "RNNCell": (lambda: nn.RNNCell(3, 2), (2, 3)),
}


def tensors(result: Any) -> list[Any]:
    return [t for part in result for t in tensors(part)] if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_torch_gives_forward_and_backward(name: str, make_worker: Any) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    holders, provider = [make_worker("alice"), make_worker("bob")], make_worker("provider")

    def secret(value: Any) -> Any:
        return value.fix_precision(base=2, precision_fractional=16).share(*holders, crypto_provider=provider)

    def plain(value: Any) -> torch.Tensor:
        return value.detach().virtual_get().float_precision()

    layer, x = make(), torch.randn(shape, requires_grad=True)
    shared, x_shared = secret(copy.deepcopy(layer)), secret(x.detach()).requires_grad_()
    results, found = tensors(layer(x)), tensors(shared(x_shared))
    assert max(float((plain(f) - r.detach()).abs().max()) for f, r in zip(found, results, strict=True)) < 2e-4
    for outputs in (results, found):
        sum((t * t).sum() for t in outputs).backward()
    pairs = [(x_shared, x), *zip(shared.parameters(), layer.parameters(), strict=True)]
    assert max(float((plain(a.grad) - b.grad).abs().max()) for a, b in pairs) < 3e-3


def test_functions_are_those_of_torch() -> None:
    import syft.frameworks.torch.nn.functional as F

    assert F is torch.nn.functional is nn.functional
