"""What releases cost together when whoever asks chooses each by the answers to those before.

One duty: the rule by which budgets allow. For events that are fixed beforehand, all of them, `accounting.Accountant`
finds less. Imports `events`.

NOTE [Either bound]
What releases cost together has two bounds: their epsilons and deltas added up, and their Rényi divergences of one order
added up. A state of a budget is allowed if either fits. Users choose what to ask next, and what it shall cost, by
what they were told, so the bounds have to hold for that. They do, if the order and what each bound may use of delta are
fixed beforehand, here by the limit alone (a budget without a delta only ever adds up). With e, d the limit, a the
order, and parts s + o + v = 1 of d:

    sum          the deltas of all releases are at most s d, their epsilons at most e
    divergence   the deltas of opaque releases are at most o d; their epsilons, the divergences of the others, and
                 log(c / (v d)) / (a - 1) are at most e, where c = (1 - 1/a)^(a - 1) / a

Proof. A release that is (e_i, d_i)-DP, given what came before, is with probability 1 - d_i one whose privacy loss is
at most e_i (Kairouz, Oh and Viswanath 2015): let a coin decide. Coins of all releases up to where their deltas exceed
s d fall the wrong way with probability s d at most, those of opaque releases up to o d with o d at most (the
expectation of a sum of conditional probabilities that is bounded on every path). Else, if the budget ends with the
sum, the loss L is at most e. If it ends with the divergence, the loss of the opaque ones is at most their epsilons,
and of the others M = exp((a - 1) (loss - divergence)) is a supermartingale from 1. The second condition makes
c exp((a - 1) (L - e)) at most M v d, and 1 - exp(-y) is at most c exp((a - 1) y) for every y (Canonne, Kamath and
Steinke 2020, proposition 12), so the mean of 1 - exp(e - L), where it is above 0, is at most v d. What one data set makes
likelier than e^e times the other is the mean of that and the probability of wrong coins: d at most in all. (Feldman
and Zrnic 2021 call the part with divergences a Rényi filter.)

`BOTH` is for charges that may have deltas. `EVENTS_ONLY` is for events alone: the sum is then of pure ones, which need
no coins, and the divergence has all of delta.

The proof is for a limit that was set before the answers. An owner who changes one because of an answer chooses e and the
order by it, and then users have what both limits allow together.

The order is the one at which Gaussian noise that just uses up the limit may be least.

NOTE [Rounded up]
A divergence is a sum of positive terms, or a difference that is not near 0, so that it is right to a few parts in 10^16;
a part in 10^14 is added. What just fits is not refused for the rounding of sums: that is a part in 10^12 of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch

from syft.dp.events import Event, Gaussian, number, shown

_UP = 1 + 1e-14


# -- records -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Charge:
    """What one release costs: `count` times the event, of which each is (epsilon, delta)-DP by itself.

    Without an event nothing more is known of it, and it can only be added.
    """

    mechanism: str
    event: Event | None
    epsilon: float
    delta: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Limit:
    """An epsilon at a delta."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 < number(self.epsilon) < math.inf:
            raise ValueError(f"A budget's epsilon is a finite number above 0, got {shown(self.epsilon)}.")
        if not 0 <= number(self.delta) < 1:
            raise ValueError(f"A budget's delta is a finite number from 0, below 1, got {shown(self.delta)}.")


@dataclass(frozen=True)
class Parts:
    """What is for which of delta: see NOTE [Either bound]."""

    sum: float
    opaque: float
    divergence: float


BOTH = Parts(1 / 2, 1 / 4, 1 / 4)
EVENTS_ONLY = Parts(0.0, 0.0, 1.0)


# -- the rule ----------------------------------------------------------------------------------------------


def fits(charges: Iterable[Charge], limit: Limit, parts: Parts = BOTH) -> bool:
    """Whether a budget allows all these together."""
    spent = spent_epsilon(charges, limit, parts)
    return math.isfinite(spent) and spent <= limit.epsilon * (1 + 1e-12)


def spent_epsilon(charges: Iterable[Charge], limit: Limit, parts: Parts = BOTH) -> float:
    """The epsilon that all these cost together at the delta of the limit: see NOTE [Either bound]."""
    listed = list(charges)
    if limit.delta < _LEAST_DELTA or not listed:
        return _added_up(listed, limit.delta)
    return min(_added_up(listed, limit.delta * parts.sum), _diverged(listed, limit, parts))


