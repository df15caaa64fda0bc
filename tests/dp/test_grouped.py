"""Statistics by group: what a person can change is bounded by the worker, and every answer says how much noise it has."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.dp.audit import epsilon_lower_bound
from syft.dp.grouped import Grouping, grouped, threshold, totals
from syft.dp.mechanisms import STEPS
from syft.dp.released import Noise, ReleasedFloat, ReleasedInt, ReleasedTensor, laplace_noise
from syft.exceptions import BudgetExceededError
from syft.mpc.randomness import Stream
from syft.workers.network.client_worker import connect
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.chance

GROUPING = Grouping("sum", 0, 1, 2, (-2.0, 5.0), 2, 3, (1.0, 2.0, 3.0, 4.0))


def table(seed: int, persons: int = 12, rows: int = 60) -> Any:
    draw = random.Random(seed)
    values = [-math.inf, math.inf, math.nan, -2.0, 5.0, 1.5, 0.0, 1e9]
    keys = [1.0, 2.0, 3.0, 4.0, 4.0, 9.0, math.nan]
    return np.array(
        [
            [draw.choice([*range(persons), math.nan]), draw.choice(keys), draw.choice(values)]
            for _ in range(rows)
        ]
    )


@pytest.mark.parametrize("statistic", ["count", "sum", "mean"])
@pytest.mark.parametrize("keys", [GROUPING.keys, None], ids=["public", "found"])
def test_all_rows_of_a_person_added_or_removed_move_the_totals_by_the_stated_sensitivity_at_most(
    statistic: str, keys: Any
) -> None:
    reached = 0.0
    for seed in range(60):
        rows, grouping = table(seed), replace(GROUPING, statistic=statistic, keys=keys)
        for person in range(3):
            fewer = rows[rows[:, 0] != person]
            more, less = totals(rows, grouping), totals(fewer, grouping)
            place = {key: index for index, key in enumerate(less.keys)}
            change = {"persons": 0, "rows": 0, "sums": 0}
            for index, key in enumerate(more.keys):
                for name in change:
                    before = getattr(less, name)[place[key]] if key in place else 0
                    change[name] += abs(int(getattr(more, name)[index]) - int(before))
            assert change["persons"] <= grouping.max_groups
            assert change["rows"] <= grouping.most_rows
            assert change["sums"] <= grouping.most_rows * STEPS
            reached = max(reached, change["rows"] / grouping.most_rows)
    assert reached == 1.0  # the bound is met: it is not loose


def test_answers_are_right_and_their_intervals_hold() -> None:
    rows = np.array([[p, p % 3, (p % 7) - 3.0] for p in range(900) for _ in range(2)])
    truth = {k: [r[2] for r in rows if r[1] == k] for k in range(3)}
    plain = Grouping("count", 0, 1, None, (0.0, 1.0), 1, 2, (0.0, 1.0, 2.0))
    exact: dict[str, Callable[[list[float]], float]] = {
        "count": len,
        "sum": sum,
        "mean": lambda v: sum(v) / len(v),
    }
    for statistic, compute in exact.items():
        value, bounds = (None, (0.0, 1.0)) if statistic == "count" else (2, (-3.0, 3.0))
        grouping = replace(plain, statistic=statistic, value=value, bounds=bounds)
        inside, errors, scales = 0, [], []
        for _ in range(30):
            for key, answer in grouped(rows, grouping, 2.0, 0.0).items():
                low, high = answer.interval(0.9)
                inside += low <= compute(truth[int(key)]) <= high
                errors.append(answer - compute(truth[int(key)]))
                scales.append(answer.noise_scale)
        assert inside >= 71  # of 90, 81 expected at least
        if statistic != "mean":
            assert np.std(errors) == pytest.approx(scales[0], rel=0.35)
        else:
            assert np.std(errors) < 2 * np.mean(scales)


def test_a_key_that_one_person_has_is_found_with_delta_only_and_common_ones_are_found() -> None:
    grouping = Grouping("count", 0, 1, None, (0.0, 1.0), 2, 1, None)
    rows = np.array([[float(p), 7.0] for p in range(400)] + [[1000.0, 8.0], [1000.0, 9.0]])
    found = [set(grouped(rows, grouping, 1.0, 1e-6)) for _ in range(15)]
    assert all(one == {7} for one in found)
    # At a large delta they are found, as often as the threshold says, and no oftener.
    needed, each = threshold(grouping, 0.25, 0.9), 0.25
    assert 1 < needed < 12 / each
    often = sum(bool({8, 9} & set(grouped(rows, grouping, 1.0, 0.9))) for _ in range(150)) / 150
    assert 0.01 < often <= 0.9 / (1 + math.exp(0.5)) + 0.1


def test_a_canary_shows_no_more_than_epsilon_and_a_bound_on_rows_that_is_ignored_is_found_out() -> None:
    """A person with four rows in one group is replaced by one with four in the other."""
    rest = [[float(p), float(p % 2)] for p in range(2, 12)]
    there, instead = (np.array([[0.0, key]] * 4 + rest) for key in (0.0, 1.0))
    grouping = Grouping("count", 0, 1, None, (0.0, 1.0), 1, 4, (0.0, 1.0))

    def shown(epsilon: float, count: int) -> float:
        stream, runs = Stream(), []
        for rows in (there, instead):
            answers = [grouped(rows, grouping, epsilon, 0.0, stream) for _ in range(count)]
            runs.append([answer[0] - answer[1] for answer in answers])
        return epsilon_lower_bound(*runs)

    assert shown(1.0, 400) <= 1.0
    assert shown(4.0, 1000) > 1.0  # the noise for one row, where a person has four


# -- on workers ----------------------------------------------------------------------------------------------

VISITS = torch.tensor([[float(p), float(p % 2), 20.0 + p % 40] for p in range(600) for _ in range(1 + p % 3)])
OPTIONS = dict(by=1, max_groups=1, max_rows=3)


def check_groups(worker: Any, data: Any, **who: Any) -> None:
    counts = worker.release(data, "group_count", 4.0, keys=[0, 1], **OPTIONS, **who)
    assert set(counts) == {0, 1} and all(type(n) is ReleasedInt for n in counts.values())
    for key, n in counts.items():
        assert abs(n - int((VISITS[:, 1] == key).sum())) < 40
        assert n.interval(0.95)[0] < n < n.interval(0.95)[1] and "±" in repr(n)
    means = worker.release(data, "group_mean", 4.0, delta=1e-6, value=2, bounds=(0, 100), **OPTIONS, **who)
    for key, mean in means.items():
        assert abs(mean - float(VISITS[VISITS[:, 1] == key, 2].mean())) < 8 and mean.noise_scale < 10


def test_groups_are_released_and_charged_on_a_worker_in_process(hook: Any) -> None:
    clinic = sy.VirtualWorker(hook, id="clinic-of-groups")
    data = VISITS.private_tensor(allowed_users=("owner",)).tag("#visits").send(clinic, user="owner")
    clinic.set_budget(dataset="#visits", epsilon=9.0, delta=1e-5)
    with pytest.raises(ValueError, match="it is not known which column names the person"):
        clinic.release(data, "group_count", 1.0, keys=[0, 1], user="ann", **OPTIONS)
    with pytest.raises(ValueError, match="person_column=3"):
        clinic.set_budget(dataset="#visits", epsilon=9.0, delta=1e-5, person_column=3)
    clinic.set_budget(dataset="#visits", epsilon=9.0, delta=1e-5, person_column=0)
    for wrong, sentence in (
        (dict(by=7), "by is a whole number from 0 to 2"),
        (dict(max_rows=0), "max_rows is a whole number from 1"),
        (dict(keys=[1, 1]), "different"),
        (dict(keys=None), "list of numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            clinic.release(data, "group_count", 1.0, user="ann", **{"keys": [0, 1], **OPTIONS, **wrong})
    with pytest.raises(ValueError, match="needs a delta"):
        clinic.release(data, "group_count", 1.0, user="ann", **OPTIONS)
    with pytest.raises(ValueError, match="it is not known which"):  # columns of it may stand elsewhere
        clinic.release(data[:, 1:], "group_count", 1.0, keys=[0], user="ann", **OPTIONS)
    assert clinic.budget("ann", "#visits").spent == 0
    check_groups(clinic, data, user="ann")
    assert clinic.budget("ann", "#visits").spent == pytest.approx(8.0)
    with pytest.raises(BudgetExceededError):
        clinic.release(data, "group_count", 4.0, keys=[0, 1], user="ann", **OPTIONS)


@pytest.mark.network
def test_groups_and_noise_scales_come_over_a_connection(hook: Any, me: Any) -> None:
    server = NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="far-groups", data=[VISITS.clone().tag("#visits")]
    )
    server.set_budget(dataset="#visits", epsilon=20.0, delta=1e-5, person_column=0)
    with server:
        far = connect(server.address)
        data = far.search("#visits")[0]
        check_groups(far, data)
        mean = far.release(data, "mean", 1.0, bounds=(0, 600))
        assert type(mean) is ReleasedTensor and mean.shape == (3,) and mean.noise_scale > 0
        low, high = mean.interval(0.99)
        assert bool((low <= VISITS.double().mean(0)).all() and (VISITS.double().mean(0) <= high).all())
        far.close()


# -- noise of every answer -----------------------------------------------------------------------------------


def test_released_numbers_are_numbers_and_say_how_much_noise_they_have() -> None:
    noise = laplace_noise([2.0], low=0.0)
    number, whole, tensor = (
        ReleasedFloat(1.5, noise),
        ReleasedInt(3, noise),
        ReleasedTensor(torch.ones(2), noise),
    )
    assert number == 1.5 and type(number + 1) is float and f"{number:.1f}" == "1.5" and str(number) == "1.5"
    assert type(whole + 1) is int and str(whole) == "3" and repr(whole).startswith("3 (± ")
    assert type(tensor + 1) is torch.Tensor and torch.equal(tensor, torch.ones(2)) and "± " in repr(tensor)
    assert number.noise_scale == pytest.approx(2 * math.sqrt(2))
    assert number.interval(0.95) == pytest.approx((0.0, 1.5 + 2 * math.log(20)))
    assert copy.deepcopy(tensor).noise_scale == tensor.noise_scale == whole.noise_scale
    assert Noise((("gaussian", 2.0),)).half_width(0.95) == pytest.approx(1.96 * 2, rel=1e-3)
    with pytest.raises(ValueError, match="confidence is between"):
        number.interval(95)
    with pytest.raises(ValueError, match="is a choice"):
        ReleasedInt(1, Noise((("gaussian", 4.0),), choice="votes")).interval()
