"""ResNet-18 in plain torch, after He et al. 2016 (figure 2 and table 1), with the layers that torchvision's has."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """For pictures of 32 x 32: a first layer of 3 x 3, and no pooling after it. `width`: channels of the first stage."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        stages, channels = [], width
        for stage in range(4):
            outputs = width << stage
            stages += [Block(channels, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
            channels = outputs
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.stages(self.relu(self.bn1(self.conv1(x))))
        return self.fc(self.pool(out).flatten(1))  # type: ignore[no-any-return]


def trained_like(model: nn.Module, seed: int = 0) -> nn.Module:
    """Running statistics that fit the activations, as after training; in evaluation mode."""
    torch.manual_seed(seed)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.weight.data.uniform_(0.5, 1.5)
            layer.bias.data.uniform_(-0.3, 0.3)
            layer.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(16, 3, 32, 32))
    return model.eval()