def _added_up(charges: list[Charge], delta: float) -> float:
    """The sum of the epsilons, if the sum of the deltas is within `delta`."""
    if added(c.delta * c.count for c in charges) > delta:
        return math.inf
    return added(c.epsilon * c.count for c in charges)


def _diverged(charges: list[Charge], limit: Limit, parts: Parts) -> float:
    """The sum of the divergences, as an epsilon."""
    order = _order(limit, parts.divergence)
    opaque = [charge for charge in charges if charge.event is None]
    total = added(divergence(c.event, order) * c.count for c in charges if c.event is not None)
    converted = total + conversion(order, limit.delta * parts.divergence)
    return _added_up(opaque, limit.delta * parts.opaque) + max(0.0, converted)


def added(values: Iterable[float]) -> float:
    """The sum of numbers from 0; infinite where it is more than a float can be."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


#: Below it, a part of a delta may be no number any more.
_LEAST_DELTA = 1e-300
#: From little above 1 to what an epsilon of a millionth needs.
_ORDERS = tuple(1 + 10 ** (step / 32) for step in range(-64, 32 * 8))


@lru_cache(maxsize=1024)
def _order(limit: Limit, part: float) -> float:
    """The order that is best for many releases with Gaussian noise; it depends on the limit alone."""
    return max(_ORDERS, key=lambda order: (limit.epsilon - conversion(order, limit.delta * part)) / order)


def conversion(order: float, delta: float) -> float:
    """What is added to a divergence to make it an epsilon: see NOTE [Either bound]."""
    return math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


# -- divergences -------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def divergence(event: Event, order: float) -> float:
    """The Rényi divergence of an order, or a little more, never less: see NOTE [Rounded up]."""
    if isinstance(event, Gaussian):
        inverse = 1 / event.noise_multiplier
        whole = order * inverse * inverse / 2 * _UP
        return whole if event.sampling_rate == 1.0 else min(whole, _between_whole_orders(event, order))
    # That of randomised response, the worst there is (Bun and Steinke 2016, proposition 3.3 and its proof):
    # log(cosh x + tanh(epsilon / 2) sinh x) / (order - 1).
    x = (order - 1) * event.epsilon
    if x < 1:
        log = math.log1p(2 * math.sinh(x / 2) ** 2 + math.tanh(event.epsilon / 2) * math.sinh(x))
    else:
        log = x - math.log1p(math.exp(-event.epsilon)) + math.log1p(math.exp(-event.epsilon - 2 * x))
    return min(event.epsilon, log / (order - 1) * _UP)


#: A sum of so many terms is soon done.
_LARGEST_WHOLE_ORDER = 1 << 17


def _between_whole_orders(event: Gaussian, order: float) -> float:
    """Noise on a sample: (order - 1) times the divergence is convex, so that its chords lie above it."""
    below = math.floor(order)
    if below >= _LARGEST_WHOLE_ORDER:
        return math.inf
    low = (below - 1) * sampled_divergence(event, below) if below > 1 else 0.0
    high = below * sampled_divergence(event, below + 1)
    return (low + (order - below) * (high - low)) / (order - 1) * _UP


@lru_cache(maxsize=4096)
def sampled_divergence(event: Gaussian, order: int) -> float:
    """That of Gaussian noise on a Poisson sample (Mironov, Talwar and Zhang 2019, section 3.3)."""
    terms = torch.arange(order + 1, dtype=torch.float64)
    choices = math.lgamma(order + 1) - torch.lgamma(terms + 1) - torch.lgamma(order - terms + 1)
    logs = (
        choices + terms * math.log(event.sampling_rate) + (order - terms) * math.log1p(-event.sampling_rate)
    )
    inverse = 1 / event.noise_multiplier
    logs += (terms * terms - terms) * (inverse * inverse / 2)
    # The terms are rounded: parts in 10^16 of up to order log(order), which is paid for.
    paid = 1e-14 * order * math.log(order + 2)
    return (float(torch.logsumexp(logs, 0)) * _UP + paid) / (order - 1)
