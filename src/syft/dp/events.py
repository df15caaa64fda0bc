"""What can happen to private data, as plain records: noise of a kind, and how much of it.

One duty: to say what an event is, to refuse what is none, and to write it down. Neighbours differ by one row more or
less where rows are sampled; without sampling, by whatever the noise was measured in. Imports nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
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

#: How often each event happened.
Spent = dict[Event, int]


def written(event: Event, count: int | None = None) -> dict[str, Any]:
    """An event, and how often, as plain values: the one form in which files and states keep it."""
    record = dict(asdict(event), event=NAMES[type(event)])
    return record if count is None else {**record, "count": count}


def read_event(record: Mapping[str, Any]) -> Event:
    """The event that `written(event)` wrote. !! KeyError, TypeError, ValueError for what is none"""
    return EVENTS[record["event"]](**{key: value for key, value in record.items() if key != "event"})


def read(entry: Mapping[str, Any]) -> tuple[Event, int]:
    """What `written(event, count)` wrote; an entry without a count is none. !! KeyError, TypeError, ValueError"""
    return read_event({key: value for key, value in entry.items() if key != "count"}), entry["count"]


def total(spent: Iterable[Spent]) -> Spent:
    """What was spent here and there, together."""
    joint: Spent = {}
    for one in spent:
        for event, count in one.items():
            joint[event] = joint.get(event, 0) + count
    return joint


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
