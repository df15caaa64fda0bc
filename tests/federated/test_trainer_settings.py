"""Settings of the wrong kind are refused with a sentence that says what was given, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import ObjectNotFoundError
from syft.federated import EarlyStopping, MaskedSum, Trainer
from syft.federated.secure_aggregation import ShareAggregation
from syft.federated.utils import add_model, federated_avg, scale_model
from trainer_parts import classes


def make(**options: Any) -> Trainer:
    given: dict[str, Any] = dict(model=nn.Linear(6, 2), loss=nn.CrossEntropyLoss(), clients=classes())
    return Trainer(**given | options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": 5}, "a int as model"),
        ({"loss": 5}, "a int as loss"),
        ({"fraction": "a"}, "fraction='a'"),
        ({"fraction": float("nan")}, "fraction=nan"),
        ({"deadline": "x"}, "deadline='x'"),
        ({"deadline": float("nan")}, "deadline=nan"),
        ({"optimizer_args": 0.1}, "optimizer_args=0.1"),
        ({"optimizer_args": lambda round: 0.1}, "optimizer_args=0.1 for round 1"),
        ({"metrics": 5}, "metrics=5"),
        ({"metrics": {"accuracy": 5}}, "metrics={'accuracy': 5}"),
        ({"callbacks": [5]}, "given 5 among its callbacks"),
        ({"callbacks": 5}, "given 5 among its callbacks"),
        ({"seed": "x"}, "seed='x'"),
        ({"seed": 1.5}, "seed=1.5"),
    ],
)
def test_a_trainer_names_what_it_cannot_use(options: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make(**options)
    assert "Trainer was given" in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize("found", [5, {"accuracy": "good"}, {"accuracy": None}, {"accuracy": torch.ones(2)}])
def test_a_function_that_evaluates_returns_figures(found: Any) -> None:
    trainer = make(evaluate=lambda model: found)
    with pytest.raises(TypeError, match="a function of the model returns a dict of numbers"):
        trainer.evaluate()


def test_a_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a folder\. Give it the checkpoint's file"):
        make().resume(tmp_path)


def test_early_stopping_needs_numbers() -> None:
    for wrong in ({"min_delta": float("nan")}, {"patience": 0}):
        with pytest.raises(ValueError, match="EarlyStopping was made with"):
            EarlyStopping("loss", **wrong)  # type: ignore[arg-type]


def test_aggregations_name_what_they_cannot_use() -> None:
    for threshold in ("a", True):
        with pytest.raises(TypeError, match="it is a number of clients, or a fraction"):
            MaskedSum(threshold)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="given a NoneType as holders"):
        ShareAggregation(None)  # type: ignore[arg-type]


def test_means_of_models_name_what_they_cannot_use() -> None:
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    wrong: list[tuple[Any, str]] = [
        (lambda: federated_avg(one), "given a Linear. Give a list"),  # type: ignore[arg-type]
        (lambda: federated_avg(nn.Sequential(one, two)), "given a Sequential. Give a list"),
        (lambda: federated_avg([1, 2]), "given a int where it needs a model"),  # type: ignore[list-item]
        (lambda: federated_avg([one, two], ["a", 1]), "given 'a' where it needs a number"),  # type: ignore[list-item]
        (lambda: federated_avg([one, two], 3), "given weights=3"),  # type: ignore[arg-type]
        (lambda: scale_model(one, "x"), "given 'x' where it needs a number"),  # type: ignore[arg-type]
        (lambda: add_model(one, 5), "given a int where it needs a model"),  # type: ignore[arg-type]
    ]
    for call, said in wrong:
        with pytest.raises(TypeError, match=said):
            call()


def test_a_config_names_what_it_cannot_use(alice: Any) -> None:
    for options in ({"optimizer_args": 5}, {"seed": "x"}):
        with pytest.raises(TypeError, match="TrainConfig was given"):
            sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy, **options)  # type: ignore[arg-type]


def test_a_config_that_was_not_kept_is_missed_with_advice(alice: Any) -> None:
    alice.add_dataset(classes()["client 0"], "rows")
    sy.TrainConfig(nn.Linear(6, 2), F.cross_entropy).send(alice)
    for attempt in (alice.fit, alice.evaluate):
        with pytest.raises(
            ObjectNotFoundError, match=r"keep it, config = TrainConfig\(...\)\.send\(worker\)"
        ):
            attempt("rows")


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "partial", "progress"])
def test_a_switch_is_true_or_false_and_a_collate_function_can_be_called(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}='no': it is True or False"):
        Trainer(nn.Linear(6, 2), F.cross_entropy, classes(), **{name: "no"})
    with pytest.raises(TypeError, match="collate_fn=5"):
        Trainer(nn.Linear(6, 2), F.cross_entropy, classes(), collate_fn=5)  # type: ignore[arg-type]


def test_a_masked_sum_is_signed_or_not() -> None:
    with pytest.raises(TypeError, match="signed='no'"):
        MaskedSum(signed="no")  # type: ignore[arg-type]
