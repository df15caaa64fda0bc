"""Data and models of other libraries in a Trainer, and its figures in theirs; the libraries are stand-ins."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import DependencyError
from syft.federated import MLflow, Trainer, WandB, from_lightning
from syft.federated.outside import HuggingFaceRows, rows_of


class HuggingFaceDataset:
    """As much of `datasets.Dataset` as is used: Python values, unless a format is asked for."""

    def __init__(self, columns: dict[str, list[Any]], tensors: bool = False) -> None:
        self._columns, self._tensors = columns, tensors
        self.reads = 0

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def with_format(self, type: str | None = None, columns: list[str] | None = None) -> HuggingFaceDataset:
        chosen = {name: self._columns[name] for name in columns or self._columns}
        return HuggingFaceDataset(chosen, type == "torch")

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: int | list[int]) -> dict[str, Any]:
        self.reads += 1
        return {name: self._value([column[k] for k in key] if isinstance(key, list) else column[key])
                for name, column in self._columns.items()}  # fmt: skip

    def _value(self, value: Any) -> Any:
        is_text = isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str))
        return value if is_text or not self._tensors else torch.tensor(value)


def hugging_face(seed: int, rows: int = 40, **more: list[Any]) -> HuggingFaceDataset:
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))
    return HuggingFaceDataset({"x": x.tolist(), "label": (x.sum(1) > 0).long().tolist(), **more})


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


def test_hugging_face_data_sets_are_clients_data(caplog: Any) -> None:
    torch.manual_seed(0)
    clients = {name: hugging_face(seed, text=["words"] * 40) for seed, name in enumerate("ab")}
    trainer = Trainer(
        ByName(), nn.CrossEntropyLoss(), clients, optimizer_args={"lr": 0.5}, batch_size=10, seed=1
    )
    before = trainer.evaluate_clients().metrics["loss"]
    trainer.fit(4)
    assert trainer.evaluate_clients().metrics["loss"] < before / 1.5
    assert "left out: text" in caplog.text


def test_rows_are_read_as_a_batch_and_named_as_models_name_them() -> None:
    rows = rows_of(hugging_face(0))
    assert isinstance(rows, HuggingFaceRows) and len(rows) == 40
    assert set(rows[3]) == {"x", "labels"} and torch.equal(rows.__getitems__([3, 5])[1]["x"], rows[5]["x"])
    rows._rows.reads = 0
    rows.__getitems__(list(range(20)))
    assert rows._rows.reads == 1
    plain = [1, 2]
    assert rows_of(plain) is plain


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": [[1.0]], "y": [1]}, "rename_column"),
        ({"text": ["a"], "label": [1]}, "Tokenize texts first"),
        ({"x": [[1.0]], "label": ["yes"]}, "Tokenize"),
        ({"x": [], "label": []}, "empty"),
    ],
)
def test_a_data_set_without_numbers_or_labels_is_a_sentence(columns: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Trainer(ByName(), nn.CrossEntropyLoss(), {"a": HuggingFaceDataset(columns)})


def test_a_dict_of_splits_is_told_apart() -> None:
    class DatasetDict(HuggingFaceDataset):
        @property
        def column_names(self) -> Any:
            return {"train": ["x"], "test": ["x"]}

    with pytest.raises(ValueError, match=r"datasets\['train'\]"):
        rows_of(DatasetDict({"x": [1]}))


# -- Lightning -------------------------------------------------------------------------------------------


class LightningModule(nn.Module):
    """As much of Lightning's as matters: a property that raises before it is attached, and hooks."""

    @property
    def trainer(self) -> Any:
        raise RuntimeError("not attached to a Trainer")

    def log(self, name: str, value: Any) -> None: ...


class Classifier(LightningModule):
    def __init__(self, returned: str = "one") -> None:
        super().__init__()
        self.layer, self.criterion, self.returned = nn.Linear(3, 2), nn.CrossEntropyLoss(), returned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.criterion(self(batch[0]), batch[1])  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.25, momentum=0.5)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        groups = torch.optim.SGD([{"params": [p]} for p in self.parameters()], lr=0.1)
        return {
            "one": optimizer,
            "list": [optimizer],
            "dict": {"optimizer": optimizer},
            "pair": ([optimizer], []),
            "two": [optimizer, optimizer],
            "schedule": {"optimizer": optimizer, "lr_scheduler": schedule},
            "schedules": ([optimizer], [schedule]),
            "groups": groups,
            "none": None,
        }[self.returned]


def rows(seed: int) -> torch.utils.data.TensorDataset:
    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(seed))
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def test_a_lightning_module_is_trained_with_its_loss_and_optimizer() -> None:
    torch.manual_seed(1)
    module = Classifier()
    parts = from_lightning(module)
    assert parts["optimizer_args"] == {"lr": 0.25, "momentum": 0.5} and parts["optimizer"] is torch.optim.SGD
    clients = {"a": rows(0), "b": rows(1)}
    trainer = Trainer(clients=clients, batch_size=10, seed=1, **parts)
    trainer.fit(3)
    plain = nn.Sequential(nn.Linear(3, 2))
    torch.manual_seed(1)
    plain[0].load_state_dict(Classifier().layer.state_dict())
    options = {"lr": 0.25, "momentum": 0.5}
    same = Trainer(
        plain, nn.CrossEntropyLoss(), clients, optimizer="sgd", optimizer_args=options, batch_size=10, seed=1
    )
    same.fit(3)
    assert torch.equal(module.layer.weight, plain[0].weight)


