"""The figures of a training in MLflow and in Weights & Biases. The packages are imported when a callback is made.

One duty: callbacks that hand every round's figures on. Imports `callbacks`, `history`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from syft.exceptions import DependencyError
from syft.federated.callbacks import Callback
from syft.federated.history import RoundReport

if TYPE_CHECKING:
    from syft.federated.trainer import Trainer


def figures_of(report: RoundReport) -> dict[str, float]:
    """All figures of a round by name: evaluation/loss, training/loss, round/failed_clients, round/seconds."""
    found = {
        f"{source}/{name}": float(value)
        for source, figures in (("evaluation", report.evaluation), ("training", report.training))
        for name, value in figures.items()
    }
    return found | {
        "round/failed_clients": float(len(report.failures)),
        "round/seconds": float(report.seconds),
    }


def settings_of(trainer: Trainer, rounds: int) -> dict[str, str | int]:
    """What a training was told, for its record."""
    return {
        "rounds": rounds,
        "clients": len(trainer.clients),
        "strategy": type(trainer.strategy).__name__,
        "aggregation": type(trainer.aggregation).__name__,
        "model": type(trainer.model).__name__,
        "seed": trainer.seed,
    }


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DependencyError(name) from error


class MLflow(Callback):
    """Every round's figures in a run of MLflow; in the run that is active, if there is one.

    experiment, run_name   of the run that is begun otherwise
    """

    def __init__(self, experiment: str | None = None, run_name: str | None = None) -> None:
        self._mlflow = _module("mlflow")
        self._experiment, self._run_name = experiment, run_name
        self._is_mine = False

    def on_fit_start(self, trainer: Trainer, rounds: int) -> None:
        if self._mlflow.active_run() is None:
            if self._experiment is not None:
                self._mlflow.set_experiment(self._experiment)
            self._mlflow.start_run(run_name=self._run_name)
            self._is_mine = True
            self._mlflow.log_params(settings_of(trainer, rounds))

    def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
        self._mlflow.log_metrics(figures_of(report), step=report.round)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._is_mine:
            self._is_mine = False
            self._mlflow.end_run()


class WandB(Callback):
    """Every round's figures in a run of Weights & Biases.

    run       a run of your own, which is not finished here; otherwise one is begun with `options`
    options   of `wandb.init`: project="...", name="...", mode="offline"
    """

    def __init__(self, run: Any = None, **options: Any) -> None:
        if run is not None and options:
            raise ValueError(
                f"WandB was given a run and {', '.join(options)}, which are for a new one. Give one of them."
            )
        self._wandb = None if run is not None else _module("wandb")
        self._run, self._options = run, options

    def on_fit_start(self, trainer: Trainer, rounds: int) -> None:
        if self._wandb is not None:
            config = {**settings_of(trainer, rounds), **self._options.get("config", {})}
            self._run = self._wandb.init(**{**self._options, "config": config})

    def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
        self._run.log(figures_of(report), step=report.round)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._wandb is not None and self._run is not None:
            self._run.finish()
            self._run = None
