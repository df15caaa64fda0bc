"""The small model of several benchmarks, and a step of training it."""

from __future__ import annotations

from typing import Any

import torch


def mlp() -> torch.nn.Sequential:
    """784-128-10, always the same."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def sgd_step(model: Any, optimizer: Any, data: Any, target: Any) -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), target).backward()
    optimizer.step()
