"""How updates become one: the seams for secure aggregation and for privacy, and what strategies are handed.

One duty: `Aggregation`, `Privacy` and what more they may have (protocols that others fill), and `Updates`. Imports
`records`.

NOTE [Nothing is rounded after it was clipped]
Rounding d numbers to the nearest multiples of a step makes a vector longer by up to step * sqrt(d) / 2: a client whose
update was clipped before would move the sum by more than its bound, for which the noise was made. So an aggregation that
rounds says to what (`step_for`), and updates are clipped as multiples of that, which it does not change. One that does
not say is not used with privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from syft.federated.records import FitResult, PrivateContribution


@runtime_checkable
class Aggregation(Protocol):
    """Adds up updates. One that hides the single updates from the server is a secure aggregation.

    With an attribute `leaves_updates` that is true, updates stay with the clients: it is given empty ones, and asks the
    clients for their parts of the sum itself.
    """

    def weighted_sum(self, updates: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
        """sum_k weights[k] * updates[k], of flat vectors of one length. The updates are not written into."""
        ...


@runtime_checkable
class GridAggregation(Aggregation, Protocol):
    """An aggregation that can be used with privacy: see NOTE [Nothing is rounded after it was clipped]."""

    def step_for(self, clients: int) -> float | None:
        """Numbers of updates of weight 1 are rounded to multiples of it, a power of two, in a sum of so many clients.

        None if double precision is added up as it is.
        """
        ...


class AggregationReport(Protocol):
    """The `report` that an aggregation may have after a sum, when clients can drop out in the middle of it."""

    @property
    def survivors(self) -> Sequence[str]: ...
    @property
    def weight(self) -> float:
        """The sum of the survivors' weights."""
        ...


