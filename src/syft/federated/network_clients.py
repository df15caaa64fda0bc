"""`NetworkClient`: a client of a Trainer whose data is at a worker on a network.

One duty: a round's work as one message. The model and the loss go as plans, once per worker and session; from then on
a round sends the state, and gets an update back, or has it kept there. A worker that was restarted is sent the
plans again. Imports `offers`, `plan_module`, `records`, `workers`.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from syft.core.session import session
from syft.exceptions import ObjectNotFoundError, WorkerRestartedError, WorkerUnreachableError
from syft.federated.local_training import OverdueError
from syft.federated.offers import Offer, offer_of
from syft.federated.plan_module import PlanModule, SentModule, digest_of, traced_loss, traced_module
from syft.federated.records import (
    ClientFailure,
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
)
from syft.federated.train_config import put
from syft.messaging.message import RoundMessage, SecureStepMessage
from syft.serde import deserialize, serialize
from syft.tensors.object_pointer import ObjectPointer

if TYPE_CHECKING:
    from syft.federated.clients import Work
    from syft.workers.network.client_worker import NetworkClientWorker

KEEP_BYTES = 16


@dataclass
class Traced:
    """A trainer's work as plans, for rows of one kind."""

    model: PlanModule
    loss: PlanModule
    metrics: dict[str, PlanModule] = field(default_factory=dict)


def task_digest(
    model: PlanModule, loss: PlanModule, instructions: FitInstructions, dataset_key: str
) -> bytes:
    """Stands for what a client is told to train, and on what; the seed and the deadline are its own."""
    common = replace(instructions, seed=0, deadline=None)
    told = digest_of(model) + digest_of(loss) + serialize((common, dataset_key))
    return hashlib.sha256(told).digest()


class TravellingWork:
    """A trainer's work, traced once for each kind of rows, for all its workers."""

    def __init__(self, work: Work) -> None:
        if work.collate_fn is not None:
            raise ValueError(
                "collate_fn is Python code, which does not travel to workers on a network. Let the data set that the "
                "owner offers return what a batch is made of."
            )
        self._work = work
        self._lock = threading.Lock()
        self._made: dict[Offer, Traced] = {}

    def traced(self, offer: Offer, with_metrics: bool) -> Traced:
        with self._lock:
            made = self._made.get(offer)
            if made is None:
                model = traced_module(self._work.model, offer.inputs)
                made = Traced(model, traced_loss(self._work.loss, model, offer.inputs, offer.target))
                self._made[offer] = made
            if with_metrics:
                for name, metric in self._work.metrics.items():
                    if name not in made.metrics:
                        made.metrics[name] = traced_loss(metric, made.model, offer.inputs, offer.target)
            return made


class NetworkClient:
    """Trains at a worker on a network, on a data set that its owner offers under a name.

    keeps_updates   updates stay there, to be asked for in a secure aggregation (`secure_step`)
    """

    keeps_updates = False
    only_reads = True

    def __init__(
        self, worker: NetworkClientWorker, dataset_key: str, work: TravellingWork, user: str | None = None
    ) -> None:
        self.worker, self.dataset_key, self.user = worker, dataset_key, user
        self.name = str(worker.id)
        self._work = work
        self._offer: Offer | None = None
        #: What the worker has of us in this session, by "model", "loss" and the names of metrics.
        self._sent: dict[str, ObjectPointer] = {}
        self._kept = b""
        self._task: tuple[Traced, FitInstructions] | None = None

    def fit(self, instructions: FitInstructions) -> FitResult | ClientFailure:
        self._kept = secrets.token_bytes(KEEP_BYTES) if self.keeps_updates else b""
        return self._ask(instructions)

    def evaluate(self, instructions: EvaluateInstructions) -> EvaluateResult | ClientFailure:
        return self._ask(instructions)

    def secure_step(self, step: str, content: Any, weight: float = 1.0) -> Any:
        """The worker's answer to one step of a secure aggregation, for the update it kept last."""
        try:
            return self._send(SecureStepMessage(self._kept, step, content, weight, self.user))
        except (WorkerUnreachableError, WorkerRestartedError) as error:
            return ClientFailure(self.name, "died", str(error))

    def context(self) -> bytes:
        """Stands for what the worker was told to train last, as the worker sees it."""
        if self._task is None:
            return b""
        traced, instructions = self._task
        model, loss, told = deserialize(
            serialize((SentModule(traced.model), SentModule(traced.loss), instructions))
        )
        return task_digest(model.module, loss.module, told, self.dataset_key)

    def _ask(self, instructions: FitInstructions | EvaluateInstructions) -> Any:
        began = time.monotonic()
        try:
            try:
                return self._once(instructions)
            except (WorkerRestartedError, ObjectNotFoundError):
                # It lives, and has forgotten what we sent.
                deadline = instructions.deadline
                if deadline is not None and time.monotonic() - began > deadline:
                    raise OverdueError(f"Worker {self.name!r} was restarted after its deadline.") from None
                self._forget()
                return self._once(instructions)
        except (WorkerUnreachableError, WorkerRestartedError) as error:
            self._forget()
            return ClientFailure(self.name, "died", str(error))
        except Exception:
            self._forget()  # what failed may be one of the plans on its way
            raise

    def _once(self, instructions: FitInstructions | EvaluateInstructions) -> Any:
        is_fit = isinstance(instructions, FitInstructions)
        if self._offer is None:
            self._offer = offer_of(self.worker, self.dataset_key, self.user)
        traced = self._work.traced(self._offer, with_metrics=not is_fit)
        if isinstance(instructions, FitInstructions):
            self._task = traced, instructions
        metrics = (
            {} if is_fit else {name: self._id(f"metric {name}", m) for name, m in traced.metrics.items()}
        )
        answer = self._send(
            RoundMessage(
                self._id("model", traced.model),
                self._id("loss", traced.loss),
                metrics,
                self.dataset_key,
                instructions,
                self._kept if is_fit and self._kept else None,
                self.user,
            )
        )
        # NB: a worker speaks for itself, whatever name it puts there.
        return replace(answer, client=self.name) if isinstance(answer, ClientFailure) else answer

    def _id(self, what: str, module: PlanModule) -> Any:
        """The id of a plan at the worker, which is sent it if it does not have it."""
        if what not in self._sent:
            self._sent[what] = put(SentModule(module), self.worker, self.user)
        return self._sent[what].id_at_location

    def _send(self, message: Any) -> Any:
        return session.require_local_worker().send_msg(message, self.worker)

    def _forget(self) -> None:
        self._offer, self._sent = None, {}
