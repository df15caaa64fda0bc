"""What has been spent, what is left, and the refusal to spend more.

One duty: composition. The mathematics is `dp-accounting`'s (the extra `dp`), as Rényi divergences ("rdp") or
privacy loss distributions ("pld": tighter, slower); here are the events as plain records, budgets, and their
files. Neighbours differ by one row more or less. Imports `exceptions`.

NOTE [Orders for small epsilons]
From Rényi divergences of orders up to a there is no epsilon much below log(1/delta) / a, whatever the noise.
`dp-accounting`'s orders end at 1024, some 0.01. Beyond them are powers of two, where the divergence of
Gaussian noise on a Poisson sample is a sum with a + 1 terms (Mironov, Talwar and Zhang 2019, section 3.3).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from syft.exceptions import BudgetExceededError, BudgetFileError, DependencyError

Kind = Literal["rdp", "pld"]

FORMAT = 1  # of budget files

#: Less noise than this is none; its square would be 0.
LEAST_NOISE = 1e-12

#: See NOTE [Orders for small epsilons].
FAR_ORDERS = tuple(1 << bits for bits in range(11, 18))


# -- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise of `noise_multiplier` sensitivities, on a Poisson sample of the rows (1.0: on all)."""

    noise_multiplier: float
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        _check("noise_multiplier", self.noise_multiplier, LEAST_NOISE, math.inf)
        _check("sampling_rate", self.sampling_rate, 0.0, 1.0)


@dataclass(frozen=True)
class Pure:
    """Anything that is epsilon-DP by itself: `laplace`, `exponential`, `noisy_max`, histograms, quantiles, means."""

    epsilon: float

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, 0.0, math.inf)


Event = Gaussian | Pure

EVENTS: dict[str, type[Gaussian] | type[Pure]] = {"gaussian": Gaussian, "pure": Pure}
_NAMES = {record: name for name, record in EVENTS.items()}


def _check(name: str, value: float, above: float, most: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and above < value <= most):
        limit = "" if math.isinf(most) else f", {most:g} at most"
        raise ValueError(f"{name} is a finite number above {above:g}{limit}, got {value!r}.")


def _dp_accounting() -> Any:
    try:
        for part in ("rdp", "pld"):
            importlib.import_module(f"dp_accounting.{part}")
        found = importlib.import_module("dp_accounting")
    except ImportError:
        raise DependencyError("dp_accounting", "'resyft[dp]'") from None
    logging.getLogger("absl").addFilter(_is_news)
    return found


def _is_news(record: logging.LogRecord) -> bool:
    """Not that an order was left out because its sum did not converge: there are 150 others."""
    return not str(record.msg).startswith("_compute_log_a_frac failed to converge")


# -- composition -----------------------------------------------------------------------------------------


@dataclass
class Accountant:
    """Composes events; `epsilon(delta)` says what they cost together. Adaptive choices are allowed for."""

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
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"count is a whole number of times, 1 at least, got {count!r}.")
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
        _dp_accounting()
        if self.kind == "rdp":
            accounts = importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant")
            return min(basic, float(accounts.compute_epsilon(*self._divergences(), delta)[0]))
        return min(basic, float(self._distribution().get_epsilon(delta)))

    def delta(self, epsilon: float) -> float:
        """The least delta known to hold with `epsilon`."""
        if not self.spent:
            return 0.0
        if self.kind == "rdp":
            _dp_accounting()
            accounts = importlib.import_module("dp_accounting.rdp.rdp_privacy_accountant")
            return float(accounts.compute_delta(*self._divergences(), epsilon)[0])
        return float(self._distribution().get_delta(epsilon))

    def after(self, event: Event, count: int = 1) -> Accountant:
        """A copy with `event` composed."""
        return Accountant(self.kind, self.orders, dict(self.spent)).compose(event, count)

    def _divergences(self) -> tuple[Any, Any]:
        """(orders, total divergence at each): they add up (Mironov 2017, proposition 1)."""
        orders = None if self.orders is None else tuple(self.orders)
        each = [(_divergence_of(event, orders), count) for event, count in self.spent.items()]
        return each[0][0][0], sum(count * divergence for (_orders, divergence), count in each)

    def _distribution(self) -> Any:
        dp = _dp_accounting()
        accountant = dp.pld.PLDAccountant()
        for event, count in self.spent.items():
            accountant.compose(_translated(dp, event, "pld"), count)
        return accountant


@lru_cache(maxsize=256)
def _divergence_of(event: Event, orders: tuple[float, ...] | None) -> tuple[Any, Any]:
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(orders).compose(_translated(dp, event, "rdp"))
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
    terms = torch.arange(order + 1, dtype=torch.float64)
    choices = math.lgamma(order + 1) - torch.lgamma(terms + 1) - torch.lgamma(order - terms + 1)
    logs = (
        choices + terms * math.log(event.sampling_rate) + (order - terms) * math.log1p(-event.sampling_rate)
    )
    logs += (terms * terms - terms) / (2.0 * event.noise_multiplier**2)
    # The terms are rounded: parts in 10^16 of up to 2^17 log(2^17), which is paid for.
    return (float(torch.logsumexp(logs, 0)) + 1e-8) / (order - 1)


