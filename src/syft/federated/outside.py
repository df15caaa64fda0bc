"""Data sets and models of other libraries, known by what they can do: none of them is imported.

rows_of          a Hugging Face `datasets.Dataset` as rows of tensors; anything else as it is
from_lightning   what a Trainer needs of a LightningModule: model, loss, optimizer and its options
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from syft.core.labels import LABELS

_log = logging.getLogger(__name__)
_TARGETS = (LABELS, "label")
_LOSSES = ("criterion", "loss_fn", "loss_function", "loss")


def rows_of(dataset: Any) -> Any:
    """What can be trained on: rows of tensors in the place of a Hugging Face data set. !! ValueError"""
    is_one = callable(getattr(dataset, "with_format", None)) and hasattr(dataset, "column_names")
    return HuggingFaceRows(dataset) if is_one else dataset


class HuggingFaceRows(Dataset[dict[str, torch.Tensor]]):
    """The columns of numbers of a Hugging Face data set, row by row as a dict; the targets are its "labels".

    A column of text beside them is left out, with a line in the log.
    """

    def __init__(self, dataset: Any) -> None:
        names = dataset.column_names
        if isinstance(names, Mapping):
            raise ValueError(
                f"This is a DatasetDict with the splits {', '.join(map(repr, names))}. Give one: datasets['train']."
            )
        if not len(dataset):
            raise ValueError("The data set is empty. Leave this client out.")
        target = next((name for name in _TARGETS if name in names), None)
        if target is None:
            raise ValueError(
                f"A Hugging Face data set has its targets in a column 'labels' or 'label'; this one has "
                f"{', '.join(map(repr, names))}. Rename one: dataset.rename_column('...', 'labels')."
            )
        first = dataset.with_format("torch")[0]
        numbers = [name for name in names if isinstance(first[name], torch.Tensor)]
        others = [name for name in names if name not in numbers]
        if target in others or len(numbers) < 2:
            raise ValueError(
                f"The columns of numbers of this Hugging Face data set are {', '.join(map(repr, numbers)) or 'none'}: a "
                "model needs inputs and labels. Tokenize texts first: dataset.map(lambda row: tokenizer(row['text']))."
            )
        if others:
            _log.warning(
                "Of a Hugging Face data set these columns are no numbers, and are left out: %s",
                ", ".join(others),
            )
        self._rows = dataset.with_format("torch", columns=numbers)
        self._names = {name: LABELS if name == target else name for name in numbers}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self._rows[index]
        return {told: row[name] for name, told in self._names.items()}

    def __getitems__(self, indices: list[int]) -> list[dict[str, torch.Tensor]]:
        columns = self._rows[list(indices)]
        return [
            {told: columns[name][place] for name, told in self._names.items()}
            for place in range(len(indices))
        ]


def from_lightning(module: nn.Module, loss: Any = None) -> dict[str, Any]:
    """What a Trainer takes of a LightningModule: `Trainer(clients=..., **from_lightning(module))`.

    model                       the module itself: its `forward` is what is trained
    loss                        `loss`, or the module's criterion, loss_fn, loss_function or loss
    optimizer, optimizer_args   of `configure_optimizers()`

    A round runs forward and the loss, and no `training_step`: what else a step does (logs, several losses) is left out.
    !! TypeError, ValueError for what a Trainer cannot do
    """
    configure = getattr(module, "configure_optimizers", None)
    if not isinstance(module, nn.Module) or not callable(configure):
        raise TypeError(
            f"from_lightning() takes a LightningModule, with configure_optimizers(); this is a {type(module).__name__}."
        )
    optimizer = _only_optimizer(configure())
    chosen = loss if loss is not None else next(
        (found for name in _LOSSES if callable(found := getattr(module, name, None))), None
    )  # fmt: skip
    if chosen is None:
        raise ValueError(
            f"The module has no loss under the names {', '.join(_LOSSES)}. Pass it: from_lightning(module, loss=...)."
        )
    return {
        "model": module,
        "loss": chosen,
        "optimizer": type(optimizer),
        "optimizer_args": _options(optimizer),
    }


def _only_optimizer(found: Any) -> torch.optim.Optimizer:
    """The one optimizer that `configure_optimizers` returned, in any of its forms. !! ValueError"""
    schedule = None
    if isinstance(found, Mapping):
        found, schedule = found.get("optimizer"), found.get("lr_scheduler")
    elif (
        isinstance(found, Sequence) and len(found) == 2 and all(isinstance(part, Sequence) for part in found)
    ):
        found, schedule = found
    if isinstance(found, Sequence) and len(found) == 1:
        (found,) = found
    if not isinstance(found, torch.optim.Optimizer) or len(found.param_groups) != 1:
        raise ValueError(
            "configure_optimizers() returned something else than one optimizer with one group of parameters, which is "
            "what a client of a Trainer trains with. Give a Trainer optimizer=... and optimizer_args=... yourself."
        )
    if schedule:
        raise ValueError(
            "configure_optimizers() returned a schedule of learning rates; the rounds of a Trainer have none. Return the "
            "optimizer alone."
        )
    return found


def _options(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The options that differ from the optimizer's own."""
    parameters = inspect.signature(type(optimizer).__init__).parameters
    group = optimizer.param_groups[0]
    return {
        name: group[name]
        for name, parameter in parameters.items()
        if name in group and name != "params" and group[name] != parameter.default
    }
