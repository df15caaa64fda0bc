"""The names by which programs of 2020 call torch's types."""

from __future__ import annotations

import torch

FrameworkTensor = torch.Tensor
FrameworkTensorType = type[torch.Tensor]
FrameworkShape = torch.Size
FrameworkShapeType = type[torch.Size]
FrameworkLayerModule = torch.nn.Module
FrameworkLayerModuleType = type[torch.nn.Module]
framework_tensors = (torch.Tensor, torch.nn.Parameter)
framework_shapes = (torch.Size,)
framework_layer_modules = (torch.nn.Module,)
