"""Convolutions: torch's own, whose input is called `data`."""

from __future__ import annotations

import torch


class Conv2d(torch.nn.Conv2d):
    """`torch.nn.Conv2d`."""

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return super().forward(data)
