"""One round: choose clients, hand out work, check what comes back, and let the strategy step.

One duty: what happens between two states of the server. It keeps nothing: everything random follows from a
seed, the round's number and a client's name, so a round that is repeated after a crash is the same round.
Imports `aggregation`, `engines`, `layout`, `randomness`, `records`, `strategies`.

NOTE [Who takes part is public, how it goes is not]
With privacy, what a client answers must change nothing but its clipped part of the sum. An update of NaN, an error that
its rows raise, a number of examples that cannot be: were one of them left out, the number of updates that the sum is
divided by would tell it for certain, and so would the report, and a quorum that is missed. So whoever answers is
accepted, and adds zeros where the answer cannot be used; what else the answer says is dropped. Only that a client was
not there at all (it is late, dead, busy, or does not let us in) is told, as a failure. What failed is in the log of the
process that trains, which sees the updates too: it is not to be given out with the model.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from syft.exceptions import (
    ComputeNotPermittedError,
    ConnectionRefusedByWorkerError,
    ConnectNotPermittedError,
    ExpiredTokenError,
    GetNotPermittedError,
    InvalidTokenError,
    RevokedTokenError,
    SyftError,
)
from syft.federated.aggregation import Aggregation, Privacy, Updates, check_private_sum
from syft.federated.engines.base import Engine, Task, described
from syft.federated.layout import Layout, state_fault
from syft.federated.randomness import derive_seed, seeded
from syft.federated.records import (
    ClientFailure,
    EvaluateResult,
    FailureKind,
    FitInstructions,
    FitResult,
    Metrics,
    State,
)
from syft.federated.strategies.base import Strategy

logger = logging.getLogger(__name__)

#: Failures of clients that did not take part, whatever their data.
_ABSENT: frozenset[FailureKind] = frozenset({"timeout", "busy", "died", "dropped"})
#: Errors by which a client refuses to take part, before it has looked at its data.
_REFUSALS = frozenset(
    error.__name__
    for error in (
        ComputeNotPermittedError,
        ConnectionRefusedByWorkerError,
        ConnectNotPermittedError,
        ExpiredTokenError,
        GetNotPermittedError,
        InvalidTokenError,
        RevokedTokenError,
    )
)

#: Called with each client's name and its result or failure, as they come.
Listener = Callable[[str, FitResult | EvaluateResult | ClientFailure], None]


class NotEnoughClientsError(SyftError, RuntimeError):
    """Too few clients of a round gave an update. The model is as it was before the round."""

    def __init__(self, round: int, accepted: int, why: str, failures: Sequence[ClientFailure]) -> None:
        self.round, self.accepted, self.failures = round, accepted, tuple(failures)
        told = "; ".join(map(str, self.failures)) or "none failed"
        super().__init__(
            f"Round {round} got {accepted} usable update(s), and {why}. The model is as it was before the round. "
            f"What failed: {told}. Lower min_clients, raise the deadline, ask more clients, or call fit() again, "
            "which asks a new choice of clients."
        )


@dataclass(frozen=True)
class LocalTraining:
    """How clients train."""

    epochs: int
    batch_size: int
    optimizer: str
    optimizer_args: Mapping[str, Any]
    shuffle: bool
    drop_last: bool
    deadline: float | None


@dataclass(frozen=True)
class Stepped:
    """What a round came to."""

    state: State
    accepted: tuple[str, ...]
    failures: tuple[ClientFailure, ...]
    results: Mapping[str, FitResult]


def choose(names: Sequence[str], count: int, seed: int, *purpose: str | int) -> tuple[str, ...]:
    """`count` of the names, in their order."""
    if count >= len(names):
        return tuple(names)
    drawn = torch.randperm(len(names), generator=seeded(seed, "choice", *purpose))[:count]
    return tuple(names[i] for i in sorted(drawn.tolist()))


def instructions_for(
    client: str, round: int, seed: int, state: State, training: LocalTraining, strategy: Strategy
) -> FitInstructions:
    rule = strategy.local_rule(client, training.optimizer_args)
    return FitInstructions(
        round=round,
        seed=derive_seed(seed, "client", client, round),
        state=state,
        epochs=training.epochs,
        batch_size=training.batch_size,
        optimizer=training.optimizer,
        optimizer_args=dict(training.optimizer_args),
        shuffle=training.shuffle,
        drop_last=training.drop_last,
        deadline=training.deadline,
        proximal_mu=rule.proximal_mu,
        correction=rule.correction,
    )


def run_round(
    round: int,
    tasks: Sequence[Task],
    state: State,
    layout: Layout,
    strategy: Strategy,
    engine: Engine,
    aggregation: Aggregation,
    privacy: Privacy | None,
    min_clients: int,
    training: LocalTraining,
    listener: Listener,
    charged: AbstractContextManager[None],
) -> Stepped:
    """The state after a round. `charged` is around all that uses the sum of updates: see `charges`.

    !! NotEnoughClientsError, before anything has changed
    """
    if privacy is not None:
        check_private_sum(aggregation, privacy)  # before anybody trains for nothing
    vectors: dict[str, Tensor] = {}
    stay = getattr(aggregation, "leaves_updates", False)  # with the clients, until they are summed

    most = getattr(aggregation, "max_weight", math.inf) if privacy is None else math.inf

    def check(name: str, value: Any) -> FitResult | ClientFailure:
        checked = check_fit(name, value, round, layout, len(tasks), stay)
        if isinstance(checked, ClientFailure):
            return checked
        vector, result = checked
        if result.num_examples > most:
            return ClientFailure(
                name,
                "malformed",
                f"It states {result.num_examples} examples, and {type(aggregation).__name__} has room for weights up to "
                f"{most:g}: declare a larger max_weight if that is true.",
            )
        vectors[name] = vector
        # NOTE [Who takes part is public, how it goes is not]
        return result if privacy is None else FitResult(round, {}, 1, 1)

    def excuse(name: str, failure: ClientFailure) -> FitResult | ClientFailure:
        if privacy is None or _is_absent(failure):
            return failure
        logger.warning("With privacy this counts as an update of zeros, and no report tells it: %s", failure)
        vectors[name] = torch.zeros(layout.size, dtype=layout.dtype)
        return FitResult(round, {}, 1, 1)

    found, failures = collect(engine, tasks, training.deadline, check, listener, excuse)
    too_few = (
        strategy.too_few(len(vectors)) if len(vectors) >= min_clients else f"min_clients is {min_clients}"
    )
    if too_few is not None:
        raise NotEnoughClientsError(round, len(vectors), too_few, failures)
    # In the order of the tasks, whoever was first: sums of floats depend on their order.
    names = [task.name for task in tasks if task.name in vectors]
    results: dict[str, Any] = {name: found[name] for name in names}
    updates = Updates({name: vectors[name] for name in names}, results, aggregation, privacy, layout.size)
    with charged:
        try:
            step = strategy.step(updates, training.optimizer_args)
            if privacy is not None:
                privacy.round_done()
        except BaseException:
            getattr(privacy, "round_failed", lambda: None)()
            raise
    why: Mapping[str, str] = getattr(getattr(aggregation, "report", None), "why", {})
    lost = [
        ClientFailure(n, "dropped", why.get(n, "It was lost during the aggregation."))
        for n in updates.dropped
    ]
    accepted = tuple(name for name in names if name not in updates.dropped)
    return Stepped(layout.moved(state, step), accepted, (*failures, *lost), results)


def collect(
    engine: Engine,
    tasks: Sequence[Task],
    deadline: float | None,
    check: Callable[[str, Any], Any],
    listener: Listener,
    excuse: Callable[[str, ClientFailure], Any] | None = None,
) -> tuple[dict[str, Any], list[ClientFailure]]:
    """Run tasks; what passed the check by name, and what failed, in the order of the tasks.

    excuse   told of each failure of a client's: the failure, or a result to be taken instead
    """
    outcomes: dict[str, Any] = {}
    expected = {task.name for task in tasks}
    for outcome in engine.run(tasks, deadline):
        # NB: one answer per client. An engine that repeats itself, or answers for others, is not heard.
        if outcome.name not in expected or outcome.name in outcomes:
            logger.warning("An outcome for %r was ignored: it was not asked, or has answered.", outcome.name)
            continue
        value = outcome.value
        checked = value if isinstance(value, ClientFailure) else _checked(check, outcome.name, value)
        if excuse is not None and isinstance(checked, ClientFailure):
            checked = excuse(outcome.name, checked)
        outcomes[outcome.name] = checked
        if isinstance(checked, ClientFailure):
            logger.warning("Not used: %s", checked)
        listener(outcome.name, checked)
    results, failures = {}, []
    for task in tasks:
        value = outcomes.get(task.name)
        if value is None:
            value = ClientFailure(task.name, "nothing", "The engine told nothing of it.")
        if isinstance(value, ClientFailure):
            failures.append(value)
        else:
            results[task.name] = value
    return results, failures


def _is_absent(failure: ClientFailure) -> bool:
    """Whether a client did not take part, for reasons that are not in its data."""
    return failure.kind in _ABSENT or failure.why.partition(":")[0] in _REFUSALS


def _checked(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    try:
        return check(name, value)
    except Exception as error:  # noqa: BLE001  (tensors of other people's classes may raise anything)
        return ClientFailure(name, "malformed", f"What it sent cannot be read: {described(error)}")


# -- what comes back is not believed -----------------------------------------------------------------------


def check_fit(
    name: str, value: Any, round: int, layout: Layout, clients: int, stays: bool = False
) -> tuple[Tensor, FitResult] | ClientFailure:
    """A client's update as a vector, or why it cannot be used. One that stays with the client is empty here."""

    def failed(kind: FailureKind, why: str) -> ClientFailure:
        return ClientFailure(name, kind, why)

    if value is None:
        return failed("nothing", "fit() returned nothing.")
    if not isinstance(value, FitResult):
        return failed("malformed", f"fit() returned a {type(value).__name__} and not a FitResult.")
    if value.round != round:
        return failed("stale", f"The result is of round {value.round!r} and this is round {round}.")
    if not _is_count(value.num_examples) or not _is_count(value.steps):
        return failed(
            "malformed",
            f"num_examples={value.num_examples!r} and steps={value.steps!r} have to be whole numbers of 1 or more.",
        )
    if not isinstance(value.update, dict):
        return failed("malformed", f"The update is a {type(value.update).__name__} and not a dict.")
    if fault := state_fault(value.update, {} if stays else layout.shapes) or _metrics_fault(value.metrics):
        return failed("malformed", f"In the update, {fault}.")
    if stays:
        return torch.empty(0), value
    for entry in layout.entries:
        tensor = value.update[entry.name]
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            kind = "a tensor without values" if tensor.is_meta else f"a tensor of {tensor.layout}"
            return failed("malformed", f"In the update, {entry.name!r} is {kind} and not a plain one.")
        found = tensor.dtype
        if found.is_complex != entry.dtype.is_complex:
            return failed("malformed", f"In the update, {entry.name!r} is {found} and not {entry.dtype}.")
    vector = layout.flatten(value.update)
    lowest, highest = vector.aminmax()
    largest = max(-lowest.item(), highest.item())  # NaN if there is one
    if not math.isfinite(largest):
        return failed("not finite", f"{_where(value.update, layout.dtype)} of the update is NaN or infinite.")
    if largest * value.num_examples * clients >= torch.finfo(layout.dtype).max:
        return failed("not finite", f"The update has values of {largest:.3g}, which a sum cannot hold.")
    return vector, value


