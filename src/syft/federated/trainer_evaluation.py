"""How a Trainer's model does: on data that is here, and on its clients' own.

One duty: evaluation. Imports `engines`, `records`, `rounds`, `trainer_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from syft.federated.engines import Task
from syft.federated.layout import read_state
from syft.federated.records import ClientFailure, EvaluateInstructions, EvaluateResult, Metrics
from syft.federated.rounds import collect, mean_metrics, take_evaluation
from syft.federated.trainer_settings import check_groups, checked_figures

if TYPE_CHECKING:
    from syft.federated.trainer import Trainer


@dataclass(frozen=True)
class ClientsEvaluation:
    """A model as the clients found it on their own data."""

    metrics: Metrics
    """Weighted by numbers of examples."""
    by_client: Mapping[str, EvaluateResult]
    failures: tuple[ClientFailure, ...]
    by_group: Mapping[str, Metrics] = field(default_factory=dict)
    """Of the groups that were asked for, weighted by numbers of examples; empty for one of which no client answered."""


def evaluate(trainer: Trainer, on: Any) -> Metrics:
    """Figures of the model as it is, on a Dataset or by a function; without: what the trainer was given."""
    on = trainer._evaluate if on is None else on
    if on is None:
        raise ValueError(
            "There is nothing to evaluate on. Give evaluate() or the Trainer a Dataset or a function."
        )
    if hasattr(on, "__getitem__"):
        return trainer._work.evaluate(
            on, EvaluateInstructions(trainer.round, read_state(trainer.model))
        ).metrics
    modes = [(module, module.training) for module in trainer.model.modules()]
    trainer.model.eval()
    try:
        with torch.no_grad():
            return checked_figures(on(trainer.model))
    finally:
        for module, mode in modes:
            module.training = mode


def evaluate_clients(trainer: Trainer, groups: Mapping[str, Sequence[str]] | None) -> ClientsEvaluation:
    """See `Trainer.evaluate_clients`."""
    grouped = {} if groups is None else check_groups(groups, trainer.clients)
    if trainer.privacy is not None:
        raise ValueError(
            "evaluate_clients() would show figures of the clients' data without noise, and this trainer has "
            "privacy=... Evaluate on data of your own with evaluate(dataset)."
        )
    deadline = trainer._training.deadline
    instructions = EvaluateInstructions(
        trainer.round, trainer._shared_state(), deadline=deadline, local=trainer._local
    )
    tasks = [Task(name, client, instructions) for name, client in trainer.clients.items()]

    def take(name: str, value: Any) -> EvaluateResult | ClientFailure:
        return take_evaluation(name, value, trainer.round)

    results, failures = collect(trainer.engine, tasks, deadline, take, trainer._tell_client)
    by_group = {
        group: mean_metrics({name: results[name] for name in names if name in results})
        for group, names in grouped.items()
    }
    return ClientsEvaluation(mean_metrics(results), results, tuple(failures), by_group)
