"""What was spent on a training is what all of its runs spent, whatever is loaded where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.accounting import Accountant, BudgetExceededError, Gaussian, Pure
from syft.dp.dpsgd import make_private
from syft.exceptions import BudgetFileError

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

EVENT = Gaussian(1.0, 0.1)


def training(**options: Any) -> Any:
    rows = TensorDataset(torch.randn(200, 3), torch.randn(200, 1))
    model: Any = nn.Linear(3, 1)
    options = options or {"noise_multiplier": 1.0}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return make_private(model, optimizer, DataLoader(rows, batch_size=20), loss_fn=nn.MSELoss(), **options)


def step(private: Any, times: int) -> None:
    for _ in range(times):
        private.step(*next(iter(private.loader)))


def saved(private: Any) -> Any:
    return json.loads(json.dumps(private.state_dict()))


def test_steps_that_were_made_here_are_not_forgotten_by_loading() -> None:
    first, second = training(), training()
    step(first, 10)
    step(second, 10)
    second.load_state_dict(saved(first))
    assert second.accountant.spent == {EVENT: 20}
    step(second, 10)
    assert second.accountant.spent == {EVENT: 30}
    assert second.epsilon(1e-5) == Accountant("pld").compose(EVENT, 30).epsilon(1e-5)


def test_with_a_target_the_budget_knows_of_all_runs() -> None:
    target = dict(target_epsilon=3.0, target_delta=1e-5, epochs=2)
    first, second = training(**target), training(**target)
    step(first, 10)
    step(second, 10)
    second.load_state_dict(saved(first))
    assert 2.9 < second.epsilon() <= 3.0  # 20 steps were planned
    with pytest.raises(BudgetExceededError):
        step(second, 1)
    step(first, 10)
    second.load_state_dict(saved(first))  # 30 by now: more than anybody planned, and counted all the same
    assert sum(second.accountant.spent.values()) == 30 and second.epsilon() > 3.0


def test_a_ledger_knows_of_every_step_before_it_is_made(tmp_path: Path) -> None:
    path, target = tmp_path / "steps", dict(target_epsilon=3.0, target_delta=1e-5, epochs=2)
    first, second = training(**target, ledger=path), training(**target, ledger=path)
    step(first, 3)
    first.optimizer.step = None  # dies in the middle of its fourth step
    with pytest.raises(TypeError):
        step(first, 1)
    assert second.accountant.spent == {}
    step(second, 5)  # beside it, or after it
    assert sum(second.accountant.spent.values()) == 9
    again = training(**target, ledger=path)
    assert again.epsilon() == second.epsilon() and sum(again.accountant.spent.values()) == 9
    step(again, 11)
    with pytest.raises(BudgetExceededError):  # 20 steps were planned, by whomever
        step(second, 1)
    assert sum(training(**target, ledger=path).accountant.spent.values()) == 20
    with pytest.raises(ValueError, match="state is that of another training: noise_multiplier"):
        training(noise_multiplier=1.0, ledger=path)
    (tmp_path / "damaged").write_text("{}")
    with pytest.raises(BudgetFileError, match="not taken for an empty one"):
        training(noise_multiplier=1.0, ledger=tmp_path / "damaged")


def test_no_step_counts_twice_in_whichever_order_states_are_loaded() -> None:
    first = training()
    step(first, 3)
    early = saved(first)
    step(first, 2)
    late = saved(first)
    one, two = training(), training()
    for fork, times in ((one, 4), (two, 7)):  # two that go on from the same state
        fork.load_state_dict(early)
        step(fork, times)
    last = training()
    last.load_state_dict(saved(two))
    with pytest.raises(ValueError, match="spent more than the state knows"):
        last.load_state_dict(early)
    for state in (late, saved(one)):
        last.load_state_dict(state)
    assert last.accountant.spent == {EVENT: 5 + 4 + 7}
    assert sorted(n for run in last.runs.by_run().values() for n in run.values()) == [4, 5, 7]


def test_a_state_of_its_own_that_is_older_is_refused_and_one_that_is_as_old_is_not() -> None:
    private = training()
    step(private, 2)
    before = saved(private)
    private.load_state_dict(before)
    assert private.accountant.spent == {EVENT: 2}
    step(private, 1)
    with pytest.raises(ValueError, match="spent more than the state knows of"):
        private.load_state_dict(before)
    assert private.accountant.spent == {EVENT: 3}


def test_what_was_composed_beside_the_steps_is_kept_by_run_too() -> None:
    first, second = training(), training()
    first.accountant.compose(Pure(0.25), 2)
    second.accountant.compose(Pure(0.25), 1)
    step(second, 1)
    second.load_state_dict(saved(first))
    assert second.accountant.spent == {Pure(0.25): 3, EVENT: 1}


def test_a_state_of_the_first_format_is_a_run_of_its_own() -> None:
    entry = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "event": "gaussian", "count": 10}
    private = training()
    old = {"format": 1, "settings": private.state_dict()["settings"], "spent": [entry]}
    step(private, 2)
    private.load_state_dict(old)
    assert private.accountant.spent == {EVENT: 12}
    private.load_state_dict(old)  # which might be that of another run
    assert private.accountant.spent == {EVENT: 22}


@pytest.mark.parametrize(
    "spent", [[], {"": []}, {"a": [3]}, {"a": None}, {"a": [{"event": "gaussian"}]}, None]
)
def test_what_is_no_list_of_runs_is_refused(spent: Any) -> None:
    private = training()
    state = {**private.state_dict(), "spent": spent}
    with pytest.raises(ValueError, match="not the state of a private training"):
        private.load_state_dict(state)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_is_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """NB: not forked in earnest: torch's threads do not come along."""
    private = training()
    step(private, 2)
    before, own = saved(private), private.runs.run
    monkeypatch.setattr(os, "getpid", lambda: -1)
    step(private, 3)
    assert private.runs.run != own
    parent = training()
    parent.load_state_dict(before)
    parent.load_state_dict(saved(private))
    assert parent.runs.by_run()[own] == {EVENT: 2} and parent.accountant.spent == {EVENT: 5}