def check_evaluation(name: str, value: Any, round: int) -> EvaluateResult | ClientFailure:
    """A client's figures, or why they cannot be used."""
    if value is None:
        return ClientFailure(name, "nothing", "evaluate() returned nothing.")
    if not isinstance(value, EvaluateResult) or not _is_count(value.num_examples):
        return ClientFailure(
            name, "malformed", f"evaluate() returned {type(value).__name__}, not a usable EvaluateResult."
        )
    if value.round != round:
        return ClientFailure(
            name, "stale", f"The result is of round {value.round!r} and this is round {round}."
        )
    if fault := _metrics_fault(value.metrics):
        return ClientFailure(name, "malformed", f"In the result, {fault}.")
    return value


def mean_metrics(results: Mapping[str, FitResult] | Mapping[str, EvaluateResult]) -> Metrics:
    """Means over clients, weighted by numbers of examples; each over the clients that report it.

    A value that is NaN or infinite is left out, and logged; where no client has another one, the mean is NaN.
    """
    told: dict[str, list[tuple[float, int]]] = {}
    for client, result in results.items():
        for name, value in result.metrics.items():
            values = told.setdefault(name, [])
            if math.isfinite(value):
                values.append((float(value), result.num_examples))
            else:
                logger.warning("The metric %r of %r is %s, and is left out of the mean.", name, client, value)
    return {name: _mean(values) for name, values in told.items()}


def _mean(values: Sequence[tuple[float, int]]) -> float:
    total = sum(count for _, count in values)
    # NB: weights of at most 1, so that no value of a client makes the sum overflow.
    return sum(value * (count / total) for value, count in values) if values else math.nan


def _is_count(value: Any) -> bool:
    # 2^53: beyond it a float, which weights are, no longer counts.
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << 53


def _metrics_fault(metrics: Any) -> str | None:
    if not isinstance(metrics, dict) or not all(
        isinstance(k, str) and isinstance(v, (int, float)) for k, v in metrics.items()
    ):
        return "the metrics are not a dict of numbers by name"
    for name, value in metrics.items():
        if isinstance(value, int) and abs(value) > sys.float_info.max:
            return f"the metric {name[:60]!r} is a number that no float can hold"
    return None


def _where(update: State, dtype: torch.dtype) -> str:
    """The name of a tensor with something that is not finite, once it is of the dtype that is summed."""
    for name, tensor in update.items():
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        if not bool(torch.isfinite(values.to(dtype)).all()):
            return repr(name)
    return "Something"
