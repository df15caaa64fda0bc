"""`NetworkClient`: a client of a Trainer whose data is at a worker on a network.

One duty: a round's work as one message. The model and the loss go as plans, once per worker and session; from then on
a round sends the state, and gets an update back, or has it kept there. A worker that was restarted is sent the
plans again. Imports `layout`, `offers`, `plan_module`, `records`, `workers`.

NOTE [Frozen parameters travel once]
They go with the model's plan, and a round's state is without them. A connection remembers the models with frozen
parameters that it brought, by a hash of all they do and hold: another training of the same base model over it sends
none of them. Where the trainer's own model got other frozen parameters in between, the hash is another one.
"""

from __future__ import annotations

import copy
import hashlib
import secrets
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from syft.core.session import session
from syft.exceptions import ObjectNotFoundError, WorkerRestartedError, WorkerUnreachableError
from syft.federated.layout import frozen_state, named_state
from syft.federated.local_training import OverdueError
from syft.federated.offers import Offer, offer_of
from syft.federated.plan_module import PlanModule, SentModule, digest_of, traced_loss, traced_module
from syft.federated.records import (
    ClientFailure,
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
    State,
)
from syft.federated.train_config import put
from syft.messaging.message import RoundMessage, SecureStepMessage
from syft.serde import deserialize, serialize
from syft.tensors.object_pointer import ObjectPointer

if TYPE_CHECKING:
    from syft.federated.clients import Work
    from syft.workers.network.client_worker import NetworkClientWorker

KEEP_BYTES = 16
#: Models with frozen parameters that a connection remembers.
_REMEMBERED = 2


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
    told = _DIGESTS.of(model) + _DIGESTS.of(loss) + serialize((common, dataset_key))
    return hashlib.sha256(told).digest()


class _Digests:
    """Digests of modules that nobody changes any more: made once."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[PlanModule, bytes] = weakref.WeakKeyDictionary()

    def of(self, module: PlanModule) -> bytes:
        found = self._known.get(module)
        if found is None:
            found = self._known[module] = digest_of(module)
        return found


_DIGESTS = _Digests()


class BroughtModels:
    """What a connection remembers: see NOTE [Frozen parameters travel once]."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brought: OrderedDict[tuple[str | None, bytes], ObjectPointer] = OrderedDict()

    def find(self, user: str | None, digest: bytes) -> ObjectPointer | None:
        with self._lock:
            return self._brought.get((user, digest))

    def remember(self, user: str | None, digest: bytes, pointer: ObjectPointer) -> None:
        with self._lock:
            self._brought[user, digest] = pointer
            while len(self._brought) > _REMEMBERED:
                self._brought.popitem(last=False)

    def forget(self) -> None:
        with self._lock:
            self._brought.clear()


class TravellingWork:
    """A trainer's work, traced once for each kind of rows, for all its workers."""

    def __init__(self, work: Work) -> None:
        if work.collate_fn is not None:
            raise ValueError(
                "collate_fn is Python code, which does not travel to workers on a network. Let the owner offer rows that "
                "are collated: worker.add_dataset(syft.federated.collated(dataset, collate_fn), key)."
            )
        self._work = work
        self._lock = threading.Lock()
        self._made: dict[Offer, Traced] = {}
        self._frozen: State = {n: p.detach() for n, p in frozen_state(work.model).items()}
        self._last: State | None = None
        self._moving: State = {}

    def moving(self, state: State) -> State:
        """What of a round's state is sent, since the plans do not have it."""
        with self._lock:
            if state is not self._last:  # one object for all clients of a round
                self._take_frozen({n: t for n, t in state.items() if n in self._frozen})
                self._last = state
                self._moving = {n: t for n, t in state.items() if n not in self._frozen}
            return self._moving

    def _take_frozen(self, frozen: State) -> None:
        """Give the plans the frozen parameters of the trainer's model, if they are others."""
        if all(torch.equal(self._frozen[name], tensor) for name, tensor in frozen.items()):
            return
        self._frozen = frozen
        for offer, made in self._made.items():
            self._made[offer] = replace(made, model=_with_frozen(made.model, frozen))

    def traced(self, offer: Offer, with_metrics: bool, local: Collection[str] = ()) -> Traced:
        """The plans for rows of a kind. `local` names tensors that clients start from as they are here."""
        with self._lock:
            made = self._made.get(offer)
            if made is None:
                model = traced_module(self._work.model, offer.inputs, offer.names)
                made = Traced(model, traced_loss(self._work.loss, model, offer.inputs, offer.target))
                if self._frozen:
                    _blank(model, local)
                    made.model = _with_frozen(model, self._frozen)
                self._made[offer] = made
            if with_metrics:
                for name, metric in self._work.metrics.items():
                    if name not in made.metrics:
                        made.metrics[name] = traced_loss(metric, made.model, offer.inputs, offer.target)
            return made


def _with_frozen(model: PlanModule, frozen: State) -> PlanModule:
    made = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in frozen_state(made).items():
            parameter.copy_(frozen[name])
    return made


def _blank(model: PlanModule, besides: Collection[str]) -> None:
    """Zeros for what every round's state has, so that models with the same frozen parameters are the same."""
    with torch.no_grad():
        for name, tensor in named_state(model).items():
            if name not in besides and not (isinstance(tensor, nn.Parameter) and not tensor.requires_grad):
                tensor.zero_()


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
        self.work = work
        self._offer: Offer | None = None
        #: What the worker has of us in this session, by "model", "loss" and the names of metrics.
        self._sent: dict[str, tuple[PlanModule, ObjectPointer]] = {}
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
        instructions = replace(instructions, state=self.work.moving(instructions.state))
        local = () if instructions.local is None else instructions.local.names
        traced = self.work.traced(self._offer, not is_fit, local)
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
        sent, pointer = self._sent.get(what, (None, None))
        if sent is not module or pointer is None:
            pointer = self._bring(module)
            self._sent[what] = module, pointer
        return pointer.id_at_location

    def _bring(self, module: PlanModule) -> ObjectPointer:
        if not frozen_state(module):
            return put(SentModule(module), self.worker, self.user)
        brought, digest = self.worker.extension(BroughtModels), _DIGESTS.of(module)
        pointer = brought.find(self.user, digest)
        if pointer is None:
            pointer = put(SentModule(module), self.worker, self.user)
            brought.remember(self.user, digest, pointer)
        return pointer

    def _send(self, message: Any) -> Any:
        return session.require_local_worker().send_msg(message, self.worker)

    def _forget(self) -> None:
        self._offer, self._sent = None, {}
        self.worker.extension(BroughtModels).forget()
