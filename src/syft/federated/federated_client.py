"""`FederatedClient`: trains and evaluates on data sets that their owner offers by name. No I/O.

A worker has one (`worker.add_dataset`, `worker.fit`); what it does with the messages is in `fit_handlers`. It can also be
used by itself: `set_obj(train_config)`, then `fit(dataset_key)`. It then keeps objects, too, to which a TrainConfig can
refer by their ids.

NOTE [What offering a data set means]
The rows stay here. Whoever may train on them gets models, losses and counts that were computed from them, and a
model can remember rows: offering a data set consents to that. Noise that bounds it is differential privacy's.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch.utils.data import TensorDataset

from syft.core.interfaces import IMPLEMENTATIONS, TrainingOffers
from syft.data.schema import DataSetInfo
from syft.federated.dataset import BaseDataset
from syft.federated.local_training import batches, make_optimizer
from syft.federated.outside import rows_of
from syft.federated.plan_module import by_name
from syft.federated.train_config import TrainConfig, opened
from syft.messaging.message import TrainConfigMessage
from syft.policy.permissions import Allowed, intersect
from syft.workers.documented_storage import MISSING, ObjectStorage, id_and_object
from syft.workers.store import AS_IT_IS

_MOST_BINS = 1_000_000


class FederatedClient(ObjectStorage):
    """Data sets by name, and the training on them.

    datasets  torch Datasets of pairs (input, target), by name
    """

    def __init__(self, datasets: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.datasets: dict[str, Any] = {}
        self.train_config: TrainConfig | None = None
        self.allowed: dict[str, frozenset[str]] = {}
        #: Of how many clients a sum is at least in which an update leaves, where the owner said so.
        self.least_in_sum: dict[str, int] = {}
        #: With how much noise an update leaves at least, in clipping bounds, where the owner said so.
        self.minimum_noise: dict[str, float] = {}
        #: What is told of data sets, where their owner said it; also of those that are for noise alone.
        self.infos: dict[str, DataSetInfo] = {}
        #: Those that may be asked for by users who may not train on them.
        self.on_request: set[str] = set()
        #: The config that each user sent last.
        self.sent: dict[str | None, TrainConfigMessage] = {}
        # The optimizer of a model goes on from fit to fit, and goes with the model.
        self._optimizers: weakref.WeakKeyDictionary[Any, tuple[Any, torch.optim.Optimizer]] = (
            weakref.WeakKeyDictionary()
        )
        self._optimizer: torch.optim.Optimizer | None = None
        for key, dataset in (datasets or {}).items():
            self.add_dataset(dataset, key)

    def add_dataset(
        self,
        dataset: Any,
        key: str,
        allowed_users: Iterable[str] | None = None,
        least_in_sum: int | None = None,
        info: DataSetInfo | None = None,
        on_request: bool = False,
        minimum_noise: float | None = None,
    ) -> None:
        """Offer a data set; see NOTE [What offering a data set means]. `allowed_users`: to whom (None: to all).

        on_request     others than `allowed_users` (without: everybody) see what its rows look like and may ask
        least_in_sum   updates leave only in secure sums of so many clients or more; None: as they are. It hides whose
                       they are, and not what is in them
        minimum_noise  updates leave only in sums with noise of this standard deviation or more, in clipping bounds, of
                       which the workers of the smallest sum add all (`least_in_sum`; without: this one alone)
        """
        if key in self.datasets:
            raise ValueError(
                f"A data set {key!r} is offered already. Remove it first, or choose another name."
            )
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise TypeError(
                f"A {type(dataset).__name__} was offered as data set {key!r}; it has no length and no numbered items. "
                "Give a BaseDataset or another torch Dataset."
            )
        if getattr(dataset, "location", None) is not None:
            raise ValueError(
                f"The data set {key!r} is on worker {dataset.location.id!r}; a client offers what is in its own memory. "
                "Offer it there."
            )
        if isinstance(allowed_users, str):
            raise TypeError("allowed_users is a str; pass a list or tuple of user names.")
        if least_in_sum is not None and (not isinstance(least_in_sum, int) or least_in_sum < 2):
            raise ValueError(
                f"least_in_sum is a number of clients, 2 or more, among whom an update hides; got {least_in_sum!r}."
            )
        if minimum_noise is not None and (
            isinstance(minimum_noise, bool)
            or not isinstance(minimum_noise, (int, float))
            or not 0 < minimum_noise < math.inf
        ):
            raise ValueError(
                f"minimum_noise is a number of clipping bounds above 0, such as 1.0; got {minimum_noise!r}."
            )
        dataset = rows_of(dataset)
        privacy: Allowed = None
        if hasattr(dataset, "split_privacy"):
            dataset, privacy = dataset.split_privacy()
        if on_request and allowed_users is None:
            allowed_users = ()
        chosen = intersect(privacy, None if allowed_users is None else frozenset(allowed_users))
        if info is not None and (not isinstance(info, DataSetInfo) or info.name != key):
            raise ValueError(f"info is a DataSetInfo of the name {key!r}; got {str(info)[:80]!r}.")
        self.datasets[key] = dataset
        if info is not None:
            self.infos[key] = info
        if on_request:
            self.on_request.add(key)
        if chosen is not None:
            self.allowed[key] = chosen
        if least_in_sum is not None:
            self.least_in_sum[key] = least_in_sum
        if minimum_noise is not None:
            self.minimum_noise[key] = float(minimum_noise)

    def remove_dataset(self, key: str) -> None:
        """Offer a data set no longer."""
        self._dataset(key)
        del self.datasets[key]
        self.allowed.pop(key, None)
        self.infos.pop(key, None)
        self.least_in_sum.pop(key, None)
        self.minimum_noise.pop(key, None)
        self.on_request.discard(key)

    def set_obj(
        self, obj_id: Any = MISSING, obj: Any = MISSING, allowed: Any = AS_IT_IS, is_private: bool = False
    ) -> None:
        """`set_obj(obj)`: train as a TrainConfig says from now on; keep anything else under its id."""
        obj_id, obj = id_and_object(obj_id, obj)
        if isinstance(obj, TrainConfig):
            self.train_config = obj
        else:
            super().set_obj(obj_id, obj, allowed, is_private)

    # -- training --------------------------------------------------------------------------------------------

    def fit(self, dataset_key: str, device: str = "cpu", config: TrainConfig | None = None) -> torch.Tensor:
        """Train the model of the config in place; returns the loss of the last batch."""
        config = self._config(config)
        self._dataset(dataset_key)
        model, loss_fn = model_and_loss(config, self.get_obj)
        return self._fit(model, dataset_key, loss_fn, device, config)

    def _fit(
        self,
        model: Any,
        dataset_key: str,
        loss_fn: Any,
        device: str = "cpu",
        config: TrainConfig | None = None,
    ) -> torch.Tensor:
        """Train a model as the config says; returns the loss of the last batch."""
        config = self._config(config)
        if not len(self._dataset(dataset_key)):
            raise ValueError(f"The data set {dataset_key!r} has no rows, so there is nothing to train on.")
        loss_of = by_name(loss_fn)
        generator = None if config.seed is None else torch.Generator().manual_seed(config.seed)
        loss = torch.zeros(())
        with _ready(model, device, training=True):
            optimizer = self._build_optimizer(config.optimizer, model, config.optimizer_args or {})
            loader = self._create_data_loader(dataset_key, config.shuffle, config, generator)
            for _epoch in range(config.epochs):
                for number, (data, target) in enumerate(loader):
                    if number == config.max_nr_batches:
                        break
                    optimizer.zero_grad()
                    loss = loss_of(model(data.to(device)), target.to(device))
                    loss.backward()
                    optimizer.step()
        return loss.detach().cpu()

    def _create_data_loader(
        self,
        dataset_key: str,
        shuffle: bool = False,
        config: TrainConfig | None = None,
        generator: torch.Generator | None = None,
    ) -> _Batches:
        """The batches of a data set, of the size that the config says."""
        dataset = _plain(self._dataset(dataset_key))
        return _Batches(dataset, self._config(config).batch_size, shuffle, generator)

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer that trained last. It goes on from fit to fit; set it to None to begin anew."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not None:
            raise TypeError(
                f"FederatedClient.optimizer was set to a {type(optimizer).__name__}. It is made of "
                "TrainConfig(optimizer=..., optimizer_args=...); set it to None to begin anew."
            )
        self._optimizers.clear()
        self._optimizer = None

    def _build_optimizer(
        self, optimizer_name: str, model: Any, optimizer_args: Mapping[str, Any]
    ) -> torch.optim.Optimizer:
        """The optimizer of a model: the one it was trained with before, if the settings are the same."""
        settings = (optimizer_name, tuple(sorted(optimizer_args.items())))
        before = self._optimizers.get(model)
        if before is not None and before[0] == settings:
            self._optimizer = before[1]
            return before[1]
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError(
                "The model of the TrainConfig has no parameter that requires a gradient, so it learns nothing."
            )
        self._optimizer = made = make_optimizer(optimizer_name, optimizer_args, parameters)
        self._optimizers[model] = (settings, made)
        return made

    def evaluate(
        self,
        dataset_key: str,
        return_histograms: bool = False,
        nr_bins: int = -1,
        return_loss: bool = True,
        return_raw_accuracy: bool = True,
        device: str = "cpu",
        config: TrainConfig | None = None,
    ) -> dict[str, Any]:
        """Figures of the model of the config on a data set, which is not trained on.

        loss                                        the mean over all rows, if the loss is a mean over its batch
        nr_correct_predictions, nr_predictions      with `return_raw_accuracy`
        histogram_predictions, histogram_target     with `return_histograms`: how many rows of each class were
                                                    predicted, and are there; `nr_bins` classes (-1: as many as
                                                    the model has scores for)
        """
        config = self._config(config)
        dataset = self._dataset(dataset_key)
        model, loss_fn = model_and_loss(config, self.get_obj)
        tally = _Tally(nr_bins)
        counts_classes = return_histograms or return_raw_accuracy
        with _ready(model, device, training=False), torch.no_grad():
            loss_fn = by_name(loss_fn)
            for data, target in self._create_data_loader(dataset_key, False, config):
                target = target.to(device)
                output = model(data.to(device))
                if return_loss:
                    tally.loss += float(loss_fn(output, target)) * len(target)
                if counts_classes:
                    tally.count(output, target)
        figures: dict[str, Any] = {}
        if return_loss:
            figures["loss"] = tally.loss / max(1, len(dataset))
        if return_raw_accuracy:
            figures["nr_correct_predictions"], figures["nr_predictions"] = tally.correct, len(dataset)
        if return_histograms:
            figures["histogram_predictions"], figures["histogram_target"] = tally.predicted, tally.present
        return figures

    def _check_train_config(self) -> None:
        """!! ValueError if there is no TrainConfig to train with"""
        self._config(None)

    def _config(self, config: TrainConfig | None) -> TrainConfig:
        chosen = self.train_config if config is None else config
        if chosen is None:
            raise ValueError(
                "There is no TrainConfig here yet. Send one first: TrainConfig(...).send(worker)."
            )
        return chosen

    def _dataset(self, key: Any) -> Any:
        if key not in self.datasets:
            offered = ", ".join(repr(name) for name in sorted(self.datasets)) or "none"
            raise ValueError(f"No data set {str(key)[:60]!r} is offered here; these are: {offered}.")
        return self.datasets[key]


class _Batches:
    """The batches of a data set, in a new order each time if they are shuffled."""

    def __init__(self, dataset: Any, size: int, shuffle: bool, generator: torch.Generator | None) -> None:
        self._dataset, self._size, self._shuffle, self._generator = dataset, size, shuffle, generator

    def __len__(self) -> int:
        return -(-len(self._dataset) // self._size)

    def __iter__(self) -> Iterator[Any]:
        count = len(self._dataset)
        order = torch.randperm(count, generator=self._generator) if self._shuffle else None
        return batches(self._dataset, self._size, order)


def model_and_loss(config: TrainConfig, find: Any) -> tuple[Any, Any]:
    """Model and loss of a config; those it refers to by id, as `find` gives them. !! ValueError"""
    found = []
    for what, called, obj_id in (
        ("model", config.model, config.model_id),
        ("loss", config.loss_fn, config.loss_fn_id),
    ):
        if called is None and obj_id is not None:
            called = opened(find(obj_id))
        if called is None:
            raise ValueError(
                f"The TrainConfig {config.id!r} has no {what}. Give one, or the id of one that is there: "
                "TrainConfig(model, loss_fn) or TrainConfig(None, None, model_id=..., loss_fn_id=...)."
            )
        found.append(called)
    return found[0], found[1]


class _Tally:
    """What an evaluation counts."""

    def __init__(self, bins: int) -> None:
        if bins > _MOST_BINS:
            raise ValueError(
                f"evaluate() was asked for nr_bins={bins}; it counts {_MOST_BINS} classes at most."
            )
        self.bins, self.loss, self.correct = bins, 0.0, 0
        self.predicted = self.present = torch.zeros(max(bins, 0), dtype=torch.int64)

    def count(self, output: torch.Tensor, target: torch.Tensor) -> None:
        if output.ndim < 2:
            raise ValueError(
                "evaluate() was asked to count classes, and the model returns one number per row. Call it with "
                "return_raw_accuracy=False and return_histograms=False."
            )
        if self.bins < 0:
            self.bins = output.shape[1]
            self.predicted = self.present = torch.zeros(self.bins, dtype=torch.int64)
        predicted, target = output.argmax(dim=1), target.flatten()
        self.correct += int((predicted == target).sum())
        self.predicted = self.predicted + self._histogram(predicted)
        self.present = self.present + self._histogram(target)

    def _histogram(self, classes: torch.Tensor) -> torch.Tensor:
        inside = classes[(classes >= 0) & (classes < self.bins)].to(torch.int64).cpu()
        return torch.bincount(inside, minlength=self.bins)


def _plain(dataset: Any) -> Any:
    """A BaseDataset of tensors in torch's form, of which batches are taken at once."""
    if isinstance(dataset, BaseDataset) and dataset.transform_ is None:
        return TensorDataset(dataset.data, dataset.targets)
    return dataset


@contextmanager
def _ready(model: Any, device: str, training: bool) -> Iterator[None]:
    """Inside, a model is on the device and in the mode; afterwards as it was. Plans have neither."""
    is_module = isinstance(model, torch.nn.Module)
    was_training = is_module and model.training
    if is_module:
        _bring(model, device)
        model.train(training)
    try:
        yield
    finally:
        if is_module:
            _bring(model, "cpu")
            model.train(was_training)


def _bring(model: torch.nn.Module, device: str) -> None:
    # NB: `Module.to` makes a function of it and applies it to every part, though all of them are there.
    wanted = torch.device(device)
    if any(tensor.device != wanted for tensor in chain(model.parameters(), model.buffers())):
        model.to(wanted)


IMPLEMENTATIONS[TrainingOffers] = FederatedClient
