"""`train_privately`: DP-SGD on a data set that is on a worker, with noise added where the data is.

One duty: to charge a training run to the budgets of its data, and then run it there. Imports `dpsgd`, `private_programs`,
`release`, `worker_budgets`, `federated.plan_module`; adds a handler to the table of `workers`.

NOTE [Models are data here]
A model that a user brings would be code that runs beside private data. So it is traced where the user is, and what is
trained is its plan: a row of operations from a list (`private_programs`, NOTE [Operations beside private data]), also
where worker and user are in one process. Labels are clamped to the classes there are, because a loss raises for others.

NOTE [From one record more to one record replaced]
The accountant of DP-SGD is about one record more or less. A record that is replaced is one less and one more,
and a person with k records is 2k such steps: (e, d) becomes (2k e, d (1 + e^e + ... + e^((2k - 1) e))) (Vadhan
2017, lemma 2.2). The noise is found for the e and d that give what was asked for.

On a network, who pays is who proved their name.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.core.chain import Wrapper
from syft.core.interfaces import Worker
from syft.core.session import session
from syft.core.spec import spec_of
from syft.dp.clipping import LARGEST_BOUND, LEAST_BOUND
from syft.dp.dpsgd import PrivateTraining, make_private
from syft.dp.private_programs import check_program
from syft.dp.provenance import Source, names_of
from syft.dp.release import copied_rows, released_rows
from syft.dp.worker_budgets import Charge
from syft.exceptions import ReleaseNotPermittedError, SyftError
from syft.execution.program import Input
from syft.federated.federated_client import FederatedClient
from syft.federated.layout import state_fault
from syft.federated.plan_module import TRAINED, PlanModule, SentModule, traced_module
from syft.messaging.message import PrivateTrainingMessage
from syft.policy.caller import user_of
from syft.policy.permissions import AuditRecord
from syft.tensors.pointer import PointerTensor
from syft.workers import handlers, pipeline

LOSSES: dict[str, type[nn.Module]] = {
    "cross_entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "binary_cross_entropy": nn.BCEWithLogitsLoss,
}


#: An epsilon above it protects nobody, and e^epsilon, which a record that is replaced needs, is no number.
LARGEST_EPSILON = 500.0

MOST_EPOCHS = 1_000_000


@dataclass(frozen=True)
class Settings:
    """The numbers of a request, and for whom it is."""

    loss: str
    epsilon: float
    delta: float
    epochs: int
    batch_size: int
    lr: float
    momentum: float
    max_grad_norm: float
    user: str | None

    def check(self) -> None:
        """!! ValueError, TypeError with what is wrong with them"""
        if not isinstance(self.loss, str) or self.loss not in LOSSES:
            raise ValueError(f"There is no loss {str(self.loss)[:60]!r}. There are: {', '.join(LOSSES)}.")
        if self.user is not None and not isinstance(self.user, str):
            raise TypeError(
                f"train_privately got a {type(self.user).__name__} as user: a user is named by a text."
            )
        faults = [
            f"{name}={repr(getattr(self, name))[:60]} ({what})"
            for name, (is_right, what) in _RIGHT.items()
            if not is_right(getattr(self, name))
        ]
        if faults:
            raise ValueError(f"train_privately was given {', '.join(faults)}. Nothing was charged.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e300


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1 << 62


#: Name of a number -> whether one is right, and what is.
_RIGHT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "epsilon": (lambda e: _is_number(e) and 0 < e <= LARGEST_EPSILON, "above 0, 500 at most"),
    "delta": (lambda d: _is_number(d) and 0 < d < 1, "above 0, below 1"),
    "epochs": (lambda n: _is_count(n) and n <= MOST_EPOCHS, "a whole number from 1 to a million"),
    "batch_size": (_is_count, "a whole number, 1 at least"),
    "lr": (lambda rate: _is_number(rate) and rate >= 0, "a finite number, 0 at least"),
    "momentum": (lambda m: _is_number(m) and m >= 0, "a finite number, 0 at least"),
    "max_grad_norm": (
        lambda bound: _is_number(bound) and LEAST_BOUND <= bound <= LARGEST_BOUND,
        f"a number from {LEAST_BOUND:g} to {LARGEST_BOUND:g}",
    ),
}


def train_privately(
    inputs: Any,
    targets: Any,
    model: nn.Module,
    *,
    loss: str,
    user: str,
    epsilon: float,
    delta: float,
    epochs: int,
    batch_size: int,
    lr: float,
    momentum: float = 0.0,
    max_grad_norm: float = 1.0,
) -> nn.Module:
    """A copy of `model`, trained with SGD where `inputs` and `targets` are, (epsilon, delta)-DP; charged first.

    inputs, targets   pointers to data sets with a budget on one worker, or to rows of them, record by record
    loss              "cross_entropy", "mse" or "binary_cross_entropy" (of logits)
    batch_size        on average: every record is in every batch with the same probability
    """
    worker, places = _place_of(inputs, targets)
    settings = Settings(loss, epsilon, delta, epochs, batch_size, lr, momentum, max_grad_norm, user)
    settings.check()
    plan = _traced(model, inputs, targets)
    if worker.is_in_process:
        state = _train(worker, places, plan, settings)
    else:
        message = PrivateTrainingMessage(*places, SentModule(plan), **asdict(settings))
        state = session.require_local_worker().send_msg(message, worker)
    trained = copy.deepcopy(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in _trained_tensors(plan).items()}
    if fault := state_fault(state, shapes):
        raise ValueError(f"What came back from the training does not fit the model: {fault}.")
    # NB: a parameter that stands in two places has the name of the first in the plan.
    places_of = dict(trained.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, value in state.items():
            places_of[name].copy_(value)
    return trained


def _traced(model: Any, inputs: Any, targets: Any) -> PlanModule:
    """The plan of a model, for records that look like `inputs`. !! what is wrong with them, from what is public"""
    if not isinstance(model, nn.Module):
        raise TypeError(f"train_privately got a {type(model).__name__} as a model: it takes an nn.Module.")
    _check_rows(inputs, targets)
    try:
        return traced_module(model, [Input((-1, *inputs.shape[1:]), inputs.dtype)])
    except RecursionError:
        raise ReleaseNotPermittedError(
            "train_privately was given a model that contains itself. Put another layer there."
        ) from None
    except (RuntimeError, TypeError, IndexError) as error:
        if isinstance(error, SyftError):
            raise
        raise ValueError(
            f"The model ({_dtypes(model)}) cannot be trained on records of {tuple(inputs.shape[1:])} "
            f"({_dtype(inputs)}): {error}. Nothing was charged."
        ) from error


def _trained_tensors(plan: PlanModule) -> dict[str, torch.Tensor]:
    parts = zip(plan._names, plan._kinds, plan._tensors(), strict=True)
    return {name: tensor for name, kind, tensor in parts if kind == TRAINED}


def train_here(worker: Worker, message: PrivateTrainingMessage) -> dict[str, torch.Tensor]:
    """Train a model that was sent by somebody on a network; replies what was trained."""
    said = {field.name: getattr(message, field.name) for field in fields(Settings)}
    settings = Settings(**{**said, "user": user_of(message)})
    if not isinstance(message.model, SentModule):
        raise ValueError(f"A model travels as a SentModule, not as a {type(message.model).__name__}.")
    return _train(worker, (message.inputs, message.targets), message.model.module, settings)


def _train(
    worker: Worker, places: tuple[Any, Any], plan: PlanModule, settings: Settings
) -> dict[str, torch.Tensor]:
    """The work, at the worker: the parameters, trained."""
    stored = [worker.get_obj(place) for place in places]
    user, sources = settings.user, set[Source]()
    try:
        pipeline.permit_release(worker, None, places)
        settings.check()
        copies, cuts = [], []
        for obj, place in zip(stored, places, strict=True):
            desk, rows = released_rows(worker, obj, place, user)
            copies.append(copied_rows(desk, obj, place, rows))
            cuts.append(rows.cuts)
            sources |= rows.sources
        examples, labels = copies
        _check(examples, labels, cuts, plan)

        def make(model: nn.Module, rows: TensorDataset, size: int, **noise: Any) -> PrivateTraining:
            return make_private(
                model,
                torch.optim.SGD(model.parameters(), lr=settings.lr, momentum=settings.momentum),
                DataLoader(rows, size),
                loss_fn=LOSSES[settings.loss](),
                max_grad_norm=settings.max_grad_norm,
                way="vmap",
                **noise,
            )

        trained = copy.deepcopy(plan).train()
        wanted = _rehearsed(make, trained, examples, labels, settings.loss)
        names = names_of(sources)
        records = desk.book.records_per_person(names)
        epsilon, delta = _for_one_more(settings.epsilon, settings.delta, 2 * records)
        training = make(
            trained,
            TensorDataset(examples, wanted),
            settings.batch_size,
            target_epsilon=epsilon,
            target_delta=delta,
            epochs=settings.epochs,
        )
        _check_enough_noise(worker, names, training.noise_multiplier)
        charge = Charge("dpsgd", None, float(settings.epsilon), float(settings.delta))
        desk.book.charge(names, user, charge, records)
    except Exception:
        worker.policy.record(AuditRecord("release", places[0], user, False, "dpsgd"))
        raise
    worker.policy.record(AuditRecord("release", places[0], user, True, "dpsgd"))
    for _ in range(settings.epochs):
        for batch, answers in training.loader:
            training.step(batch, answers)
    return {name: tensor.detach() for name, tensor in _trained_tensors(trained).items()}


def _check_enough_noise(worker: Worker, names: Iterable[str], noise: float) -> None:
    """!! ReleaseNotPermittedError if the owner of a data set that is offered under such a name asks for more noise"""
    offers = worker.extension(FederatedClient)
    for name in names:
        key = name.removeprefix("#")
        # NB: what may only be released is not trained on in rounds, and has its terms in what is told of it.
        least = offers.minimum_noise.get(key) or getattr(offers.infos.get(key), "minimum_noise", None)
        if least is not None and noise < least * (1 - 1e-9):
            raise ReleaseNotPermittedError(
                f"A training on {name!r} has a noise_multiplier of {least:g} or more, as its owner said, and this one "
                f"would have {noise:.3g}. Ask for a smaller epsilon, fewer epochs or smaller batches. Nothing was "
                "charged."
            )


def _place_of(inputs: Any, targets: Any) -> tuple[Any, tuple[Any, Any]]:
    nodes = [value.child if type(value) is Wrapper else value for value in (inputs, targets)]
    if not all(isinstance(node, PointerTensor) for node in nodes):
        raise TypeError(
            "train_privately takes pointers to inputs and targets. For data that is here use make_private."
        )
    first, second = (node.location for node in nodes)
    if first.id != second.id:
        raise ValueError(
            f"The inputs are on worker {first.id!r} and the targets on {second.id!r}: move one of them."
        )
    if first.is_in_process and not first.has_budgets:
        raise ReleaseNotPermittedError(
            f"Worker {first.id!r} has no budgets. Its owner sets them with set_budget, where the worker runs."
        )
    return first, (nodes[0].id_at_location, nodes[1].id_at_location)


def _check_rows(examples: Any, labels: Any) -> None:
    """What is wrong with shapes and dtypes, of tensors or of pointers to them."""
    if not examples.shape or not labels.shape or examples.shape[0] != labels.shape[0]:
        raise ValueError(
            f"Inputs and targets are the same records: tensors of {tuple(examples.shape)} and {tuple(labels.shape)} were "
            "given."
        )
    if not examples.shape[0]:
        raise ValueError("train_privately was given no records. Nothing was charged.")
    if not examples.dtype.is_floating_point:
        raise ValueError("Inputs are floating-point numbers: call `.float()` on the pointer first.")
    if labels.dtype.is_complex:
        raise ValueError("Targets are real numbers: take `.real` or `.imag` of them.")


def _check(examples: Any, labels: Any, cuts: list[Any], plan: PlanModule) -> None:
    """What is wrong with a request, from what is public about the data and the model."""
    _check_rows(examples, labels)
    if cuts[0] != cuts[1]:
        raise ValueError(
            "Inputs and targets must be of the same records, in the same order, and different rows of the two were "
            "given. Cut the same rows out of both."
        )
    check_program(plan, spec_of(torch.empty_like(examples[:1], device="meta")))
    if not any(p.requires_grad for p in plan.parameters()):
        raise ValueError(
            "The model has no parameter to train: all are frozen (requires_grad=False), or there is none. Nothing was "
            "charged."
        )


def _for_one_more(epsilon: float, delta: float, changes: int) -> tuple[float, float]:
    """See NOTE [From one record more to one record replaced]."""
    each = epsilon / changes
    # Of exp(step * each), summed over all steps before `changes`; and a little more than it can be rounded by.
    growth = _log_expm1(epsilon) - _log_expm1(each) + 1e-9
    part = delta * math.exp(-growth)
    if part < 1e-290:
        raise ValueError(
            f"train_privately was given epsilon={epsilon:g} and delta={delta:g}: for a record that is replaced the delta "
            "would be less than a number can be. Ask for a smaller epsilon, or a larger delta. Nothing was charged."
        )
    return each, part


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))


def _rehearsed(
    make: Callable[..., PrivateTraining],
    model: nn.Module,
    examples: torch.Tensor,
    labels: torch.Tensor,
    loss: str,
) -> torch.Tensor:
    """The targets as the loss takes them, after one step with a copy of the model on one record of zeros.

    What does not fit together is found here, before anything is charged; the data has no part in it.
    """
    zeros = torch.zeros_like(examples[:1])
    try:
        with torch.no_grad():
            given = model(zeros)
        if not isinstance(given, torch.Tensor):
            raise ValueError(f"it gives a {type(given).__name__}, and a loss is of one tensor")
        if loss == "cross_entropy":
            wanted = labels.detach().nan_to_num(0.0).long().clamp(0, given.shape[1] - 1)
        else:
            wanted = labels.detach().to(given.dtype).nan_to_num(0.0, 0.0, 0.0)
        if loss != "cross_entropy" and wanted.shape[1:] != given.shape[1:]:
            raise ValueError(
                f"it gives {tuple(given.shape[1:])} per record, and a target is {tuple(wanted.shape[1:])}"
            )
        targets = torch.zeros_like(wanted[:1])
        LOSSES[loss]()(given, targets)
        rehearsal = make(copy.deepcopy(model), TensorDataset(zeros, targets), 1, noise_multiplier=1.0)
        for batch, answers in rehearsal.loader:
            rehearsal.step(batch, answers)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        raise ValueError(
            f"The model ({_dtypes(model)}) cannot be trained with {loss!r} on records of {tuple(examples.shape[1:])} "
            f"({_dtype(examples)}) and targets of {tuple(labels.shape[1:])}: {error}. Nothing was charged."
        ) from error
    return wanted


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _dtypes(model: nn.Module) -> str:
    return ", ".join(sorted({_dtype(p) for p in model.parameters()}))


handlers.HANDLERS[PrivateTrainingMessage] = train_here
