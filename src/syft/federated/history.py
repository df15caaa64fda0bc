"""What happened, round by round: reports, curves, a plot.

One duty: the record of a training. It is plain data, and goes into checkpoints. Imports `records`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from syft.core import html
from syft.core.structs import prepared
from syft.exceptions import DependencyError
from syft.federated.records import ClientFailure, Metrics

Source = Literal["evaluation", "training"]


@dataclass(frozen=True)
class RoundReport:
    """One round. `str` of it is a sentence."""

    round: int
    selected: tuple[str, ...]
    accepted: tuple[str, ...]
    """Whose updates were used."""
    failures: tuple[ClientFailure, ...] = ()
    """Who was asked and not used, and why."""
    examples: int | None = None
    """How many examples were trained on; None when that is private."""
    training: Metrics = field(default_factory=dict)
    """What clients measured while they trained, weighted by their numbers of examples."""
    evaluation: Metrics = field(default_factory=dict)
    """What the server measured afterwards."""
    seconds: float = 0.0
    is_secret: bool = False
    """Clients were drawn in secret: who, how many, and how long it took is in no report."""
    staleness: dict[str, int] = field(default_factory=dict)
    """In asynchronous rounds: by client, how many rounds old the model was that it trained."""
    simulated_seconds: float | None = None
    """In asynchronous rounds of simulated time: when this one was done, from the beginning of the training."""

    def __str__(self) -> str:
        text = f"Round {self.round}: {len(self.accepted)} of {len(self.selected)} clients"
        if self.is_secret:
            text = f"Round {self.round}: clients drawn in secret"
        figures = [f"{name} {value:.4g}" for name, value in self.evaluation.items()]
        if self.staleness:
            ages = self.staleness.values()
            figures.append(f"staleness {sum(ages) / len(ages):.2g} (at most {max(ages)})")
        figures += [f"training {name} {value:.4g}" for name, value in self.training.items()]
        text += f", {', '.join(figures)}" if figures else ""
        text += "." if self.is_secret else f", {self.seconds:.2f} s."
        return text + (f" Not used: {'; '.join(map(str, self.failures))}" if self.failures else "")


class History:
    """Reports of rounds, the first first."""

    def __init__(self, rounds: Sequence[RoundReport] = ()) -> None:
        self.rounds: list[RoundReport] = list(rounds)

    def __len__(self) -> int:
        return len(self.rounds)

    def curve(self, metric: str, of: Source = "evaluation") -> tuple[list[int], list[float]]:
        """Round numbers and values of a metric, of the rounds that have it. !! KeyError if none has"""
        found = [(r.round, figures[metric]) for r in self.rounds if metric in (figures := _figures(r, of))]
        if not found:
            known = sorted({name for r in self.rounds for name in _figures(r, of)})
            raise KeyError(
                f"No round has the {of} metric {metric!r}. There are: {', '.join(known) if known else 'none'}."
            )
        return [number for number, _ in found], [value for _, value in found]

    def failures(self) -> dict[str, list[tuple[int, ClientFailure]]]:
        """By client: in which rounds it was not used, and why."""
        found: dict[str, list[tuple[int, ClientFailure]]] = {}
        for report in self.rounds:
            for failure in report.failures:
                found.setdefault(failure.client, []).append((report.round, failure))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        return {"rounds": [dataclasses.asdict(report) for report in self.rounds]}

    def to_pandas(self) -> Any:
        """A pandas DataFrame: one row per round, one column per figure; what a round has not is missing.

        Metrics of clients while they trained are in columns that begin with `training_`. !! DependencyError
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise DependencyError("pandas") from error
        names = sorted({name for r in self.rounds for name in r.evaluation})
        trained = sorted({name for r in self.rounds for name in r.training})
        columns: dict[str, list[Any]] = {
            "selected": [len(r.selected) for r in self.rounds],
            "accepted": [len(r.accepted) for r in self.rounds],
            "examples": [r.examples for r in self.rounds],
            "seconds": [r.seconds for r in self.rounds],
        }
        if any(r.staleness for r in self.rounds):
            columns["staleness"] = [
                sum(r.staleness.values()) / len(r.staleness) if r.staleness else None for r in self.rounds
            ]
        if any(r.simulated_seconds is not None for r in self.rounds):
            columns["simulated_seconds"] = [r.simulated_seconds for r in self.rounds]
        figures = [(name, [r.evaluation.get(name) for r in self.rounds]) for name in names]
        figures += [(f"training_{name}", [r.training.get(name) for r in self.rounds]) for name in trained]
        for name, found in figures:
            while name in columns:  # a metric may have the name of another column
                name = f"metric_{name}"
            columns[name] = found
        return pandas.DataFrame(columns, index=pandas.Index([r.round for r in self.rounds], name="round"))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """The inverse of `to_dict`, also after JSON. !! ValueError"""
        try:
            return cls(msgspec.convert(data["rounds"], prepared(list[RoundReport])))
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise ValueError(f"This is not a history: {error}.") from error

    def plot(self, axes: Any = None) -> Any:
        """Every metric over the rounds, with matplotlib; returns its axes. A cross marks a round with failures."""
        if axes is None:
            try:
                axes = importlib.import_module("matplotlib.pyplot").subplots()[1]
            except ImportError as error:
                raise DependencyError("matplotlib", "'resyft[plot]'") from error
        sources: tuple[Source, ...] = ("evaluation", "training")
        for of in sources:
            for metric in sorted({name for r in self.rounds for name in _figures(r, of)}):
                numbers, values = self.curve(metric, of)
                style = "-" if of == "evaluation" else "--"
                (line,) = axes.plot(
                    numbers, values, style, label=metric if of == "evaluation" else f"{of} {metric}"
                )
                failed = {r.round for r in self.rounds if r.failures}
                crosses = [(n, v) for n, v in zip(numbers, values, strict=True) if n in failed]
                if crosses:
                    axes.plot(*zip(*crosses, strict=True), "x", color=line.get_color())
        axes.set_xlabel("round")
        axes.xaxis.get_major_locator().set_params(integer=True)  # there is no round 2.5
        if axes.lines:
            axes.legend()
        return axes

    def _repr_html_(self) -> str:
        names = sorted({name for r in self.rounds for name in r.evaluation})
        trained = sorted({name for r in self.rounds for name in r.training})
        head = ["round", "clients", *names, *(f"training {name}" for name in trained), "seconds", "not used"]
        rows = [
            [
                r.round,
                f"{len(r.accepted)} of {len(r.selected)}",
                *(f"{r.evaluation[name]:.4g}" if name in r.evaluation else "" for name in names),
                *(f"{r.training[name]:.4g}" if name in r.training else "" for name in trained),
                f"{r.seconds:.2f}",
                "; ".join(map(str, r.failures)),
            ]
            for r in self.rounds
        ]
        return html.table(f"{len(self)} rounds", head, rows)

    def __repr__(self) -> str:
        last = f": {self.rounds[-1]}" if self.rounds else ""
        return f"<History of {len(self)} rounds{last}>"


def _figures(report: RoundReport, of: Source) -> Metrics:
    return report.evaluation if of == "evaluation" else report.training
