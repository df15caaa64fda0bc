"""`Trainer`: training in rounds, where the data is.

One duty: the loop over rounds, and what a user sets. Imports the rest of the room.

    trainer = Trainer(model, nn.CrossEntropyLoss(), clients, strategy="fedprox", epochs=2, evaluate=test_set)
    history = trainer.fit(rounds=20)
"""

from __future__ import annotations

import copy
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from syft.federated.aggregation import Aggregation, PlainSum, Privacy, SamplingPrivacy, draws_in_secret
from syft.federated.buffered import Buffered, BufferedRounds, check_schedule
from syft.federated.callbacks import Callback, ProgressBar
from syft.federated.charges import Charges
from syft.federated.clients import Client, Work, make_clients
from syft.federated.compression import Compression, UpdateForm
from syft.federated.engines import Engine, StreamingEngine, Task
from syft.federated.history import History, RoundReport
from syft.federated.layout import Layout, read_state, write_state
from syft.federated.local_training import Loss, Metric, make_optimizer, optimizer_name
from syft.federated.personal import local_names
from syft.federated.records import (
    ClientFailure,
    EvaluateResult,
    FitResult,
    LocalLayers,
    Metrics,
    PrivateContribution,
    State,
)
from syft.federated.rounds import (
    LocalTraining,
    NotEnoughClientsError,
    Stepped,
    choose,
    instructions_for,
    mean_metrics,
    run_round,
)
from syft.federated.secure_aggregation.over_network import private_contribution
from syft.federated.strategies.base import Strategy, make_strategy
from syft.federated.trainer_checkpoints import resume, save
from syft.federated.trainer_evaluation import ClientsEvaluation, evaluate, evaluate_clients
from syft.federated.trainer_membership import add_clients, aggregation_for, remove_clients, seat
from syft.federated.trainer_requests import round_to_ask
from syft.federated.trainer_seams import (
    check_compression,
    check_own_settings,
    check_seams,
    checked_quorum,
    engine_for,
)
from syft.federated.trainer_settings import (
    check_callbacks,
    check_collate,
    check_count,
    check_deadline,
    check_flags,
    check_seed,
    check_work,
    checked_arguments,
    checked_client_settings,
    count_per_round,
)
from syft.messaging.message import RoundMessage

logger = logging.getLogger(__name__)

OptimizerArgs = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]


