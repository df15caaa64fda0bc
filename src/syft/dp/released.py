"""Answers with noise that know how much noise they have.

One duty: `Released` numbers and tensors: what they were before, with `.noise_scale` and `.interval(confidence)`.
Arithmetic, `float(x)` and operations of torch give plain numbers and tensors. Imports torch, and nothing of ours.

NOTE [Intervals]
An interval holds for each number of an answer by itself, with the stated probability over the noise; it says nothing
about how far the data is from a population. Noise of several sources shares the probability of an error between them
(union bound), which is a little wide. A quotient of a noisy sum by a noisy count c has, where sum and count are off
by at most s and w, an error of (s + w) / (c - w) at most, for values between -1 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch


@dataclass(frozen=True)
class Noise:
    """The noise of each number of an answer: a sum of independent terms."""

    terms: tuple[tuple[str, float], ...]
    """"laplace" or "gaussian", and its standard deviation in the unit of the answer."""
    low: float = -math.inf
    """The answer was brought between these two."""
    high: float = math.inf
    count: tuple[float, float] | None = None
    """A noisy count that the sum of the terms was divided by, and the standard deviation of its Laplace noise."""
    choice: str = ""
    """What is noisy, where the answer is a choice: it has no interval."""

    @property
    def scale(self) -> float:
        """The standard deviation of the noise on the answer; on what was compared, for a choice."""
        total = math.sqrt(math.fsum(deviation**2 for _kind, deviation in self.terms))
        return total / max(self.count[0], 1.0) if self.count else total

    def half_width(self, confidence: float) -> float:
        if not 0 < confidence < 1:
            raise ValueError(f"A confidence is between 0 and 1, say 0.95, got {confidence!r}.")
        failure = (1 - confidence) / len(self.terms)
        widths = [_width(kind, deviation, failure) for kind, deviation in self.terms]
        if self.count is None:
            return math.fsum(widths)
        off = _width("laplace", self.count[1], failure)
        return math.fsum(widths) / max(self.count[0] - off, 1.0)

    def interval(self, value: float, confidence: float) -> tuple[float, float]:
        if self.choice:
            raise ValueError(
                f"This answer is a choice, made by noise on {self.choice} (noise_scale={self.scale:.3g}): it has no "
                "interval. Release a count or a sum for one."
            )
        width = self.half_width(confidence)
        return max(value - width, self.low), min(value + width, self.high)

    def shown(self) -> str:
        if self.choice:
            return f"(noise {self.scale:.3g} on {self.choice})"
        return f"(± {self.half_width(0.95):.3g}, 95%)"


def _width(kind: str, deviation: float, failure: float) -> float:
    """What noise exceeds with probability `failure`, on either side together."""
    if kind == "laplace":
        return deviation / math.sqrt(2.0) * math.log(1 / failure)
    return deviation * NormalDist().inv_cdf(1 - failure / 2)


class _Number:
    """What a number with noise has beside its value."""

    noise: Noise

    @property
    def noise_scale(self) -> float:
        """The standard deviation of its noise."""
        return self.noise.scale

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two numbers between which the answer without noise lies, with this probability: see NOTE [Intervals]."""
        return self.noise.interval(float(self), confidence)  # type: ignore[arg-type]


class ReleasedFloat(_Number, float):
    """A number with noise."""

    def __new__(cls, value: float, noise: Noise) -> ReleasedFloat:
        made = super().__new__(cls, value)
        made.noise = noise
        return made

    def __repr__(self) -> str:
        return f"{float(self)!r} {self.noise.shown()}"

    def __str__(self) -> str:
        return float.__repr__(self)

    def __reduce__(self) -> Any:
        return type(self), (float(self), self.noise)


class ReleasedInt(_Number, int):
    """A whole number with noise, or a choice by number."""

    def __new__(cls, value: int, noise: Noise) -> ReleasedInt:
        made = super().__new__(cls, value)
        made.noise = noise
        return made

    def __repr__(self) -> str:
        return f"{int(self)!r} {self.noise.shown()}"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self) -> Any:
        return type(self), (int(self), self.noise)


class ReleasedTensor(torch.Tensor):
    """Numbers with noise, all of them with the same."""

    # What is computed from it is a plain tensor, as for `torch.nn.Parameter`.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    noise: Noise

    def __new__(cls, value: torch.Tensor, noise: Noise) -> ReleasedTensor:
        made = value.detach().clone().as_subclass(cls)
        made.noise = noise
        return made

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the noise of each number."""
        return self.noise.scale

    def interval(self, confidence: float = 0.95) -> tuple[torch.Tensor, torch.Tensor]:
        """Between which each answer without noise lies, each with this probability: see NOTE [Intervals]."""
        self.noise.interval(0.0, confidence)  # refuses a choice
        width, plain = self.noise.half_width(confidence), self.as_subclass(torch.Tensor).double()
        return (plain - width).clamp(min=self.noise.low), (plain + width).clamp(max=self.noise.high)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"{self.as_subclass(torch.Tensor)!r} {self.noise.shown()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> ReleasedTensor:
        return ReleasedTensor(self.as_subclass(torch.Tensor), self.noise)


def released(value: Any, noise: Noise) -> Any:
    """A number or a tensor that knows its noise."""
    if isinstance(value, torch.Tensor):
        return ReleasedTensor(value, noise)
    return ReleasedInt(value, noise) if isinstance(value, int) else ReleasedFloat(value, noise)


def laplace_noise(scales: Sequence[float], **more: Any) -> Noise:
    """Of Laplace noise with these scale parameters."""
    return Noise(tuple(("laplace", scale * math.sqrt(2.0)) for scale in scales), **more)