@pytest.mark.parametrize("returned", ["list", "dict", "pair"])
def test_forms_of_one_optimizer(returned: str) -> None:
    assert from_lightning(Classifier(returned), loss=nn.MSELoss())["optimizer_args"]["lr"] == 0.25


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("two", "one optimizer"),
        ("schedule", "schedule"),
        ("schedules", "schedule"),
        ("groups", "one group"),
        ("none", "one optimizer"),
    ],
)
def test_what_a_trainer_cannot_do_is_a_sentence(returned: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_lightning(Classifier(returned))


def test_a_module_without_a_loss_or_of_another_kind_is_a_sentence() -> None:
    bare = Classifier()
    del bare.criterion
    with pytest.raises(ValueError, match="from_lightning\\(module, loss="):
        from_lightning(bare)
    with pytest.raises(TypeError, match="LightningModule"):
        from_lightning(nn.Linear(1, 1))


# -- figures in other places -----------------------------------------------------------------------------


class FakeMLflow(types.ModuleType):
    """mlflow's own functions, with the parameters that they have."""

    def __init__(self, active: Any = None) -> None:
        super().__init__("mlflow")
        self.calls: list[Any] = []
        self._active = active

    def active_run(self) -> Any:
        return self._active

    def set_experiment(self, experiment_name: str | None = None, experiment_id: str | None = None) -> None:
        self.calls.append(("experiment", experiment_name))

    def start_run(
        self, run_id: str | None = None, experiment_id: str | None = None, run_name: str | None = None,
        nested: bool = False, parent_run_id: str | None = None, tags: Any = None, description: Any = None,
        log_system_metrics: bool | None = None,
    ) -> Any:  # fmt: skip
        self._active = run_name or "run"

    def log_params(
        self, params: dict[str, Any], synchronous: bool | None = None, run_id: str | None = None
    ) -> None:
        self.calls.append(("params", params))

    def log_metrics(
        self, metrics: dict[str, float], step: int | None = None, synchronous: bool | None = None,
        run_id: str | None = None, timestamp: int | None = None, dataset: Any = None, model_id: Any = None,
    ) -> None:  # fmt: skip
        self.calls.append((step, metrics))

    def end_run(self, status: str = "FINISHED") -> None:
        self._active = None
        self.calls.append(("end", status))


class FakeWandb(types.ModuleType):
    """wandb.init and a run, with the parameters that they have."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.calls: list[Any] = []

    def init(
        self, entity: str | None = None, project: str | None = None, dir: Any = None, id: str | None = None,
        name: str | None = None, notes: str | None = None, tags: Sequence[str] | None = None,
        config: dict[str, Any] | None = None, mode: str | None = None, **more: Any,
    ) -> Any:  # fmt: skip
        self.calls.append((project, config))
        return self

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.calls.append((step, data))

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        self.calls.append("finish")


def trained(callback: Any) -> None:
    Trainer(nn.Linear(3, 2), nn.CrossEntropyLoss(), {"a": rows(0)}, callbacks=[callback], seed=5).fit(2)


def test_mlflow_has_every_round_in_a_run_of_its_own_or_in_the_active_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    trained(MLflow("trial", run_name="first"))
    assert fake.calls[0] == ("experiment", "trial") and fake.calls[1][1]["seed"] == 5
    steps = [call for call in fake.calls if isinstance(call[0], int)]
    assert [step for step, _ in steps] == [1, 2] and "training/loss" in steps[1][1]
    assert fake.calls[-1] == ("end", "FINISHED") and fake.active_run() is None
    inside = FakeMLflow(active="mine")
    monkeypatch.setitem(sys.modules, "mlflow", inside)
    trained(MLflow())
    assert inside.active_run() == "mine" and [call[0] for call in inside.calls] == [1, 2]


def test_weights_and_biases_have_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    trained(WandB(project="trial", config={"note": "x"}))
    assert (
        fake.calls[0][0] == "trial"
        and fake.calls[0][1]["note"] == "x"
        and fake.calls[0][1]["strategy"] == "FedAvg"
    )
    assert [call[0] for call in fake.calls[1:3]] == [1, 2] and fake.calls[-1] == "finish"
    own = FakeWandb()
    trained(WandB(run=own))
    assert [call[0] for call in own.calls] == [1, 2]  # neither begun nor finished
    with pytest.raises(ValueError, match="Give one of them"):
        WandB(run=own, project="x")


@pytest.mark.parametrize(("name", "made"), [("mlflow", MLflow), ("wandb", WandB)])
def test_without_the_package_the_cure_is_told(monkeypatch: pytest.MonkeyPatch, name: str, made: Any) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DependencyError, match=f"pip install {name}"):
        made()


@pytest.mark.parametrize(("fake", "name"), [(FakeMLflow, "mlflow"), (FakeWandb, "wandb")])
def test_the_stand_ins_have_the_parameters_of_the_real_ones(fake: Any, name: str) -> None:
    real = pytest.importorskip(name)
    for method in ("start_run", "log_metrics", "log_params", "end_run", "init"):
        if hasattr(fake, method) and hasattr(real, method):
            wanted = set(inspect.signature(getattr(fake, method)).parameters) - {"self", "more"}
            assert wanted <= set(inspect.signature(getattr(real, method)).parameters)
