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
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from syft.federated.aggregation import Aggregation, PlainSum, Privacy, hides
from syft.federated.callbacks import Callback, ProgressBar
from syft.federated.charges import Charges
from syft.federated.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from syft.federated.clients import Client, DatasetClient, Work, WorkerClient, make_clients
from syft.federated.engines import Engine, SerialEngine, Task, ThreadEngine, make_engine
from syft.federated.history import History, RoundReport
from syft.federated.layout import Layout, read_state, state_fault, write_state
from syft.federated.local_training import Loss, Metric, make_optimizer, optimizer_name
from syft.federated.records import ClientFailure, EvaluateInstructions, EvaluateResult, FitResult, Metrics
from syft.federated.rounds import (
    LocalTraining,
    check_evaluation,
    choose,
    collect,
    instructions_for,
    mean_metrics,
    run_round,
)
from syft.federated.secure_aggregation import MaskedSum, ShareAggregation
from syft.federated.secure_aggregation.over_network import for_clients
from syft.federated.strategies.base import Strategy, make_strategy
from syft.federated.trainer_settings import (
    check_callbacks,
    check_count,
    check_deadline,
    check_seed,
    check_work,
    checked_arguments,
    checked_figures,
    is_count,
    is_number,
)

logger = logging.getLogger(__name__)

