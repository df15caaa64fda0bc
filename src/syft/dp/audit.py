"""How much epsilon a mechanism has at least, by playing the attacker.

One duty: a statistical lower bound. Run the mechanism often on two neighbouring data sets; if some event is
much likelier on one, no small epsilon can be true. Passing proves nothing; failing proves a fault. Imports
nothing of ours.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def epsilon_lower_bound(first: Any, second: Any, *, delta: float = 0.0, confidence: float = 0.999) -> float:
    """An epsilon that the mechanism exceeds, with the stated confidence (0 when nothing was found).

    `first` and `second` are one number per run on either data set. The event, of the form "at most t", "at
    least t" or "exactly t", is chosen on the even runs and measured on the odd ones, so that the search does
    not flatter it.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.ndim != 1 or theirs.ndim != 1 or min(ours.size, theirs.size) < 20:
        raise ValueError("An audit takes two lists with one number per run, 20 runs or more each.")
    failure = (1.0 - confidence) / 2.0
    best, event = -math.inf, None
    pooled = np.concatenate([ours[::2], theirs[::2]])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, 101), method="nearest"))
    for a, b, swapped in ((ours, theirs, False), (theirs, ours, True)):
        for t in thresholds:
            for kind in ("<=", ">=", "=="):
                score = _bound(a[::2], b[::2], t, kind, delta, failure)
                if score > best:
                    best, event = score, (swapped, t, kind)
    if event is None:
        return 0.0
    swapped, t, kind = event
    a, b = (theirs, ours) if swapped else (ours, theirs)
    return max(0.0, _bound(a[1::2], b[1::2], t, kind, delta, failure))


def _bound(a: Any, b: Any, t: float, kind: str, delta: float, failure: float) -> float:
    """log((Pr_a - delta) / Pr_b) with Pr_a at its least and Pr_b at its most."""
    hits = [
        int((x <= t).sum() if kind == "<=" else (x >= t).sum() if kind == ">=" else (x == t).sum())
        for x in (a, b)
    ]
    least = 1.0 - _most(a.size - hits[0], a.size, failure)
    most = _most(hits[1], b.size, failure)
    return math.log((least - delta) / most) if least > delta else -math.inf


def _most(hits: int, runs: int, failure: float) -> float:
    """The largest probability not excluded: runs * KL(hits/runs || p) = log(1/failure) (Chernoff 1952)."""
    seen = hits / runs
    low, high = seen, 1.0
    for _ in range(60):
        p = (low + high) / 2
        if runs * _divergence(seen, p) < -math.log(failure):
            low = p
        else:
            high = p
    return high


def _divergence(x: float, p: float) -> float:
    if p >= 1.0:
        return 0.0 if x >= 1.0 else math.inf
    if p <= 0.0:
        return 0.0 if x <= 0.0 else math.inf
    left = x * math.log(x / p) if x > 0 else 0.0
    right = (1 - x) * math.log((1 - x) / (1 - p)) if x < 1 else 0.0
    return left + right