class PlainSum:
    """The server sees every update.

    max_weight     the most examples that a client may state: the update of one that states more is not used
    """

    def __init__(self, max_weight: float = math.inf) -> None:
        if isinstance(max_weight, bool) or not isinstance(max_weight, (int, float)) or not max_weight >= 1:
            raise ValueError(f"PlainSum takes a max_weight of 1 or more examples, got {max_weight!r}.")
        self.max_weight = max_weight

    def weighted_sum(self, updates: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
        total: Tensor | None = None
        for name, update in updates.items():
            total = update * weights[name] if total is None else total.add_(update, alpha=weights[name])
        if total is None:
            raise ValueError("weighted_sum() was given no update. Add up one or more.")
        return total

    def step_for(self, clients: int) -> float | None:
        """Nothing is rounded to a grid."""
        return None


@runtime_checkable
class Privacy(Protocol):
    """Privacy of whole clients: bounds what one of them can do to a sum, and blurs the sum.

    A trainer with one weighs all clients alike, because a number of examples is as private as the examples,
    and keeps nothing that clients report. An answer that cannot be used counts as an update of zeros (see `rounds`). A
    trainer that resumes a checkpoint calls `round_done` once for
    each sum that there was or may have been before, saved or not (see `charges`); or `take_over`, if there is one. It
    calls `round_failed`, if there is one, when a round ends with an error after its updates were asked for.
    """

    def clip(self, update: Tensor) -> Tensor:
        """The update, or a shorter one. A new tensor."""
        ...

    def noise(self, total: Tensor, n_clients: int) -> Tensor:
        """The sum of `n_clients` clipped updates, with noise."""
        ...

    def round_done(self) -> None:
        """One more sum was released."""
        ...


@runtime_checkable
class KeptPrivacy(Privacy, Protocol):
    """Privacy that says what it was charged for, so that a trainer can keep exactly that on disk."""

    def charges(self, coming: int) -> dict[str, Any]:
        """What was charged, and will be for `coming` more sums: what JSON can hold."""
        ...

    def take_over(self, charges: Mapping[str, Any]) -> None:
        """Count what an earlier run was charged for. !! ValueError for what are no charges"""
        ...


@runtime_checkable
class GridPrivacy(Privacy, Protocol):
    """Privacy that can be used with an aggregation that rounds."""

    def clip_to_grid(self, update: Tensor, step: float) -> Tensor:
        """As `clip`, in multiples of `step`, a power of two; no longer than what `clip` allows."""
        ...


@runtime_checkable
class SamplingPrivacy(Privacy, Protocol):
    """Privacy that draws who takes part in a round, in secret, and counts on it.

    NOTE [Drawn in secret]
    With a `sampling_rate` below 1 each client takes part with that probability, drawn by the privacy from the operating
    system's randomness. Epsilon is smaller because nobody who sees the model knows who was in a round. So the trainer's
    reports, callbacks and errors tell neither names nor numbers nor times of such a round, a round in which nobody was
    drawn is a round like others, and sums are divided by the expected number of clients. Secure aggregations tell who
    takes part, the server and all others, and are not used with it.
    """

    @property
    def sampling_rate(self) -> float: ...
    @property
    def denominator(self) -> float:
        """What a sum is divided by."""
        ...

    def sample(self, clients: Sequence[str]) -> list[str]:
        """Who takes part in the next round."""
        ...


def draws_in_secret(privacy: Privacy | None) -> bool:
    """See NOTE [Drawn in secret]."""
    return privacy is not None and getattr(privacy, "sampling_rate", 1.0) < 1.0


@runtime_checkable
class RemotePrivacy(Privacy, Protocol):
    """Privacy for updates that stay with their clients, which clip them, and add noise, themselves."""

    def contribution(self, values: int, step: float, dtype: torch.dtype) -> PrivateContribution:
        """What each client does with an update of so many numbers, summed on a grid of `step`. !! ValueError"""
        ...


def check_private_sum(aggregation: Aggregation, privacy: Privacy) -> GridAggregation:
    """The aggregation. !! ValueError where its sum is not what the privacy counts on"""
    kind, private = type(aggregation).__name__, type(privacy).__name__
    rate = getattr(privacy, "sampling_rate", 1.0)
    if draws_in_secret(privacy) and not (
        type(aggregation) is PlainSum and isinstance(privacy, SamplingPrivacy)
    ):
        raise ValueError(
            f"{private} was made with sampling_rate={rate:g}, which holds for clients that are drawn in secret, and "
            f"{kind} tells who takes part. Use PlainSum(), or make it with sampling_rate=1.0, which holds for any "
            "choice; a privacy of your own has sample(clients) and denominator for it."
        )
    if getattr(aggregation, "leaves_updates", False) and not (
        isinstance(privacy, RemotePrivacy) and hasattr(aggregation, "contribution")
    ):
        raise ValueError(
            f"{kind} leaves updates with their clients, and {private} clips updates that are here. Use PlainSum(), or "
            "MaskedSum() over a network with ClientPrivacy or DistributedPrivacy, whose clients clip themselves."
        )
    if not isinstance(aggregation, GridAggregation):
        raise ValueError(
            f"{kind} does not say what it rounds updates to, and rounding can make them longer than {private} has "
            "clipped them. Give it a method step_for(clients) that returns the step of its grid, or None if it adds up "
            "double precision as it is; or use PlainSum() or MaskedSum()."
        )
    return aggregation


def clipping_for(aggregation: Aggregation, privacy: Privacy, clients: int) -> Callable[[Tensor], Tensor]:
    """How updates are clipped for a sum of so many, so that the aggregation does not change them afterwards.

    !! ValueError where that cannot be
    """
    step = check_private_sum(aggregation, privacy).step_for(clients)
    if step is None:
        return privacy.clip
    if not isinstance(step, float) or not math.isfinite(step) or step <= 0 or math.frexp(step)[0] != 0.5:
        raise ValueError(
            f"{type(aggregation).__name__}.step_for({clients}) returned {step!r}: it is the step of a grid, a power of "
            "two such as 2.0**-20, or None if nothing is rounded."
        )
    if not isinstance(privacy, GridPrivacy):
        raise ValueError(
            f"{type(aggregation).__name__} rounds updates to multiples of {step:.3g}, which can make them longer than "
            f"{type(privacy).__name__} has clipped them. Give that a method clip_to_grid(update, step), or use "
            "PlainSum()."
        )
    on_grid = privacy
    return lambda update: on_grid.clip_to_grid(update, step)


class Updates:
    """The updates of a round that passed all checks, as flat vectors, in the order of their clients' names."""

    def __init__(
        self,
        vectors: Mapping[str, Tensor],
        results: Mapping[str, FitResult],
        aggregation: Aggregation,
        privacy: Privacy | None = None,
        length: int | None = None,
        spread: Callable[[Tensor], Tensor] = lambda vector: vector,
    ) -> None:
        self.results = results
        self._length = next((v.numel() for v in vectors.values()), 0) if length is None else length
        self._vectors = vectors
        self._aggregation = aggregation
        self._privacy = privacy
        self._spread = spread  # from the form that is summed to an update of all numbers
        self.dropped: tuple[str, ...] = ()
        """Who got lost while a mean was made."""

    def __len__(self) -> int:
        return len(self._vectors)

    def mean(self, weighted: bool = True) -> Tensor:
        """The mean update, weighted by numbers of examples unless privacy or the strategy weighs all alike."""
        privacy = self._privacy
        vectors = self._vectors
        weights = {
            name: float(result.num_examples) if weighted and privacy is None else 1.0
            for name, result in self.results.items()
        }
        if privacy is not None and not getattr(self._aggregation, "leaves_updates", False):
            clip = clipping_for(self._aggregation, privacy, len(vectors))
            vectors = {name: clip(vector) for name, vector in vectors.items()}
        is_secret = draws_in_secret(privacy)
        if is_secret and not vectors:  # nobody was drawn
            total = torch.zeros(self._length, dtype=torch.float64)
        else:
            total = self._aggregation.weighted_sum(vectors, weights)
        self._check_sum(total)
        weight, survivors = sum(weights.values()), len(vectors)
        report: AggregationReport | None = getattr(self._aggregation, "report", None)
        if report is not None:
            weight, survivors = report.weight, len(report.survivors)
            self.dropped = tuple(sorted(set(vectors) - set(report.survivors)))
        if privacy is not None:
            total = privacy.noise(total, survivors)
            self._check_sum(total)
        if is_secret and isinstance(privacy, SamplingPrivacy):
            weight = privacy.denominator
        return self._spread(total / weight)

    def single(self) -> dict[str, Tensor]:
        """Each update by itself. !! ValueError when they are hidden"""
        if type(self._aggregation) is not PlainSum or self._privacy is not None:
            raise ValueError(hides("This strategy", self._aggregation, self._privacy))
        return dict(self._vectors)

    def stacked(self) -> Tensor:
        """All updates, one per row. !! ValueError when they are hidden"""
        return torch.stack(list(self.single().values()))

    def _check_sum(self, total: Any) -> None:
        length = self._length
        if not isinstance(total, Tensor) or total.shape != (length,):
            found = tuple(total.shape) if isinstance(total, Tensor) else type(total).__name__
            raise ValueError(
                f"{type(self._aggregation).__name__}.weighted_sum returned {found} for updates of length {length}. "
                "It has to return their weighted sum, a flat tensor of the same length."
            )
        if not bool(torch.isfinite(total).all()):
            raise ValueError(
                f"The sum of updates by {type(self._aggregation).__name__} is not finite, though every update was. "
                "Their weights or values are too large for it."
            )


def hides(who: str, aggregation: Aggregation, privacy: Privacy | None) -> str:
    """The sentence for a strategy that needs what the server may not see."""
    by = type(privacy if privacy is not None else aggregation).__name__
    return (
        f"{who} needs every client's update by itself, and {by} shows the server nothing but a sum. Use FedAvg, "
        "FedProx or an adaptive strategy with it, or leave it out."
    )
