"""`TrainConfig`: what to train and how, to be sent to where the data is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import torch

from syft import serde
from syft.core.ids import ID_PROVIDER
from syft.core.objects import AbstractObject
from syft.core.session import session
from syft.exceptions import ChainError
from syft.execution.plan import Plan
from syft.execution.program import Input
from syft.federated.layout import read_state, write_state
from syft.federated.local_training import OPTIMIZERS
from syft.federated.offers import Offer, offer_of
from syft.federated.plan_module import PlanModule, SentModule, traced_loss, traced_module
from syft.federated.torchscript import copy_of
from syft.messaging.message import ObjectMessage, TrainConfigMessage
from syft.tensors.object_pointer import ObjectPointer
from syft.tensors.object_wrapper import POINTERS, ObjectWrapper


@dataclass(eq=False, repr=False)
class TrainConfig:
    """Settings for training at a worker.

    model, loss_fn   anything that can be called, the model with `parameters()`: a module and a function here and on
                     workers of this process, Plans also elsewhere; what torch.jit compiled goes there as a plan. The
                     loss is called with `pred=` and `target=` if it has parameters of those names, else with
                     (prediction, target), as torch's own. None: what the worker holds under `model_id`, `loss_fn_id`
    owner            who sends it; the local worker if left out
    optimizer        a name out of `OPTIMIZERS`, with its arguments in `optimizer_args` (None: its own defaults)
    id               under which the worker keeps it
    max_nr_batches   stop an epoch after that many batches; -1: all
    seed             of the order of the rows, if they are shuffled; the worker's own generator if left out
    """

    pointer_kind: ClassVar[str] = "object"
    tags: ClassVar[frozenset[str]] = frozenset()
    description: ClassVar[str | None] = None

    model: Any
    loss_fn: Callable[..., Any] | None
    owner: Any = None
    batch_size: int = 32
    epochs: int = 1
    optimizer: str = "SGD"
    optimizer_args: Mapping[str, Any] | None = field(default_factory=lambda: {"lr": 0.1})
    id: Any = None
    max_nr_batches: int = -1
    shuffle: bool = True
    loss_fn_id: Any = None
    model_id: Any = None
    seed: int | None = None
    #: Pointers to the two, wrapped, after `send`.
    model_ptr: Any = field(default=None, init=False)
    loss_fn_ptr: Any = field(default=None, init=False)
    _config_ptr: Any = field(default=None, init=False)
    #: Whether it came in a message, and is not the owner's of the worker that has it.
    is_from_elsewhere: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.id is None:
            self.id = ID_PROVIDER.pop()
        if self.owner is None:
            self.owner = session.local_worker
        is_model = callable(self.model) and hasattr(self.model, "parameters")
        if self.model is not None and not is_model:
            raise TypeError(
                f"The model of a TrainConfig can be called and has parameters(); a {type(self.model).__name__} was "
                "given. Give an nn.Module or a Plan."
            )
        if self.loss_fn is not None and not callable(self.loss_fn):
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
        if self.optimizer_args is None:
            self.optimizer_args = {}
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

    def __str__(self) -> str:
        return (
            f"<{type(self).__name__} id:{self.id} owner:{getattr(self.owner, 'id', self.owner)} epochs: {self.epochs} "
            f"batch_size: {self.batch_size} optimizer_args: {self.optimizer_args}>"
        )

    __repr__ = __str__

    # -- there and back ------------------------------------------------------------------------------------

    def send(self, location: Any, user: str | None = None, dataset_key: str | None = None) -> TrainConfig:
        """Put copies of model and loss on a worker and let it train as this says from now on; returns self.

        What was sent stays there as long as `model_ptr` and `loss_fn_ptr` live. To a worker on a network they go as
        plans, traced for the rows of the data set that the worker offers; `dataset_key` says which, if it offers
        several that differ. What cannot be traced is refused before anything is sent.
        """
        me = session.require_local_worker() if self.owner is None else self.owner
        worker = me.get_worker(location, fail_hard=True)
        place = getattr(self.model, "location", None)
        if place is not None:
            raise ChainError(
                f"The model of this TrainConfig is on worker {place.id!r}. Fetch it with model.get() before sending the "
                "config: it takes the model along."
            )
        model, loss_fn = self.model, self.loss_fn
        if not worker.is_in_process:
            model, loss_fn = self._traced(worker, dataset_key, user)
        self.model_ptr, self.model_id = self._put_or_refer(model, self.model_id, worker, user)
        self.loss_fn_ptr, self.loss_fn_id = self._put_or_refer(loss_fn, self.loss_fn_id, worker, user)
        self._config_ptr = put(self.without_objects(), worker, user)
        me.send_msg(
            TrainConfigMessage(
                self.model_id,
                self.loss_fn_id,
                self.batch_size,
                self.epochs,
                self.optimizer,
                dict(self.optimizer_args or {}),
                self.max_nr_batches,
                self.shuffle,
                self.seed,
                user,
            ),
            worker,
        )
        return self

    def _put_or_refer(self, obj: Any, obj_id: Any, location: Any, user: str | None) -> tuple[Any, Any]:
        """A pointer to a model or loss at a worker, and its id there."""
        if obj is None and obj_id is not None:
            return ObjectPointer(location, obj_id, garbage_collect_data=False), obj_id
        return self._wrap_and_send_obj(obj, location, user)

    def _wrap_and_send_obj(self, obj: Any, location: Any, user: str | None = None) -> tuple[Any, Any]:
        """Put a model or a loss on a worker; a pointer to it, and its id there."""
        # NB: a wrapper hands over what it holds as it is, so the copy is made here.
        held = obj if type(obj) is SentModule else ObjectWrapper(copy_of(obj))
        pointer = put(held, location, user)
        return pointer, pointer.id_at_location

    def get(self, location: Any = None, user: str | None = None, reason: str = "") -> TrainConfig:
        """Fetch the trained model: it becomes `model`, and nothing is left there; returns self.

        `location` may be left out: it is where this was sent.
        """
        if self.model_ptr is None:
            raise ChainError("This TrainConfig is not on a worker. Send it first with `.send(worker)`.")
        sent_to = self.model_ptr.location
        if location is not None and getattr(location, "id", location) != sent_to.id:
            raise ChainError(
                f"This TrainConfig was sent to worker {sent_to.id!r}; get() was called with "
                f"{getattr(location, 'id', location)!r}. Leave the worker out."
            )
        fetched = self.model_ptr.get(user=user, reason=reason)
        self.model = self._like_mine(fetched.module) if type(fetched) is SentModule else fetched.obj
        self.model_ptr = self.loss_fn_ptr = self._config_ptr = self.model_id = self.loss_fn_id = None
        return self

    def get_model(self) -> Any:
        """The model: fetched, if this was sent."""
        return self.model if self.model_ptr is None else self.get().model

    def get_loss_fn(self) -> Any:
        """The loss; one that is only at the worker is fetched."""
        if self.loss_fn is None and self.loss_fn_ptr is not None:
            self.loss_fn = opened(self.loss_fn_ptr.get())
        return self.loss_fn

    @property
    def _model_id(self) -> Any:
        return self.model_id

    @property
    def _loss_fn_id(self) -> Any:
        return self.loss_fn_id

    # -- in messages -----------------------------------------------------------------------------------------

    def without_objects(self) -> TrainConfig:
        """The settings, with the ids of model and loss in their place: what a worker keeps."""
        return TrainConfig.detail(None, TrainConfig.simplify(None, self))

    @staticmethod
    def simplify(worker: Any, train_config: TrainConfig) -> tuple[Any, ...]:
        """The settings as plain values; model and loss by their ids."""
        return (
            train_config.model_id,
            train_config.loss_fn_id,
            train_config.batch_size,
            train_config.epochs,
            train_config.optimizer,
            dict(train_config.optimizer_args or {}),
            train_config.id,
            train_config.max_nr_batches,
            train_config.shuffle,
            train_config.seed,
        )

    @staticmethod
    def detail(worker: Any, train_config_tuple: tuple[Any, ...]) -> TrainConfig:
        """The inverse of `simplify`, as `worker` has it: without model and loss."""
        model_id, loss_fn_id, batch_size, epochs, optimizer, args, id, most, shuffle, seed = (
            train_config_tuple
        )
        made = TrainConfig(
            None,
            None,
            owner=worker,
            batch_size=batch_size,
            epochs=epochs,
            optimizer=optimizer,
            optimizer_args=args,
            id=id,
            max_nr_batches=most,
            shuffle=shuffle,
            loss_fn_id=loss_fn_id,
            model_id=model_id,
            seed=seed,
        )
        made.is_from_elsewhere = True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainConfig:
        # Whose it is, and what points to workers, is not copied.
        made = replace(self, model=copy_of(self.model), loss_fn=copy_of(self.loss_fn))
        made.is_from_elsewhere = self.is_from_elsewhere
        return made

    def _traced(self, location: Any, key: str | None, user: str | None) -> tuple[Any, Any]:
        """Model and loss as they travel; None for what is there already."""
        if self.model is None and self.loss_fn is None and None not in (self.model_id, self.loss_fn_id):
            return None, None
        if self.model is None or self.loss_fn is None:
            missing = "model" if self.model is None else "loss"
            raise ValueError(
                f"The TrainConfig has no {missing}. To a worker on a network both go together, or both are there "
                "already: give model and loss_fn, or model_id and loss_fn_id."
            )
        travels = (Plan, PlanModule)
        offer = Offer((), Input((), torch.float32))
        if not (isinstance(self.model, travels) and isinstance(self.loss_fn, travels)):
            offer = offer_of(location, key, user)
            if offer.names:
                raise ValueError(
                    f"The rows of that data set are dicts ({offer}), and a TrainConfig trains on pairs of input and "
                    "target. Use a Trainer, which takes both: Trainer(model, loss, [worker], dataset_key=...)."
                )
        model = traced_module(self.model, offer.inputs)
        return SentModule(model), SentModule(traced_loss(self.loss_fn, model, offer.inputs, offer.target))

    def _like_mine(self, trained: PlanModule) -> Any:
        """What came back, as the model that was sent: of the same class, with the new state."""
        if isinstance(self.model, Plan):
            plan = self.model.copy()
            plan.state.set_([trained._tensors()[slot] for slot in trained._slots[0]])
            return plan
        made = copy_of(self.model)
        write_state(made, read_state(trained))
        return made

    @classmethod
    def from_message(cls, message: TrainConfigMessage, find: Callable[[Any], Any]) -> TrainConfig:
        """The config that a message describes; `find` gives the objects it refers to."""
        return cls(
            opened(find(message.model_id)),
            opened(find(message.loss_fn_id)),
            batch_size=message.batch_size,
            epochs=message.epochs,
            optimizer=message.optimizer,
            optimizer_args=message.optimizer_args,
            max_nr_batches=message.max_nr_batches,
            shuffle=message.shuffle,
            loss_fn_id=message.loss_fn_id,
            model_id=message.model_id,
            seed=message.seed,
        )


serde.register(
    TrainConfig,
    "TrainConfig",
    TrainConfig.simplify,
    TrainConfig.detail,
    fields=tuple[
        int | str | None,
        int | str | None,
        int,
        int,
        str,
        dict[str, Any],
        int | str,
        int,
        bool,
        int | None,
    ],
)


@cache
def _arguments_of(optimizer: str) -> frozenset[str]:
    return frozenset(inspect.signature(OPTIMIZERS[optimizer]).parameters) - {"params"}


def put(obj: Any, location: Any, user: str | None) -> ObjectPointer:
    """Hand an object over to a worker; a pointer to it."""
    session.require_local_worker().send_msg(ObjectMessage(obj, obj.id, None, user), location)
    return POINTERS[obj.pointer_kind](location, obj.id)


def opened(obj: Any) -> Any:
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
