"""Asking for training: what a request to train is bound to, and what its owner reads.

One duty: a Trainer's work as something that can be asked for, and recognised when it comes. An approval covers one
model and loss (their plans, with the constants in them), one set of settings and one data set as it is; the weights are
sent anew in every round and are no part of it. Imports `federated_client`, `network_clients`, `plan_module`, `records`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import TensorDataset

from syft.core.plain_text import printable
from syft.execution.state import State
from syft.execution.views import listing
from syft.federated.dataset import BaseDataset
from syft.federated.federated_client import FederatedClient
from syft.federated.network_clients import Traced
from syft.federated.plan_module import CONSTANT, PlanModule
from syft.federated.records import FitInstructions
from syft.requests.approvals import use_approval
from syft.requests.keeper import VERSIONS
from syft.requests.values import seen_content_of
from syft.serde import serialize


def training_digest(model: PlanModule, loss: PlanModule, instructions: FitInstructions, is_kept: bool) -> str:
    """Stands for all that a round does at a client, whatever its weights are."""
    correction = instructions.correction is not None
    common = replace(
        instructions,
        round=0,
        seed=0,
        state={},
        deadline=None,
        correction=None,
        optimizer_args=dict(sorted(instructions.optimizer_args.items())),
    )
    told = serialize((code_of(model), code_of(loss), common, correction, is_kept))
    return hashlib.sha256(told).hexdigest()


def code_of(module: PlanModule) -> tuple[Any, ...]:
    """The operations of a module and the constants in them; of what is trained, names and shapes."""
    tensors = [
        tensor.detach() if kind == CONSTANT else (tuple(tensor.shape), str(tensor.dtype))
        for kind, tensor in zip(module._kinds, module._tensors(), strict=True)
    ]
    programs = tuple(replay.program for replay in module._replays)
    return programs, module._slots, module._names, module._kinds, tuple(tensors)


def shown_code(model: PlanModule, loss: PlanModule) -> str:
    """The plans as text, for the owner."""
    lines: list[str] = []
    for name, module in (("model", model), ("loss", loss)):
        tensors = module._tensors()
        slots: Sequence[int] = module._slots[0]
        state = State.of([tensors[slot] for slot in slots], [module._names[slot] for slot in slots])
        lines += [f"{name}:", *listing(module._replays[0].program, state)]
    return "\n".join(map(printable, lines))  # names of tensors are strangers' texts


def version_of_dataset(worker: Any, key: str) -> str:
    """The version of a data set that is offered under a name: its content, where it is of tensors."""
    dataset = worker.extension(FederatedClient).datasets.get(key)
    if isinstance(dataset, BaseDataset) and dataset.transform_ is None:
        tensors: Any = (dataset.data, dataset.targets)
    else:
        tensors = dataset.tensors if type(dataset) is TensorDataset else ()
    content = hashlib.sha256(f"{key!r} {type(dataset).__name__} {len(dataset or ())}".encode())
    for tensor in tensors:
        if type(tensor) is torch.Tensor:
            content.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            content.update(seen_content_of(tensor))
    return content.hexdigest()


def use_training_approval(
    worker: Any, user: str | None, key: str, traced: Traced, instructions: Any, is_kept: bool
) -> bool:
    """Whether the owner has approved this round of training, which is then counted."""
    if not isinstance(instructions, FitInstructions):
        return False
    digest = training_digest(traced.model, traced.loss, instructions, is_kept)
    return use_approval(worker, user, "train", key, digest) is not None


VERSIONS["train"] = version_of_dataset
