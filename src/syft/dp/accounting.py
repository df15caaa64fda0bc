"""What has been spent, what is left, and the refusal to spend more.

One duty: budgets, and the accountants for what is planned as a whole. Their mathematics is `dp-accounting`'s (the extra
`dp`), as Rényi divergences ("rdp") or privacy loss distributions ("pld": tighter, slower). Neighbours differ by one row
more or less. Imports `events`, `composition`, `exceptions`, and `ledger` for budgets in files.

NOTE [Plans]
An accountant finds the least epsilon of events that were fixed beforehand, in kind and number. Whoever chooses the next
by the last answer gets more than it says: twice the delta with two choices alone. A budget therefore allows by the rule
of `composition`, which holds for such users and costs some epsilon. What is `planned` when the budget is made, so many
times one event, is allowed if the accountant says that all of it fits: it is fixed, and to stop early is only to look
at less of it. Anything else is allowed only if, by the rule, it fits together with the whole plan. Then the plan fits
by the rule as well, so that every choice there was between the two was between states that the rule allows.

NOTE [Orders for small epsilons]
From Rényi divergences of orders up to a there is no epsilon much below log(1/delta) / a, whatever the noise.
`dp-accounting`'s orders end at 1024, some 0.01. Beyond them are powers of two, where the divergence of
Gaussian noise on a Poisson sample is a sum with a + 1 terms (Mironov, Talwar and Zhang 2019, section 3.3).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from syft.dp.composition import (
    EVENTS_ONLY,
    Charge,
    Limit,
    conversion,
    divergence,
    fits,
    sampled_divergence,
    spent_epsilon,
)
from syft.dp.events import Event, Gaussian, Pure, Spent, check, number, read, shown, written
from syft.exceptions import BudgetExceededError, BudgetFileError, DependencyError
from syft.ledger import Account

Kind = Literal["rdp", "pld"]

FORMAT = 1  # of budget files

#: See NOTE [Orders for small epsilons].
FAR_ORDERS = tuple(1 << bits for bits in range(11, 18))
#: Steps of the grid on which privacy losses lie, rounded up: a coarse one costs a part in 2000 of an epsilon above 1.
_COARSE, _FINE = 1e-3, 1e-4
#: Where `dp-accounting` is not installed.
OWN_ORDERS = (
    *(1 + step / 10 for step in range(1, 100)),
    *range(11, 64),
    *(1 << bits for bits in range(6, 15)),
)


def _dp_accounting() -> Any:
    try:
        for part in ("rdp", "pld"):
            importlib.import_module(f"dp_accounting.{part}")
        found = importlib.import_module("dp_accounting")
    except ImportError:
        raise DependencyError("dp_accounting", "'resyft[dp]'") from None
    logging.getLogger("absl").addFilter(_is_news)
    return found


#: Tails of less than this are cut off privacy loss distributions, so that no epsilon is found for a smaller delta.
LEAST_PLD_DELTA = 1e-12


def default_kind(delta: float | None = None) -> Kind:
    """What epsilon is computed by unless somebody says: "pld", or "rdp" for a tiny delta or without `dp-accounting`."""
    # NB: what is no number is refused later, by a sentence.
    is_tiny = isinstance(delta, int | float) and delta < LEAST_PLD_DELTA
    return "rdp" if is_tiny or importlib.util.find_spec("dp_accounting") is None else "pld"


def _is_news(record: logging.LogRecord) -> bool:
    """Not that an order was left out because its sum did not converge: there are 150 others."""
    return not str(record.msg).startswith("_compute_log_a_frac failed to converge")


# -- composition -----------------------------------------------------------------------------------------


@dataclass
class Accountant:
    """Composes events; `epsilon(delta)` says what they cost together, if all of them were fixed beforehand.

    For what is chosen by the answers to what came before, keep a `Budget`: see NOTE [Plans].
    """

    kind: Kind = "rdp"
    orders: Sequence[float] | None = None
    """Rényi orders for "rdp"; `dp-accounting`'s own without."""
    spent: dict[Event, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("rdp", "pld"):
            raise ValueError(f'An accountant is of the kind "rdp" or "pld", got {self.kind!r}.')

    def compose(self, event: Event, count: int = 1) -> Accountant:
        """Note that `event` happened `count` times."""
        if not isinstance(event, (Gaussian, Pure)):
            raise TypeError(
                f"An event is accounting.Gaussian or accounting.Pure, got {type(event).__name__}."
            )
        _check_count(count)
        self.spent[event] = self.spent.get(event, 0) + count
        return self

    def epsilon(self, delta: float) -> float:
        """The least epsilon known to hold with `delta` for everything composed so far."""
        _check_delta(delta, zero=True)
        if not self.spent:
            return 0.0
        # Epsilons of pure events also just add up, and then need no delta.
        basic = math.inf
        if all(isinstance(event, Pure) for event in self.spent):
            basic = math.fsum(event.epsilon * n for event, n in self.spent.items() if isinstance(event, Pure))
        if delta == 0:
            return basic
        if self.kind == "rdp" and self.orders is None and default_kind() == "rdp":
            return min(basic, _own_epsilon(self.spent, delta))
        _dp_accounting()
        if self.kind == "rdp":
            accounts = importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant")
            return min(basic, float(accounts.compute_epsilon(*self._divergences(), delta)[0]))
        found = float(self._distribution(_COARSE).get_epsilon_for_delta(delta))
        if found < 1:  # where a coarse grid shows, and a fine one does not take long
            found = float(self._distribution(_FINE).get_epsilon_for_delta(delta))
        return min(basic, found)

    def delta(self, epsilon: float) -> float:
        """The least delta known to hold with `epsilon`."""
        if not self.spent:
            return 0.0
        if self.kind == "rdp":
            _dp_accounting()
            accounts = importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant")
            return float(accounts.compute_delta(*self._divergences(), epsilon)[0])
        _dp_accounting()
        return float(self._distribution(_FINE).get_delta_for_epsilon(epsilon))

    def after(self, event: Event, count: int = 1) -> Accountant:
        """A copy with `event` composed."""
        return Accountant(self.kind, self.orders, dict(self.spent)).compose(event, count)

    def _divergences(self) -> tuple[Any, Any]:
        """(orders, total divergence at each): they add up (Mironov 2017, proposition 1)."""
        orders = None if self.orders is None else tuple(self.orders)
        each = [(_divergence_of(event, orders), count) for event, count in self.spent.items()]
        return each[0][0][0], sum(count * divergence for (_orders, divergence), count in each)

    def _distribution(self, interval: float) -> Any:
        """The distribution of the privacy loss of all events together."""
        total: Any = None
        for event, count in self.spent.items():
            if isinstance(event, Gaussian) and event.sampling_rate == 1.0:
                part = _loss_of(Gaussian(event.noise_multiplier / math.sqrt(count)), interval)
            else:
                part = _loss_of(event, interval).self_compose(count)
            total = part if total is None else total.compose(part)
        return total


@lru_cache(maxsize=64)
def _loss_of(event: Event, interval: float) -> Any:
    """The distribution of the privacy loss of one event. To make it takes longer than to compose thousands of it."""
    distributions = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    if isinstance(event, Gaussian):
        return distributions.from_gaussian_mechanism(
            event.noise_multiplier,
            value_discretization_interval=interval,
            sampling_prob=event.sampling_rate,
        )
    # Randomised response dominates everything epsilon-DP (Kairouz et al. 2015), and is what discrete Laplace
    # noise is for a sensitivity of one step: its loss is epsilon or -epsilon.
    return distributions.from_discrete_laplace_mechanism(
        event.epsilon, 1, value_discretization_interval=interval
    )


def _own_epsilon(spent: Spent, delta: float) -> float:
    """By the divergences of `composition`, which needs no other package: somewhat more at orders between whole ones."""
    return max(
        0.0,
        min(
            math.fsum(divergence(event, order) * count for event, count in spent.items())
            + conversion(order, delta)
            for order in OWN_ORDERS
        ),
    )


@lru_cache(maxsize=256)
def _divergence_of(event: Event, orders: tuple[float, ...] | None) -> tuple[Any, Any]:
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(orders).compose(_translated(dp, event))
    if orders is not None:
        return accountant.orders, accountant.rdp
    far = [_far_divergence(event, order) for order in FAR_ORDERS]
    return np.concatenate([accountant.orders, FAR_ORDERS]), np.concatenate([accountant.rdp, far])


def _far_divergence(event: Event, order: int) -> float:
    """See NOTE [Orders for small epsilons]."""
    if isinstance(event, Pure):
        return order * event.epsilon**2 / 2.0
    if event.sampling_rate == 1.0:
        return order / (2.0 * event.noise_multiplier**2)
    return sampled_divergence(event, order)


def _translated(dp: Any, event: Event) -> Any:
    if isinstance(event, Gaussian):
        noise = dp.GaussianDpEvent(event.noise_multiplier)
        return noise if event.sampling_rate == 1.0 else dp.PoissonSampledDpEvent(event.sampling_rate, noise)
    # epsilon-DP is epsilon^2/2-zCDP (Bun and Steinke 2016, proposition 1.4).
    return dp.ZCDpEvent(event.epsilon**2 / 2.0)


def noise_multiplier_for(
    epsilon: float, delta: float, *, sampling_rate: float = 1.0, steps: int = 1, kind: Kind = "rdp"
) -> float:
    """The least noise multiplier (to 1 part in 1000, rounded up) with which `steps` steps cost at most `epsilon`.

    `kind`: the accountant, that of the budget it is planned in: "rdp", or "pld", which is tighter.
    """
    check("epsilon", epsilon, 0.0, math.inf)
    _check_delta(delta)

    accounted: dict[float, float] = {}

    def cost(noise: float) -> float:
        if noise not in accounted:
            event = Gaussian(noise, sampling_rate)
            accounted[noise] = Accountant(kind).compose(event, steps).epsilon(delta)
        return accounted[noise]

    # Accountants are slow: begin a little below what our own divergences ask for, which is a few percent too much.
    most = _enough_by_divergences(epsilon, delta, sampling_rate, steps)
    low, high = (most * 0.85, most) if cost(most * 0.85) > epsilon else (0.05, most * 0.85)
    while cost(high) > epsilon:
        low, high = high, high * 2
        if high > 2**20:
            raise ValueError(
                f"The accountant ({kind}) finds no noise with which {steps} steps of rate {sampling_rate} cost epsilon "
                f"{epsilon} at delta {delta}; there may be one that it cannot show to be enough. Ask for a larger "
                "epsilon or delta, or for fewer steps."
            )
    is_above = False
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if high / low < 1.5 and 0 < cost(high) < cost(low):
            # Logarithms of cost and noise are nearly on a line: look a little above and below where it meets epsilon.
            part = math.log(cost(low) / epsilon) / math.log(cost(low) / cost(high))
            is_above = not is_above
            guess = low * (high / low) ** part * (1.0004 if is_above else 1 / 1.0004)
            middle = min(max(guess, low * 1.0003), high / 1.0003)
        low, high = (middle, high) if cost(middle) > epsilon else (low, middle)
    return high


def _enough_by_divergences(epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """Noise with which steps cost `epsilon` at most by `composition`'s divergences, to a part in 100; 2^20 at most."""
    low, high = 0.05, 2.0**20
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        spent: Spent = {Gaussian(middle, sampling_rate): steps}
        low, high = (middle, high) if _own_epsilon(spent, delta) > epsilon else (low, middle)
    return high


# -- budgets ---------------------------------------------------------------------------------------------


@dataclass
class Budget:
    """An epsilon at a delta, and what has been spent of it. `spend` charges, or refuses and charges nothing.

    It holds for whoever chooses the next event by the last answer. `planned=(event, count)` fixes so many times one
    event beforehand, which the accountant composes, and others only beside all of it: see NOTE [Plans].
    """

    epsilon: float
    delta: float
    accountant: Accountant = field(default_factory=Accountant)
    planned: tuple[Event, int] | None = None

    def __post_init__(self) -> None:
        check("epsilon", self.epsilon, 0.0, math.inf)
        _check_delta(self.delta, zero=True)
        if self.planned is not None:
            self._check_plan(*self.planned)

    def _check_plan(self, event: Event, count: int) -> None:
        plan = Accountant(self.accountant.kind, self.accountant.orders).compose(event, count)
        cost = plan.epsilon(self.delta)
        if not cost <= self.epsilon * (1 + 1e-12):
            raise ValueError(
                f"The plan of {count} times {event} costs epsilon {cost:.4g} at delta {self.delta:g}, and the budget "
                f"is "
                f"{self.epsilon:g}. Plan more noise (noise_multiplier_for finds it) or fewer times."
            )
        if not self._is_planned(self.accountant.spent) and not self._is_allowed(self.accountant.spent):
            raise ValueError(
                "A plan is made before anything else is spent, and this accountant has other events already. Make the "
                "budget with its plan first."
            )

    def spent(self) -> float:
        """The epsilon spent so far; with a plan and anything beside it, of the plan as a whole."""
        return self._cost(self.accountant.spent)

    def allows(self, event: Event, count: int = 1) -> bool:
        return self._is_allowed(self.accountant.after(event, count).spent)

    def spend(self, event: Event, count: int = 1) -> None:
        """Charge the event. Call it before anything leaves."""
        if not self.allows(event, count):
            after = self._cost(self.accountant.after(event, count).spent)
            if self.planned is not None and self._is_planned(self.accountant.spent):
                raise BudgetExceededError(
                    f"{event} (times {count}) goes beyond the plan of this budget, {self.planned[1]} times "
                    f"{self.planned[0]}, of which {self.spent():.4g} of epsilon {self.epsilon:g} at delta "
                    f"{self.delta:g} is spent. What is not planned counts as if it were chosen by the answers so "
                    f"far, for which the rule is stricter: together it would be {after:.4g}. Plan more steps with "
                    "more noise from the beginning, or ask the data owner for more."
                )
            raise BudgetExceededError(
                f"{event} (times {count}) would bring epsilon from {self.spent():.4g} to {after:.4g} at delta "
                f"{self.delta:g}, and the budget is {self.epsilon:g}. {self._cure(event)}"
            )
        self.accountant.compose(event, count)

    def _is_planned(self, spent: dict[Event, int]) -> bool:
        """Whether this is the plan, or the beginning of it."""
        if self.planned is None:
            return False
        event, count = self.planned
        return not spent or (len(spent) == 1 and spent.get(event, count + 1) <= count)

    def _is_allowed(self, spent: dict[Event, int]) -> bool:
        return self._is_planned(spent) or fits(self._charges(spent), self._limit(), EVENTS_ONLY)

    def _cost(self, spent: dict[Event, int]) -> float:
        if self._is_planned(spent):
            return Accountant(self.accountant.kind, self.accountant.orders, dict(spent)).epsilon(self.delta)
        return spent_epsilon(self._charges(spent), self._limit(), EVENTS_ONLY)

    def _charges(self, spent: dict[Event, int]) -> list[Charge]:
        """What was spent, and all of the plan."""
        counts = dict(spent)
        if self.planned is not None:
            event, count = self.planned
            counts[event] = max(counts.get(event, 0), count)
        return [
            Charge("", e, e.epsilon if isinstance(e, Pure) else math.inf, 0.0, n) for e, n in counts.items()
        ]

    def _limit(self) -> Limit:
        return Limit(self.epsilon, self.delta)

    def _cure(self, event: Event) -> str:
        if isinstance(event, Gaussian) and self.delta == 0:
            return "Gaussian noise needs a budget with a delta: ask the data owner for one, or use Laplace noise."
        return "Ask for less, or ask the data owner for more."

    def to_json(self) -> str:
        events = [written(event, count) for event, count in self.accountant.spent.items()]
        record: dict[str, Any] = dict(
            format=FORMAT, kind=self.accountant.kind, epsilon=self.epsilon, delta=self.delta, spent=events
        )
        if self.planned is not None:
            record["planned"] = written(*self.planned)
        return json.dumps(record, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Budget:
        try:
            record = json.loads(text)
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']!r}, not {FORMAT}")
            accountant = Accountant(record["kind"])
            for entry in record["spent"]:
                accountant.compose(*read(entry))
            planned = read(record["planned"]) if "planned" in record else None
            return cls(record["epsilon"], record["delta"], accountant, planned)
        except (ValueError, KeyError, TypeError) as error:
            raise BudgetFileError(
                f"This is not a budget ({type(error).__name__}: {error}). It is not taken for an empty one: "
                "restore it, or have the data owner make a new one."
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it down, on the disk when this returns; where a budget is already, as what it is from now on."""
        state = json.loads(self.to_json())
        if Path(path).exists():
            BudgetAccount.open(path, _file_of_before).change(lambda _: state)
        else:
            BudgetAccount.create(path, state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Budget:
        return _budget_of(BudgetAccount.open(path, _file_of_before).state()[0])


class BudgetAccount(Account):
    """The file of a budget."""

    noun, cure = "budget", "make a new one with BudgetFile.create(path, epsilon, delta)"


def _file_of_before(data: bytes) -> dict[str, Any]:
    """What a file says that is no ledger yet, but JSON. !! BudgetFileError"""
    return dict(json.loads(Budget.from_json(data.decode("utf-8", "replace")).to_json()))


def _budget_of(state: dict[str, Any] | None) -> Budget:
    return Budget.from_json(json.dumps(state))


@dataclass(frozen=True)
class BudgetFile:
    """A budget that lives in a file and is shared by threads and processes.

    `spend` returns after the charge is on the disk: an answer sent after it is always paid for, also when the
    process is killed in between. Racing spenders are served one after the other. It is one file, a ledger as those of
    workers and trainings are, and copied with any tool. An older copy that is written over it is noticed where the file
    system has extended attributes; as a file of its own it has the budget of then.
    """

    path: Path

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        epsilon: float,
        delta: float,
        kind: Kind = "rdp",
        *,
        planned: tuple[Event, int] | None = None,
    ) -> BudgetFile:
        """A new file; an old one is not overwritten. `kind` is the accountant for what is `planned`: see `Budget`."""
        budget = Budget(epsilon, delta, Accountant(kind), planned)
        try:
            BudgetAccount.create(path, json.loads(budget.to_json()))
        except FileExistsError:
            raise FileExistsError(
                f"There is a budget at {path} already: open it with BudgetFile(path)."
            ) from None
        return cls(Path(path))

    def read(self) -> Budget:
        """The state now; charging this copy does not touch the file."""
        return _budget_of(self._account.state()[0])

    def spend(self, event: Event, count: int = 1) -> None:
        """Charge the event, durably, or raise `BudgetExceededError`."""

        def spent(state: dict[str, Any] | None) -> dict[str, Any]:
            budget = _budget_of(state)
            budget.spend(event, count)
            return dict(json.loads(budget.to_json()))

        self._account.change(spent)

    @cached_property
    def _account(self) -> BudgetAccount:
        return BudgetAccount.open(self.path, _file_of_before)


#: More often than anything happens, and still a float.
_MOST_TIMES = 1 << 62


def _check_count(count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_TIMES:
        raise ValueError(
            f"count is a whole number of times, 1 at least (and 2^62 at most), got {shown(count)}."
        )


def _check_delta(delta: float, zero: bool = False) -> None:
    if not (0 < number(delta) < 1 or (zero and number(delta) == 0)):
        raise ValueError(f"delta is a probability above 0 and below 1, got {shown(delta)}.")
