"""Turning a tensor into another one in place, so that everybody who holds it holds the new one."""

from __future__ import annotations

import torch


def become(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Make `tensor` what `other` is (and `other` what it was); returns `tensor`.

    An optimizer, a module or a user that holds `tensor` sees the change. These are the steps of
    `torch.utils.swap_tensors` without its refusal of tensors that have views, weak references or a
    `state_dict` alive: those go on with the value they had.
    """
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    tensor.__class__, other.__class__ = other.__class__, tensor.__class__
    tensor.__dict__, other.__dict__ = other.__dict__, tensor.__dict__
    torch._C._swap_tensor_impl(tensor, other)
    if is_parameter and type(tensor) is torch.Tensor:
        tensor.__class__ = torch.nn.Parameter
    elif is_parameter and type(tensor) is not torch.nn.Parameter:
        tensor._is_param = True
    return tensor