OptimizerArgs = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True)
class ClientsEvaluation:
    """A model as the clients found it on their own data."""

    metrics: Metrics
    """Weighted by numbers of examples."""
    by_client: Mapping[str, EvaluateResult]
    failures: tuple[ClientFailure, ...]


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
    privacy           bounds and blurs what a client contributes; see `aggregation.Privacy`
    evaluate          a Dataset, or a function model -> dict of figures; run here after every `evaluate_every` rounds
    metrics           name -> function(output, target), means over a batch, beside the loss
    callbacks         see `callbacks`; `progress=True` adds bars
    checkpoint        a file, written after every `checkpoint_every` rounds and at the end; see `resume`. With `privacy`,
                      what the rounds cost is kept beside it, in a file of the same name and `.privacy`. Without a
                      checkpoint, the epsilon that `privacy` tells is that of this process
    seed              of everything random; the same seed gives the same weights on every engine
    user              in whose name workers are asked for private data
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
    ) -> None:
        check_work(model, loss, metrics)
        check_deadline(deadline)
        check_callbacks(callbacks)
        check_seed(seed)
        self.layout = Layout.of(model)
        self.model = model
        # Clients copy this one, which nobody trains: what a module keeps beside its state does not wander.
        with torch.inference_mode(False):
            template = copy.deepcopy(model)
        self._work = Work(template, loss, dict(metrics or {}), collate_fn)
        self.clients: dict[str, Client] = dict(
            sorted(make_clients(clients, self._work, dataset_key, user).items())
        )
        self.strategy = make_strategy(strategy)
        self.engine = self._default_engine(deadline) if engine is None else make_engine(engine)
        self.aggregation = PlainSum() if aggregation is None else aggregation
        self.privacy = privacy
        self._check_seams()
        self.aggregation = for_clients(
            self.aggregation,
            self.clients,
            self.engine,
            deadline,
            self.layout.size,
            self.layout.dtype,
            privacy,
        )
        self._optimizer_args: OptimizerArgs = {"lr": 0.1} if optimizer_args is None else optimizer_args
        for name, number in (
            ("epochs", epochs),
            ("batch_size", batch_size),
            ("evaluate_every", evaluate_every),
            ("checkpoint_every", checkpoint_every),
        ):
            check_count(name, number)
        self._training = LocalTraining(
            epochs, batch_size, optimizer_name(optimizer), {}, shuffle, drop_last, deadline
        )
        self._training_of(1)
        self.per_round = self._count_per_round(fraction, clients_per_round)
        self.min_clients = self._checked_quorum(min_clients)
        for client in self.clients.values():
            if isinstance(client, WorkerClient):
                client.smallest_sum = self._smallest_sum()
        self._evaluate, self._evaluate_every = evaluate, evaluate_every
        if evaluate is not None and not (hasattr(evaluate, "__getitem__") or callable(evaluate)):
            raise TypeError(
                f"evaluate is a Dataset or a function of the model; this is a {type(evaluate).__name__}."
            )
        self.callbacks: list[Callback] = [*callbacks, *([ProgressBar()] if progress else [])]
        self._path = None if checkpoint is None else Path(checkpoint)
        self._charges = None if privacy is None else Charges(privacy, self._path)
        self._checkpoint_every = checkpoint_every
        self._seed_was_given = seed is not None
        self.seed = secrets.randbits(63) if seed is None else seed
        self.history = History()
        self.strategy.bind(self.layout, tuple(self.clients))
        self._stop_reason: str | None = None
        self._attempt = 0

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
        chosen = choose(tuple(self.clients), self.per_round, self.seed, number, self._attempt)
        self._attempt += 1
        for callback in self.callbacks:
            callback.on_round_start(self, number, chosen)
        training = self._training_of(number)
        state = read_state(self.model)
        tasks = [
            Task(
                name,
                self.clients[name],
                instructions_for(name, number, self.seed, state, training, self.strategy),
            )
            for name in chosen
        ]
        done = run_round(
            number,
            tasks,
            state,
            self.layout,
            self.strategy,
            self.engine,
            self.aggregation,
            self.privacy,
            self.min_clients,
            training,
            self._tell_client,
            nullcontext() if self._charges is None else self._charges.of_one_sum(),
        )
        write_state(self.model, done.state)
        self._attempt = 0
        is_private = self.privacy is not None
        is_evaluated = is_last or number % self._evaluate_every == 0
        report = RoundReport(
            round=number,
            selected=chosen,
            accepted=done.accepted,
            failures=done.failures,
            examples=None if is_private else sum(done.results[n].num_examples for n in done.accepted),
            training={} if is_private else mean_metrics(done.results),
            evaluation=self.evaluate() if is_evaluated and self._evaluate is not None else {},
            seconds=time.monotonic() - started,
        )
        self.history.rounds.append(report)
        if is_last or number % self._checkpoint_every == 0:
            self.save()
        logger.info("%s", report)
        for callback in self.callbacks:
            callback.on_round_end(self, report)

    def _tell_client(self, name: str, outcome: FitResult | EvaluateResult | ClientFailure) -> None:
        for callback in self.callbacks:
            callback.on_client_done(self, name, outcome)

    # -- evaluation ----------------------------------------------------------------------------------------

    def evaluate(self, on: Any = None) -> Metrics:
        """Figures of the model as it is, on a Dataset or by a function; without: what the trainer was given."""
        on = self._evaluate if on is None else on
        if on is None:
            raise ValueError(
                "There is nothing to evaluate on. Give evaluate() or the Trainer a Dataset or a function."
            )
        if hasattr(on, "__getitem__"):
            return self._work.evaluate(on, EvaluateInstructions(self.round, read_state(self.model))).metrics
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad():
                return checked_figures(on(self.model))
        finally:
            for module, mode in modes:
                module.training = mode

    def evaluate_clients(self) -> ClientsEvaluation:
        """Let every client try the model on its own data."""
        if self.privacy is not None:
            raise ValueError(
                "evaluate_clients() would show figures of the clients' data without noise, and this trainer has "
                "privacy=... Evaluate on data of your own with evaluate(dataset)."
            )
        deadline = self._training.deadline
        instructions = EvaluateInstructions(self.round, read_state(self.model), deadline=deadline)
        tasks = [Task(name, client, instructions) for name, client in self.clients.items()]

        def check(name: str, value: Any) -> EvaluateResult | ClientFailure:
            return check_evaluation(name, value, self.round)

        results, failures = collect(self.engine, tasks, deadline, check, self._tell_client)
        return ClientsEvaluation(mean_metrics(results), results, tuple(failures))

    # -- checkpoints ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write a checkpoint now, to `path` or to the trainer's own file, if it has one."""
        path = self._path if path is None else path
        if path is not None:
            if self._charges is not None:
                self._charges.keep_beside(path)
            save_checkpoint(
                path,
                Checkpoint(
                    self.seed,
                    self.strategy.name,
                    self.strategy.settings(),
                    read_state(self.model),
                    self.strategy.state(),
                    self.history,
                ),
            )

    def resume(
        self, path: str | os.PathLike[str] | None = None, *, rounds_given_out: int | None = None
    ) -> bool:
        """Take up the last checkpoint; False if there is none yet. `fit` then goes on as if never interrupted.

        The same settings, data and clients give the same weights as one uninterrupted training would have (but
        for the noise of `privacy`, which is drawn anew). !! ValueError when the checkpoint does not fit.

        `privacy` (a new object) is charged for all rounds of the earlier run, also for those after the checkpoint,
        whose models were seen. `rounds_given_out` says how many there were where the record of them is lost.
        """
        if rounds_given_out is not None and (self.privacy is None or not is_count(rounds_given_out)):
            raise ValueError(
                f"resume() was given rounds_given_out={rounds_given_out!r}: it is a whole number of rounds, for a "
                "trainer with privacy=..."
            )
        path = self._path if path is None else Path(path)
        if path is None:
            raise ValueError("resume() needs a file. Give it one, or make the Trainer with checkpoint=...")
        if not path.exists():
            # NB: also without a checkpoint yet, rounds may have been given out.
            if self._charges is not None:
                self._charges.take_over(path, self._charges.read(path, None, rounds_given_out))
            return False
        if path.is_dir():
            raise ValueError(f"resume() was given {str(path)!r}, a folder. Give it the checkpoint's file.")
        found = load_checkpoint(path)
        mine = (self.strategy.name, self.strategy.settings())
        if (found.strategy, dict(found.settings)) != mine:
            raise ValueError(
                f"The checkpoint was made with {found.strategy} {dict(found.settings)}, and this trainer has {mine[0]} "
                f"{mine[1]}. Use the same strategy, or begin anew with another file."
            )
        if self._seed_was_given and found.seed != self.seed:
            raise ValueError(
                f"The checkpoint was made with seed={found.seed}, and this trainer has seed={self.seed}. Use the same "
                "seed, or leave it out."
            )
        if fault := state_fault(found.state, {n: tuple(t.shape) for n, t in read_state(self.model).items()}):
            raise ValueError(f"The checkpoint is of another model: {fault}.")
        charges = self._charges
        charged = None if charges is None else charges.read(path, len(found.history.rounds), rounds_given_out)
        if charges is not None:
            charges.take_over(path, charged)
        self.strategy.load_state(found.memory)
        write_state(self.model, found.state)
        self.seed, self.history, self._attempt = found.seed, found.history, 0
        return True

    # -- settings and their checks --------------------------------------------------------------------------

    def _default_engine(self, deadline: float | None) -> Engine:
        if not all(isinstance(client, (DatasetClient, WorkerClient)) for client in self.clients.values()):
            return ThreadEngine(min(32, len(self.clients)))
        return SerialEngine() if deadline is None else ThreadEngine()

    def _check_seams(self) -> None:
        if not isinstance(self.aggregation, Aggregation) or isinstance(self.aggregation, type):
            raise TypeError(
                f"aggregation has weighted_sum(updates, weights), e.g. PlainSum(); this is {self.aggregation!r}."
            )
        if self.privacy is not None and (
            not isinstance(self.privacy, Privacy) or isinstance(self.privacy, type)
        ):
            raise TypeError(f"privacy has clip, noise and round_done; this is {self.privacy!r}.")
        if self.strategy.needs_single_updates and (
            type(self.aggregation) is not PlainSum or self.privacy is not None
        ):
            raise ValueError(hides(type(self.strategy).__name__, self.aggregation, self.privacy))

    def _training_of(self, round: int) -> LocalTraining:
        """How clients train in a round. !! ValueError for optimizers that cannot be made"""
        args = checked_arguments(self._optimizer_args, round)
        training = self._training
        make_optimizer(training.optimizer, args, [nn.Parameter(torch.zeros(1))])
        self.strategy.check_training(training.optimizer, args)
        return LocalTraining(
            training.epochs,
            training.batch_size,
            training.optimizer,
            args,
            training.shuffle,
            training.drop_last,
            training.deadline,
        )

    def _count_per_round(self, fraction: float | None, count: int | None) -> int:
        known = len(self.clients)
        if fraction is not None and count is not None:
            raise ValueError("Trainer was given fraction and clients_per_round. Give one of them.")
        if fraction is not None:
            if not is_number(fraction) or not 0 < fraction <= 1:
                raise ValueError(
                    f"Trainer was given fraction={fraction!r}: it is a number above 0 and at most 1."
                )
            return max(1, round(fraction * known))
        if count is None:
            return known
        check_count("clients_per_round", count)
        if count > known:
            raise ValueError(f"Trainer was given clients_per_round={count}, and there are {known} clients.")
        return count

    def _smallest_sum(self) -> int:
        """Of how many updates this trainer sees the sum, at least; 1 if it sees each. For owners who insist."""
        if isinstance(self.aggregation, ShareAggregation):
            return self.min_clients
        if not isinstance(self.aggregation, MaskedSum):
            return 1
        if isinstance(self.aggregation.threshold, int):
            return self.aggregation.threshold
        # A threshold that follows the number of updates is lowest where they are fewest.
        return self.aggregation.setting(max(2, self.min_clients), 1).threshold

    def _checked_quorum(self, min_clients: int) -> int:
        check_count("min_clients", min_clients)
        if min_clients > self.per_round:
            raise ValueError(
                f"Trainer was given min_clients={min_clients}, and a round asks {self.per_round}. Ask more clients, or "
                "lower it."
            )
        if (why := self.strategy.too_few(self.per_round)) is not None:
            raise ValueError(f"A round asks {self.per_round} client(s), and {why}. Ask more clients.")
        return min_clients

    def __repr__(self) -> str:
        return (
            f"<Trainer of {len(self.clients)} clients, {self.strategy.name}, {type(self.engine).__name__}, "
            f"{self.round} rounds done>"
        )
