"""Every number that the privacy API takes is a number, or it is refused: nothing is silent.

The parameters are read from the signatures of all that the reference documents.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from forked_runs import ROOT
from syft.exceptions import SyftError

PAGE = ROOT / "docs/reference/privacy.md"
DOCUMENTED = re.findall(r"^::: (syft\.dp\.\S+)$", PAGE.read_text(), re.MULTILINE)
VALUES = torch.tensor([1.0, 2.0, 3.0])
TEACHERS = torch.tensor([[0, 1, 0, 1]] * 10)
ASKED = torch.arange(4)


def training() -> dict[str, Any]:
    model = nn.Linear(2, 1)
    data = TensorDataset(torch.randn(16, 2), torch.randn(16, 1))
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": DataLoader(data, batch_size=4),
        "loss_fn": nn.functional.mse_loss,
        "max_grad_norm": 1.0,
    }


#: Arguments with which each documented callable works; other numbers of its signature are tried one at a time.
WORKING: dict[str, Callable[[], dict[str, Any]]] = {
    "mechanisms.count": lambda: {"rows": VALUES, "epsilon": 1.0},
    "mechanisms.bounded_sum": lambda: {"rows": VALUES, "bounds": (0.0, 5.0), "epsilon": 1.0},
    "mechanisms.bounded_mean": lambda: {"rows": VALUES, "bounds": (0.0, 5.0), "epsilon": 1.0},
    "mechanisms.bounded_variance": lambda: {"rows": VALUES, "bounds": (0.0, 5.0), "epsilon": 1.0},
    "mechanisms.quantile": lambda: {"rows": VALUES, "fraction": 0.5, "bounds": (0.0, 5.0), "epsilon": 1.0},
    "mechanisms.histogram": lambda: {"rows": VALUES, "epsilon": 1.0, "edges": [0.0, 2.0, 4.0]},
    "mechanisms.laplace": lambda: {"value": VALUES, "sensitivity": 1.0, "epsilon": 1.0},
    "mechanisms.gaussian": lambda: {"value": VALUES, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5},
    "mechanisms.exponential": lambda: {"scores": VALUES, "sensitivity": 1.0, "epsilon": 1.0},
    "mechanisms.noisy_max": lambda: {"scores": VALUES, "sensitivity": 1.0, "epsilon": 1.0},
    "accounting.Budget": lambda: {"epsilon": 1.0, "delta": 1e-5},
    "accounting.noise_multiplier_for": lambda: {
        "epsilon": 1.0,
        "delta": 1e-5,
        "sampling_rate": 0.1,
        "steps": 10,
    },
    "dpsgd.make_private": lambda: {**training(), "noise_multiplier": 1.0},
    "ftrl.make_private_ftrl": lambda: {**training(), "noise_multiplier": 1.0, "epochs": 2},
    "federated.ClientPrivacy": lambda: {
        "clip_norm": 1.0,
        "noise_multiplier": 1.0,
        "clients": 10,
        "sampling_rate": 0.5,
    },
    "federated.DistributedPrivacy": lambda: {"clip_norm": 1.0, "noise_multiplier": 1.0, "clients": 10},
    "federated.AdaptiveClipping": lambda: {"quantile": 0.5, "learning_rate": 0.2},
    "pate.perform_analysis": lambda: {
        "teacher_preds": TEACHERS,
        "indices": ASKED,
        "noise_eps": 0.1,
        "delta": 1e-5,
        "moments": 8,
    },
    "gnmax.analyse": lambda: {"teacher_preds": TEACHERS, "indices": ASKED, "sigma": 2.0},
}
#: What is no mistake where it stands, and why.
FITTING = {
    ("mechanisms.quantile", "fraction", "0"): "the least value",
    ("mechanisms.laplace", "sensitivity", "1e+300"): "noise as large as that",
    ("mechanisms.gaussian", "sensitivity", "1e+300"): "noise as large as that",
    ("mechanisms.exponential", "sensitivity", "1e+300"): "a choice by chance",
    ("mechanisms.noisy_max", "sensitivity", "1e+300"): "a choice by chance",
    ("accounting.Budget", "delta", "0"): "pure differential privacy",
    ("accounting.Budget", "epsilon", "1e+300"): "the owner's word",
    ("accounting.noise_multiplier_for", "epsilon", "1e+300"): "the least noise",
    ("federated.AdaptiveClipping", "quantile", "0"): "all are clipped",
    ("federated.AdaptiveClipping", "learning_rate", "1e+300"): "steps are bounded elsewhere",
    ("federated.AdaptiveClipping", "count_noise", "1e+300"): "noise as large as that",
    ("federated.ClientPrivacy", "noise_multiplier", "1e+300"): "noise as large as that",
    ("pate.perform_analysis", "beta", "1e+300"): "votes elsewhere count nothing",
    ("federated.DistributedPrivacy", "colluding", "0"): "nobody",
}
HOSTILE = [True, False, math.nan, math.inf, -math.inf, -1, -0.5, 0, "1", "", b"1", [1.0], 1j, object(), 1e300]


def parameters() -> list[tuple[str, str, Any]]:
    found = []
    for path, value in ((name.removeprefix("syft.dp."), v) for name in DOCUMENTED for v in HOSTILE):
        if path in WORKING:
            for name, parameter in inspect.signature(callable_of(path)).parameters.items():
                if re.search(r"\b(float|int)\b", str(parameter.annotation)):
                    found.append((path, name, value))
    return found


def callable_of(path: str) -> Any:
    module, name = path.split(".")
    return getattr(importlib.import_module(f"syft.dp.{module}"), name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("path", "name", "value"), parameters(), ids=lambda v: v if isinstance(v, str) else repr(v)[:12]
)
def test_what_is_no_fitting_number_is_refused(path: str, name: str, value: Any) -> None:
    given = {**WORKING[path](), name: value}
    if (path, name, repr(value)) in FITTING:
        callable_of(path)(**given)
        return
    with pytest.raises((TypeError, ValueError, SyftError)) as told:
        callable_of(path)(**given)
    assert str(told.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", WORKING)
def test_fitting_numbers_are_taken(path: str) -> None:
    callable_of(path)(**WORKING[path]())
