"""Asynchronous rounds: the server steps as soon as some updates are there, and waits for nobody in particular.

One duty: `Buffered`, what a user sets, and `BufferedRounds`, who is at work on which model and what lies in the buffer.
Imports `aggregation`, `compression`, `engines`, `randomness`, `records`, `rounds`.

The method is FedBuff: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba 2022, "Federated Learning with Buffered
Asynchronous Aggregation", algorithm 1.

NOTE [Once in an aggregate]
A client is not asked again while its update lies in the buffer. So it is in an aggregate once at most: a client-level
privacy that bounds one update bounds the client. It gets each model once at most, too: the client and the number of
the model name its task, and everything random in it follows from them.

NOTE [What an aggregate tells]
With privacy every aggregate is charged as a round of its own, without amplification by sampling. An update was made
from a model that was released before, with its noise. So each sum is a Gaussian mechanism of sensitivity `clip_norm`
that depends on earlier outputs only, which is what composition is about. Staleness is applied before clipping.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from syft.federated.aggregation import Aggregation, Privacy, check_private_sum, draws_in_secret
from syft.federated.compression import UpdateForm
from syft.federated.engines.base import Engine, StreamingEngine, Task, TaskStream
from syft.federated.engines.threads import ThreadEngine
from syft.federated.randomness import seeded
from syft.federated.records import ClientFailure, FitResult, State
from syft.federated.rounds import (
    Intake,
    Listener,
    LocalTraining,
    NotEnoughClientsError,
    Stepped,
    step_with,
)
from syft.federated.strategies.base import Strategy

logger = logging.getLogger(__name__)

#: How long a client takes to train a model, in simulated seconds: of its name and the number of the round.
Duration = Callable[[str, int], float]


@dataclass(frozen=True)
class Buffered:
    """The `schedule` of a Trainer whose rounds do not wait: a round is done when `size` updates are there.

    size           updates in a round (K of the paper)
    concurrency    how many clients are at work at a time; as many as `size` if not given
    staleness      an update that was made from a model t rounds old counts (1 + t)^-staleness; 0: as much as a new one
    max_staleness  updates from older models are not used
    duration       for engine="serial", where time is simulated: seconds that a client takes, of its name and the round;
                   half-normal draws of the trainer's seed if not given
    """

    size: int
    concurrency: int | None = None
    staleness: float = 0.5
    max_staleness: int | None = None
    duration: Duration | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("size", self.size, 1),
            ("concurrency", self.concurrency, 1),
            ("max_staleness", self.max_staleness, 0),
        ):
            if value is None and name != "size":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(
                    f"Buffered was given {name}={value!r}: it is a whole number of {least} or more."
                )
        if (
            isinstance(self.staleness, bool)
            or not isinstance(self.staleness, (int, float))
            or not 0 <= self.staleness < math.inf
        ):
            raise ValueError(
                f"Buffered was given staleness={self.staleness!r}: it is the exponent of (1 + t)^-staleness, 0 or more."
            )
        if self.duration is not None and not callable(self.duration):
            raise TypeError(
                f"Buffered was given duration={self.duration!r}: it is a function of a client's name and a round that "
                "returns seconds."
            )

    @property
    def at_work(self) -> int:
        """How many clients are at work at a time."""
        return self.size if self.concurrency is None else self.concurrency

    def weight(self, age: int) -> float:
        """What an update counts that was made from a model so many rounds old."""
        # s(t) = 1 / sqrt(1 + t) in the paper's experiments: staleness = 0.5
        return float((1 + age) ** -self.staleness)

    def settings(self) -> dict[str, float]:
        """What a checkpoint is resumed with."""
        oldest = -1 if self.max_staleness is None else self.max_staleness
        return {
            "size": self.size,
            "concurrency": self.at_work,
            "staleness": self.staleness,
            "max_staleness": oldest,
        }


@dataclass(frozen=True)
class AtWork:
    """A client that trains: on the model of which round, and until when in simulated time."""

    client: str
    round: int
    until: float = 0.0


@dataclass(frozen=True)
class Pending:
    """What of asynchronous rounds a checkpoint has: who was at work, on what, and the simulated time."""

    settings: Mapping[str, float]
    clock: float
    at_work: tuple[AtWork, ...]
    states: Mapping[int, State]
    """The models that they train, by round: what is in an update."""


def check_schedule(
    schedule: Any,
    clients: Collection[str],
    engine: Engine,
    strategy: Strategy,
    aggregation: Aggregation,
    privacy: Privacy | None,
) -> None:
    """!! TypeError, ValueError for what asynchronous rounds cannot be used with"""
    if not isinstance(schedule, Buffered):
        raise TypeError(
            f"Trainer was given schedule={schedule!r}: it is Buffered(size=...), or None for rounds that wait for all."
        )
    if schedule.size > len(clients):
        raise ValueError(
            f"Trainer was given Buffered(size={schedule.size}), and there are {len(clients)} clients, each of which is "
            "in a round once at most. Use a smaller size."
        )
    if not isinstance(engine, StreamingEngine):
        raise ValueError(
            f"{type(engine).__name__} runs rounds that wait for all their clients. Use engine='serial', where time is "
            "simulated, or 'threads' with schedule=Buffered(...); an engine of your own has stream(deadline)."
        )
    if isinstance(engine, ThreadEngine):
        if schedule.duration is not None:
            raise ValueError(
                "Buffered was given a duration, which is for simulated time; with threads clients take the time they "
                "take. Leave it out, or use engine='serial'."
            )
        if schedule.at_work > engine.max_workers:
            raise ValueError(
                f"Buffered has {schedule.at_work} clients at work at a time, and this ThreadEngine {engine.max_workers}. "
                f"Use ThreadEngine({schedule.at_work}), or engine='threads', which is given as many."
            )
    if strategy.needs_single_updates:
        raise ValueError(
            f"{type(strategy).__name__} compares updates that were made from one model, and in asynchronous rounds they "
            "are made from several. Use FedAvg, FedProx or an adaptive strategy with schedule=Buffered(...)."
        )
    if getattr(aggregation, "leaves_updates", False):
        raise ValueError(
            "In a masked sum over a network workers take part only if all of them trained the same model, and in "
            "asynchronous rounds they have models of several rounds. Leave schedule=... or aggregation=... out."
        )
    if draws_in_secret(privacy):
        raise ValueError(
            f"{type(privacy).__name__} with a sampling_rate below 1 draws the clients of each round in secret, and in "
            "asynchronous rounds whoever is done takes part. Make it with sampling_rate=1.0, which holds for any choice."
        )


class BufferedRounds:
    """Keeps clients at work from round to round. See NOTE [Once in an aggregate]."""

    def __init__(
        self,
        schedule: Buffered,
        engine: StreamingEngine,
        deadline: float | None,
        task_of: Callable[[str, int, State], Task],
        form: UpdateForm,
        aggregation: Aggregation,
        privacy: Privacy | None,
    ) -> None:
        self.schedule = schedule
        self._engine, self._deadline = engine, deadline
        self._task_of = task_of
        self._form, self._aggregation, self._privacy = form, aggregation, privacy
        self._intake = Intake(form, aggregation, privacy, schedule.size)
        self._stream: TaskStream = engine.stream(deadline)
        self._at_work: dict[str, tuple[AtWork, State]] = {}
        self._leaving: set[str] = set()
        """Who left while it was at work. Whoever comes back under the name waits until that is over."""
        self._buffer: dict[str, tuple[FitResult, int]] = {}
        """What was taken, and of which round its model was; the updates are in the intake."""

    @property
    def clock(self) -> float | None:
        """The simulated time; None where it is real."""
        return self._stream.clock

    @property
    def clients_at_work(self) -> tuple[str, ...]:
        return tuple(sorted(self._at_work))

    def run(
        self,
        round: int,
        state: State,
        clients: Sequence[str],
        seed: int,
        attempt: int,
        strategy: Strategy,
        training: LocalTraining,
        listener: Listener,
        charged: AbstractContextManager[None],
    ) -> Stepped:
        """Wait until enough updates are there, and step. !! NotEnoughClientsError if there is nobody left to ask"""
        if self._privacy is not None:
            check_private_sum(self._aggregation, self._privacy)
        order = torch.randperm(len(clients), generator=seeded(seed, "order of asking", round, attempt))
        waiting = iter([clients[i] for i in order.tolist()])
        failures: list[ClientFailure] = []
        while len(self._buffer) < self.schedule.size:
            self._ask(waiting, round, state, seed)
            if not self._at_work:
                why = f"a round takes {self.schedule.size}, with nobody left to ask"
                raise NotEnoughClientsError(round, len(self._buffer), why, failures)
            outcome = self._stream.next()
            if outcome.name in self._leaving:
                self._leaving.discard(outcome.name)
                logger.info("What %r has trained is not used: it has left.", outcome.name)
                continue
            known = self._at_work.pop(outcome.name)
            taken = self._taken(outcome.name, outcome.value, known[0].round, round)
            listener(outcome.name, taken)
            if isinstance(taken, ClientFailure):
                logger.warning("Not used: %s", taken)
                failures.append(taken)
            else:
                self._buffer[outcome.name] = taken, known[0].round
        return self._step(round, state, strategy, training, failures, charged)

    def _ask(self, waiting: Iterator[str], round: int, state: State, seed: int) -> None:
        """Put clients to work on the newest model, as many as are to be at work."""
        while len(self._at_work) < self.schedule.at_work:
            # NB: who is done in this round has to wait for the next, so one pass over all of them is enough.
            taken = self._at_work.keys() | self._buffer.keys() | self._leaving
            name = next((n for n in waiting if n not in taken), None)
            if name is None:
                return
            until = (self._stream.clock or 0.0) + self._seconds(name, round, seed)
            self._begin(AtWork(name, round, until), state)

    def _begin(self, work: AtWork, state: State) -> None:
        self._at_work[work.client] = work, state
        self._stream.submit(self._task_of(work.client, work.round, state), work.until)

    def _seconds(self, name: str, round: int, seed: int) -> float:
        if self._stream.clock is None:
            return 0.0
        if self.schedule.duration is None:
            # Half-normal, as in the paper's simulations.
            return abs(torch.randn((), generator=seeded(seed, "duration", name, round)).item())
        found = self.schedule.duration(name, round)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < math.inf:
            raise ValueError(
                f"duration({name!r}, {round}) of Buffered returned {found!r}: it is a number of seconds, 0 or more."
            )
        return float(found)

    def _taken(self, name: str, value: Any, trained: int, round: int) -> FitResult | ClientFailure:
        oldest = self.schedule.max_staleness
        if oldest is not None and round - trained > oldest:
            why = f"It trained a model that is {round - trained} rounds old, and max_staleness is {oldest}."
            return ClientFailure(name, "stale", why)
        return self._intake.take(name, value, trained)

    def _step(
        self,
        round: int,
        state: State,
        strategy: Strategy,
        training: LocalTraining,
        failures: Sequence[ClientFailure],
        charged: AbstractContextManager[None],
    ) -> Stepped:
        names = sorted(self._buffer)
        results = {name: self._buffer[name][0] for name in names}
        ages = {name: round - self._buffer[name][1] for name in names}
        # Algorithm 1: the buffer adds up s(t) times each update, and is divided by K; here by weights without s(t).
        vectors: dict[str, Tensor] = {
            name: self._intake.vectors[name] * self.schedule.weight(ages[name]) for name in names
        }
        # NB: before the sum. An update goes into one sum and no other, also if that one fails.
        self._buffer.clear()
        self._intake.vectors.clear()
        done = step_with(
            vectors,
            results,
            round,
            state,
            self._form,
            strategy,
            self._aggregation,
            self._privacy,
            training,
            charged,
        )
        return Stepped(done.state, done.accepted, (*failures, *done.failures), results, ages)

    def discard(self, names: Collection[str]) -> None:
        """Forget what clients that leave have trained, or are about to."""
        for name in names:
            self._buffer.pop(name, None)
            self._intake.vectors.pop(name, None)
            if self._at_work.pop(name, None) is not None:
                self._leaving.add(name)

    # -- checkpoints ---------------------------------------------------------------------------------------

    def pending(self) -> Pending:
        """For a checkpoint between two rounds."""
        moving = {entry.name for entry in self._form.layout.entries}
        return Pending(
            self.schedule.settings(),
            self._stream.clock or 0.0,
            tuple(found for found, _ in self._at_work.values()),
            {
                found.round: {n: t for n, t in state.items() if n in moving}
                for found, state in self._at_work.values()
            },
        )

    def take_up(self, found: Pending, state: State, clients: Collection[str]) -> None:
        """Begin anew what was at work when a checkpoint was written; `state` has what is in no update."""
        self._stream = self._engine.stream(self._deadline, found.clock)
        states = {round: {**state, **moving} for round, moving in found.states.items()}
        for each in found.at_work:
            if each.client not in clients:
                logger.warning("%r was at work when the checkpoint was written, and has left.", each.client)
                continue
            self._begin(each, states[each.round])
