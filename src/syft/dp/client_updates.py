"""What the two privacies of whole clients share: clipped updates, charges that can be kept, checked arguments.

One duty: `clipped_to_grid`, `Counted`, and the checks. Imports `accounting`, `mpc.randomness`.

NOTE [Sums without rounding]
A clipped update is a multiple of a power of two in double precision, so fine that nothing is lost and so coarse that
sums of a million clients are exact. So the order of summation does not matter, and one client moves the sum by its own
clipped update and nothing else (Casacuberta et al. 2022). A sum in single precision loses this, by parts in 10^7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from syft.core.structs import prepared
from syft.dp.accounting import Accountant, Budget, Gaussian, Kind
from syft.dp.events import Event, read, written
from syft.mpc.randomness import Stream

#: Clipping bounds beyond these would meet the ends of single precision, and are mistakes.
LEAST_CLIP, LARGEST_CLIP = 1e-12, 1e12


def check_not_too_coarse(values: int, bound: float, step: float, cure: str) -> None:
    """!! ValueError where most of an update as long as `bound` would be rounded away"""
    if math.sqrt(values) * step > bound:
        raise ValueError(
            f"{values} numbers clipped to {bound:.3g} are mostly below the grid of 2^{math.frexp(step)[1] - 1}, on which "
            f"they are summed, and would be rounded away: {cure}."
        )


def clipped_to_grid(update: Tensor, bound: float, step: float) -> Tensor:
    """`update` scaled down to an L2 norm of at most `bound`, as multiples of `step`, in double precision.

    An update with a value that is not finite becomes zero: whatever else were done with it would tell.
    """
    values = update.detach().to(device="cpu", dtype=torch.float64)
    norm = float(torch.linalg.vector_norm(values))
    if not math.isfinite(norm):
        # NB: squares can overflow where the values do not.
        if not bool(values.isfinite().all()):
            return torch.zeros_like(values)
        values = values / values.abs().max()
        norm = float(torch.linalg.vector_norm(values))
        values, norm = values * (bound / norm), bound
    # A part in 10^9 less than the bound pays for the rounding of the norm itself.
    most = bound * (1 - 1e-9)
    factor = min(1.0, most / norm) if norm > 0 else 1.0
    for _ in range(8):
        on_grid = (values * (factor / step)).round_()
        length = float(torch.linalg.vector_norm(on_grid)) * step
        if length <= most:
            return on_grid * step
        factor *= most / length * (1 - 1e-9)
    return (values * (factor / step)).trunc_() * step  # towards zero: never longer than what was rounded


# -- charges ---------------------------------------------------------------------------------------------


class _Charges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a `Counted` says of itself as plain data."""

    rounds: int
    spent: list[dict[str, Any]] = []
    """As `events.written` writes them."""
    clip_norm: float | None = None
    """Where the clipping bound had come to, if it moves."""
    gaussians: list[tuple[float, float, int]] = []
    """Of files of before: (noise multiplier, sampling rate, how many times)"""

    def events(self) -> list[tuple[Event, int]]:
        """!! KeyError, TypeError, ValueError for what are no events"""
        before = [(Gaussian(noise, rate), count) for noise, rate, count in self.gaussians]
        return [*before, *map(read, self.spent)]


class Counted:
    """An accountant, with or without a budget, and what this object itself was charged for."""

    def __init__(self, budget: Budget | None, accountant: Kind | None, stream: Stream | None = None) -> None:
        """!! TypeError, ValueError"""
        self._stream = Stream() if stream is None else stream
        for name, value, kind in (("budget", budget, Budget), ("stream", self._stream, Stream)):
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"{type(self).__name__} was given {name}={value!r}: it is a {kind.__name__}, or None."
                )
        if budget is not None and accountant not in (None, budget.accountant.kind):
            raise ValueError(
                f"{type(self).__name__} was given accountant={accountant!r} and a budget whose accountant is "
                f"{budget.accountant.kind!r}. Leave accountant out: a budget counts by its own."
            )
        self.budget = budget
        self.accountant = (
            budget.accountant
            if budget is not None
            else Accountant("rdp" if accountant is None else accountant)
        )
        self.rounds = 0
        """How many sums were released, or may have been: those of earlier runs that were taken over included."""
        # NB: a budget's accountant may have charges of others, which are not this object's to keep.
        self._charged: dict[Gaussian, int] = {}
        self._dtype = torch.float64
        """Of the updates as they came, and of the sum as it leaves."""

    def epsilon(self, delta: float | None = None) -> float:
        """What the rounds so far cost any one client: of this object, and of runs that it took over."""
        if delta is None:
            if self.budget is None:
                raise ValueError(
                    "epsilon() needs a delta: well below one over the number of clients, say 1e-5."
                )
            delta = self.budget.delta
        return self.accountant.epsilon(delta)

    def charges(self, coming: int = 0) -> dict[str, Any]:
        """What this object was charged for, and will be for `coming` more sums, as plain data to be kept on disk."""
        spent = dict(self._charged)
        if coming:
            event = self._coming()
            spent[event] = spent.get(event, 0) + coming
        return {
            "rounds": self.rounds + coming,
            "spent": [written(event, count) for event, count in spent.items()],
            "clip_norm": self._moving_clip(),
        }

    def take_over(self, charges: Mapping[str, Any]) -> None:
        """Count what an earlier run was charged for, also if a budget has no room for it: it was spent. !! ValueError"""
        try:
            found = msgspec.convert(charges, prepared(_Charges))
            spent = Accountant()
            for event, count in found.events():
                spent.compose(event, count)
            if found.rounds < 0:
                raise ValueError(f"{found.rounds} rounds")
            if found.clip_norm is not None:
                check_clip_norm(found.clip_norm)
        except (ValueError, TypeError, KeyError) as error:  # msgspec's errors are ValueErrors
            raise ValueError(
                f"These are not the charges of a private training ({error}). They do not count as nothing spent: "
                "restore the file that they come from."
            ) from error
        for event, count in spent.spent.items():
            self.accountant.compose(event, count)
            if isinstance(event, Gaussian):
                self._charged[event] = self._charged.get(event, 0) + count
        self.rounds += found.rounds
        if found.clip_norm is not None:
            self._set_moving_clip(found.clip_norm)

    def _charge(self, event: Gaussian) -> None:
        if self.budget is None:
            self.accountant.compose(event)
        else:
            self.budget.spend(event)
        self._charged[event] = self._charged.get(event, 0) + 1

    def _coming(self) -> Gaussian:
        """What the next sum will be charged as, or more."""
        raise NotImplementedError

    def _moving_clip(self) -> float | None:
        """The clipping bound, if it moves from round to round."""
        return None

    def _set_moving_clip(self, clip_norm: float) -> None:
        """Go on from a clipping bound that an earlier run had come to."""


# -- arguments -------------------------------------------------------------------------------------------


def check_positive(**values: Any) -> None:
    """!! ValueError"""
    for name, value in values.items():
        if not (is_number(value) and value > 0):
            raise ValueError(f"{name} is a finite number above 0, got {value!r}.")


def check_clip_norm(value: Any) -> None:
    """!! ValueError"""
    if not (is_number(value) and LEAST_CLIP <= value <= LARGEST_CLIP):
        raise ValueError(
            f"clip_norm is a number from {LEAST_CLIP:g} to {LARGEST_CLIP:g}, about the length of an update, got "
            f"{value!r}."
        )


def check_clients(value: Any) -> None:
    """!! ValueError"""
    if not is_whole(value) or value < 1:
        raise ValueError(f"clients is a whole number of clients, 1 at least, got {value!r}.")


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
