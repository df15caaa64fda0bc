"""`TrainConfig`: what to train and how, to be sent to where the data is."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.exceptions import ChainError
from syft.execution.plan import Plan
from syft.execution.program import Input
from syft.federated.layout import read_state, write_state
from syft.federated.local_training import OPTIMIZERS
from syft.federated.offers import Offer, offer_of
from syft.federated.plan_module import PlanModule, SentModule, traced_loss, traced_module
from syft.messaging.message import ObjectMessage, TrainConfigMessage
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS, ObjectWrapper


@dataclass(eq=False)
class TrainConfig:
    """Settings for training at a worker.

    model, loss_fn   anything that can be called, the model with `parameters()`: a module and a function here and on
                     workers of this process, Plans also elsewhere. The loss is called with `pred=` and `target=` if
                     it has parameters of those names, else with (prediction, target), as torch's own
    optimizer        a name out of `OPTIMIZERS`, with its arguments in `optimizer_args`
    max_nr_batches   stop an epoch after that many batches; -1: all
    seed             of the order of the rows, if they are shuffled; the worker's own generator if left out
    """

    model: Any
    loss_fn: Callable[..., Any]
    batch_size: int = 32
    epochs: int = 1
    optimizer: str = "SGD"
    optimizer_args: Mapping[str, Any] = field(default_factory=lambda: {"lr": 0.1})
    max_nr_batches: int = -1
    shuffle: bool = True
    seed: int | None = None
    #: Pointers to the two, wrapped, after `send`.
    model_ptr: Any = field(default=None, init=False, repr=False)
    loss_fn_ptr: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (callable(self.model) and hasattr(self.model, "parameters")):
            raise TypeError(
                f"The model of a TrainConfig can be called and has parameters(); a {type(self.model).__name__} was "
                "given. Give an nn.Module or a Plan."
            )
        if not callable(self.loss_fn):
            raise TypeError(
                f"The loss of a TrainConfig is a function; a {type(self.loss_fn).__name__} was given."
            )
        for name in ("batch_size", "epochs"):
            _check_number(name, getattr(self, name), 1)
        if self.max_nr_batches != -1:
            _check_number("max_nr_batches", self.max_nr_batches, 1)
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"The optimizer {str(self.optimizer)[:60]!r} is not known. Name one of {', '.join(sorted(OPTIMIZERS))}."
            )
        if not isinstance(self.optimizer_args, Mapping):
            raise TypeError(
                f"TrainConfig was given optimizer_args={self.optimizer_args!r}: they are a dict, e.g. {{'lr': 0.1}}."
            )
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise TypeError(f"TrainConfig was given seed={self.seed!r}: it is a whole number, or None.")
        known = _arguments_of(self.optimizer)
        unknown = sorted(set(self.optimizer_args) - known)
        if unknown:
            raise ValueError(
                f"{self.optimizer} has no argument {', '.join(map(str, unknown))}. It has {', '.join(sorted(known))}."
            )

    def send(self, worker: Any, user: str | None = None, dataset_key: str | None = None) -> TrainConfig:
        """Put copies of model and loss on a worker and let it train as this says from now on; returns self.

        What was sent stays there as long as `model_ptr` and `loss_fn_ptr` live. To a worker on a network they go as
        plans, traced for the rows of the data set that the worker offers; `dataset_key` says which, if it offers
        several that differ.
        """
        me = session.require_local_worker()
        location = me.get_worker(worker, fail_hard=True)
        place = getattr(self.model, "location", None)
        if place is not None:
            raise ChainError(
                f"The model of this TrainConfig is on worker {place.id!r}. Fetch it with model.get() before sending the "
                "config: it takes the model along."
            )
        if location.is_in_process:
            # NB: a wrapper hands over what it holds as it is, so the copies are made here.
            model: Any = ObjectWrapper(copy.deepcopy(self.model))
            loss_fn: Any = ObjectWrapper(copy.deepcopy(self.loss_fn))
        else:
            model, loss_fn = self._traced(location, dataset_key, user)
        self.model_ptr = put(model, location, user)
        self.loss_fn_ptr = put(loss_fn, location, user)
        me.send_msg(
            TrainConfigMessage(
                self.model_ptr.id_at_location,
                self.loss_fn_ptr.id_at_location,
                self.batch_size,
                self.epochs,
                self.optimizer,
                dict(self.optimizer_args),
                self.max_nr_batches,
                self.shuffle,
                self.seed,
                user,
            ),
            location,
        )
        return self

    def get(self, user: str | None = None, reason: str = "") -> TrainConfig:
        """Fetch the trained model: it becomes `model`, and nothing is left there; returns self."""
        if self.model_ptr is None:
            raise ChainError("This TrainConfig is not on a worker. Send it first with `.send(worker)`.")
        fetched = self.model_ptr.get(user=user, reason=reason)
        self.model = self._like_mine(fetched.module) if type(fetched) is SentModule else fetched.obj
        self.model_ptr = self.loss_fn_ptr = None
        return self

    def _traced(self, location: Any, key: str | None, user: str | None) -> tuple[SentModule, SentModule]:
        """Model and loss as they travel."""
        travels = (Plan, PlanModule)
        offer = Offer((), Input((), torch.float32))
        if not (isinstance(self.model, travels) and isinstance(self.loss_fn, travels)):
            offer = offer_of(location, key, user)
        model = traced_module(self.model, offer.inputs)
        return SentModule(model), SentModule(traced_loss(self.loss_fn, model, offer.inputs, offer.target))

    def _like_mine(self, trained: PlanModule) -> Any:
        """What came back, as the model that was sent: of the same class, with the new state."""
        if isinstance(self.model, Plan):
            plan = self.model.copy()
            plan.state.set_([trained._tensors()[slot] for slot in trained._slots[0]])
            return plan
        made = copy.deepcopy(self.model)
        write_state(made, read_state(trained))
        return made

    @classmethod
    def from_message(cls, message: TrainConfigMessage, find: Callable[[Any], Any]) -> TrainConfig:
        """The config that a message describes; `find` gives the objects it refers to."""
        model, loss_fn = find(message.model_id), find(message.loss_fn_id)
        return cls(
            _opened(model),
            _opened(loss_fn),
            message.batch_size,
            message.epochs,
            message.optimizer,
            message.optimizer_args,
            message.max_nr_batches,
            message.shuffle,
            message.seed,
        )


@cache
def _arguments_of(optimizer: str) -> frozenset[str]:
    return frozenset(inspect.signature(OPTIMIZERS[optimizer]).parameters) - {"params"}


def put(obj: Any, location: Any, user: str | None) -> ObjectPointer:
    """Hand an object over to a worker; a pointer to it."""
    session.require_local_worker().send_msg(ObjectMessage(obj, obj.id, None, user), location)
    return POINTERS[obj.pointer_kind](location, obj.id)


def _opened(obj: Any) -> Any:
    """What a worker holds, as it is called. !! TypeError for what would send the data elsewhere when it is"""
    held = obj.module if type(obj) is SentModule else getattr(obj, "obj", obj)
    # NB: attributes of objects can be set by message, and a pointer that is called talks to another worker.
    called = held.forward_func if isinstance(held, Plan) else held
    if isinstance(called, AbstractObject):
        raise TypeError(
            f"A model or a loss that is a {type(called).__name__} does not run beside data. Send an nn.Module, a "
            "function or a Plan with TrainConfig(...).send(worker)."
        )
    return held


def _check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        also = ", or -1 for all of them" if name == "max_nr_batches" else ""
        raise ValueError(
            f"TrainConfig was given {name}={value!r}. Give a whole number of at least {least}{also}."
        )
