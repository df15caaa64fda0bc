"""Reports, curves, plots, and what watches a training."""

from __future__ import annotations

import io
import json
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import DependencyError
from syft.federated.callbacks import Callback, EarlyStopping, ProgressBar, TensorBoard
from syft.federated.history import History, RoundReport
from syft.federated.records import ClientFailure
from syft.federated.trainer import Trainer
from trainer_parts import Fixed, classes, line, net

MSE = nn.MSELoss()


def reports() -> History:
    failure = ClientFailure("bob", "timeout", "It was not done after 3 s, its deadline.")
    return History(
        [
            RoundReport(
                1, ("ann", "bob"), ("ann", "bob"), (), 10, {"loss": 2.0}, {"loss": 3.0, "f1": 0.5}, 0.25
            ),
            RoundReport(2, ("ann", "bob"), ("ann",), (failure,), 5, {"loss": 1.0}, {}, 3.0),
            RoundReport(3, ("ann", "bob"), ("ann", "bob"), (), None, {}, {"loss": float("nan")}, 0.25),
        ]
    )


def test_a_report_is_a_sentence() -> None:
    first, second, _ = map(str, reports().rounds)
    assert first == "Round 1: 2 of 2 clients, loss 3, f1 0.5, training loss 2, 0.25 s."
    assert second.endswith("Not used: bob (timeout): It was not done after 3 s, its deadline.")
    assert "3 rounds: Round 3" in repr(reports())


def test_curves_have_the_rounds_that_were_measured() -> None:
    history = reports()
    assert history.curve("f1") == ([1], [0.5])
    assert history.curve("loss", of="training") == ([1, 2], [2.0, 1.0])
    with pytest.raises(KeyError, match=r"No round has the training metric 'f1'. There are: loss"):
        history.curve("f1", of="training")
    assert list(history.failures()) == ["bob"]


def test_a_history_survives_json() -> None:
    history = reports()
    again = History.from_dict(json.loads(json.dumps(history.to_dict())))
    assert again.rounds[:2] == history.rounds[:2] and again.rounds[1].failures[0].kind == "timeout"
    assert str(again.rounds[2]) == str(history.rounds[2])


@pytest.mark.parametrize(
    "wrong", [{}, {"rounds": 3}, {"rounds": [{"round": "one"}]}, {"rounds": [{"round": 1, "selected": [1]}]}]
)
def test_what_is_no_history_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="not a history"):
        History.from_dict(wrong)


def test_a_plot_has_a_line_per_metric_and_crosses_where_clients_failed() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = reports().plot()
    labels = [line.get_label() for line in axes.lines if not line.get_label().startswith("_")]
    assert labels == ["f1", "loss", "training loss"]
    (cross,) = [line for line in axes.lines if line.get_marker() == "x"]
    assert cross.get_xydata().tolist() == [[2.0, 1.0]]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert History().plot(axes) is axes
    pyplot.close("all")


def test_without_matplotlib_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(DependencyError, match=r"pip install 'resyft\[plot\]'"):
        reports().plot()


class FakePandas(ModuleType):
    """As much of pandas as `to_pandas` uses, where pandas is not installed."""

    @staticmethod
    def Index(values: list[int], name: str) -> tuple[str, list[int]]:
        return name, values

    @staticmethod
    def DataFrame(columns: dict[str, list[Any]], index: Any) -> tuple[dict[str, list[Any]], Any]:
        return columns, index


def test_a_history_is_a_table_with_a_row_per_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", FakePandas("pandas"))
    columns, index = reports().to_pandas()
    assert index == ("round", [1, 2, 3])
    assert list(columns) == ["selected", "accepted", "examples", "seconds", "f1", "loss", "training_loss"]
    assert columns["accepted"] == [2, 1, 2] and columns["examples"] == [10, 5, None]
    assert columns["f1"] == [0.5, None, None] and columns["training_loss"] == [2.0, 1.0, None]
    named = History([RoundReport(1, ("ann",), ("ann",), evaluation={"seconds": 5.0}, seconds=1.0)])
    columns, _ = named.to_pandas()
    assert columns["seconds"] == [1.0] and columns["metric_seconds"] == [5.0]


def test_pandas_takes_the_table() -> None:
    pandas = pytest.importorskip("pandas")
    table = reports().to_pandas()
    assert isinstance(table, pandas.DataFrame) and table.index.name == "round"
    assert table["training_loss"].dropna().tolist() == [2.0, 1.0] and table.loc[1, "f1"] == 0.5
    assert len(History().to_pandas()) == 0


def test_without_pandas_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DependencyError, match="pip install pandas"):
        reports().to_pandas()


# -- callbacks -------------------------------------------------------------------------------------------------


def test_callbacks_hear_everything_in_order() -> None:
    heard: list[str] = []

    class Ear(Callback):
        def on_fit_start(self, trainer: Trainer, rounds: int) -> None:
            heard.append(f"fit {rounds}")

        def on_round_start(self, trainer: Trainer, round: int, clients: tuple[str, ...]) -> None:
            heard.append(f"round {round} {'+'.join(clients)}")

        def on_client_done(self, trainer: Trainer, client: str, outcome: Any) -> None:
            heard.append(f"{client} {type(outcome).__name__}")

        def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
            assert trainer.history.rounds[-1] is report
            heard.append(f"end {report.round}")
            trainer.stop("Enough.")

        def on_fit_end(self, trainer: Trainer) -> None:
            heard.append("over")

    clients = {"a": Fixed(1.0), "b": Fixed(float("nan"))}
    Trainer(line(0.0), MSE, clients, engine="serial", callbacks=[Ear()]).fit(5)
    assert heard == ["fit 5", "round 1 a+b", "a FitResult", "b ClientFailure", "end 1", "over"]


