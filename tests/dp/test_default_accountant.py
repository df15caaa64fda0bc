"""Which accountant is used: the tighter one, or what is there, and which it is is said."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.accounting import Accountant, Gaussian, Pure, noise_multiplier_for
from syft.dp.dpsgd import make_private

dp = pytest.importorskip("dp_accounting")


def training(**options: Any) -> Any:
    model, data = nn.Linear(3, 2), TensorDataset(torch.zeros(100, 3), torch.zeros(100, dtype=torch.long))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = dict(target_epsilon=2.0, target_delta=1e-5, epochs=2)
    return make_private(
        model, optimizer, DataLoader(data, batch_size=5), loss_fn=nn.CrossEntropyLoss(), **target, **options
    )


def without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "dp_accounting" else found(name, *a)
    )
    monkeypatch.setattr("syft.dp.accounting._dp_accounting", lambda: pytest.fail("it is not installed"))


def test_loss_distributions_are_the_default_ask_for_less_noise_and_are_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tight, loose = training(), training(accountant="rdp")
    assert tight.accountant.kind == "pld" and loose.accountant.kind == "rdp"
    assert 1.02 < loose.noise_multiplier / tight.noise_multiplier < 1.15
    exact = dp.pld.PLDAccountant().compose(
        dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(tight.noise_multiplier)), tight.planned_steps
    )
    assert 1.99 < exact.get_epsilon(1e-5) <= 2.0  # by dp-accounting's own grid: enough noise, and hardly more
    without_the_package(monkeypatch)
    alone = training()
    assert alone.accountant.kind == "rdp"
    assert loose.noise_multiplier * 0.999 <= alone.noise_multiplier <= loose.noise_multiplier * 1.01


def test_without_the_package_divergences_are_our_own_and_agree_with_its(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent: list[dict[Any, int]] = [
        {Gaussian(1.1, 0.01): 1000},
        {Gaussian(4.0): 10, Pure(0.1): 3},
        {Gaussian(0.7, 0.2): 5},
    ]
    theirs = [Accountant("rdp", None, dict(one)).epsilon(1e-5) for one in spent]
    without_the_package(monkeypatch)
    ours = [Accountant("rdp", None, dict(one)).epsilon(1e-5) for one in spent]
    # Of pure events ours are a little less: of randomised response, not of concentrated privacy.
    for own, other in zip(ours, theirs, strict=True):
        assert other * 0.998 <= own <= other * 1.05
    assert noise_multiplier_for(2.0, 1e-5, sampling_rate=0.05, steps=40) > 0.5
