"""Pooling: torch's own, whose input is called `data`."""

from __future__ import annotations

import torch


class AvgPool2d(torch.nn.AvgPool2d):
    """`torch.nn.AvgPool2d`."""

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return super().forward(data)
