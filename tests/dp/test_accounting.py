"""Accountants agree with `dp-accounting` and opacus; budgets are charged once, kept, and never exceeded."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import forked
from syft.dp import accounting
from syft.dp.accounting import (
    Accountant,
    Budget,
    BudgetExceededError,
    BudgetFile,
    BudgetFileError,
    Gaussian,
    Pure,
)
from syft.exceptions import DependencyError
from syft.ledger import file as ledger_file

dp = pytest.importorskip("dp_accounting")


@pytest.mark.parametrize("noise", [0.6, 1.0, 3.0])
@pytest.mark.parametrize("rate", [0.004, 0.1])
@pytest.mark.parametrize("steps", [10, 1000])
def test_epsilon_equals_dp_accounting_and_opacus(noise: float, rate: float, steps: int) -> None:
    from dp_accounting import rdp

    ours = Accountant().compose(Gaussian(noise, rate), steps).epsilon(1e-5)
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    assert ours == pytest.approx(rdp.RdpAccountant().compose(event, steps).get_epsilon(1e-5), rel=1e-9)
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    # NB: whole orders. At fractional ones dp-accounting skips what its series does not settle, opacus does not.
    orders = [float(order) for order in range(2, 256)]
    spent = analysis.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is the")
        theirs, _best = analysis.get_privacy_spent(orders=orders, rdp=spent, delta=1e-5)
    same_orders = Accountant("rdp", orders).compose(Gaussian(noise, rate), steps).epsilon(1e-5)
    assert same_orders == pytest.approx(theirs, rel=1e-6)


def test_one_gaussian_by_loss_distributions_equals_the_closed_form() -> None:
    """Balle and Wang 2018, theorem 8."""
    epsilon = Accountant("pld").compose(Gaussian(1.5)).epsilon(1e-5)
    below, above = 1 / 3.0 - 1.5 * epsilon, -1 / 3.0 - 1.5 * epsilon
    delta = 0.5 * math.erfc(-below / math.sqrt(2)) - math.exp(epsilon) * 0.5 * math.erfc(
        -above / math.sqrt(2)
    )
    assert delta == pytest.approx(1e-5, rel=0.01)


def test_loss_distributions_are_tighter_than_divergences_and_composition_has_no_order() -> None:
    events = [(Gaussian(2.0), 3), (Gaussian(1.0, 0.05), 20), (Pure(0.1), 5)]
    found: dict[str, list[float]] = {}
    for kind in ("rdp", "pld"):
        for order in (events, events[::-1]):
            accountant = Accountant(kind)  # type: ignore[arg-type]
            for event, count in order:
                accountant.compose(event, count)
            found.setdefault(kind, []).append(accountant.epsilon(1e-6))
    assert found["rdp"][0] == pytest.approx(found["rdp"][1])
    assert found["pld"][0] == pytest.approx(found["pld"][1], rel=1e-4)
    assert found["pld"][0] < found["rdp"][0]


@pytest.mark.parametrize("kind", ["rdp", "pld"])
def test_pure_events_add_up_or_better(kind: Any) -> None:
    assert Accountant(kind).compose(Pure(0.5), 3).epsilon(0.0) == pytest.approx(1.5)
    assert Accountant(kind).compose(Pure(0.5)).epsilon(1e-9) <= 0.5 + 1e-9
    many = Accountant(kind).compose(Pure(0.01), 2000).epsilon(1e-6)
    assert many < 5.0  # 20 by adding
    # Randomised response, 2 times: the exact delta at epsilon 0 is Pr[both agree with the truth] minus its mirror.
    if kind == "pld":
        p = math.exp(1) / (1 + math.exp(1))
        assert Accountant(kind).compose(Pure(1.0)).delta(0.0) == pytest.approx(2 * p - 1, rel=1e-3)


def test_delta_and_epsilon_are_inverse() -> None:
    accountant = Accountant().compose(Gaussian(1.0, 0.1), 50)
    assert accountant.delta(accountant.epsilon(1e-5)) == pytest.approx(1e-5, rel=1e-6)
    assert Accountant().epsilon(1e-5) == 0.0 and Accountant().delta(1.0) == 0.0


@pytest.mark.parametrize("target", [0.5, 2.0, 8.0])
def test_the_noise_found_for_an_epsilon_is_enough_and_hardly_more(target: float) -> None:
    noise = accounting.noise_multiplier_for(target, 1e-5, sampling_rate=0.02, steps=500, kind="rdp")
    assert Accountant().compose(Gaussian(noise, 0.02), 500).epsilon(1e-5) <= target
    assert Accountant().compose(Gaussian(noise * 0.995, 0.02), 500).epsilon(1e-5) > target


# -- budgets ---------------------------------------------------------------------------------------------


def test_a_budget_is_spent_and_then_refuses() -> None:
    budget = Budget(1.0, 1e-6)
    budget.spend(Pure(0.6))
    with pytest.raises(BudgetExceededError, match=r"from 0\.6 to 1\.1.*budget is 1"):
        budget.spend(Pure(0.5))
    assert budget.spent() == pytest.approx(0.6)
    budget.spend(Pure(0.4))
    assert not budget.allows(Gaussian(100.0))


def test_a_budget_comes_back_from_its_file(tmp_path: Path) -> None:
    budget = Budget(3.0, 1e-6, Accountant("pld"))
    budget.spend(Gaussian(5.0, 0.1), 7)
    budget.spend(Pure(0.25), 2)
    budget.save(tmp_path / "b.json")
    assert Budget.load(tmp_path / "b.json") == budget
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r.pop("spent"),
        lambda r: r.update(format=2),
        lambda r: r.update(epsilon=math.nan),
        lambda r: r.update(kind="guess"),
        lambda r: r["spent"][0].update(count=-1),
        lambda r: r["spent"][0].update(event="free"),
        lambda r: r["spent"][0].update(noise_multiplier="1"),
        lambda r: r["spent"][0].update(surprise=1),
    ],
)
def test_a_damaged_file_is_not_an_empty_budget(edit: Any, tmp_path: Path) -> None:
    budget = Budget(3.0, 1e-6)
    budget.spend(Gaussian(5.0))
    record = json.loads(budget.to_json())
    edit(record)
    (tmp_path / "b.json").write_text(json.dumps(record))
    with pytest.raises(BudgetFileError, match="not taken for an empty one"):
        BudgetFile(tmp_path / "b.json").spend(Pure(0.1))
    with pytest.raises(BudgetFileError):
        Budget.from_json("")


def test_a_hundred_clients_race_for_the_last_unit_and_one_gets_it(tmp_path: Path) -> None:
    file = BudgetFile.create(tmp_path / "b.json", 1.0, 0.0)
    file.spend(Pure(0.5))

    def ask(_number: int) -> bool:
        try:
            BudgetFile(tmp_path / "b.json").spend(Pure(0.5))
        except BudgetExceededError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(ask, range(100))) == 1
    assert file.read().spent() == 1.0
    with pytest.raises(FileExistsError, match="already"):
        BudgetFile.create(tmp_path / "b.json", 1.0, 0.0)


KILLED = """
import os, signal, sys
from syft.dp.accounting import BudgetFile, Pure
BudgetFile.create(sys.argv[1], 1.0, 0.0).spend(Pure(0.75))
os.kill(os.getpid(), signal.SIGKILL)  # after the charge, before the answer
"""


def test_a_process_killed_after_the_charge_leaves_it_charged_and_unlocked(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    done = forked.run("-c", KILLED, str(path), check=False, timeout=800)
    assert done.returncode == -9
    assert BudgetFile(path).read().spent() == 0.75
    with pytest.raises(BudgetExceededError):
        BudgetFile(path).spend(Pure(0.5))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = BudgetFile.create(tmp_path / "b.json", 1.0, 0.0)

    def full(*row: Any, real: Any = ledger_file.append) -> None:
        real(*row)
        raise sqlite3.OperationalError("database or disk is full")

    before = (tmp_path / "b.json").read_bytes()
    monkeypatch.setattr(ledger_file, "append", full)
    with pytest.raises(BudgetFileError, match="disk is full"):
        file.spend(Pure(0.5))
    assert (tmp_path / "b.json").read_bytes() == before
    assert file.read().spent() == 0.0
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]


def test_a_file_of_before_becomes_a_ledger_with_all_that_was_spent(tmp_path: Path) -> None:
    path, budget = tmp_path / "b.json", Budget(1.0, 0.0)
    budget.spend(Pure(0.5))
    path.write_text(budget.to_json())

    def ask(_number: int) -> bool:
        try:
            BudgetFile(path).spend(Pure(0.25))
        except BudgetExceededError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:  # all of them find the old file
        assert sum(pool.map(ask, range(16))) == 2
    assert BudgetFile(path).read().spent() == Budget.load(path).spent() == 1.0
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(DependencyError, match=r"resyft\[dp\]"):
        Accountant("pld").compose(Gaussian(1.0)).epsilon(1e-5)
    assert 4 < Accountant("rdp").compose(Gaussian(1.0)).epsilon(1e-5) < 5.5


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Gaussian(0.0), "noise_multiplier"),
        (lambda: Gaussian(1.0, 1.5), "sampling_rate"),
        (lambda: Pure(math.inf), "epsilon"),
        (lambda: Accountant("guess"), "rdp"),  # type: ignore[arg-type]
        (lambda: Accountant().compose(Pure(1.0), 0), "count"),
        (lambda: Accountant().epsilon(1.0), "delta"),
        (lambda: accounting.noise_multiplier_for(1.0, 0.0), "delta"),
    ],
)
def test_a_wrong_argument_is_named(call: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
    with pytest.raises(TypeError, match=r"Gaussian or accounting\.Pure"):
        Accountant().compose("gaussian")  # type: ignore[arg-type]


# -- small epsilons ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.1, 100), (0.01, 1000)])
def test_small_epsilons_have_their_noise(rate: float, steps: int) -> None:
    noise = accounting.noise_multiplier_for(0.005, 1e-6, sampling_rate=rate, steps=steps, kind="rdp")
    spent = accounting.Accountant().compose(Gaussian(noise, rate), steps)
    assert spent.epsilon(1e-6) <= 0.005
    fine = dp.pld.PLDAccountant(value_discretization_interval=1e-5)
    sampled = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    assert 0.003 < fine.compose(sampled, steps).get_epsilon(1e-6) <= 0.005
    with pytest.raises(ValueError, match="finds no noise"):
        accounting.noise_multiplier_for(1e-8, 1e-12, sampling_rate=rate, steps=steps, kind="rdp")


@pytest.mark.parametrize("event", [Gaussian(1.3, 0.02), Gaussian(40.0, 0.3), Gaussian(3.0), Pure(0.3)])
def test_far_orders_are_what_dp_accounting_finds_there(event: Any) -> None:
    for order in (2, 33, 2048):
        _orders, (theirs,) = accounting._divergence_of(event, (order,))
        assert accounting._far_divergence(event, order) == pytest.approx(theirs, rel=1e-6, abs=1e-8)


def test_orders_without_a_result_are_left_out_silently(capfd: Any, caplog: Any) -> None:
    accounting.Accountant().compose(Gaussian(1000.0, 0.5), 10).epsilon(1e-5)
    accounting.Accountant().compose(Gaussian(60.0, 0.9), 10).epsilon(1e-5)
    assert "converge" not in capfd.readouterr().err + caplog.text
