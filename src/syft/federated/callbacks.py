"""What may watch a training, and stop it.

One duty: `Callback`, and those that ship. What they need of a round they read from the trainer's history, so
that they do the same after a resume. Imports `history`, `records`.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Literal

from syft.exceptions import DependencyError
from syft.federated.history import History, RoundReport, Source
from syft.federated.notebook_bars import NotebookBars, is_notebook
from syft.federated.records import ClientFailure, EvaluateResult, FitResult

if TYPE_CHECKING:
    from syft.federated.trainer import Trainer


class Callback:
    """Override what you need. What a callback raises ends the training."""

    def on_fit_start(self, trainer: Trainer, rounds: int) -> None:
        """`fit(rounds)` was called. History holds the rounds that are done."""

    def on_round_start(self, trainer: Trainer, round: int, clients: tuple[str, ...]) -> None:
        """These clients are about to train; in asynchronous rounds, they are at work already."""

    def on_client_done(
        self, trainer: Trainer, client: str, outcome: FitResult | EvaluateResult | ClientFailure
    ) -> None:
        """A client's result was accepted, or it failed."""

    def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
        """The model is updated, evaluated, and on disk if there is a checkpoint. `trainer.stop()` ends it here."""

    def on_fit_end(self, trainer: Trainer) -> None:
        """Also after an error."""


class EarlyStopping(Callback):
    """Stop when a metric has not become better for some rounds.

    metric     its name, e.g. "loss"
    patience   how many rounds without an improvement are one too many
    min_delta  what counts as one
    mode       whether smaller or larger is better
    of         the server's "evaluation", or the clients' "training"
    """

    def __init__(
        self,
        metric: str = "loss",
        patience: int = 5,
        min_delta: float = 0.0,
        mode: Literal["min", "max"] = "min",
        of: Source = "evaluation",
    ) -> None:
        if not patience >= 1 or not 0 <= min_delta < float("inf") or mode not in ("min", "max"):
            raise ValueError(
                f"EarlyStopping was made with patience={patience}, min_delta={min_delta}, mode={mode!r}: patience is 1 "
                "or more, min_delta not negative, mode 'min' or 'max'."
            )
        self.metric, self.patience, self.min_delta, self.mode, self.of = metric, patience, min_delta, mode, of

    def on_fit_start(self, trainer: Trainer, rounds: int) -> None:
        if len(trainer.history):
            self._look(trainer)

    def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
        self._look(trainer)

    def _look(self, trainer: Trainer) -> None:
        since = self.rounds_without_improvement(trainer.history)
        if since >= self.patience:
            trainer.stop(f"{self.metric} has not improved for {since} rounds.")

    def rounds_without_improvement(self, history: History) -> int:
        _, values = history.curve(self.metric, self.of)
        sign = 1.0 if self.mode == "min" else -1.0
        best, since = float("inf"), 0
        for value in values:
            if sign * value < best - self.min_delta:
                best, since = sign * value, 0
            else:
                since += 1
        return since


class ProgressBar(Callback):
    """Bars of rounds and of the clients of a round: with rich in a terminal, as HTML in a notebook."""

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._in_notebook = console is None and is_notebook()
        if not self._in_notebook:
            try:
                self._rich = importlib.import_module("rich.progress")
            except ImportError as error:
                raise DependencyError("rich", "'resyft[progress]'") from error
        self._bars: Any = None

    def on_fit_start(self, trainer: Trainer, rounds: int) -> None:
        self._bars = NotebookBars() if self._in_notebook else self._terminal_bars()
        self._rounds = self._bars.add_task("rounds", total=rounds, completed=len(trainer.history), told="")
        self._clients = self._bars.add_task("clients", total=None, told="")
        self._bars.start()

    def _terminal_bars(self) -> Any:
        rich = self._rich
        return rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[told]}"),
            console=self._console,
        )

    def on_round_start(self, trainer: Trainer, round: int, clients: tuple[str, ...]) -> None:
        total = len(clients) if trainer.schedule is None else trainer.schedule.size
        self._bars.reset(self._clients, total=total, told="")

    def on_client_done(
        self, trainer: Trainer, client: str, outcome: FitResult | EvaluateResult | ClientFailure
    ) -> None:
        if self._bars is not None:
            told = f"{client}: {outcome.kind}" if isinstance(outcome, ClientFailure) else ""
            self._bars.update(self._clients, advance=1, told=told)

    def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
        figures = report.evaluation or {f"training {k}": v for k, v in report.training.items()}
        told = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self._bars.update(self._rounds, completed=report.round, told=told)

    def on_fit_end(self, trainer: Trainer) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


class TensorBoard(Callback):
    """Every metric of every round as scalars, with how many clients failed.

    writer   a SummaryWriter of your own, instead of a new one in `folder`
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, writer: Any = None) -> None:
        if (folder is None) == (writer is None):
            raise ValueError("TensorBoard was given a folder and a writer, or neither. Give one of them.")
        self._is_mine = writer is None
        if writer is None:
            try:
                writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(folder)
            except ImportError as error:
                raise DependencyError("tensorboard", "'resyft[tensorboard]'") from error
        self.writer = writer

    def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
        for source, figures in (("evaluation", report.evaluation), ("training", report.training)):
            for name, value in figures.items():
                self.writer.add_scalar(f"{source}/{name}", value, report.round)
        self.writer.add_scalar("round/failed clients", len(report.failures), report.round)
        self.writer.add_scalar("round/seconds", report.seconds, report.round)

    def on_fit_end(self, trainer: Trainer) -> None:
        self.writer.flush()
