"""Small data sets to try a training loop with, without a download."""

from __future__ import annotations

import torch

#: Fisher's iris data (1936), the first ten flowers of each kind: sepal length and width, petal length and width, in cm.
_SETOSA = """5.1 3.5 1.4 0.2  4.9 3.0 1.4 0.2  4.7 3.2 1.3 0.2  4.6 3.1 1.5 0.2  5.0 3.6 1.4 0.2
             5.4 3.9 1.7 0.4  4.6 3.4 1.4 0.3  5.0 3.4 1.5 0.2  4.4 2.9 1.4 0.2  4.9 3.1 1.5 0.1"""
_VERSICOLOR = """7.0 3.2 4.7 1.4  6.4 3.2 4.5 1.5  6.9 3.1 4.9 1.5  5.5 2.3 4.0 1.3  6.5 2.8 4.6 1.5
                 5.7 2.8 4.5 1.3  6.3 3.3 4.7 1.6  4.9 2.4 3.3 1.0  6.6 2.9 4.6 1.3  5.2 2.7 3.9 1.4"""
_VIRGINICA = """6.3 3.3 6.0 2.5  5.8 2.7 5.1 1.9  7.1 3.0 5.9 2.1  6.3 2.9 5.6 1.8  6.5 3.0 5.8 2.2
                7.6 3.0 6.6 2.1  4.9 2.5 4.5 1.7  7.3 2.9 6.3 1.8  6.7 2.5 5.8 1.8  7.2 3.6 6.1 2.5"""


def create_gaussian_mixture_toy_data(nr_samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the plane in two clouds, 10 apart, and the number of the cloud of each: (data, targets).

    Half of them, rounded down, are around (-5, -5) and have target 0; the rest around (5, 5), target 1. They are drawn
    from torch's global generator.
    """
    if isinstance(nr_samples, bool) or not isinstance(nr_samples, int) or nr_samples < 0:
        raise ValueError(
            f"create_gaussian_mixture_toy_data() was given nr_samples={nr_samples!r}. Give a number of points."
        )
    half = nr_samples // 2
    targets = torch.cat([torch.zeros(half), torch.ones(nr_samples - half)]).long()
    return torch.randn(nr_samples, 2) + (10.0 * targets - 5.0).unsqueeze(1), targets


def iris_data_partial() -> tuple[torch.Tensor, torch.Tensor]:
    """30 flowers of the iris data, ten of each of its three kinds: (data, targets)."""
    numbers = [float(word) for kind in (_SETOSA, _VERSICOLOR, _VIRGINICA) for word in kind.split()]
    return torch.tensor(numbers).view(30, 4), torch.arange(3).repeat_interleave(10)
