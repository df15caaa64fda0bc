"""`TrainConfig`: what to train and how, to be sent to where the data is."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from syft.core.session import session
from syft.exceptions import ChainError
from syft.federated.local_training import OPTIMIZERS
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
        known = _arguments_of(self.optimizer)
        unknown = sorted(set(self.optimizer_args) - known)
        if unknown:
            raise ValueError(
                f"{self.optimizer} has no argument {', '.join(map(str, unknown))}. It has {', '.join(sorted(known))}."
            )

    def send(self, worker: Any, user: str | None = None) -> TrainConfig:
        """Put copies of model and loss on a worker and let it train as this says from now on; returns self.

        What was sent stays there as long as `model_ptr` and `loss_fn_ptr` live.
        """
        me = session.require_local_worker()
        location = me.get_worker(worker, fail_hard=True)
        place = getattr(self.model, "location", None)
        if place is not None:
            raise ChainError(
                f"The model of this TrainConfig is on worker {place.id!r}. Fetch it with model.get() before sending the "
                "config: it takes the model along."
            )
        self.model_ptr = _put(self.model, location, user)
        self.loss_fn_ptr = _put(self.loss_fn, location, user)
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
        self.model = self.model_ptr.get(user=user, reason=reason).obj
        self.model_ptr = self.loss_fn_ptr = None
        return self

    @classmethod
    def from_message(cls, message: TrainConfigMessage, find: Callable[[Any], Any]) -> TrainConfig:
        """The config that a message describes; `find` gives the objects it refers to."""
        model, loss_fn = find(message.model_id), find(message.loss_fn_id)
        return cls(
            getattr(model, "obj", model),
            getattr(loss_fn, "obj", loss_fn),
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


def _put(obj: Any, location: Any, user: str | None) -> ObjectPointer:
    """A copy of an object on a worker, wrapped; a pointer to it."""
    # NB: a wrapper hands over what it holds as it is, so the copy is made here.
    wrapper = ObjectWrapper(copy.deepcopy(obj))
    session.require_local_worker().send_msg(ObjectMessage(wrapper, wrapper.id, None, user), location)
    return POINTERS[wrapper.pointer_kind](location, wrapper.id)


def _check_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        also = ", or -1 for all of them" if name == "max_nr_batches" else ""
        raise ValueError(
            f"TrainConfig was given {name}={value!r}. Give a whole number of at least {least}{also}."
        )