def _translated(dp: Any, event: Event, kind: Kind) -> Any:
    if isinstance(event, Gaussian):
        noise = dp.GaussianDpEvent(event.noise_multiplier)
        return noise if event.sampling_rate == 1.0 else dp.PoissonSampledDpEvent(event.sampling_rate, noise)
    if kind == "rdp":
        # epsilon-DP is epsilon^2/2-zCDP (Bun and Steinke 2016, proposition 1.4).
        return dp.ZCDpEvent(event.epsilon**2 / 2.0)
    # Randomised response dominates everything epsilon-DP (Kairouz et al. 2015), and is what discrete Laplace
    # noise is for a sensitivity of one step: its loss is epsilon or -epsilon.
    return dp.dp_event.DiscreteLaplaceDpEvent(event.epsilon, 1)


def noise_multiplier_for(
    epsilon: float, delta: float, *, sampling_rate: float = 1.0, steps: int = 1, kind: Kind = "rdp"
) -> float:
    """The least noise multiplier (to 1 part in 1000, rounded up) with which `steps` steps cost at most `epsilon`."""
    _check("epsilon", epsilon, 0.0, math.inf)
    _check_delta(delta)

    def cost(noise: float) -> float:
        return Accountant(kind).compose(Gaussian(noise, sampling_rate), steps).epsilon(delta)

    low, high = 0.05, 1.0
    while cost(high) > epsilon:
        low, high = high, high * 2
        if high > 2**20:
            raise ValueError(
                f"The accountant ({kind}) finds no noise with which {steps} steps of rate {sampling_rate} cost epsilon "
                f"{epsilon} at delta {delta}; there may be one that it cannot show to be enough. Ask for a larger "
                "epsilon or delta, or for fewer steps."
            )
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) > epsilon else (low, middle)
    return high


# -- budgets ---------------------------------------------------------------------------------------------


@dataclass
class Budget:
    """An epsilon at a delta, and what has been spent of it. `spend` charges, or refuses and charges nothing."""

    epsilon: float
    delta: float
    accountant: Accountant = field(default_factory=Accountant)

    def __post_init__(self) -> None:
        _check("epsilon", self.epsilon, 0.0, math.inf)
        _check_delta(self.delta, zero=True)

    def spent(self) -> float:
        """The epsilon spent so far."""
        return self.accountant.epsilon(self.delta)

    def allows(self, event: Event, count: int = 1) -> bool:
        return self.accountant.after(event, count).epsilon(self.delta) <= self.epsilon * (1 + 1e-12)

    def spend(self, event: Event, count: int = 1) -> None:
        """Charge the event. Call it before anything leaves."""
        if not self.allows(event, count):
            raise BudgetExceededError(
                f"{event} (times {count}) would bring epsilon from {self.spent():.4g} to "
                f"{self.accountant.after(event, count).epsilon(self.delta):.4g} at delta {self.delta:g}, and the "
                f"budget is {self.epsilon:g}. Ask for less, or ask the data owner for more."
            )
        self.accountant.compose(event, count)

    def to_json(self) -> str:
        events = [dict(asdict(e), event=_NAMES[type(e)], count=n) for e, n in self.accountant.spent.items()]
        record = dict(
            format=FORMAT, kind=self.accountant.kind, epsilon=self.epsilon, delta=self.delta, spent=events
        )
        return json.dumps(record, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Budget:
        try:
            record = json.loads(text)
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']!r}, not {FORMAT}")
            accountant = Accountant(record["kind"])
            for entry in record["spent"]:
                arguments = {key: value for key, value in entry.items() if key not in ("event", "count")}
                accountant.compose(EVENTS[entry["event"]](**arguments), entry["count"])
            return cls(record["epsilon"], record["delta"], accountant)
        except (ValueError, KeyError, TypeError) as error:
            raise BudgetFileError(
                f"This is not a budget ({type(error).__name__}: {error}). It is not taken for an empty one: "
                "restore it, or have the data owner make a new one."
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole or not at all, and onto the disk before this returns."""
        target = Path(path)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
        _sync_folder(target.parent)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Budget:
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class BudgetFile:
    """A budget that lives in a file and is shared by threads and processes.

    `spend` returns after the charge is on the disk: an answer sent after it is always paid for, also when the
    process is killed in between. Racing spenders are served one after the other.
    """

    path: Path

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], epsilon: float, delta: float, kind: Kind = "rdp"
    ) -> BudgetFile:
        """A new file; an old one is not overwritten."""
        file = cls(Path(path))
        with file._locked():
            if file.path.exists():
                raise FileExistsError(
                    f"There is a budget at {file.path} already: open it with BudgetFile(path)."
                )
            Budget(epsilon, delta, Accountant(kind)).save(file.path)
        return file

    def read(self) -> Budget:
        """The state now; charging this copy does not touch the file."""
        return Budget.load(self.path)

    def spend(self, event: Event, count: int = 1) -> None:
        """Charge the event, durably, or raise `BudgetExceededError`."""
        with self._locked():
            budget = Budget.load(self.path)
            budget.spend(event, count)
            budget.save(self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A file of its own: the budget itself is replaced by every write. The system drops the lock of a dead process.
        path = self.path.with_name(f"{self.path.name}.lock")
        with open(path, "a+b") as lock:
            if sys.platform == "win32":
                import msvcrt

                lock.seek(0)
                msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
                try:
                    yield
                finally:
                    lock.seek(0)
                    msvcrt.locking(lock.fileno(), msvcrt.LK_UNLCK, 1)
            else:
                import fcntl

                fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
                yield


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _check_delta(delta: float, zero: bool = False) -> None:
    number = isinstance(delta, (int, float)) and not isinstance(delta, bool)
    if not number or not (0 < delta < 1 or (zero and delta == 0)):
        raise ValueError(f"delta is a probability above 0 and below 1, got {delta!r}.")
