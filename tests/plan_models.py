"""The models that every property of a plan is shown with, and the functions that are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class Cnn(nn.Module):
    """conv, BatchNorm, pool, Dropout, and a `view` that asks for the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.out = nn.Dropout(0.25), nn.Linear(36, 5)

    def forward(self, x: Any) -> Any:
        h = nn.functional.max_pool2d(nn.functional.relu(self.norm(self.conv(x))), 2)
        return self.out(self.drop(h.view(h.size(0), -1)))


class CellLoop(nn.Module):
    """An LSTM cell over five steps; returns a structure."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[0], 6)
        outs = []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            outs.append(h)
        return {"all": torch.stack(outs, dim=1), "last": (h, c)}


class Block(nn.Module):
    """A Transformer block with a table of positions, cut to the length of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.randn(1, 80, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x + self.positions[:, : x.size(1)])


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, num_layers=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        out, (h, _c) = self.lstm(x)
        return out[:, -1] + h[-1]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (Mlp, (-1, 12)),
    "cnn": (Cnn, (-1, 1, 8, 8)),
    "cell loop": (CellLoop, (-1, 5, 4)),
    "transformer": (Block, (-1, 7, 8)),
    "lstm": (Lstm, (-1, 5, 4)),
}


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a structure, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [t for part in parts for t in tensors_in(part)] if isinstance(value, (dict, list, tuple)) else []


def total(value: Any) -> Any:
    """One number of all tensors of a structure, in which every element counts differently."""
    result: Any = 0
    for index, tensor in enumerate(tensors_in(value)):
        result = result + (tensor * tensor).sum() * (index + 1) + tensor.sum()
    return result
