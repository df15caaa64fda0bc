"""Clients: who trains on which data, and where it is.

One duty: from what a user names (data sets, workers) to objects with `fit` and `evaluate`. Imports `compression`,
`dataset`, `federated_client`, `local_training`, `network_clients`, `records`, `workers`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from syft.core.chain import Wrapper
from syft.exceptions import GetNotPermittedError
from syft.federated.asked_training import use_training_approval
from syft.federated.compression import HeldBack, check_feedback, compressed
from syft.federated.dataset import BaseDataset, FederatedDataset
from syft.federated.federated_client import FederatedClient
from syft.federated.fit_handlers import offered_to
from syft.federated.layout import Layout
from syft.federated.local_training import Loss, Metric, check_dataset, evaluate_locally, train_locally
from syft.federated.module_copies import copied
from syft.federated.network_clients import NetworkClient, TravellingWork
from syft.federated.offers import described
from syft.federated.outside import rows_of
from syft.federated.personal import PersonalLayers, check_impersonal
from syft.federated.pointer_dataset import PointerDataset
from syft.federated.records import (
    ClientFailure,
    EvaluateInstructions,
    EvaluateResult,
    FitInstructions,
    FitResult,
)
from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.pipeline import run_discreetly
from syft.workers.virtual import VirtualWorker


@runtime_checkable
class Client(Protocol):
    """Anything that trains. Your own may read its data from anywhere."""

    def fit(self, instructions: FitInstructions) -> FitResult | ClientFailure: ...

    def evaluate(self, instructions: EvaluateInstructions) -> EvaluateResult | ClientFailure: ...


@dataclass(frozen=True)
class Work:
    """What clients in this process train: each works on copies of the model, loss, metrics and collate function.

    What one of these keeps from batch to batch stays with that client: also what a function keeps in its closure and its
    defaults. Globals, and what cannot be copied (a lock, a file), are shared.
    """

    model: nn.Module
    loss: Loss
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    collate_fn: Callable[[list[Any]], Any] | None = None

    def fit(
        self,
        dataset: Any,
        instructions: FitInstructions,
        layers: PersonalLayers | None = None,
        held: HeldBack | None = None,
        source: Any = None,
    ) -> FitResult:
        model, loss, _, collate_fn = self._copies()
        local = instructions.local
        if local is not None and layers is not None:
            layers.bring(model, local, source)
        result = train_locally(model, loss, dataset, instructions, collate_fn)
        if local is not None and layers is not None:
            layers.keep(model, local, source)
        if instructions.compression is None:
            return result
        layout = Layout.of(model, () if local is None else local.names)
        return compressed(result, instructions, layout, HeldBack() if held is None else held, source)

    def evaluate(
        self,
        dataset: Any,
        instructions: EvaluateInstructions,
        layers: PersonalLayers | None = None,
        source: Any = None,
    ) -> EvaluateResult:
        model, loss, metrics, collate_fn = self._copies()
        if instructions.local is not None and layers is not None:
            layers.bring(model, instructions.local, source)
        return evaluate_locally(model, loss, dataset, metrics, instructions, collate_fn)

    def _copies(self) -> tuple[nn.Module, Loss, Mapping[str, Metric], Callable[[list[Any]], Any] | None]:
        with torch.inference_mode(False):  # what is made inside it can never be trained
            memo: dict[int, Any] = {}
            model = copied(self.model, memo)  # which functions may lead to, too
            if isinstance(self.loss, nn.Module):
                copied(self.loss, memo)
            for function in (self.loss, self.collate_fn, *self.metrics.values()):
                _copy_function(function, memo)
            return model, *copy.deepcopy((self.loss, self.metrics, self.collate_fn), memo)


def _copy_function(function: Any, memo: dict[int, Any]) -> None:
    """Put into `memo` a function with a closure and defaults of its own, where it has any."""
    if isinstance(function, functools.partial):
        _copy_function(function.func, memo)
    if not isinstance(function, types.FunctionType) or id(function) in memo:
        return
    cells = function.__closure__ or ()
    if not cells and not function.__defaults__ and not function.__kwdefaults__:
        return
    own = tuple(types.CellType() for _ in cells)
    made = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        _copy_of(function.__defaults__, memo),
        own or None,
    )
    memo[id(function)] = made
    made.__qualname__, made.__module__, made.__doc__ = (
        function.__qualname__,
        function.__module__,
        function.__doc__,
    )
    made.__kwdefaults__ = _copy_of(function.__kwdefaults__, memo)
    made.__dict__.update(_copy_of(function.__dict__, memo))
    for cell, mine in zip(cells, own, strict=True):
        with contextlib.suppress(ValueError):  # empty
            mine.cell_contents = _copy_of(cell.cell_contents, memo)


def _copy_of(value: Any, memo: dict[int, Any]) -> Any:
    """A copy, or the same where there is none."""
    _copy_function(value, memo)
    tried = dict(memo)  # what fails half way leaves parts of a copy
    try:
        made = copy.deepcopy(value, tried)
    except (TypeError, ValueError, AttributeError, RuntimeError, OSError):
        memo[id(value)] = value
        return value
    memo.update(tried)
    return made


class DatasetClient:
    """A client whose data is a torch Dataset in this process."""

    only_reads = True

    def __init__(self, dataset: Any, work: Work) -> None:
        dataset = rows_of(dataset)
        check_dataset(dataset)
        self.dataset, self.work = dataset, work
        self.layers, self.held = PersonalLayers(), HeldBack()

    def fit(self, instructions: FitInstructions) -> FitResult:
        return self.work.fit(self.dataset, instructions, self.layers, self.held)

    def evaluate(self, instructions: EvaluateInstructions) -> EvaluateResult:
        return self.work.evaluate(self.dataset, instructions, self.layers)


@dataclass(frozen=True)
class Found:
    """Data of a worker. What is not open to everybody must not be told by errors either."""

    dataset: Any
    is_open: bool
    least_in_sum: int | None = None
    minimum_noise: float | None = None
    source: Any = None
    """What the owner offers, where another data set may come under its name."""


class WorkerClient:
    """A client whose data is at a worker of this process, which trains on it there.

    The worker is asked for its data, in the name of `user`, each time: what is private to others is refused, and
    what was removed is missed. Only updates and figures leave.

    smallest_sum   of how many clients' updates the trainer sees the sum, at least; 1 if it sees each
    """

    only_reads = True
    smallest_sum = 1

    def __init__(self, worker: VirtualWorker, find: Callable[[Any], Found], work: Work) -> None:
        self.worker, self.find, self.work = worker, find, work
        self.layers, self.held = PersonalLayers(), HeldBack()

    def fit(self, instructions: FitInstructions) -> FitResult:
        found = self.find(instructions)
        self._check_sum(found, self.smallest_sum)
        if instructions.local is not None:
            check_impersonal(found.least_in_sum, self.worker.id)
        check_feedback(instructions.compression, found.least_in_sum, self.worker.id)
        result = run_discreetly(
            lambda: self.work.fit(found.dataset, instructions, self.layers, self.held, found.source),
            "the training",
            found.is_open,
        )
        return result if found.least_in_sum is None else replace(result, metrics={})

    def evaluate(self, instructions: EvaluateInstructions) -> EvaluateResult:
        found = self.find(instructions)
        self._check_sum(found, 1)
        return run_discreetly(
            lambda: self.work.evaluate(found.dataset, instructions, self.layers, found.source),
            "the evaluation",
            found.is_open,
        )

    def _check_sum(self, found: Found, smallest: int) -> None:
        """!! GetNotPermittedError if the owner wants larger sums, or noise"""
        if found.least_in_sum is not None and smallest < found.least_in_sum:
            raise GetNotPermittedError(
                f"What is computed from this data set leaves worker {self.worker.id!r} only in a secure sum of "
                f"{found.least_in_sum} workers or more, as its owner said. Train with "
                f"aggregation=MaskedSum(threshold={found.least_in_sum}), and evaluate on data of your own."
            )
        if found.minimum_noise is not None:
            raise GetNotPermittedError(
                f"What is computed from this data set leaves worker {self.worker.id!r} only with noise of "
                f"{found.minimum_noise:g} clipping bounds or more, as its owner said, and a worker in the trainer's own "
                "process adds none. Serve it over a network (NetworkServerWorker, syft worker), where it does."
            )


# -- what a user may name ----------------------------------------------------------------------------------


def make_clients(
    clients: Any,
    work: Work,
    dataset_key: str | None = None,
    user: str | None = None,
    travelling: TravellingWork | None = None,
) -> dict[str, Client]:
    """Clients by name, out of

    a FederatedDataset              one per worker
    a dict                          name -> data set or client
    workers, with a `dataset_key`   one per worker, on the data set that it offers under that name

    travelling   the work as plans, where there are some already
    """
    if dataset_key is not None:
        made = _offering(clients, dataset_key, work, user, travelling)
    elif isinstance(clients, FederatedDataset):
        made = {str(name): _holding(part, work, user) for name, part in clients.datasets.items()}
    elif isinstance(clients, Mapping):
        made = {}
        for name, value in clients.items():
            if not isinstance(name, str):
                raise TypeError(
                    f"A client's name is a string; {name!r} is a {type(name).__name__}. Use str(name)."
                )
            made[name] = value if isinstance(value, Client) else _of_data(name, value, work, user)
    else:
        raise TypeError(
            f"Clients are a FederatedDataset, a dict of name -> data set, or a list of workers with dataset_key=...; "
            f"this is a {type(clients).__name__}."
        )
    if not made:
        raise ValueError("There is no client to train. Give one data set or more.")
    return made


def _of_data(name: str, dataset: Any, work: Work, user: str | None) -> Client:
    if getattr(dataset, "location", None) is not None:
        return _holding(dataset, work, user)
    try:
        return DatasetClient(dataset, work)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Client {name!r}: {error}") from error


def _holding(part: Any, work: Work, user: str | None) -> Client:
    """A client for a data set of which we have pointers."""
    worker = _in_process(part.location)
    return WorkerClient(worker, lambda _instructions: _held(part, worker, user), work)


def _held(part: Any, worker: VirtualWorker, user: str | None) -> Found:
    held = part.held if isinstance(part, BaseDataset) else part
    if isinstance(held, PointerDataset):
        return Found(*_permitted(worker, held.id_at_location, user))
    if isinstance(part, BaseDataset):
        data, is_open = _permitted(worker, part.data.child.id_at_location, user)
        targets, are_open = _permitted(worker, part.targets.child.id_at_location, user)
        return Found(BaseDataset(data, targets, part.transform_), is_open and are_open)
    raise TypeError(
        f"A part of a FederatedDataset is a BaseDataset of pointers or a PointerDataset; this is a "
        f"{type(part).__name__}."
    )


def _permitted(worker: VirtualWorker, obj_id: Any, user: str | None) -> tuple[Any, bool]:
    """An object of a worker, if `user` may have what is computed from it; and whether everybody may."""
    found = worker.get_obj(obj_id)
    allowed = worker.allowed_users(obj_id)
    worker.policy.check_get(user, obj_id, allowed, action="train on")
    if type(found) is Wrapper:
        raise TypeError(
            f"Object {obj_id!r} at {worker.id!r} is a chain, {found.child.__class__.__name__}, and not plain numbers. "
            "Training on fixed-precision, shared or remote values is for the documented loop with FederatedDataLoader."
        )
    return found, allowed is None


def _offering(
    workers: Any, key: str, work: Work, user: str | None, travelling: TravellingWork | None
) -> dict[str, Client]:
    """Clients for data sets that workers offer by name (`worker.add_dataset`)."""
    if not isinstance(workers, Iterable) or isinstance(workers, (Mapping, FederatedDataset)):
        raise TypeError(
            f"With dataset_key={key!r} clients are a list of workers; this is a {type(workers).__name__}. Leave "
            "dataset_key out for data sets."
        )
    made: dict[str, Client] = {}
    for worker in workers:
        if str(getattr(worker, "id", None)) in made:
            raise ValueError(f"Worker {worker.id!r} is named twice. Name each worker once.")
        if isinstance(worker, NetworkClientWorker):
            travelling = travelling or TravellingWork(work)
            made[str(worker.id)] = NetworkClient(worker, key, travelling, user)
        else:
            here = _in_process(worker)
            made[str(here.id)] = WorkerClient(here, _finder(here, key, user, work), work)
    return made


def _finder(worker: VirtualWorker, key: str, user: str | None, work: Work) -> Callable[[Any], Found]:
    offers: FederatedClient = worker.extension(FederatedClient)

    def is_approved(instructions: Any) -> bool:
        if key not in offers.on_request:
            return False
        offer = described(worker, offers.datasets[key])
        if offer is None:
            return False
        traced = TravellingWork(work).traced(offer, with_metrics=False)
        return use_training_approval(worker, user, key, traced, instructions, is_kept=False)

    def find(instructions: Any) -> Found:
        if key not in offers.datasets:
            known = ", ".join(map(repr, sorted(offers.datasets))) or "none"
            raise ValueError(
                f"Worker {worker.id!r} offers no data set {key!r}; it offers {known}. Its owner offers one with "
                "worker.add_dataset(dataset, key)."
            )
        allowed = offered_to(worker, user, key)
        if worker.policy.may_get(user, allowed) or not is_approved(instructions):
            worker.policy.check_get(user, key, allowed, action="train on")
        dataset = offers.datasets[key]
        least, noise = offers.least_in_sum.get(key), offers.minimum_noise.get(key)
        return Found(dataset, allowed is None, least, noise, dataset)

    return find


def _in_process(worker: Any) -> VirtualWorker:
    if isinstance(worker, VirtualWorker):
        return worker
    raise TypeError(
        f"{worker!r} is not a worker of this process, so its data cannot be trained on through pointers. Name the data "
        "set that its owner offers: Trainer(model, loss, [workers], dataset_key=...), or use a VirtualWorker."
    )
