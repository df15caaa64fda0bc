"""What can happen to private data, as plain records: noise of a kind, and how much of it.

One duty: to say what an event is, and to refuse what is none. Neighbours differ by one row more or less where rows are
sampled; without sampling, by whatever the noise was measured in. Imports nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: Less noise than this is none; its square would be 0.
LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise of `noise_multiplier` sensitivities, on a Poisson sample of the rows (1.0: on all)."""

    noise_multiplier: float
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        check("noise_multiplier", self.noise_multiplier, LEAST_NOISE, math.inf)
        check("sampling_rate", self.sampling_rate, 0.0, 1.0)


@dataclass(frozen=True)
class Pure:
    """Anything that is epsilon-DP by itself: `laplace`, `exponential`, `noisy_max`, histograms, quantiles, means."""

    epsilon: float

    def __post_init__(self) -> None:
        check("epsilon", self.epsilon, 0.0, math.inf)


Event = Gaussian | Pure

EVENTS: dict[str, type[Gaussian] | type[Pure]] = {"gaussian": Gaussian, "pure": Pure}
NAMES = {record: name for name, record in EVENTS.items()}


def check(name: str, value: Any, above: float, most: float) -> None:
    """!! ValueError for what is no finite number above `above` and `most` at most."""
    if not above < number(value) <= most or number(value) == math.inf:
        limit = "" if math.isinf(most) else f", {most:g} at most"
        raise ValueError(f"{name} is a finite number above {above:g}{limit}, got {shown(value)}.")


def number(value: Any) -> float:
    """A value as a float; NaN for what is no number, and for a whole number that no float can be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def shown(value: Any) -> str:
    """A value in a sentence. Whole numbers can be too long for one, and for Python to write."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a whole number of {value.bit_length()} bits"
    try:
        return repr(value)[:60]
    except ValueError:  # one of those is in it
        return f"a {type(value).__name__}"
