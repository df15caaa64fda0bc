"""`worker.release`: what a user gets, what it costs, who may, and what is refused before anything is charged."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import syft as sy
from syft.dp.release_mechanisms import MECHANISMS
from syft.dp.worker_budgets import BudgetBook
from syft.exceptions import (
    BudgetExceededError,
    GetNotPermittedError,
    ReleaseNotPermittedError,
)
from syft.policy.caller import speaking_for

pytestmark = pytest.mark.chance

torch.set_num_threads(1)


def ages(count: int = 4000) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(1)) * 10 + torch.tensor(
        [40.0, 50.0, 60.0]
    )


def put(worker: Any, values: torch.Tensor, tag: str = "#ages") -> Any:
    return values.clone().private_tensor(allowed_users=("owner",)).tag(tag).send(worker, user="owner")


@pytest.fixture
def data(bob: Any) -> Any:
    pointer = put(bob, ages())
    bob.set_budget(dataset=pointer, epsilon=1000.0, delta=1e-5)
    return pointer


# -- answers -----------------------------------------------------------------------------------------------


def test_answers_are_near_the_truth(bob: Any, data: Any) -> None:
    truth, column = ages().double(), data[:, 0]

    def ask(pointer: Any, mechanism: str, epsilon: float | None = 2.0, **options: Any) -> Any:
        return bob.release(pointer, mechanism, epsilon, user="ann", **options)

    bounds = (0.0, 100.0)
    assert torch.allclose(ask(data, "laplace", bounds=bounds), truth.sum(0), atol=4000)
    assert torch.allclose(ask(data, "gaussian", delta=1e-6, bounds=bounds), truth.sum(0), atol=4000)
    assert torch.allclose(ask(data, "mean", bounds=bounds), truth.mean(0), atol=1.0)
    assert torch.allclose(ask(data, "variance", bounds=bounds), truth.var(0), atol=40.0)
    assert ask(column, "mean", bounds=bounds) == pytest.approx(float(truth[:, 0].mean()), abs=0.4)
    assert ask(column > 40, "count") == pytest.approx(int((truth[:, 0] > 40).sum()), abs=12)
    inside = int(((truth[:, 0] >= 30) & (truth[:, 0] <= 50)).sum())
    assert ask(column, "count", between=(30, 50)) == pytest.approx(inside, abs=12)
    found = ask(column, "histogram", edges=[0, 40, 100])
    assert found.dtype == torch.int64
    assert found.tolist() == pytest.approx(torch.histc(truth[:, 0], 2, 0, 80).tolist(), abs=60)
    rounded = ask(column.round(), "histogram", categories=[41.0, 40.0])
    assert rounded.tolist() == pytest.approx(
        [int((truth[:, 0].round() == v).sum()) for v in (41, 40)], abs=30
    )
    assert ask(column, "quantile", fraction=0.5, bounds=bounds) == pytest.approx(
        float(truth[:, 0].median()), abs=2
    )
    assert ask(data, "exponential", bounds=bounds) == 2
    assert ask(data, "noisy_max", bounds=bounds) == 2
    votes = ask(data.argmax(1), "gnmax", None, classes=3, sigma=30.0)
    assert votes == 2


def test_every_mechanism_of_the_table_is_tried_above() -> None:
    by_group = {"group_count", "group_sum", "group_mean"}  # in test_grouped
    assert set(MECHANISMS) - by_group == set(
        "laplace gaussian mean variance count histogram quantile exponential noisy_max gnmax".split()
    )


def test_two_answers_differ(bob: Any, data: Any) -> None:
    assert bob.release(data[:, 0], "mean", 1.0, user="ann", bounds=(0, 100)) != bob.release(
        data[:, 0], "mean", 1.0, user="ann", bounds=(0, 100)
    )


def test_rows_of_any_shape_are_released_with_the_shape_of_a_row(bob: Any) -> None:
    images = put(bob, torch.ones(50, 2, 4), "#images")
    bob.set_budget(dataset=images, epsilon=1e5)
    assert bob.release(images, "mean", 5000.0, user="ann", bounds=(0, 2)).shape == (2, 4)


def test_noise_grows_with_the_records_of_a_person(make_worker: Any) -> None:
    spread = {}
    for records in (1, 10):
        worker = make_worker(f"holder{records}")
        pointer = put(worker, torch.zeros(10))
        worker.set_budget(dataset=pointer, epsilon=1e6, max_records_per_person=records)
        answers = [worker.release(pointer, "laplace", 1.0, user="ann", bounds=(-1, 1)) for _ in range(300)]
        spread[records] = float(torch.tensor(answers).abs().mean())
    assert spread[1] == pytest.approx(2.0, rel=0.3)
    assert spread[10] == pytest.approx(20.0, rel=0.3)


def test_whole_numbers_are_counted_as_whole_numbers(bob: Any) -> None:
    large = 2**53
    values = torch.tensor([large, large + 1, large + 1, large + 2, 2**63 - 1, -(2**63), 0, 3])
    data = put(bob, values, "#numbers")
    bob.set_budget(dataset=data, epsilon=1e6)

    def ask(mechanism: str, **options: Any) -> Any:
        found = bob.release(data, mechanism, 1000.0, user="ann", **options)
        return found.tolist() if isinstance(found, torch.Tensor) else found

    assert ask("histogram", categories=[large + 1, large, large + 3, 0.5]) == [2, 1, 0, 0]
    assert ask("histogram", categories=torch.tensor([large + 1, 3])) == [2, 1]
    assert ask("histogram", categories=[2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 1e300]) == [1, 0, 1, 0, 0]
    assert ask("histogram", edges=[0, large + 1, large + 2, 2**64]) == [3, 2, 2]
    assert ask("histogram", edges=[-0.5, 0.5, 2.5, 3]) == [1, 0, 1]
    assert ask("histogram", edges=[2**70, 2**71]) == [0]
    assert ask("count", between=(large + 1, large + 1)) == 2
    assert ask("count", between=(large + 1, math.inf)) == 4
    assert ask("count", between=(-math.inf, 0.5)) == 2
    assert ask("count", between=(2**70, math.inf)) == 0
    assert ask("count") == 7


def test_ends_of_a_count_are_included_and_may_be_infinite(bob: Any) -> None:
    data = put(bob, torch.tensor([1.0, 1.0, 17.9, 18.0, math.inf, -math.inf, math.nan]), "#numbers")
    bob.set_budget(dataset=data, epsilon=1e6)
    for between, expected in (
        ((1, 1), 2), ((18, math.inf), 2), ((-math.inf, math.inf), 6), ((0, 1e151), 4), ((2**53 + 1, 1e300), 0)
    ):  # fmt: skip
        assert bob.release(data, "count", 1000.0, user="ann", between=between) == expected
    edges = torch.tensor([0.0, 18.0], requires_grad=True)
    assert bob.release(data, "histogram", 1000.0, user="ann", edges=edges).tolist() == [4]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int16, torch.int32, torch.float16, torch.bfloat16]
)
def test_numbers_of_every_type_are_counted(bob: Any, dtype: torch.dtype) -> None:
    data = put(bob, torch.tensor([1, 0, 1, 1]).to(dtype), "#numbers")
    bob.set_budget(dataset=data, epsilon=1e6)
    assert bob.release(data, "count", 1000.0, user="ann") == 3
    assert bob.release(data, "histogram", 1000.0, user="ann", categories=[0, 1]).tolist() == [1, 3]
    assert bob.release(data, "histogram", 1000.0, user="ann", edges=[-1000, 0.5, 1000]).tolist() == [1, 3]


def test_parts_of_complex_numbers_are_released(bob: Any) -> None:
    data = put(bob, torch.complex(torch.ones(500, 2), torch.zeros(500, 2)), "#waves")
    bob.set_budget(dataset=data, epsilon=1e6)
    with pytest.raises(ValueError, match=r"release `data\.real` or `data\.imag`"):
        bob.release(data, "mean", 100.0, user="ann", bounds=(0, 2))
    assert torch.allclose(
        bob.release(data.real, "mean", 100.0, user="ann", bounds=(0, 2)), torch.ones(2).double(), atol=0.1
    )
    assert bob.release(data.imag[:, 0], "mean", 100.0, user="ann", bounds=(-1, 1)) == pytest.approx(
        0, abs=0.1
    )
    with pytest.raises(ReleaseNotPermittedError):
        bob.release(data.real.mean(0), "mean", 1.0, user="ann", bounds=(0, 2))


def test_bounds_are_enforced_where_the_data_is(bob: Any) -> None:
    outlier = put(bob, torch.tensor([1e30, *([0.0] * 999)]))
    bob.set_budget(dataset=outlier, epsilon=100.0)
    assert bob.release(outlier, "laplace", 10.0, user="ann", bounds=(0, 1)) < 10


# -- costs -------------------------------------------------------------------------------------------------


def test_a_release_is_charged_and_refused_when_the_budget_is_spent(bob: Any) -> None:
    data = put(bob, ages(100))
    bob.set_budget(dataset=data, user="ann", epsilon=1.0)
    bob.release(data[:, 0], "mean", 0.7, user="ann", bounds=(0, 100))
    with pytest.raises(
        BudgetExceededError, match=r"epsilon 0\.3 of 1 left on '#ages'.*asks for epsilon 0\.5"
    ) as no:
        bob.release(data[:, 0], "mean", 0.5, user="ann", bounds=(0, 100))
    assert no.value.left == pytest.approx(0.3)
    bob.release(data[:, 0], "mean", 0.3, user="ann", bounds=(0, 100))
    state = bob.budget("ann", "#ages")
    assert state.spent == pytest.approx(1.0) and state.left == pytest.approx(0.0)
    assert [(r.mechanism, r.epsilon) for r in state.releases] == [("mean", 0.7), ("mean", 0.3)]


def test_users_have_budgets_of_their_own_and_one_together(bob: Any) -> None:
    data = put(bob, ages(100))
    bob.set_budget(dataset=data, epsilon=1.0)
    bob.set_budget(dataset=data, user="ann", epsilon=2.0)
    bob.set_budget(dataset=data, together=True, epsilon=2.5)
    bob.release(data[:, 0], "mean", 2.0, user="ann", bounds=(0, 100))
    with pytest.raises(BudgetExceededError, match=r"Everybody together has epsilon 0\.5"):
        bob.release(data[:, 0], "mean", 1.0, user="dan", bounds=(0, 100))
    bob.release(data[:, 0], "mean", 0.5, user="dan", bounds=(0, 100))
    state = bob.budget("dan", data)
    assert (state.epsilon, state.left, state.together_left) == pytest.approx((1.0, 0.5, 0.0))


def test_a_release_of_two_data_sets_is_charged_to_both_or_to_none(bob: Any) -> None:
    one, other = put(bob, ages(50), "#one"), put(bob, ages(50), "#other")
    bob.set_budget(dataset="#one", epsilon=3.0)
    bob.set_budget(dataset="#other", epsilon=1.0)
    both = (one * other)[:, 0]
    bob.release(both, "mean", 1.0, user="ann", bounds=(0, 100))
    with pytest.raises(BudgetExceededError, match="#other"):
        bob.release(both, "mean", 1.0, user="ann", bounds=(0, 100))
    assert bob.budget("ann", "#one").spent == bob.budget("ann", "#other").spent == 1.0


def test_a_data_set_with_two_names_is_charged_under_both(bob: Any) -> None:
    data = put(bob, ages(50))
    bob.set_budget(dataset=data, epsilon=1.0, name="first")
    bob.set_budget(dataset=data, epsilon=5.0, name="second")
    bob.release(data[:, 0], "mean", 1.0, user="ann", bounds=(0, 100))
    with pytest.raises(BudgetExceededError, match="'first'"):
        bob.release(data[:, 0], "mean", 0.1, user="ann", bounds=(0, 100))
    assert bob.budget("ann", "second").spent == 1.0


def test_gaussian_releases_compose_better_than_they_add_up(bob: Any) -> None:
    pytest.importorskip("dp_accounting")
    data = put(bob, ages(100))
    bob.set_budget(dataset=data, epsilon=3.0, delta=1e-5)
    for _ in range(20):
        bob.release(data[:, 0], "gaussian", 0.3, 1e-6, user="ann", bounds=(0, 100))
    assert 1.0 < bob.budget("ann", "#ages").spent < 3.0  # 20 times 0.3 is 6
    with pytest.raises(BudgetExceededError):
        bob.release(data[:, 0], "gaussian", 2.9, 1e-6, user="ann", bounds=(0, 100))


def test_a_gaussian_release_needs_a_budget_with_a_delta(bob: Any) -> None:
    data = put(bob, ages(100))
    bob.set_budget(dataset=data, epsilon=3.0)
    with pytest.raises(
        BudgetExceededError, match=r"needs a delta, and this budget has none.*such as laplace"
    ):
        bob.release(data[:, 0], "gaussian", 0.3, 1e-6, user="ann", bounds=(0, 100))


def test_a_new_limit_changes_nothing_that_was_spent(bob: Any) -> None:
    data = put(bob, ages(100))
    bob.set_budget(dataset=data, epsilon=1.0)
    bob.release(data[:, 0], "mean", 1.0, user="ann", bounds=(0, 100))
    bob.set_budget(dataset=data, epsilon=1.5)
    assert bob.budget("ann", "#ages").left == pytest.approx(0.5)
    with pytest.raises(ValueError, match="another name"):
        bob.set_budget(dataset=data, epsilon=1.5, max_records_per_person=2)


def test_budgets_outlive_the_worker(make_worker: Any, tmp_path: Any) -> None:
    BudgetBook.create(tmp_path / "book")
    for number, left in enumerate((1.0, 0.4)):
        worker = make_worker(f"run{number}")
        worker.keep_budgets(tmp_path / "book")
        data = put(worker, ages(100))
        worker.set_budget(dataset="#ages", epsilon=1.0)
        assert worker.budget("ann", "#ages").left == pytest.approx(left)
        worker.release(data[:, 0], "mean", 0.6 if number == 0 else 0.4, user="ann", bounds=(0, 100))
    with pytest.raises(BudgetExceededError):
        worker.release(data[:, 0], "mean", 0.1, user="ann", bounds=(0, 100))


# -- permissions -------------------------------------------------------------------------------------------


def test_a_release_needs_a_user_and_a_budget(bob: Any, alice: Any) -> None:
    data, theirs = put(bob, ages(10)), put(alice, ages(10))
    with pytest.raises(ReleaseNotPermittedError, match="set a budget"):
        alice.release(theirs, "mean", 1.0, user="ann", bounds=(0, 100))
    bob.set_budget(dataset=data, user="ann", epsilon=1.0)
    with pytest.raises(ReleaseNotPermittedError, match="no user name"):
        bob.release(data, "mean", 1.0, bounds=(0, 100))
    with pytest.raises(ReleaseNotPermittedError, match="no budget for user 'dan'"):
        bob.release(data, "mean", 1.0, user="dan", bounds=(0, 100))
    with pytest.raises(ReleaseNotPermittedError, match="no budgets"):
        alice.budget("ann", "#ages")


def test_on_a_network_the_proved_user_pays_and_is_told(bob: Any) -> None:
    data = put(bob, ages(10))
    bob.set_budget(dataset=data, epsilon=1.0)
    with speaking_for("dan"):
        bob.release(data[:, 0], "mean", 0.5, user="ann", bounds=(0, 100))
        assert bob.budget("ann", "#ages").user == "dan"
    assert bob.budget("ann", "#ages").spent == 0.0
    assert bob.budget("dan", "#ages").spent == 0.5


def test_what_get_allowed_it_still_allows_and_refuses(bob: Any) -> None:
    values = ages(10)
    data = put(bob, values)
    bob.set_budget(dataset=data, epsilon=1.0)
    with pytest.raises(GetNotPermittedError):
        data.copy().get(user="ann")
    assert torch.equal(data.copy().get(user="owner"), values)
    assert bob.budget("owner", "#ages").spent == 0.0


def test_releases_and_refusals_are_in_the_audit_log(bob: Any) -> None:
    data = put(bob, ages(10))
    bob.set_budget(dataset=data, epsilon=1.0)
    bob.release(data[:, 0], "mean", 1.0, user="ann", bounds=(0, 100))
    with pytest.raises(BudgetExceededError):
        bob.release(data[:, 0], "mean", 1.0, user="ann", bounds=(0, 100))
    logged = [(r.user, r.granted, r.reason) for r in bob.policy.audit_log if r.action == "release"]
    assert logged == [("ann", True, "mean"), ("ann", False, "mean")]


def test_messages_and_states_travel(bob: Any, data: Any) -> None:
    bob.release(data.argmax(1), "gnmax", user="ann", classes=3, sigma=40.0)
    state = bob.budget("ann", "#ages")
    assert math.isinf(state.releases[0].epsilon)
    assert sy.serde.deserialize(sy.serde.serialize(state)) == state
    refused = BudgetExceededError("no")
    refused.left = 0.25
    assert sy.serde.deserialize(sy.serde.serialize(refused)).left == 0.25


# -- mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "options", "sentence"),
    [
        ("guess", {"epsilon": 1.0}, "There are: count"),
        ("mean", {"epsilon": 1.0}, "lacks bounds"),
        ("mean", {"epsilon": 1.0, "bounds": (0, 1), "bins": 3}, "does not take bins"),
        ("mean", {"bounds": (0, 1)}, "epsilon above 0"),
        ("mean", {"epsilon": math.nan, "bounds": (0, 1)}, "finite"),
        ("mean", {"epsilon": 1e9, "bounds": (0, 1)}, "epsilon is between"),
        ("mean", {"epsilon": 1.0, "bounds": (1, 0)}, "lower first"),
        ("mean", {"epsilon": 1.0, "bounds": "ab"}, "two finite numbers"),
        ("mean", {"epsilon": 1.0, "bounds": (0, math.inf)}, "two finite numbers"),
        ("mean", {"epsilon": 1.0, "delta": 1e-6, "bounds": (0, 1)}, "needs no delta"),
        ("gaussian", {"epsilon": 1.0, "bounds": (0, 1)}, "needs a delta"),
        ("gaussian", {"epsilon": 1e-8, "delta": 1e-9, "bounds": (0, 1)}, "larger epsilon"),
        ("quantile", {"epsilon": 1.0, "bounds": (0, 1), "fraction": 2}, "Select a column"),
        ("histogram", {"epsilon": 1.0, "edges": [0, 1]}, "Select a column"),
        ("gnmax", {"epsilon": 1.0, "classes": 3, "sigma": 1.0}, "Leave epsilon out"),
        ("gnmax", {"classes": 3, "sigma": -1.0}, "above 0"),
        ("gnmax", {"classes": 1, "sigma": 1.0}, "whole number from 2"),
        ("gnmax", {"classes": 3, "sigma": 3000.0}, "ask with a sigma of 579 at most"),
        ("gnmax", {"classes": 3, "sigma": 10**400}, "whole number of 1329 bits"),
        ("mean", {"epsilon": 10**400, "bounds": (0, 1)}, "epsilon is a finite number"),
        ("gaussian", {"epsilon": 1.0, "delta": 10**5000, "bounds": (0, 1)}, "delta is a finite number"),
        ("mean", {"epsilon": 1.0, "bounds": (0, 10**400)}, "two finite numbers"),
        ("mean", {"epsilon": 1.0, "bounds": (0, 10**5000)}, "two finite numbers"),
        ("mean", {"epsilon": 1.0, "bounds": "01"}, "two finite numbers"),
        ("mean", {"epsilon": 1.0, "bounds": {0, 1}}, "two finite numbers"),
    ],
)
def test_a_wrong_request_is_explained_and_not_charged(
    bob: Any, data: Any, mechanism: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        bob.release(data, mechanism, user="ann", **options)
    assert bob.budget("ann", "#ages").releases == ()


@pytest.mark.parametrize(
    ("mechanism", "options", "sentence"),
    [
        ("histogram", {}, "either edges or categories"),
        ("histogram", {"edges": [0, 1], "categories": [1]}, "either edges or categories"),
        ("histogram", {"edges": [1, 0]}, "rising"),
        ("histogram", {"edges": [[0, 1]]}, "list of numbers"),
        ("histogram", {"edges": 3}, "list of numbers"),
        ("histogram", {"categories": ["a"]}, "list of numbers"),
        ("histogram", {"categories": [1, 1]}, "different"),
        ("quantile", {"bounds": (0, 1), "fraction": 2}, "between 0 and 1"),
        ("quantile", {"bounds": (0, 1), "fraction": 0.5, "candidates": 1}, "from 2"),
        ("quantile", {"bounds": (0, 1), "fraction": True}, "between 0 and 1"),
        ("quantile", {"bounds": (0, 1), "fraction": 10**400}, "between 0 and 1"),
        ("count", {"between": (1, 0)}, "lower first"),
        ("count", {"between": (0, math.nan)}, "lower first"),
        ("count", {"between": (0, "9")}, "lower first"),
        ("histogram", {"edges": torch.tensor(1.0)}, "one dimension"),
        ("histogram", {"edges": torch.zeros(2, 2)}, "one dimension"),
        ("histogram", {"edges": [0, 10**400]}, "whole number of 1329 bits"),
        ("histogram", {"edges": [0.0, math.inf]}, "finite"),
        ("histogram", {"categories": ["1", "2"]}, "list of numbers"),
        ("histogram", {"categories": [0.0, -0.0]}, "different"),
        ("histogram", {"categories": [math.nan]}, "different"),
    ],
)
def test_a_wrong_request_for_a_column_too(
    bob: Any, data: Any, mechanism: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        bob.release(data[:, 0], mechanism, 1.0, user="ann", **options)
    assert bob.budget("ann", "#ages").releases == ()


def test_an_owners_mistakes_are_explained(bob: Any, alice: Any, tmp_path: Any) -> None:
    free, number = torch.zeros(3).tag("#free").send(bob), put(bob, torch.tensor(1.0), "#number")
    data = put(bob, ages(10))
    with pytest.raises(ValueError, match="not private"):
        bob.set_budget(dataset=free, epsilon=1.0)
    with pytest.raises(TypeError, match="single number"):
        bob.set_budget(dataset=number, epsilon=1.0)
    with pytest.raises(RuntimeError, match="not found"):
        bob.set_budget(dataset="#nothing", epsilon=1.0)
    with pytest.raises(ValueError, match="set there, not on 'alice'"):
        alice.set_budget(dataset=data, epsilon=1.0)
    with pytest.raises(ValueError, match="needs a name"):
        bob.set_budget(dataset=_untagged(bob), epsilon=1.0)
    for wrong in ({"epsilon": 0.0}, {"epsilon": math.inf}, {"epsilon": 1.0, "delta": 1.0}):
        with pytest.raises(ValueError, match="A budget's"):
            bob.set_budget(dataset=data, **wrong)
    with pytest.raises(ValueError, match="1 at least"):
        bob.set_budget(dataset=data, epsilon=1.0, max_records_per_person=0)
    with pytest.raises(ValueError, match="not both"):
        bob.set_budget(dataset=data, epsilon=1.0, user="ann", together=True)
    bob.set_budget(dataset=data, epsilon=1.0)
    BudgetBook.create(tmp_path / "book")
    with pytest.raises(ValueError, match="keep_budgets first"):
        bob.keep_budgets(tmp_path / "book")
    with pytest.raises(TypeError, match="named by a pointer"):
        bob.release(torch.zeros(3), "mean", 1.0, user="ann", bounds=(0, 1))
    with pytest.raises(ValueError, match="Ask the worker that has the data"):
        alice.release(data, "mean", 1.0, user="ann", bounds=(0, 1))


def _untagged(worker: Any) -> Any:
    return torch.zeros(3).private_tensor(allowed_users=("owner",)).send(worker, user="owner")