class Trainer:
    """Trains a model in rounds on the data of many clients.

    model             an nn.Module, trained in place: after each round it holds the new weights
    loss              loss(output, target), a mean over the batch
    clients           a FederatedDataset; a dict name -> torch Dataset (or an object with fit and evaluate); or workers,
                      of this process or on a network, with `dataset_key`
    strategy          a name (`syft.federated.strategies.STRATEGIES`) or an object
    engine            a name (`syft.federated.engines.ENGINES`) or an object. Without one, data sets of this process are
                      trained on one after the other, since torch uses all processors for each; threads are used where
                      there is something to wait for: a deadline, or clients of your own
    epochs, batch_size, optimizer, optimizer_args, shuffle, drop_last
                      how clients train. `optimizer` is a name ("sgd") or a class of torch.optim.
                      `optimizer_args` may be a function of the round, for a schedule
    fraction          the part of the clients that a round asks, drawn anew each time; or
    clients_per_round their number
    min_clients       a round with fewer usable updates is an error, and leaves the model as it was
    deadline          seconds that a client may take; who is later is not waited for
    aggregation       how updates are added up: the server sees each (PlainSum), or a secure aggregation
    privacy           bounds and blurs what a client contributes; see `aggregation.Privacy`. One with a sampling_rate
                      below 1 draws the clients of each round itself, in secret
    evaluate          a Dataset, or a function model -> dict of figures; run here after every `evaluate_every` rounds
    metrics           name -> function(output, target), means over a batch, beside the loss
    callbacks         see `callbacks`; `progress=True` adds bars
    checkpoint        a file, written after every `checkpoint_every` rounds and at the end; see `resume`. With `privacy`,
                      what the rounds cost is kept beside it, in a file of the same name and `.privacy`. Without a
                      checkpoint, the epsilon that `privacy` tells is that of this process
    seed              of everything random; the same seed gives the same weights on every engine
    user              in whose name workers are asked for private data
    local             layers that stay with each client from round to round, and are its own: names ("classifier"),
                      patterns ("*.lora_B.*") and classes (nn.BatchNorm1d); see `personal`
    partial           clients that are slow send what they have trained when 0.8 of the deadline is over
    client_settings   epochs, batch_size and optimizer_args of single clients, by name, instead of the trainer's
    schedule          `Buffered(...)` for asynchronous rounds; without it a round waits for the clients that it asks
    compression       `Quantize(bits)`, `TopK(fraction)` or `RandomK(fraction)`: updates in fewer bytes
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        clients: Any,
        strategy: str | Strategy = "fedavg",
        engine: str | Engine | None = None,
        *,
        dataset_key: str | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        optimizer: str | type[torch.optim.Optimizer] = "SGD",
        optimizer_args: OptimizerArgs | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        fraction: float | None = None,
        clients_per_round: int | None = None,
        min_clients: int = 1,
        deadline: float | None = None,
        aggregation: Aggregation | None = None,
        privacy: Privacy | None = None,
        evaluate: Any = None,
        evaluate_every: int = 1,
        metrics: Mapping[str, Metric] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 1,
        seed: int | None = None,
        user: str | None = None,
        local: Sequence[str | type[nn.Module]] = (),
        partial: bool = False,
        client_settings: Mapping[str, Mapping[str, Any]] | None = None,
        schedule: Buffered | None = None,
        compression: Compression | None = None,
    ) -> None:
        check_work(model, loss, metrics)
        check_deadline(deadline)
        check_callbacks(callbacks)
        check_seed(seed)
        check_collate(collate_fn)
        check_flags(shuffle=shuffle, drop_last=drop_last, partial=partial, progress=progress)
        own = local_names(model, local) if local else ()
        self._local = LocalLayers(secrets.token_hex(16), own) if own else None
        self.layout = Layout.of(model, own)
        self.model = model
        # Clients copy this one, which nobody trains: what a module keeps beside its state does not wander.
        with torch.inference_mode(False):
            template = copy.deepcopy(model)
        self._work = Work(template, loss, dict(metrics or {}), collate_fn)
        self.dataset_key, self.user = dataset_key, user
        self.clients: dict[str, Client] = dict(
            sorted(make_clients(clients, self._work, dataset_key, user).items())
        )
        self.strategy = make_strategy(strategy)
        self.engine = engine_for(engine, self.clients, deadline, schedule)
        self.aggregation = PlainSum() if aggregation is None else aggregation
        self.privacy = privacy
        self._seed_was_given = seed is not None
        self.seed = secrets.randbits(63) if seed is None else seed
        check_seams(self.strategy, self.aggregation, privacy)
        check_compression(compression, self.aggregation, self.strategy, self.engine, schedule)
        self._compression, self._training_id = compression, secrets.token_hex(16)
        if self._local is not None and getattr(self.engine, "copies_clients", False):
            raise ValueError(
                f"{type(self.engine).__name__} makes clients anew for each round, so they keep no layers of their own. "
                "Use engine='serial' or 'threads' with local=..."
            )
        self._given_aggregation = self.aggregation
        self._optimizer_args: OptimizerArgs = {"lr": 0.1} if optimizer_args is None else optimizer_args
        for name, number in (
            ("epochs", epochs),
            ("batch_size", batch_size),
            ("evaluate_every", evaluate_every),
            ("checkpoint_every", checkpoint_every),
        ):
            check_count(name, number)
        self._training = LocalTraining(
            epochs, batch_size, optimizer_name(optimizer), {}, shuffle, drop_last, deadline, partial
        )
        if partial and deadline is None:
            raise ValueError(
                "Trainer was given partial=True without a deadline: give the seconds of a client, too."
            )
        self.schedule = schedule
        self.aggregation = aggregation_for(self, self.clients)
        self._training_of(1)
        if schedule is not None:
            check_schedule(schedule, self.clients, self.engine, self.strategy, self.aggregation, privacy)
            if fraction is not None or clients_per_round is not None or min_clients != 1:
                raise ValueError(
                    "Trainer was given a schedule and fraction, clients_per_round or min_clients. Buffered(size=..., "
                    "concurrency=...) says how many are asked and how many updates are a round: leave the others out."
                )
        self.per_round = count_per_round(
            len(self.clients), fraction, clients_per_round if schedule is None else schedule.size
        )
        self._client_settings = checked_client_settings(client_settings, self.clients)
        check_own_settings(self._client_settings, self.aggregation, self.strategy, self._training.optimizer)
        self.min_clients = checked_quorum(min_clients, self.per_round, self.strategy)
        if draws_in_secret(privacy) and (
            fraction is not None or clients_per_round is not None or min_clients > 1
        ):
            raise ValueError(
                f"Trainer was given {type(privacy).__name__} with a sampling_rate below 1, which draws the clients of a "
                "round by itself, any number of them: leave out fraction, clients_per_round and min_clients."
            )
        self._asked = fraction, clients_per_round if schedule is None else schedule.size
        seat(self, self.clients, self.aggregation)
        self._evaluate, self._evaluate_every = evaluate, evaluate_every
        if evaluate is not None and not (hasattr(evaluate, "__getitem__") or callable(evaluate)):
            raise TypeError(
                f"evaluate is a Dataset or a function of the model; this is a {type(evaluate).__name__}."
            )
        self.callbacks: list[Callback] = [*callbacks, *([ProgressBar()] if progress else [])]
        self._path = None if checkpoint is None else Path(checkpoint)
        self._charges = None if privacy is None else Charges(privacy, self._path)
        self._checkpoint_every = checkpoint_every
        self.history = History()
        self.strategy.bind(self.layout, tuple(self.clients))
        self._stop_reason: str | None = None
        self._attempt = 0
        self._is_in_round = False
        self._buffered = self._new_buffered()

    # -- training ------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """How many rounds are done."""
        return self.history.rounds[-1].round if self.history.rounds else 0

    def fit(self, rounds: int) -> History:
        """Train until `rounds` rounds are done in all, those of a resumed checkpoint included."""
        check_count("rounds", rounds)
        if self._charges is not None:
            self._charges.begin()
        self._stop_reason = None
        try:
            for callback in self.callbacks:
                callback.on_fit_start(self, rounds)
            with torch.inference_mode(False), torch.no_grad():
                while self.round < rounds and self._stop_reason is None:
                    self._run_round(is_last=self.round + 1 == rounds)
        finally:
            for callback in self.callbacks:
                callback.on_fit_end(self)
        if self._stop_reason is not None:
            self.save()
            logger.info("Stopped after round %d: %s", self.round, self._stop_reason)
        return self.history

    def stop(self, reason: str = "It was asked to.") -> None:
        """End `fit` after this round. For callbacks."""
        self._stop_reason = reason

    def _run_round(self, is_last: bool) -> None:
        started = time.monotonic()
        number = self.round + 1
        is_secret, is_private = draws_in_secret(self.privacy), self.privacy is not None
        charged = nullcontext() if self._charges is None else self._charges.of_one_sum()
        self._is_in_round = True
        try:
            if self._buffered is None:
                chosen, done = self._wait_for_all(number, is_secret, charged)
            else:
                done = self._wait_for_some(self._buffered, number, charged)
                chosen = tuple(sorted({*done.accepted, *(failure.client for failure in done.failures)}))
        finally:
            self._is_in_round = False
        write_state(self.model, done.state, self._own)
        self._attempt = 0
        is_evaluated = is_last or number % self._evaluate_every == 0
        report = RoundReport(
            round=number,
            selected=() if is_secret else chosen,
            accepted=() if is_secret else done.accepted,
            failures=() if is_secret else done.failures,
            examples=None if is_private else sum(done.results[n].num_examples for n in done.accepted),
            training={} if is_private else mean_metrics(done.results),
            evaluation=self.evaluate() if is_evaluated and self._evaluate is not None else {},
            seconds=0.0 if is_secret else time.monotonic() - started,
            is_secret=is_secret,
            staleness=dict(done.staleness),
            simulated_seconds=None if self._buffered is None else self._buffered.clock,
        )
        self.history.rounds.append(report)
        if is_last or number % self._checkpoint_every == 0:
            self.save()
        logger.info("%s", report)
        for callback in self.callbacks:
            callback.on_round_end(self, report)

    def _wait_for_all(
        self, number: int, is_secret: bool, charged: AbstractContextManager[None]
    ) -> tuple[tuple[str, ...], Stepped]:
        """A round that asks some clients and waits for them: who was asked, and what it came to."""
        if is_secret and isinstance(self.privacy, SamplingPrivacy):
            chosen = tuple(self.privacy.sample(tuple(self.clients)))
        else:
            chosen = choose(tuple(self.clients), self.per_round, self.seed, number, self._attempt)
        self._attempt += 1
        if not is_secret and len(chosen) < self.min_clients:  # some have left
            raise NotEnoughClientsError(number, 0, f"min_clients is {self.min_clients}", ())
        for callback in self.callbacks:
            callback.on_round_start(self, number, () if is_secret else chosen)
        state = self._shared_state()
        training = self._training_of(number)
        private = private_contribution(self.aggregation, self.privacy, len(chosen))
        done = run_round(
            number,
            [self._task(name, number, state, training, private) for name in chosen],
            state,
            self._form,
            self.strategy,
            self.engine,
            self.aggregation,
            self.privacy,
            self.min_clients,
            training,
            (lambda _name, _outcome: None) if is_secret else self._tell_client,
            charged,
        )
        return chosen, done

    def _wait_for_some(
        self, buffered: BufferedRounds, number: int, charged: AbstractContextManager[None]
    ) -> Stepped:
        """A round that is done when enough updates are there, from whatever model."""
        self._attempt += 1
        for callback in self.callbacks:
            callback.on_round_start(self, number, buffered.clients_at_work)
        return buffered.run(
            number,
            self._shared_state(),
            tuple(self.clients),
            self.seed,
            self._attempt,
            self.strategy,
            self._training_of(number),
            self._tell_client,
            charged,
        )

    def _task(
        self,
        name: str,
        number: int,
        state: State,
        training: LocalTraining | None = None,
        private: PrivateContribution | None = None,
    ) -> Task:
        """A client's work on the model that round `number` began with."""
        training = self._training_of(number) if training is None else training
        training = replace(training, **self._client_settings.get(name, {}))
        told = instructions_for(name, number, self.seed, state, training, self.strategy, self._local, private)
        return Task(name, self.clients[name], told)

    def _tell_client(self, name: str, outcome: FitResult | EvaluateResult | ClientFailure) -> None:
        for callback in self.callbacks:
            callback.on_client_done(self, name, outcome)

    # -- who there is --------------------------------------------------------------------------------------

    def add_clients(
        self, clients: Any, client_settings: Mapping[str, Mapping[str, Any]] | None = None
    ) -> tuple[str, ...]:
        """Let more clients take part from the next round on; their names. They begin with the model as it is then.

        clients   as the trainer was given them: a dict name -> Dataset, a FederatedDataset, or a list of workers
        """
        return add_clients(self, clients, client_settings)

    def remove_clients(self, *names: str) -> None:
        """Ask these no more. What is kept of them here goes with them; see `trainer_membership`."""
        remove_clients(self, names)

    # -- evaluation ----------------------------------------------------------------------------------------

    def evaluate(self, on: Any = None) -> Metrics:
        """Figures of the model as it is, on a Dataset or by a function; without: what the trainer was given."""
        return evaluate(self, on)

    def evaluate_clients(self, groups: Mapping[str, Sequence[str]] | None = None) -> ClientsEvaluation:
        """Let every client try the model on its own data, with its own layers where it has some.

        groups   names of clients by the name of a group; a client may be in several
        """
        return evaluate_clients(self, groups)

    # -- checkpoints ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write a checkpoint now, to `path` or to the trainer's own file, if it has one."""
        save(self, path)

    def resume(
        self, path: str | os.PathLike[str] | None = None, *, rounds_given_out: int | None = None
    ) -> bool:
        """Take up the last checkpoint; False if there is none yet. `fit` then goes on as if never interrupted.

        The same settings, data and clients give the same weights as one uninterrupted training would have (but
        for the noise of `privacy`, which is drawn anew). !! ValueError when the checkpoint does not fit.

        `privacy` (a new object) is charged for all rounds of the earlier run, also for those after the checkpoint,
        whose models were seen. `rounds_given_out` says how many there were where the record of them is lost.
        """
        return resume(self, path, rounds_given_out)

    # -- settings and their checks --------------------------------------------------------------------------

    def round_to_ask(self, worker: Any, rounds: int, user: str | None = None) -> tuple[RoundMessage, Any]:
        """For `worker.request_training`: the message that stands for this many rounds there, and what holds its plans."""
        return round_to_ask(self, worker, rounds, user)

    def _training_of(self, round: int) -> LocalTraining:
        """How clients train in a round. !! ValueError for optimizers that cannot be made"""
        args = checked_arguments(self._optimizer_args, round)
        training = self._training
        make_optimizer(training.optimizer, args, [nn.Parameter(torch.zeros(1))])
        self.strategy.check_training(training.optimizer, args)
        return replace(training, optimizer_args=args, compression=self._form.rule)

    @property
    def _form(self) -> UpdateForm:
        """How updates come, and are summed."""
        if self._compression is None:
            return UpdateForm(self.layout)
        rule = self._compression.rule(self.layout.trainable, self.seed, self._training_id)
        is_compact = (
            rule.kind == "random" and self.schedule is None and not self.strategy.needs_single_updates
        )
        return UpdateForm(self.layout, rule, is_compact)

    def _new_buffered(self) -> BufferedRounds | None:
        """Who is at work in asynchronous rounds: nobody yet."""
        if self.schedule is None or not isinstance(self.engine, StreamingEngine):
            return None
        deadline = self._training.deadline
        return BufferedRounds(
            self.schedule, self.engine, deadline, self._task, self._form, self.aggregation, self.privacy
        )

    @property
    def _own(self) -> tuple[str, ...]:
        return () if self._local is None else self._local.names

    def _shared_state(self) -> State:
        """What clients are sent: all but the layers that are their own."""
        return {name: t for name, t in read_state(self.model).items() if name not in self._own}

    def __repr__(self) -> str:
        return (
            f"<Trainer of {len(self.clients)} clients, {self.strategy.name}, {type(self.engine).__name__}, "
            f"{self.round} rounds done>"
        )
