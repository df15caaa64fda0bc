"""One round: choose clients, hand out work, check what comes back, and let the strategy step.

One duty: what happens between two states of the server. It keeps nothing: everything random follows from a
seed, the round's number and a client's name, so a round that is repeated after a crash is the same round.
Imports `aggregation`, `compression`, `engines`, `layout`, `randomness`, `records`, `strategies`.

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
from dataclasses import dataclass, field, replace
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
from syft.federated.aggregation import Aggregation, Privacy, Updates, check_private_sum, draws_in_secret
from syft.federated.compression import UpdateForm
from syft.federated.engines.base import Engine, Task, described
from syft.federated.layout import state_fault
from syft.federated.randomness import derive_seed, seeded
from syft.federated.records import (
    ClientFailure,
    CompressionRule,
    EvaluateResult,
    FailureKind,
    FitInstructions,
    FitResult,
    LocalLayers,
    Metrics,
    PrivateContribution,
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
        super().__init__(
            f"Round {round} got {accepted} usable update(s), and {why}. The model is as it was before the round. "
            f"What failed: {_told(self.failures)}. {self._cure()}"
        )

    def _cure(self) -> str:
        if not self.accepted and self.failures and all(one.kind == "error" for one in self.failures):
            return "No client could train: mend what the errors say, and call fit() again."
        return (
            "Lower min_clients, raise the deadline, ask more clients, or call fit() again, which asks a new choice of "
            "clients."
        )


def _told(failures: Sequence[ClientFailure]) -> str:
    """Each reason once, with those who have it: `north, south (error): ...`."""
    alike: dict[tuple[str, str], list[ClientFailure]] = {}
    for one in failures:
        alike.setdefault((one.kind, one.why.replace(repr(one.client), "")), []).append(one)
    reasons = (
        f"{', '.join(one.client for one in same)} ({same[0].kind}): {same[0].why.rstrip('. ')}"
        for same in alike.values()
    )
    return "; ".join(reasons) or "none failed"


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
    partial: bool = False
    compression: CompressionRule | None = None


@dataclass(frozen=True)
class Stepped:
    """What a round came to."""

    state: State
    accepted: tuple[str, ...]
    failures: tuple[ClientFailure, ...]
    results: Mapping[str, FitResult]
    staleness: Mapping[str, int] = field(default_factory=dict)
    """In asynchronous rounds: how many models newer than the one that a client trained there were, by client."""


def choose(names: Sequence[str], count: int, seed: int, *purpose: str | int) -> tuple[str, ...]:
    """`count` of the names, in their order."""
    if count >= len(names):
        return tuple(names)
    drawn = torch.randperm(len(names), generator=seeded(seed, "choice", *purpose))[:count]
    return tuple(names[i] for i in sorted(drawn.tolist()))


def instructions_for(
    client: str,
    round: int,
    seed: int,
    state: State,
    training: LocalTraining,
    strategy: Strategy,
    local: LocalLayers | None = None,
    private: PrivateContribution | None = None,
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
        partial=training.partial,
        proximal_mu=rule.proximal_mu,
        correction=rule.correction,
        local=local,
        private=private,
        compression=training.compression,
    )


def run_round(
    round: int,
    tasks: Sequence[Task],
    state: State,
    form: UpdateForm,
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
    intake = Intake(form, aggregation, privacy, len(tasks))
    found, failures = collect(
        engine, tasks, training.deadline, lambda name, value: intake.take(name, value, round), listener
    )
    vectors = intake.vectors
    too_few = (
        strategy.too_few(len(vectors)) if len(vectors) >= min_clients else f"min_clients is {min_clients}"
    )
    # NB: how many were drawn in secret is not told by an error either.
    if too_few is not None and not draws_in_secret(privacy):
        raise NotEnoughClientsError(round, len(vectors), too_few, failures)
    # In the order of the tasks, whoever was first: sums of floats depend on their order.
    names = [task.name for task in tasks if task.name in vectors]
    done = step_with(
        {name: vectors[name] for name in names},
        {name: found[name] for name in names},
        round,
        state,
        form,
        strategy,
        aggregation,
        privacy,
        training,
        charged,
    )
    return replace(done, failures=(*failures, *done.failures))


class Intake:
    """Takes the answers of clients: checks them, and keeps updates as vectors."""

    def __init__(
        self, form: UpdateForm, aggregation: Aggregation, privacy: Privacy | None, clients: int
    ) -> None:
        self._form, self._aggregation, self._privacy, self._clients = form, aggregation, privacy, clients
        #: Whether updates are with the clients until they are summed.
        self._stay = getattr(aggregation, "leaves_updates", False)
        self.vectors: dict[str, Tensor] = {}

    def take(self, name: str, value: Any, round: int) -> FitResult | ClientFailure:
        """What is kept of an answer beside its update, or why it is not used."""
        taken = _checked(lambda name, value: self._check(name, value, round), name, value)
        return self._excused(name, taken, round) if isinstance(taken, ClientFailure) else taken

    def _check(self, name: str, value: Any, round: int) -> FitResult | ClientFailure:
        checked = check_fit(name, value, round, self._form, self._clients, self._stay)
        if isinstance(checked, ClientFailure):
            return checked
        vector, result = checked
        most = math.inf if self._privacy is not None else getattr(self._aggregation, "max_weight", math.inf)
        if result.num_examples > most:
            return ClientFailure(
                name,
                "malformed",
                f"It states {result.num_examples} examples, and {type(self._aggregation).__name__} has room for weights "
                f"up to {most:g}: declare a larger max_weight if that is true.",
            )
        self.vectors[name] = vector
        # NOTE [Who takes part is public, how it goes is not]
        return result if self._privacy is None else FitResult(round, {}, 1, 1)

    def _excused(self, name: str, failure: ClientFailure, round: int) -> FitResult | ClientFailure:
        # NB: a client that keeps its updates says of a training that failed what it likes, and is not in the sum.
        if self._privacy is None or self._stay or _is_absent(failure):
            return failure
        logger.warning("With privacy this counts as an update of zeros, and no report tells it: %s", failure)
        self.vectors[name] = torch.zeros(self._form.length, dtype=self._form.layout.dtype)
        return FitResult(round, {}, 1, 1)


def step_with(
    vectors: Mapping[str, Tensor],
    results: Mapping[str, FitResult],
    round: int,
    state: State,
    form: UpdateForm,
    strategy: Strategy,
    aggregation: Aggregation,
    privacy: Privacy | None,
    training: LocalTraining,
    charged: AbstractContextManager[None],
) -> Stepped:
    """Sum updates, and let the strategy step."""
    updates = Updates(
        vectors, results, aggregation, privacy, form.length, lambda total: form.spread(total, round)
    )
    with charged:
        try:
            step = strategy.step(updates, training.optimizer_args)
            if privacy is not None:
                privacy.round_done()
        except BaseException:
            getattr(privacy, "round_failed", lambda: None)()
            raise
    why: Mapping[str, str] = getattr(getattr(aggregation, "report", None), "why", {})
    lost = tuple(
        ClientFailure(n, "dropped", why.get(n, "It was lost during the aggregation."))
        for n in updates.dropped
    )
    accepted = tuple(name for name in vectors if name not in updates.dropped)
    return Stepped(form.layout.moved(state, step), accepted, lost, results)


def collect(
    engine: Engine,
    tasks: Sequence[Task],
    deadline: float | None,
    take: Callable[[str, Any], Any],
    listener: Listener,
) -> tuple[dict[str, Any], list[ClientFailure]]:
    """Run tasks; what was taken by name, and what failed, in the order of the tasks.

    take   a client's answer, or its failure, as it is used: a result or a failure
    """
    outcomes: dict[str, Any] = {}
    expected = {task.name for task in tasks}
    for outcome in engine.run(tasks, deadline) if tasks else ():
        # NB: one answer per client. An engine that repeats itself, or answers for others, is not heard.
        if outcome.name not in expected or outcome.name in outcomes:
            logger.warning("An outcome for %r was ignored: it was not asked, or has answered.", outcome.name)
            continue
        checked = take(outcome.name, outcome.value)
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
    if isinstance(value, ClientFailure):
        return value
    try:
        return check(name, value)
    except Exception as error:  # noqa: BLE001  (tensors of other people's classes may raise anything)
        return ClientFailure(name, "malformed", f"What it sent cannot be read: {described(error)}")


# -- what comes back is not believed -----------------------------------------------------------------------


def check_fit(
    name: str, value: Any, round: int, form: UpdateForm, clients: int, stays: bool = False
) -> tuple[Tensor, FitResult] | ClientFailure:
    """A client's update as a vector, or why it cannot be used. One that stays with the client is empty here."""

    def failed(kind: FailureKind, why: str) -> ClientFailure:
        return ClientFailure(name, kind, why)

    layout = form.layout
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
    is_elsewhere = stays or value.compressed is not None
    if fault := state_fault(value.update, {} if is_elsewhere else layout.shapes) or _metrics_fault(
        value.metrics
    ):
        return failed("malformed", f"In the update, {fault}.")
    if stays:
        return torch.empty(0), value
    if value.compressed is not None:
        try:
            vector = form.of_compressed(value.compressed, round)
        except ValueError as error:
            return failed("malformed", f"The update cannot be read: {error}.")
        return _finite(name, value, vector, clients, "The compressed update")
    for entry in layout.entries:
        tensor = value.update[entry.name]
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            kind = "a tensor without values" if tensor.is_meta else f"a tensor of {tensor.layout}"
            return failed("malformed", f"In the update, {entry.name!r} is {kind} and not a plain one.")
        found = tensor.dtype
        if found.is_complex != entry.dtype.is_complex:
            return failed("malformed", f"In the update, {entry.name!r} is {found} and not {entry.dtype}.")
    vector = layout.flatten(value.update)
    if not bool(torch.isfinite(vector).all()):
        return failed("not finite", f"{_where(value.update, layout.dtype)} of the update is NaN or infinite.")
    return _finite(name, value, form.of_plain(vector, round), clients, "The update")


def _finite(
    name: str, value: FitResult, vector: Tensor, clients: int, what: str
) -> tuple[Tensor, FitResult] | ClientFailure:
    """The update, or why it cannot be summed."""
    lowest, highest = vector.aminmax()
    largest = max(-lowest.item(), highest.item())  # NaN if there is one
    if not math.isfinite(largest):
        return ClientFailure(name, "not finite", f"{what} has something that is NaN or infinite.")
    if largest * value.num_examples * clients >= torch.finfo(vector.dtype).max:
        return ClientFailure(
            name, "not finite", f"{what} has values of {largest:.3g}, which a sum cannot hold."
        )
    return vector, value


def take_evaluation(name: str, value: Any, round: int) -> EvaluateResult | ClientFailure:
    """A client's figures, or why they cannot be used."""
    return _checked(lambda name, value: _check_evaluation(name, value, round), name, value)


def _check_evaluation(name: str, value: Any, round: int) -> EvaluateResult | ClientFailure:
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
