"""What a worker on a network does with its own update before it is masked: clip it, and add its part of the noise.

One duty: `ClientNoise` of `core.interfaces`, for rounds at workers (`federated.round_handlers`). The trainer says how
much; who checks that it is enough is whoever relies on the trainer's epsilon. Imports `client_updates`, `noise`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from syft.core.interfaces import IMPLEMENTATIONS, ClientNoise
from syft.dp.client_updates import check_clip_norm, clipped_to_grid
from syft.dp.noise import LARGEST_VARIANCE, discrete_gaussian
from syft.mpc.randomness import Stream


class _Own:
    """See `ClientNoise`."""

    def check(self, clip_norm: float, step: float, variance: int) -> None:
        check_clip_norm(clip_norm)
        if not (math.isfinite(step) and step > 0 and math.frexp(step)[0] == 0.5):
            raise ValueError(f"A round was asked for on a grid of {step!r}: it is a power of two.")
        if not 0 <= variance <= LARGEST_VARIANCE:
            raise ValueError(
                f"A round was asked for with noise of variance {variance!r}: it is from 0 to {LARGEST_VARIANCE}."
            )

    def clipped(self, update: Tensor, clip_norm: float, step: float) -> Tensor:
        return clipped_to_grid(update, clip_norm, step)

    def drawn(self, count: int, variance: int) -> Tensor:
        return torch.from_numpy(discrete_gaussian(count, variance, Stream()))


IMPLEMENTATIONS[ClientNoise] = _Own()
