"""Models that can be trained privately, and what keeps others from it.

One duty: `check_model`, `check_optimizer`, `replace_batch_norm`. Imports nothing of ours.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import nn


def check_model(model: nn.Module) -> None:
    """Refuse what cannot be trained privately, all of it at once, each with its cure."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"A model is an nn.Module, got a {type(model).__name__}.")
    faults = []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not _is_fixed(layer):
            groups = math.gcd(32, layer.num_features)
            faults.append(
                f"{name or 'the model'} is {type(layer).__name__}, which mixes the examples of a batch: put "
                f"nn.GroupNorm({groups}, {layer.num_features}) in its place, call replace_batch_norm(model), or keep the "
                "statistics it has with .eval()"
            )
        elif isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            faults.append(
                f"{name or 'the model'} is {type(layer).__name__} and keeps statistics of the data without noise: "
                "make it with track_running_stats=False"
            )
        if layer._backward_hooks or layer._backward_pre_hooks:
            faults.append(
                f"{name or 'the model'} has a hook on its gradients, which private training does not call for each "
                "example: remove it with the handle that registered it"
            )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            faults.append(f"{name} has no shape yet: call the model once, on a made-up example")
        elif parameter.requires_grad and parameter.is_complex():
            faults.append(complex_fault(name))
        elif parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            faults.append(
                f"{name} has a hook on its gradient, which private training does not call: remove it with the handle "
                "that registered it; freeze what is not to be trained, and mask a parameter after each step instead"
            )
    if faults:
        raise ValueError("This model cannot be trained privately: " + "; ".join(faults) + ".")


def _is_fixed(layer: nn.modules.batchnorm._BatchNorm) -> bool:
    """Whether it normalises by statistics that are fixed. Then it is the same function of each example."""
    return not layer.training and layer.running_mean is not None and layer.running_var is not None


def complex_fault(name: str) -> str:
    return (
        f"{name} is complex, and clipping and noise are for real numbers: train torch.view_as_real of it and call "
        "torch.view_as_complex in forward, or freeze it"
    )


def check_optimizer(model: nn.Module, optimizer: Any) -> None:
    """!! TypeError, ValueError where the optimizer is not one that a step of private training can use"""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"make_private takes a torch optimizer, got a {type(optimizer).__name__}.")
    needed = [
        p
        for p in inspect.signature(optimizer.step).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed or isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            f"make_private got {type(optimizer).__name__}, which asks for the gradient several times in one step, each "
            "of which would cost privacy: take SGD, Adam or another optimizer whose step needs no closure."
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError(
            "The model has no parameter to train: all are frozen (requires_grad=False), or there is none."
        )
    held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if {id(p) for p in trained} != {id(p) for p in held}:
        raise ValueError(
            "The optimizer holds other parameters than the model trains: make it of model.parameters()."
        )
    if not all(math.isfinite(float(group.get("lr", 0.0))) for group in optimizer.param_groups):
        raise ValueError("The learning rate of the optimizer is not a finite number: give it another lr.")


def replace_batch_norm(model: nn.Module) -> nn.Module:
    """Put GroupNorm in the place of every BatchNorm, in place: as wide, exact and frozen as it was, on its device.

    Make the optimizer after it.
    """
    if isinstance(model, nn.modules.batchnorm._BatchNorm):
        groups = math.gcd(32, model.num_features)
        norm = nn.GroupNorm(groups, model.num_features, eps=model.eps, affine=model.affine)
        if model.affine:
            norm = norm.to(device=model.weight.device, dtype=model.weight.dtype)
            norm.weight.requires_grad_(model.weight.requires_grad)
            norm.bias.requires_grad_(model.bias.requires_grad)
        return norm.train(model.training)
    for name, layer in list(model.named_children()):
        setattr(model, name, replace_batch_norm(layer))
    return model
