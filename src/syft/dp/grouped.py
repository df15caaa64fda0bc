"""Counts, sums and means by group, in which a person may have many rows.

One duty: `grouped`, from rows with a column of persons to one noisy number for each group. Imports `mechanisms`, `noise`,
`released`, `mpc.randomness`.

NOTE [What a person can change]
Of every person the first `max_groups` groups are kept, in the order of the rows, and in each of these the first
`max_rows` rows. Which are kept depends on that person's rows alone. So all rows of one person, added or removed,
change the counts of all groups together by max_groups x max_rows at most (L1), and sums by as many times the largest
bound. How many rows a data set has is public, so that neighbours are data sets in which one person is replaced: one
is removed and another one added. The noise is that of half of epsilon for each.

NOTE [Which groups there are]
Keys that are named are answered, each of them, with noise. Without names, which keys there are is private: a key is
answered if its noisy number of persons reaches a threshold, which a key that only one person has reaches with
probability delta0 / max_groups at most, so that any of that person's keys does with delta0 at most (Korolova et al.
2009). Half of epsilon is for that. With e = epsilon / 2 for one person more or less, delta0 (1 + exp(e)) = delta is
the delta of two of them (group privacy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syft.dp.mechanisms import STEPS, laplace_steps
from syft.dp.noise import Ints
from syft.dp.released import laplace_noise, released
from syft.mpc.randomness import Stream

Floats = npt.NDArray[np.float64]

STATISTICS = ("count", "sum", "mean")


@dataclass(frozen=True)
class Grouping:
    """What is computed of which columns, and what a person may contribute."""

    statistic: str
    person: int
    by: int
    value: int | None
    bounds: tuple[float, float]
    max_groups: int
    max_rows: int
    keys: tuple[float, ...] | None
    """Public; None: found in the data."""

    @property
    def most_rows(self) -> int:
        """How many rows one person has in all groups together."""
        return self.max_groups * self.max_rows

    @property
    def centre(self) -> tuple[float, float]:
        """What stands for 0 and for 1 in the sums: of means the middle of the bounds and half their width."""
        low, high = self.bounds
        return (
            (low / 2 + high / 2, high / 2 - low / 2)
            if self.statistic == "mean"
            else (0.0, max(abs(low), abs(high)))
        )


@dataclass(frozen=True)
class Totals:
    """Of each key, without noise: persons, rows, and the sum of values in steps of the grid."""

    keys: list[float]
    persons: Ints
    rows: Ints
    sums: Ints


def totals(table: Floats, grouping: Grouping) -> Totals:
    """See NOTE [What a person can change]. Rows without a person or a key (NaN) are left out."""
    person, key = table[:, grouping.person], table[:, grouping.by]
    kept = ~(np.isnan(person) | np.isnan(key))
    if grouping.keys is not None:
        kept &= np.isin(key, grouping.keys)
    person, key = person[kept], key[kept]
    names = sorted(set(key.tolist())) if grouping.keys is None else list(grouping.keys)
    place = {name: index for index, name in enumerate(names)}
    if grouping.value is None:
        steps = np.zeros(len(key), dtype=np.int64)
    else:
        (low, high), (zero, one) = grouping.bounds, grouping.centre
        values = table[kept, grouping.value]
        values = np.clip(np.where(np.isnan(values), low / 2 + high / 2, values), low, high)
        steps = np.clip(np.rint((values - zero) / one * STEPS), -STEPS, STEPS).astype(np.int64)
    persons, rows, sums = (np.zeros(len(names), dtype=np.int64) for _ in range(3))
    seen: dict[float, dict[int, int]] = {}
    for who, what, step in zip(person.tolist(), key.tolist(), steps.tolist(), strict=True):
        index, own = place[what], seen.setdefault(who, {})
        if index not in own:
            if len(own) == grouping.max_groups:
                continue
            own[index] = 0
            persons[index] += 1
        if own[index] < grouping.max_rows:
            own[index] += 1
            rows[index] += 1
            sums[index] += step
    return Totals(names, persons, rows, sums)


def threshold(grouping: Grouping, epsilon: float, delta: float) -> int:
    """How many noisy persons a key needs: see NOTE [Which groups there are]. `epsilon`, for one person more or less."""
    least = delta / (1 + math.exp(2 * epsilon)) / grouping.max_groups
    return 1 + math.ceil(grouping.max_groups / epsilon * math.log(1 / least) * (1 + 1e-6))


def grouped(
    table: Floats, grouping: Grouping, epsilon: float, delta: float, stream: Stream | None = None
) -> dict[float, Any]:
    """The answer for each key, with noise for one person replaced by another."""
    stream, found = stream or Stream(), totals(table, grouping)
    each = epsilon / 2  # for one person more or less
    chosen = list(range(len(found.keys)))
    if grouping.keys is None:
        each /= 2
        noisy = found.persons + laplace_steps(len(chosen), grouping.max_groups, each, stream)
        needed = threshold(grouping, each, delta)
        chosen = [index for index in chosen if noisy[index] >= needed]
    rows, sums = found.rows[chosen], found.sums[chosen]
    names = [int(key) if key.is_integer() else key for key in (float(found.keys[index]) for index in chosen)]
    if grouping.statistic == "count":
        noise = laplace_noise([grouping.most_rows / each])
        counts = rows + laplace_steps(len(chosen), grouping.most_rows, each, stream)
        return {name: released(int(n), noise) for name, n in zip(names, counts, strict=True)}
    zero, one = grouping.centre
    if grouping.statistic == "sum":
        noise = laplace_noise([one * grouping.most_rows / each])
        noisy = sums + laplace_steps(len(chosen), grouping.most_rows * STEPS, each, stream)
        return {name: released(float(one * (s / STEPS)), noise) for name, s in zip(names, noisy, strict=True)}
    each /= 2
    counts = rows + laplace_steps(len(chosen), grouping.most_rows, each, stream)
    noisy = sums + laplace_steps(len(chosen), grouping.most_rows * STEPS, each, stream)
    answer = {}
    for name, n, s in zip(names, counts.tolist(), noisy.tolist(), strict=True):
        scale, n = grouping.most_rows / each, max(n, 1)
        mean = zero + one * min(max(s / STEPS / n, -1.0), 1.0)
        deviation = math.sqrt(2.0) * scale
        noise = laplace_noise(
            [one * scale, one * scale], low=zero - one, high=zero + one, count=(float(n), deviation)
        )
        answer[name] = released(float(mean), noise)
    return answer
