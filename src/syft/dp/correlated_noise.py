"""Noise that is correlated from step to step, so that sums over steps have little of it.

One duty: `Tree` and `Banded`: how the sums of steps are released, what one example can change in all of it, and the
noise. Imports `noise`, `mpc.randomness`.

NOTE [Matrices]
Let row t of G be the sum of clipped gradients of step t. A mechanism with a matrix C releases C G + Z, in which every
number of Z is independent Gaussian noise, and all else is computed from that: the noisy gradients are G + C^-1 Z (C^+
for a tree). An example whose gradients, of length 1 at most, are in the steps p changes C G by at most

    sensitivity^2 = the largest over all p that can be, of the sum over i, j in p of (C^T C)_ij

since no number of C^T C is negative here (Choquette-Choo et al. 2023, "Multi-epoch matrix factorization mechanisms",
theorem 2.1). The bound holds for gradients that depend on earlier noisy ones (Denisov et al. 2022, theorem 2.1). So all
of a training is one Gaussian mechanism, with noise of `noise_multiplier` sensitivities.

NOTE [Which steps an example is in]
The data set is gone through in one fixed order, in every epoch the same, so that an example is in the steps i, i + b, i
+ 2b, ... for b steps of an epoch. Neighbours are data sets in which one example's gradients are zero (the number of
examples and where they stand are public): for an example that is replaced, epsilon is that of half the noise.

NOTE [A tree]
C has a row for every interval [m 2^l, (m + 1) 2^l) of steps that is complete (Dwork et al. 2010; Chan et al. 2011), and
the sum of the first t steps is made of as many intervals as t has ones in binary. From one step to the next one
interval is new and those that it is made of are left: only one noise of each level is kept. Everything is a whole
number of grid points (in doubles, which hold these exactly: see `noise.rounded_gaussian`).

NOTE [Bands]
C is the square root of the matrix of prefix sums, whose numbers c_j = c_(j-1) (2j - 1) / (2j) depend on the distance
from the diagonal only (Fichtenberger, Henzinger and Upadhyay 2023), cut off after so many bands (Kalinin and Lampert
2024). C G is rounded to the grid, noise is added there, and what is released is solved for the gradients in floating
point.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from syft.dp.noise import rounded_gaussian
from syft.mpc.randomness import Stream


class Mechanism(Protocol):
    """How steps are released. Sums and results are in grid points of the noise (ROUNDED_STEPS to a standard
    deviation)."""

    def sensitivity(self) -> float:
        """What an example whose gradients have length 1 changes in all that is released (L2)."""

    def matrix(self) -> Tensor:
        """C: see NOTE [Matrices]."""

    def noisy(self, sums: Tensor, stream: Stream) -> Tensor:
        """The noisy sum of the next step, of its sum in grid points. Called once for each step, in their order."""


class Tree:
    """See NOTE [A tree]. `restart`: a new tree in every epoch."""

    def __init__(self, steps_per_epoch: int, epochs: int, restart: bool = False) -> None:
        self.steps_per_epoch, self.epochs, self.restart = steps_per_epoch, epochs, restart
        self._kept: dict[int, Tensor] = {}
        self._step = 0

    @property
    def _size(self) -> int:
        """Steps of one tree."""
        return self.steps_per_epoch * (1 if self.restart else self.epochs)

    def sensitivity(self) -> float:
        if self.restart:
            return math.sqrt(self.epochs * self._size.bit_length())
        first = np.arange(self.steps_per_epoch)[:, None]
        places = first + self.steps_per_epoch * np.arange(self.epochs)[None, :]
        total = np.zeros(len(first), dtype=np.int64)
        for level in range(self._size.bit_length()):
            interval, complete = places >> level, self._size >> level
            # NB: rising along a row, so that equal intervals stand together.
            same = (interval[:, :, None] == interval[:, None, :]) & (interval < complete)[:, :, None]
            total += same.sum((1, 2))
        return math.sqrt(int(total.max()))

    def matrix(self) -> Tensor:
        size = self._size
        rows = [
            torch.tensor([float(m << level <= t < (m + 1) << level) for t in range(size)])
            for level in range(size.bit_length())
            for m in range(size >> level)
        ]
        tree = torch.stack(rows).double()
        return torch.block_diag(*[tree] * self.epochs) if self.restart else tree

    def noisy(self, sums: Tensor, stream: Stream) -> Tensor:
        if self.restart and self._step == self.steps_per_epoch:
            self._step, self._kept = 0, {}
        self._step += 1
        level = (self._step & -self._step).bit_length() - 1
        noise = rounded_gaussian(sums.numel(), stream).view(sums.shape)
        change = noise.clone() if level else noise
        for lower in range(level):
            change -= self._kept.pop(lower)
        self._kept[level] = noise
        return sums.double() + change.to(sums.device)


class Banded:
    """See NOTE [Bands]. `bands` is the steps of an epoch at most: two steps of one example then share no row of C."""

    def __init__(self, steps_per_epoch: int, epochs: int, bands: int) -> None:
        if not 1 <= bands <= steps_per_epoch:
            raise ValueError(
                f"bands={bands}: a whole number from 1 (independent noise) to the {steps_per_epoch} steps of an "
                f"epoch, after "
                "which an example comes again."
            )
        self.steps_per_epoch, self.epochs, self.bands = steps_per_epoch, epochs, bands
        self.coefficients = [1.0]
        for j in range(1, bands):
            self.coefficients.append(self.coefficients[-1] * (2 * j - 1) / (2 * j))
        self._sums: deque[Tensor] = deque(maxlen=max(bands - 1, 1))
        self._made: deque[Tensor] = deque(maxlen=max(bands - 1, 1))

    def sensitivity(self) -> float:
        return math.sqrt(self.epochs * math.fsum(c * c for c in self.coefficients)) * (1 + 1e-12)

    def matrix(self) -> Tensor:
        size = self.steps_per_epoch * self.epochs
        found = torch.zeros(size, size, dtype=torch.float64)
        for j, c in enumerate(self.coefficients[:size]):
            found += torch.diag(torch.full((size - j,), c, dtype=torch.float64), -j)
        return found

    def noisy(self, sums: Tensor, stream: Stream) -> Tensor:
        encoded, later = sums.double().clone(), self.coefficients[1:]
        for c, earlier in zip(later, self._sums, strict=False):
            encoded.add_(earlier, alpha=c)
        made = encoded.round_().add_(rounded_gaussian(sums.numel(), stream).view(sums.shape).to(sums.device))
        for c, earlier in zip(later, self._made, strict=False):
            made.sub_(earlier, alpha=c)
        if later:
            self._sums.appendleft(sums.double())
            self._made.appendleft(made)
        return made
