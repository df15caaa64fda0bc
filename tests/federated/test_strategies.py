"""Every strategy's step, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from syft.federated.aggregation import PlainSum, Updates
from syft.federated.rounds import NotEnoughClientsError
from syft.federated.strategies import (
    STRATEGIES,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedProx,
    FedYogi,
    Krum,
    Median,
    MultiKrum,
    Scaffold,
    Strategy,
    TrimmedMean,
    make_strategy,
    register_strategy,
)
from syft.federated.strategies.krum import krum_scores
from syft.federated.trainer import Trainer
from trainer_parts import Fixed, line, points, weights

MSE = nn.MSELoss()


def after(strategy: Strategy | str, *updates: float, rounds: int = 1, start: float = 0.0) -> float:
    """Where one weight is after clients moved it so."""
    model = line(start)
    clients = {f"c{i}": Fixed(update) for i, update in enumerate(updates)}
    Trainer(model, MSE, clients, strategy).fit(rounds)
    return weights(model)[0]


def test_fedavg_goes_to_the_mean_or_a_part_of_the_way() -> None:
    assert after(FedAvg(), 1.0, 2.0) == 1.5
    assert after(FedAvg(server_lr=0.5), 1.0, 2.0) == 0.75


def test_fedavg_is_local_sgd_averaged() -> None:
    # Loss (w x - y)^2, gradient 2 x (w x - y), rate 0.1, two steps from w = 1:
    #   a: x=1, y=0: 1 -> 1 - 0.1 * 2 = 0.8 -> 0.8 - 0.1 * 1.6 = 0.64
    #   b: x=1, y=4: 1 -> 1 + 0.1 * 6 = 1.6 -> 1.6 + 0.1 * 4.8 = 2.08
    model = line(1.0)
    Trainer(model, MSE, {"a": points((1, 0)), "b": points((1, 4))}, epochs=2).fit(1)
    assert weights(model) == [1.36]


def test_fedprox_pulls_every_step_back_to_where_the_round_began() -> None:
    # As above with mu = 1: the first step is the same, the second has the pull 1 * (w - 1) in its gradient:
    #   a: 0.8 - 0.1 * (1.6 + (0.8 - 1)) = 0.66
    #   b: 1.6 - 0.1 * (-4.8 + (1.6 - 1)) = 2.02
    model = line(1.0)
    Trainer(model, MSE, {"a": points((1, 0)), "b": points((1, 4))}, FedProx(mu=1.0), epochs=2).fit(1)
    assert weights(model) == [1.34]


def test_scaffold_by_hand_over_three_rounds() -> None:
    # Rate 0.1, one step per round, from w = 1 with c = c_a = c_b = 0.
    # Round 1: a: 1 - 0.1 * 2 = 0.8; b: 1 + 0.1 * 6 = 1.6; mean 1.2. c_a = (1 - 0.8)/0.1 = 2, c_b = -6, c = -2.
    # Round 2: a: gradient 2.4, corrected 2.4 - 2 - 2 = -1.6; b: -5.6 + 6 - 2 = -1.6; both 1.36.
    #          c_a = 2 + 2 + (1.2 - 1.36)/0.1 = 2.4, c_b = -6 + 2 - 1.6 = -5.6, c = -2 + (0.4 + 0.4)/2 = -1.6.
    # Round 3: a: 2.72 - 2.4 - 1.6 = -1.28; b: 2 (1.36 - 4) + 5.6 - 1.6 = -1.28; both 1.488.
    model, strategy = line(1.0), Scaffold()
    trainer = Trainer(model, MSE, {"a": points((1, 0)), "b": points((1, 4))}, strategy)
    seen = []
    for number in (1, 2, 3):
        trainer.fit(number)
        seen.append(weights(model)[0])
        if number == 2:
            memory = {name: round(value.item(), 4) for name, value in strategy.state().items()}
            assert memory == {"c": -1.6, "client/a": 2.4, "client/b": -5.6}
    assert seen == [1.2, 1.36, 1.488]


def test_scaffold_counts_clients_that_were_not_asked() -> None:
    # Two of four are asked; c moves by a quarter of each change, x by a half.
    strategy = Scaffold(server_lr=0.5)
    strategy.bind(Trainer(line(0.0), MSE, {"a": Fixed(1.0)}).layout, ("a", "b", "c", "d"))
    results = {name: Fixed(u, steps=2).fit(_Round()) for name, u in {"a": 1.0, "b": -3.0}.items()}
    vectors = {name: result.update["weight"].flatten() for name, result in results.items()}
    step = strategy.step(Updates(vectors, results, PlainSum()), {"lr": 0.1})
    assert step.item() == pytest.approx(-0.5)  # 0.5 * (1 - 3) / 2
    assert strategy.state()["client/a"].item() == pytest.approx(-5.0)  # -(1) / (2 * 0.1)
    assert strategy.state()["c"].item() == pytest.approx((-5.0 + 15.0) / 4)


class _Round:
    round = 1


@pytest.mark.parametrize(
    ("optimizer", "args"),
    [("Adam", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "weight_decay": 0.1})],
)
def test_scaffold_refuses_steps_that_are_not_gradients(optimizer: str, args: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="plain SGD steps"):
        Trainer(line(0.0), MSE, {"a": points((1, 0))}, "scaffold", optimizer=optimizer, optimizer_args=args)


def test_fedadam_by_hand() -> None:
    # eta 0.1, b1 0.9, b2 0.99, tau 0.01, D = 1 twice, v_0 = tau^2 = 1e-4:
    m1, v1 = 0.1, 0.99e-4 + 0.01
    m2, v2 = 0.19, 0.99 * (0.99e-4 + 0.01) + 0.01
    x1 = 0.1 * m1 / (math.sqrt(v1) + 0.01)
    x2 = x1 + 0.1 * m2 / (math.sqrt(v2) + 0.01)
    assert after(FedAdam(tau=0.01), 0.5, 1.5) == pytest.approx(x1, abs=1e-6)
    assert after(FedAdam(tau=0.01), 0.5, 1.5, rounds=2) == pytest.approx(x2, abs=1e-6)


def test_fedyogi_by_hand() -> None:
    # v_1 = v_0 - 0.01 * 1 * sign(1e-4 - 1) = 0.0101; v_2 = 0.0201
    x1 = 0.1 * 0.1 / (math.sqrt(0.0101) + 0.01)
    x2 = x1 + 0.1 * 0.19 / (math.sqrt(0.0201) + 0.01)
    assert after(FedYogi(tau=0.01), 0.5, 1.5, rounds=2) == pytest.approx(x2, abs=1e-6)
    # A memory above the square shrinks by the same bounded step: v = 4 - 0.01 * 1
    assert FedYogi().second_moment(torch.tensor(4.0), torch.tensor(1.0)).item() == pytest.approx(3.99)


def test_fedadagrad_by_hand() -> None:
    # No momentum: x1 = 0.1 * 2 / (sqrt(1e-4 + 4) + 0.01), and v grows to 8 + 1e-4
    x1 = 0.1 * 2 / (math.sqrt(4.0001) + 0.01)
    x2 = x1 + 0.1 * 2 / (math.sqrt(8.0001) + 0.01)
    assert after(FedAdagrad(tau=0.01), 1.0, 3.0, rounds=2) == pytest.approx(x2, abs=1e-6)


@pytest.mark.parametrize("strategy", [FedAdam(), FedYogi(), FedAdagrad(), FedAvg(server_lr=0.1), Scaffold()])
def test_statistics_are_averaged_whatever_is_done_to_parameters(strategy: Strategy) -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    x = torch.tensor([[0.0], [2.0], [4.0]])
    with torch.no_grad():
        model[0].weight.fill_(1.0)
    clients = {"a": TensorDataset(x, x), "b": TensorDataset(x + 10, x)}
    Trainer(model, MSE, clients, strategy, batch_size=3).fit(1)
    # momentum 0.1: means of 2 and 12 from 0, variances of 4 from 1
    assert model[1].running_mean.item() == pytest.approx(0.7)
    assert model[1].running_var.item() == pytest.approx(1.3)
    assert model[1].num_batches_tracked.item() == 1


def test_the_median_of_odd_and_even_numbers() -> None:
    assert after(Median(), 1.0, -50.0, 2.0) == 1.0
    assert after(Median(), 1.0, 1e6, 2.0, 0.0) == 1.5


def test_the_median_is_of_each_coordinate() -> None:
    model = line(0.0, 0.0)
    Trainer(model, MSE, {"a": Fixed(1.0, 9.0), "b": Fixed(2.0, 7.0), "c": Fixed(3.0, 8.0)}, Median()).fit(1)
    assert weights(model) == [2.0, 8.0]


def test_robust_strategies_do_not_believe_numbers_of_examples() -> None:
    model = line(0.0)
    liar = Fixed(9.0, examples=10**9)
    Trainer(model, MSE, {"a": liar, "b": Fixed(1.0), "c": Fixed(2.0)}, TrimmedMean(0.3)).fit(1)
    assert weights(model) == [2.0]


def test_the_trimmed_mean_rounds_up_what_it_takes_away() -> None:
    assert after(TrimmedMean(0.2), 1.0, 2.0, 3.0, -100.0, 100.0) == 2.0
    # 10 percent of four is less than one client, and one is taken away
    assert after(TrimmedMean(0.1), 1.0, 3.0, -100.0, 100.0) == 2.0
    with pytest.raises(ValueError, match=r"leaves nothing of 2"):
        after(TrimmedMean(0.4), 1.0, 2.0)


def test_krum_scores_by_hand() -> None:
    # n = 5, f = 1: each is judged by its two nearest. 0, 1, 3, 6, 50:
    #   0: 1 + 9; 1: 1 + 4; 3: 4 + 9; 6: 9 + 25; 50: 44^2 + 47^2
    vectors = torch.tensor([[0.0], [1.0], [3.0], [6.0], [50.0]])
    assert krum_scores(vectors, 1).tolist() == [10.0, 5.0, 13.0, 34.0, 44.0**2 + 47.0**2]
    assert after(Krum(f=1), 0.0, 1.0, 3.0, 6.0, 50.0) == 1.0
    # The three best are 1, 0 and 3.
    assert after(MultiKrum(f=1, m=3), 0.0, 1.0, 3.0, 6.0, 50.0) == pytest.approx(4 / 3, abs=1e-6)
    assert after(MultiKrum(f=1), 0.0, 1.0, 3.0, 6.0, 50.0) == 2.5  # all but one


def test_krum_needs_two_f_and_three() -> None:
    with pytest.raises(ValueError, match=r"Krum with f=2, m=1 needs 7 updates"):
        after(Krum(f=2), 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


def test_a_round_that_leaves_a_robust_strategy_too_few_is_an_error() -> None:
    model = line(1.0)
    clients: dict[str, Any] = {f"c{i}": Fixed(1.0) for i in range(4)} | {"bad": Fixed(float("nan"))}
    with pytest.raises(
        NotEnoughClientsError, match=r"Krum with f=1, m=1 needs 5 updates.*bad \(not finite\)"
    ):
        Trainer(model, MSE, clients, Krum(f=1)).fit(1)
    assert weights(model) == [1.0]


def test_strategies_have_names() -> None:
    assert set(STRATEGIES) == set(
        "fedavg fedprox fedadam fedyogi fedadagrad scaffold median trimmed_mean krum multikrum".split()
    )
    for name in STRATEGIES:
        assert make_strategy(name).name == name
    assert after("median", 1.0, 2.0, 9.0) == 2.0
    with pytest.raises(ValueError, match=r"'fedsgd' is not known. Name one of fedadagrad"):
        make_strategy("fedsgd")
    with pytest.raises(TypeError, match="a name or a Strategy object"):
        make_strategy(FedAvg)  # type: ignore[arg-type]


def test_a_strategy_of_ones_own_is_one_class() -> None:
    class Sign(Strategy):
        name = "sign"

        def step(self, updates: Updates, optimizer_args: Any) -> torch.Tensor:
            return 0.25 * updates.mean().sign()

    register_strategy(Sign)
    try:
        assert after("sign", 5.0, 6.0) == 0.25
        with pytest.raises(ValueError, match="taken"):
            register_strategy(Sign)
    finally:
        del STRATEGIES["sign"]


def test_a_strategy_belongs_to_one_trainer() -> None:
    strategy = FedAdam()
    after(strategy, 1.0)
    with pytest.raises(ValueError, match="belongs to another trainer"):
        after(strategy, 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedAvg(server_lr=0.0),
        lambda: FedAvg(server_lr=float("nan")),
        lambda: FedProx(mu=-1.0),
        lambda: FedAdam(beta1=1.0),
        lambda: FedYogi(beta2=-0.1),
        lambda: FedAdagrad(tau=0.0),
        lambda: TrimmedMean(0.5),
        lambda: Krum(f=-1),
        lambda: MultiKrum(f=1, m=0),
        lambda: Scaffold(server_lr=-1.0),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="it has to be"):
        make()
