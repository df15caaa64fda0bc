"""The statistics that `worker.release` gives, each with the noise for one person's records.

    laplace      bounds                         sum of each column, Laplace noise
    gaussian     bounds                         sum of each column, Gaussian noise; needs a delta
    mean         bounds                         mean of each column
    variance     bounds                         (population) variance of each column
    count        between (optional)             records that are not 0, or that lie between two numbers (both included,
                                                infinities are allowed)
    histogram    edges or categories            records per bin
    quantile     fraction, bounds, candidates   a value with about that fraction of the records below it
    exponential  bounds                         number of the column with nearly the largest sum
    noisy_max    bounds                         the same, never worse on average
    gnmax        classes, sigma                 number of the class with the most votes after Gaussian noise (PATE)
    group_count  by, max_groups, max_rows, keys    records of each group; the owner names the column of persons
    group_sum    and value, bounds                 sum of a column in each group (`grouped`)
    group_mean   and value, bounds                 its mean in each group

Every answer has `.noise_scale` and `.interval(confidence)` (`released`).

One duty: from a request and rows to an answer and its cost. Imports `mechanisms`, `composition`, `grouped`,
`places`, `released`.

NOTE [One record replaced]
Everybody who has a pointer knows how many records there are. So neighbours are data sets of one size that differ
in one record (in those of one person), which moves a sum by up to the width of the bounds and two bins
of a histogram. The number of records is used as it is. `mechanisms` has the other kind, one record more or less.

NOTE [Errors come first]
A request is tried on one row of zeros before anything is charged. What is wrong with it is said then, and the
data has no part in it. With data nothing raises: a NaN counts as the middle of the bounds, in no bin, for no
class, and not at all in a count; everything else outside of bounds is clamped. Sums are of integers, so
that order and magnitude of the rows leave no trace in the last bits. Integers are counted as integers: see `places`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from syft.dp import mechanisms
from syft.dp.composition import Charge
from syft.dp.events import Gaussian, Pure, number, shown
from syft.dp.grouped import Grouping, grouped
from syft.dp.noise import LARGEST_VARIANCE
from syft.dp.places import Column, category_places, edge_places, in_range
from syft.dp.released import Noise, laplace_noise, released

Floats = npt.NDArray[np.float64]

STEPS = mechanisms.STEPS

#: More numbers in one answer than anybody reads; the noise grows with them.
MOST_COLUMNS = 1 << 16

#: Whole numbers that a float is near to.
LARGEST_WHOLE = 10**300

#: Squares of bounds, and sums of as many as there are records, stay finite.
LARGEST_BOUND = 1e150


@dataclass(frozen=True)
class Request:
    """What a user asks for, and what is public about the data."""

    mechanism: str
    epsilon: float
    delta: float
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    records_per_person: int = 1
    person_column: int | None = None
    """Which column names the person a record is of, if the owner said so."""

    @property
    def columns(self) -> int:
        return math.prod(self.shape[1:])


@dataclass(frozen=True)
class Mechanism:
    """`answer` computes; `charge` says what that costs."""

    answer: Callable[[Any, Request], Any]
    charge: Callable[[Request], Charge]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    is_for_one_column: bool = False
    needs_delta: bool = False
    takes_epsilon: bool = True
    counts: bool = False
    """Compares numbers, and is given integers as they are."""
    delta_without: str = ""
    """It needs a delta where this option is left out."""


MECHANISMS: dict[str, Mechanism] = {}


# -- requests ------------------------------------------------------------------------------------------------


def settle(request: Request, dtype: torch.dtype) -> Charge:
    """Check a request by what is public about it and its data; the charge it makes. See NOTE [Errors come first]."""
    kind = MECHANISMS.get(request.mechanism) if isinstance(request.mechanism, str) else None
    if kind is None:
        raise ValueError(
            f"There is no mechanism {str(request.mechanism)[:60]!r}. There are: {', '.join(sorted(MECHANISMS))}."
        )
    _check_options(request, kind)
    _check_numbers(request, kind)
    if not request.shape:
        raise ValueError(
            "A single number has no records. Release the data set that it was computed from, with a mechanism that "
            'computes it, e.g. release(data, "mean", bounds=(low, high), epsilon=...).'
        )
    if kind.is_for_one_column and request.columns != 1:
        raise ValueError(
            f"{request.mechanism!r} takes one number per record, and the shape is {request.shape}. Select a column "
            "first, e.g. data[:, 0]."
        )
    if not 1 <= request.columns <= MOST_COLUMNS:
        raise ValueError(f"A release is of 1 to {MOST_COLUMNS} columns, got the shape {request.shape}.")
    if dtype.is_complex:
        raise ValueError(
            "Complex numbers are not released: release `data.real` or `data.imag`, each by itself."
        )
    charge = kind.charge(request)
    answer(torch.zeros((1, request.columns), dtype=dtype), request)
    return charge


def answer(rows: torch.Tensor, request: Request) -> Any:
    """The answer to a settled request, noise included."""
    kind, values = MECHANISMS[request.mechanism], rows.detach().cpu()
    if not kind.counts or values.is_floating_point():
        values = values.to(torch.float64)
    elif values.dtype is torch.bool:
        values = values.to(torch.uint8)
    return kind.answer(values.reshape(rows.shape[0], request.columns).numpy(), request)


def _check_options(request: Request, kind: Mechanism) -> None:
    missing = [name for name in kind.required if name not in request.options]
    unknown = [str(name)[:60] for name in request.options if name not in (*kind.required, *kind.optional)]
    if missing or unknown:
        faults = [f"lacks {', '.join(missing)}"] if missing else []
        faults += [f"does not take {', '.join(unknown)}"] if unknown else []
        takes = ", ".join((*kind.required, *(f"{name} (optional)" for name in kind.optional)))
        raise TypeError(
            f"A release with {request.mechanism!r} {' and '.join(faults)}. It takes: {takes or 'nothing more'}. "
            "Bounds, bins and classes must not come from the data."
        )


def _check_numbers(request: Request, kind: Mechanism) -> None:
    for name, value in (("epsilon", request.epsilon), ("delta", request.delta)):
        if not math.isfinite(number(value)):
            raise ValueError(f"{name} is a finite number, got {shown(value)}.")
    if kind.takes_epsilon and not request.epsilon > 0:
        raise ValueError(f"A release with {request.mechanism!r} needs an epsilon above 0.")
    if not kind.takes_epsilon and request.epsilon:
        raise ValueError(
            f"{request.mechanism!r} was given an epsilon, and takes its noise from its options. Leave epsilon out."
        )
    needs_delta = kind.needs_delta or bool(kind.delta_without and kind.delta_without not in request.options)
    if needs_delta and not 0 < number(request.delta) < 1:
        raise ValueError(f"{request.mechanism!r} needs a delta above 0 and below 1, say 1e-6.")
    if not needs_delta and request.delta:
        raise ValueError(f"{request.mechanism!r} needs no delta: leave delta out.")


def _pure(request: Request) -> Charge:
    return Charge(request.mechanism, Pure(float(request.epsilon)), float(request.epsilon))


def _gaussian(request: Request) -> Charge:
    noise = mechanisms.gaussian_noise_multiplier(float(request.epsilon), float(request.delta))
    return Charge(request.mechanism, Gaussian(noise), float(request.epsilon), float(request.delta))


def _votes(request: Request) -> Charge:
    # By itself a vote has no epsilon without a delta: only the accountant can add it up.
    return Charge(request.mechanism, Gaussian(_vote_noise(request)), math.inf, 0.0, request.columns)


# -- columns -------------------------------------------------------------------------------------------------


def _numbers(request: Request, name: str) -> list[int | float]:
    """A list of numbers that a user gave, whole ones as they are. !! ValueError"""
    given = request.options[name]
    if type(given) in (torch.Tensor, torch.nn.Parameter, np.ndarray):
        if given.ndim != 1 or len(given) > MOST_COLUMNS:
            raise ValueError(
                f"{name} is a list of {MOST_COLUMNS} numbers at most, got {type(given).__name__} of the shape "
                f"{tuple(given.shape)}: it has one dimension."
            )
        given = given.tolist()
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise ValueError(f"{name} is a list of numbers, got a {type(given).__name__}.")
    if len(given) > MOST_COLUMNS:
        raise ValueError(f"{name} has {len(given)} numbers; {MOST_COLUMNS} at most.")
    found = [value.item() if isinstance(value, np.generic) else value for value in given]
    for value in found:
        if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) > LARGEST_WHOLE):
            raise ValueError(
                f"{name} is a list of numbers (whole ones up to 1e300), and contains {shown(value)}."
            )
    return found


def _bounds(request: Request) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in _numbers(request, "bounds"))
    except ValueError:
        low = high = math.nan
    if not (-LARGEST_BOUND <= low < high <= LARGEST_BOUND and high / 2 - low / 2 >= 1 / LARGEST_BOUND):
        raise ValueError(
            f"bounds are two finite numbers, the lower first, of 1e150 at most, got "
            f"{shown(request.options['bounds'])}. They must not come from the data."
        )
    return low, high


def _between(request: Request) -> tuple[int | float, int | float]:
    try:
        low, high = _numbers(request, "between")
    except ValueError:
        low = high = math.nan
    if not low <= high:
        raise ValueError(
            f"between is two numbers, the lower first (both are included; -inf and inf are allowed), got "
            f"{shown(request.options['between'])}. They must not come from the data."
        )
    return low, high


def _centred(rows: Floats, request: Request) -> tuple[Floats, float, float]:
    """Rows between -1 and 1 in the place of the bounds, the middle of the bounds and half their width."""
    low, high = _bounds(request)
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    clipped = np.clip(np.where(np.isnan(rows), middle, rows), low, high)
    return np.clip((clipped - middle) / half, -1.0, 1.0), middle, half


def _steps(rows: Floats) -> Floats:
    """The sum of each column in steps: exact, because whole numbers below 2^53."""
    return np.clip(np.rint(rows * STEPS), -STEPS, STEPS).astype(np.int64).sum(axis=0).astype(np.float64)


def _noisy(steps: Floats, reach: int, request: Request, part: float = 1.0) -> Floats:
    """Column sums with Laplace noise, where one record can move each by `reach` steps."""
    sensitivity = float(reach * request.columns * request.records_per_person)
    return np.asarray(mechanisms.laplace(steps, sensitivity, request.epsilon * part))


def _shaped(columns: Floats, request: Request, noise: Noise | None = None) -> Any:
    """A number for rows that are numbers, else a tensor with the shape of a row."""
    value = (
        float(columns[0]) if len(request.shape) == 1 else torch.from_numpy(columns).reshape(request.shape[1:])
    )
    return value if noise is None else released(value, noise)


def _laplace_scale(sensitivity: float, epsilon: float, numbers: int = 1) -> float:
    """The scale of `mechanisms.laplace`, whose grid costs a little where there are several numbers."""
    return sensitivity * (1 + (numbers / STEPS if numbers > 1 else 0.0)) / epsilon


def _column_scale(reach: float, request: Request, part: float = 1.0) -> float:
    """That of `_noisy`, for `reach` in steps."""
    sensitivity = reach * request.columns * request.records_per_person
    return _laplace_scale(sensitivity, request.epsilon * part, request.columns)


def laplace(rows: Floats, request: Request) -> Any:
    values, middle, half = _centred(rows, request)
    steps = _noisy(_steps(values), 2 * STEPS, request)
    noise = laplace_noise([half * _column_scale(2.0, request)])
    return _shaped(len(rows) * middle + half * (steps / STEPS), request, noise)


def gaussian(rows: Floats, request: Request) -> Any:
    values, middle, half = _centred(rows, request)
    reach = 2.0 * request.records_per_person * math.sqrt(request.columns) * (1 + 1e-12)
    multiplier = mechanisms.gaussian_noise_multiplier(float(request.epsilon), float(request.delta))
    steps = np.asarray(mechanisms.gaussian(_steps(values), reach * STEPS, noise_multiplier=multiplier))
    noise = Noise((("gaussian", half * reach * mechanisms.gaussian_scale(multiplier, request.columns)),))
    return _shaped(len(rows) * middle + half * (steps / STEPS), request, noise)


def mean(rows: Floats, request: Request) -> Any:
    values, middle, half = _centred(rows, request)
    count = max(len(rows), 1)
    means = _noisy(_steps(values), 2 * STEPS, request) / STEPS / count
    low, high = _bounds(request)
    noise = laplace_noise([half * _column_scale(2.0, request) / count], low=low, high=high)
    return _shaped(middle + half * np.clip(means, -1.0, 1.0), request, noise)


def variance(rows: Floats, request: Request) -> Any:
    """Half of epsilon for the sum, half for the sum of squares, both around the middle of the bounds."""
    values, _middle, half = _centred(rows, request)
    count = max(len(rows), 1)
    means = np.clip(_noisy(_steps(values), 2 * STEPS, request, 0.5) / STEPS / count, -1.0, 1.0)
    squares = _noisy(_steps(values**2), STEPS, request, 0.5) / STEPS / count
    # The square of a mean between -1 and 1 is off by twice as much as the mean, at most.
    scales = [_column_scale(1.0, request, 0.5) / count, 2 * _column_scale(2.0, request, 0.5) / count]
    noise = laplace_noise([half**2 * scale for scale in scales], low=0.0, high=half**2)
    return _shaped(half**2 * np.clip(squares - means**2, 0.0, 1.0), request, noise)


# -- counts --------------------------------------------------------------------------------------------------


def count(rows: Column, request: Request) -> Any:
    column = rows[:, 0]
    if "between" in request.options:
        found = in_range(column, *_between(request))
    else:
        found = (column != 0) & (column == column)  # a NaN is not itself
    sensitivity = float(request.records_per_person)
    noisy = round(float(mechanisms.laplace(float(found.sum()), sensitivity, request.epsilon)))
    return released(noisy, laplace_noise([_laplace_scale(sensitivity, request.epsilon)]))


def histogram(rows: Column, request: Request) -> Any:
    if ("edges" in request.options) == ("categories" in request.options):
        raise TypeError("A histogram takes either edges or categories.")
    if "edges" in request.options:
        edges = _numbers(request, "edges")
        is_rising = all(low < high for low, high in pairwise(edges))
        if len(edges) < 2 or not is_rising or not all(map(math.isfinite, edges)):
            raise ValueError("edges are two or more finite, rising numbers.")
        bins, places = len(edges) - 1, edge_places(rows[:, 0], edges)
    else:
        categories = _numbers(request, "categories")
        if not categories or len(set(categories)) != len(categories) or any(map(math.isnan, categories)):
            raise ValueError("categories are one or more different numbers.")
        bins, places = len(categories), category_places(rows[:, 0], categories)
    counts = np.bincount(places, minlength=bins).astype(np.float64)
    sensitivity = 2.0 * request.records_per_person  # one bin loses the record, another gets it
    noisy = np.asarray(mechanisms.laplace(counts, sensitivity, request.epsilon))
    noise = laplace_noise([_laplace_scale(sensitivity, request.epsilon, bins)])
    return released(torch.from_numpy(np.rint(noisy).astype(np.int64)), noise)


# -- choices -------------------------------------------------------------------------------------------------


def quantile(rows: Floats, request: Request) -> Any:
    """The exponential mechanism on public candidates (Smith 2011); one record moves a rank by one."""
    low, high = _bounds(request)
    fraction, candidates = request.options["fraction"], request.options.get("candidates", 1024)
    if not 0 <= number(fraction) <= 1:
        raise ValueError(f"fraction is a number between 0 and 1, got {shown(fraction)}.")
    if type(candidates) is not int or not 2 <= candidates <= MOST_COLUMNS:
        raise ValueError(f"candidates is a whole number from 2 to {MOST_COLUMNS}, got {shown(candidates)}.")
    column = rows[:, 0]
    values = np.sort(np.clip(np.where(np.isnan(column), low / 2 + high / 2, column), low, high))
    weights = np.linspace(0.0, 1.0, candidates)
    places = low * (1 - weights) + high * weights
    scores = -np.abs(np.searchsorted(values, places, side="right") - fraction * len(values))
    chosen = mechanisms.exponential(scores, float(request.records_per_person), request.epsilon)
    return released(float(places[chosen]), _choice(request, float(request.records_per_person), "ranks"))


def _choice(request: Request, sensitivity: float, what: str) -> Noise:
    """Of a choice that is as if Gumbel noise of the scale 2 sensitivity / epsilon were on each score (or less)."""
    deviation = 2 * sensitivity / request.epsilon * math.pi / math.sqrt(6)
    return Noise((("laplace", deviation),), choice=what)


def _scores(rows: Floats, request: Request) -> tuple[Floats, float]:
    values, _middle, _half = _centred(rows, request)
    return _steps(values), 2.0 * STEPS * request.records_per_person


def _chosen(choose: Callable[..., int], rows: Floats, request: Request) -> Any:
    scores, sensitivity = _scores(rows, request)
    half = _centred(rows[:0], request)[2]
    noise = _choice(request, half * sensitivity / STEPS, "sums")
    return released(choose(scores, sensitivity, request.epsilon), noise)


def exponential(rows: Floats, request: Request) -> Any:
    return _chosen(mechanisms.exponential, rows, request)


def noisy_max(rows: Floats, request: Request) -> Any:
    return _chosen(mechanisms.noisy_max, rows, request)


def _vote_noise(request: Request) -> float:
    """The noise in sensitivities: a record that votes otherwise moves two counts by one (Papernot et al. 2018)."""
    sigma = request.options["sigma"]
    if not 1e-6 <= number(sigma) < math.inf:
        raise ValueError(
            f"sigma is the standard deviation of the noise on each count, above 0 (1e-6 at least), got {shown(sigma)}."
        )
    return float(sigma) / (math.sqrt(2.0) * request.records_per_person) * (1 - 1e-12)


def gnmax(rows: Floats, request: Request) -> Any:
    """Each column is a question, each record a voter who names a class; the winner of each question."""
    classes = request.options["classes"]
    if type(classes) is not int or not 2 <= classes <= MOST_COLUMNS // request.columns:
        raise ValueError(
            f"classes is a whole number from 2, and {MOST_COLUMNS} at most for all questions together, got "
            f"{shown(classes)} for {request.columns}."
        )
    largest = math.isqrt(LARGEST_VARIANCE) / (2 * math.isqrt(classes) + 3)  # see mechanisms.gaussian
    most = math.floor(largest * math.sqrt(2.0) * request.records_per_person)
    if request.options["sigma"] > most:
        raise ValueError(
            f"sigma={request.options['sigma']:g} on {classes} counts is more noise than the exact sampler draws: ask "
            f"with a sigma of {most} at most. It costs more, and the answer is better."
        )
    sensitivity = math.sqrt(2.0) * request.records_per_person * (1 + 1e-12)
    noise = _vote_noise(request)
    winners = np.zeros(request.columns)
    for question, votes in enumerate(rows.T):
        named = votes[(votes >= 0) & (votes < classes)].astype(np.int64)
        counts = np.bincount(named, minlength=classes).astype(np.float64)
        winners[question] = np.argmax(mechanisms.gaussian(counts, sensitivity, noise_multiplier=noise))
    found, on_votes = (
        _shaped(winners, request),
        Noise((("gaussian", float(request.options["sigma"])),), choice="votes"),
    )
    return released(found.long() if isinstance(found, torch.Tensor) else int(found), on_votes)


# -- groups --------------------------------------------------------------------------------------------------


def _whole(request: Request, name: str, least: int, most: int) -> int:
    value = request.options[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is a whole number from {least} to {most}, got {shown(value)}.")
    return value


def _grouping(request: Request) -> Grouping:
    """!! TypeError, ValueError"""
    if request.person_column is None or not 0 <= request.person_column < request.columns:
        raise ValueError(
            f"{request.mechanism!r} bounds what each person contributes, and for this object it is not known which "
            "column names the person. The owner says that of a data set, with person_column in the .toml beside the file "
            "or set_budget(..., person_column=...); release that data set as it is, not columns of it."
        )
    statistic = request.mechanism.removeprefix("group_")
    last = request.columns - 1
    max_groups, max_rows = _whole(request, "max_groups", 1, 1 << 10), _whole(request, "max_rows", 1, 1 << 10)
    keys = None
    if "keys" in request.options:
        named = _numbers(request, "keys")
        if not named or len(set(named)) != len(named) or not all(map(math.isfinite, named)):
            raise ValueError("keys are one or more different finite numbers.")
        keys = tuple(float(key) for key in named)
    value = None if statistic == "count" else _whole(request, "value", 0, last)
    bounds = (0.0, 1.0) if value is None else _bounds(request)
    by = _whole(request, "by", 0, last)
    return Grouping(statistic, request.person_column, by, value, bounds, max_groups, max_rows, keys)


def group(rows: Floats, request: Request) -> dict[float, Any]:
    return grouped(rows, _grouping(request), float(request.epsilon), float(request.delta))


def _groups(request: Request) -> Charge:
    _grouping(request)
    if "keys" in request.options:
        return _pure(request)
    return Charge(request.mechanism, None, float(request.epsilon), float(request.delta))


for _name, _answer in dict(laplace=laplace, mean=mean, variance=variance).items():
    MECHANISMS[_name] = Mechanism(_answer, _pure, required=("bounds",))
for _name, _answer in dict(exponential=exponential, noisy_max=noisy_max).items():
    MECHANISMS[_name] = Mechanism(_answer, _pure, required=("bounds",))
MECHANISMS["gaussian"] = Mechanism(gaussian, _gaussian, required=("bounds",), needs_delta=True)
MECHANISMS["count"] = Mechanism(count, _pure, optional=("between",), is_for_one_column=True, counts=True)
MECHANISMS["histogram"] = Mechanism(
    histogram, _pure, optional=("edges", "categories"), is_for_one_column=True, counts=True
)
MECHANISMS["quantile"] = Mechanism(
    quantile, _pure, required=("fraction", "bounds"), optional=("candidates",), is_for_one_column=True
)
for _name, _more in dict(
    group_count=(), group_sum=("value", "bounds"), group_mean=("value", "bounds")
).items():
    MECHANISMS[_name] = Mechanism(
        group,
        _groups,
        required=("by", "max_groups", "max_rows", *_more),
        optional=("keys",),
        delta_without="keys",
    )
MECHANISMS["gnmax"] = Mechanism(gnmax, _votes, required=("classes", "sigma"), takes_epsilon=False)