def test_the_end_is_heard_after_an_error_too() -> None:
    ends = []

    class Ear(Callback):
        def on_round_end(self, trainer: Trainer, report: RoundReport) -> None:
            raise ZeroDivisionError

        def on_fit_end(self, trainer: Trainer) -> None:
            ends.append(trainer.round)

    with pytest.raises(ZeroDivisionError):
        Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, callbacks=[Ear()]).fit(5)
    assert ends == [1]


def losses(*values: float) -> Any:
    """An evaluation that finds these losses, one after the other."""
    left = iter(values)
    return lambda model: {"loss": next(left)}


def test_early_stopping_waits_as_long_as_it_is_told() -> None:
    stopping = EarlyStopping(patience=2)
    trainer = Trainer(
        line(0.0),
        MSE,
        {"a": Fixed(1.0)},
        evaluate=losses(5, 4, 4.5, 3, 3.5, 3.0, 1.0, 0.0),
        callbacks=[stopping],
    )
    assert len(trainer.fit(20)) == 6  # 3 is the best of round 4, and two more were not better
    assert len(trainer.fit(20)) == 6  # it is still so


def test_early_stopping_can_want_more_and_want_much() -> None:
    up = EarlyStopping("loss", patience=1, mode="max", min_delta=0.5)
    trainer = Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, evaluate=losses(1.0, 2.0, 2.4, 9.0), callbacks=[up])
    assert len(trainer.fit(9)) == 3
    with pytest.raises(ValueError, match="patience=0"):
        EarlyStopping(patience=0)
    with pytest.raises(KeyError, match="No round has the evaluation metric 'loss'"):
        Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, callbacks=[EarlyStopping()]).fit(2)


def test_bars_show_rounds_figures_and_who_failed() -> None:
    console = pytest.importorskip("rich.console")
    text = io.StringIO()
    bars = ProgressBar(console.Console(file=text, force_terminal=True, width=120))
    clients = {"a": Fixed(2.5), "zed": Fixed(float("nan"))}
    Trainer(line(0.0), MSE, clients, engine="serial", callbacks=[bars]).fit(3)
    assert "3/3" in text.getvalue() and "training loss 2.5" in text.getvalue()
    assert "zed: not finite" in text.getvalue()


def test_progress_without_rich_tells_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(DependencyError, match=r"pip install 'resyft\[progress\]'"):
        Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, progress=True)


def test_tensorboard_is_written_scalars() -> None:
    class Writer:
        def __init__(self) -> None:
            self.scalars: list[tuple[str, float, int]] = []
            self.flushed = 0

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            self.scalars.append((tag, value, step))

        def flush(self) -> None:
            self.flushed += 1

    writer = Writer()
    Trainer(
        line(0.0), MSE, {"a": Fixed(2.0)}, evaluate=losses(5, 4), callbacks=[TensorBoard(writer=writer)]
    ).fit(2)
    assert ("evaluation/loss", 4.0, 2) in writer.scalars and ("training/loss", 2.0, 1) in writer.scalars
    assert ("round/failed clients", 0, 2) in writer.scalars and writer.flushed == 1
    with pytest.raises(ValueError, match="Give one of them"):
        TensorBoard()


def test_without_tensorboard_the_cure_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(DependencyError, match=r"pip install 'resyft\[tensorboard\]'"):
        TensorBoard(tmp_path)


def test_losses_of_clients_are_means_over_their_examples() -> None:
    parts = classes(clients=3)
    trainer = Trainer(
        nn.Linear(6, 2), nn.CrossEntropyLoss(), parts, optimizer_args={"lr": 0.0}, batch_size=16
    )
    expected = trainer.evaluate_clients()
    (report,) = trainer.fit(1).rounds
    assert report.training["loss"] == pytest.approx(expected.metrics["loss"], rel=1e-5)
    assert report.examples == sum(map(len, parts.values()))


def test_evaluation_at_the_server() -> None:
    def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(1) == target).float().mean()

    parts = classes()
    model, test = net(), classes(seed=9, clients=1, rows=300)["client 0"]
    trainer = Trainer(
        model,
        nn.CrossEntropyLoss(),
        parts,
        batch_size=10,
        evaluate=test,
        evaluate_every=3,
        metrics={"accuracy": accuracy},
        seed=0,
        optimizer_args=lambda number: {"lr": 0.5 / number},
    )
    model[3].eval()
    history = trainer.fit(7)
    assert history.curve("accuracy")[0] == [3, 6, 7]  # every third, and the last
    assert model.training and not model[3].training  # as it was
    figures = trainer.evaluate()
    with torch.no_grad():
        output = model.eval()(test.tensors[0])
    assert figures["loss"] == pytest.approx(
        nn.functional.cross_entropy(output, test.tensors[1]).item(), rel=1e-5
    )
    assert (
        figures["accuracy"] == pytest.approx(accuracy(output, test.tensors[1]).item())
        and figures["accuracy"] > 0.85
    )
    assert trainer.evaluate(lambda model: {"trains": model.training}) == {"trains": 0.0}
    with pytest.raises(ValueError, match="nothing to evaluate on"):
        Trainer(line(0.0), MSE, {"a": Fixed(1.0)}).evaluate()
    with pytest.raises(TypeError, match="a Dataset or a function"):
        Trainer(line(0.0), MSE, {"a": Fixed(1.0)}, evaluate=3)
