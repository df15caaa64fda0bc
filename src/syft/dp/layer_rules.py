"""How the gradients of one layer follow from its input and the gradient of its output.

One duty: the table of rules. A rule is one decorated function: layer, input, gradient of the output -> factors, for
an input whose dimension 0 is the batch. Whether it is, `ruled_pass` finds out. Imports `gradient_factors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from syft.dp.gradient_factors import Factor, Full, Outer, Rows, Sequences, numbers_at_once

Rule = Callable[[Any, Tensor, Tensor], dict[str, Factor]]

#: Numbers of the gradients of a batch that are made where that is faster than to do without (NOTE [Sequences]).
MOST_MADE = 1 << 24

RULES: dict[type[nn.Module], Rule] = {}


def rule(*layers: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register how the factors of a layer follow from its input and the gradient of its output."""

    def register(function: Rule) -> Rule:
        for layer in layers:
            RULES[layer] = function
        return function

    return register


@rule(nn.Linear)
def linear(layer: nn.Linear, x: Tensor, g: Tensor) -> dict[str, Factor]:
    if x.dim() == 2:
        bias = Full(g)
        return {"weight": Outer(g, x, bias), "bias": bias}
    x, g = x.flatten(1, -2), g.flatten(1, -2)
    made = g.shape[2] * x.shape[2]  # numbers of one gradient
    products = x.shape[1] * (g.shape[2] + x.shape[2])
    is_ghost = products <= made and (3 * products <= made or len(x) * made >= MOST_MADE)
    if x.dtype == torch.float64:  # whose squares may overflow
        is_ghost = False
    weight = Sequences(g, x) if is_ghost else Full(g.transpose(1, 2) @ x)
    return {"weight": weight, "bias": Full(g.sum(1))}


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor, g: Tensor) -> dict[str, Factor]:
    patches = _patches(layer, x)
    spread = g.reshape(patches.shape[0], g.shape[1] // layer.groups, -1)
    weight = g.new_empty(*spread.shape[:2], layer.weight[0].numel())
    at_once = max(numbers_at_once(x) // max(patches[:1].numel(), 1), 1)
    for start in range(0, patches.shape[0], at_once):
        part = slice(start, start + at_once)
        copied = patches[part].reshape(-1, spread.shape[2], weight.shape[2])
        torch.bmm(spread[part], copied, out=weight[part])
    weight = weight.view(x.shape[0], layer.out_channels, *layer.kernel_size, -1).movedim(-1, 2)
    return {"weight": Full(weight), "bias": Full(g.flatten(2).sum(2))}


def _patches(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, x: Tensor) -> Tensor:
    """A view: (examples * groups) x the output's dimensions x the kernel's dimensions x channels of a group.

    With the channels last, what a row of the kernel sees is one run of memory, so copying it is fast.
    """
    padding: Any = layer.padding
    image = x.reshape(x.shape[0] * layer.groups, -1, *x.shape[2:]).movedim(1, -1)
    if any(padding):
        image = F.pad(image, [0, 0, *(pad for pad in reversed(padding) for _side in range(2))])
    view = image.contiguous()
    spans = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for dimension, (size, step, apart) in enumerate(spans, start=1):
        view = view.unfold(dimension, (size - 1) * apart + 1, step)[..., ::apart]
    return view.movedim(x.dim() - 1, -1)


@rule(nn.Embedding)
def embedding(layer: nn.Embedding, x: Tensor, g: Tensor) -> dict[str, Factor]:
    index, g = x.reshape(x.shape[0], -1), g.reshape(x.shape[0], -1, g.shape[-1])
    if layer.padding_idx is not None:
        g = g * (index != layer.padding_idx)[..., None]
    return {"weight": Rows(index, g, layer.num_embeddings)}


@rule(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, x: Tensor, g: Tensor) -> dict[str, Factor]:
    shape = tuple(layer.normalized_shape)
    normal = F.layer_norm(x, shape, eps=layer.eps)
    return {
        "weight": Full((g * normal).reshape(x.shape[0], -1, *shape).sum(1)),
        "bias": Full(g.reshape(x.shape[0], -1, *shape).sum(1)),
    }


@rule(nn.GroupNorm)
def group_norm(layer: nn.GroupNorm, x: Tensor, g: Tensor) -> dict[str, Factor]:
    normal = F.group_norm(x, layer.num_groups, eps=layer.eps)
    shape = (*x.shape[:2], -1)
    return {"weight": Full((g * normal).reshape(shape).sum(2)), "bias": Full(g.reshape(shape).sum(2))}


def has_rule(layer: nn.Module) -> bool:
    """Whether there is a rule for what this layer does: it is of a type in the table, with settings that fit."""
    names = {name for name, _ in layer.named_parameters(recurse=False)}
    if type(layer) not in RULES or not names <= {"weight", "bias"} or "forward" in vars(layer):
        return False
    if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
    return True


def takes_batch(layer: nn.Module, x: Tensor) -> bool:
    """Whether the layer's own dimensions leave dimension 0 of its input for a batch."""
    if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return x.dim() == layer.weight.dim()
    if isinstance(layer, nn.LayerNorm):
        return x.dim() > len(layer.normalized_shape)
    return x.dim() >= (1 if isinstance(layer, nn.Embedding) else 2)


def owners(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that own trainable parameters, by name."""
    return {
        name: module
        for name, module in modules_of(model)
        if any(p is not None and p.requires_grad for p in module._parameters.values())
    }


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Those of `model.named_parameters()` that are trained."""
    found, seen = dict[str, nn.Parameter](), set[int]()
    for name, module in modules_of(model):
        for own, parameter in module._parameters.items():
            if parameter is not None and parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                found[f"{name}.{own}" if name else own] = parameter
    return found


def modules_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """What `model.named_modules()` gives, without a generator in a generator for each level."""
    left, seen = [("", model)], set[nn.Module]()
    while left:
        name, module = left.pop()
        if module in seen:
            continue
        seen.add(module)
        yield name, module
        inner = [
            (f"{name}.{own}" if name else own, each)
            for own, each in module._modules.items()
            if each is not None
        ]
        left.extend(reversed(inner))


def has_rules(layers: Mapping[str, nn.Module]) -> bool:
    """Whether every trainable parameter belongs to one layer that has a rule. `layers`: `owners(model)`."""
    owned = [p for layer in layers.values() for p in layer.parameters(recurse=False) if p.requires_grad]
    return all(map(has_rule, layers.values())) and len({id(p) for p in owned}) == len(owned)
