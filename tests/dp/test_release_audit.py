"""An attacker who may choose both data sets learns no more than epsilon from a release, NaN and infinities included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from syft.dp.audit import epsilon_lower_bound
from syft.dp.release_mechanisms import MECHANISMS, Mechanism, Request, answer, settle

pytestmark = pytest.mark.chance

torch.set_num_threads(1)

RUNS = 600
EXTREMES = [math.nan, math.inf, -math.inf, 5e-324, -0.0, 1.7e308, 1e-310, -1.7e308]


def runs(
    mechanism: str, rows: list[Any], read: Callable[[Any], float] = float, count: int = RUNS, **options: Any
) -> list[float]:
    values = torch.tensor(rows, dtype=torch.float64)
    given = {name: options.pop(name) for name in ("epsilon", "delta") if name in options}
    request = Request(
        mechanism, given.get("epsilon", 1.0), given.get("delta", 0.0), options, tuple(values.shape)
    )
    settle(request, values.dtype)
    return [read(answer(values, request)) for _ in range(count)]


#: name -> (two neighbours, the number of an answer that is looked at, options)
ASKED: dict[str, tuple[Any, Any, Callable[[Any], float], dict[str, Any]]] = {
    "laplace": ([0.0, 0.5, 0.0], [0.0, 0.5, 1.0], float, {"bounds": (0, 1)}),
    "gaussian": ([0.0, 0.5, 0.0], [0.0, 0.5, 1.0], float, {"bounds": (0, 1), "delta": 1e-3}),
    "mean": ([0.4, 0.5, 0.0], [0.4, 0.5, 1.0], float, {"bounds": (0, 1)}),
    "variance": ([0.5, 0.5, 0.5], [0.5, 0.5, 1.0], float, {"bounds": (0, 1)}),
    "count": ([1.0, 1.0, 0.0], [1.0, 1.0, 1.0], float, {}),
    "histogram": ([0.1, 0.1, 0.1], [0.1, 0.1, 0.9], lambda h: float(h[0] - h[1]), {"edges": [0.0, 0.5, 1.0]}),
    "quantile": ([0.0, 0.0], [0.0, 1.0], float, {"bounds": (0, 1), "fraction": 1.0, "candidates": 4}),
    "exponential": ([[0.0, 1.0]], [[1.0, 0.0]], float, {"bounds": (0, 1)}),
    "noisy_max": ([[0.0, 1.0]], [[1.0, 0.0]], float, {"bounds": (0, 1)}),
}


@pytest.mark.parametrize("name", ASKED)
def test_an_attacker_does_not_find_more_than_the_claimed_epsilon(name: str) -> None:
    one, other, read, options = ASKED[name]
    found = epsilon_lower_bound(
        runs(name, one, read, **options), runs(name, other, read, **options), delta=options.get("delta", 0.0)
    )
    assert found <= 1.0


#: (mechanism, how its answer is read, options)
LOOKED_AT: list[tuple[str, Callable[[Any], float], dict[str, Any]]] = [
    ("mean", float, {"bounds": (0, 1)}),
    ("histogram", lambda h: float(h[0] - h[1]), {"edges": [0.0, 0.5, 1.0]}),
]


@pytest.mark.parametrize("asked", LOOKED_AT, ids=lambda asked: asked[0])
def test_a_record_at_the_extremes_does_not_show(asked: Any) -> None:
    """Neighbours: one has the extreme record, the other an ordinary one. Answers are finite, audited, never refused."""
    name, read, options = asked
    ordinary = runs(name, [0.5, 0.25, 0.75], read, count=300, **options)
    for value in EXTREMES[:6]:
        extreme = runs(name, [0.5, 0.25, value], read, count=300, **options)
        assert np.isfinite(extreme).all()
        assert epsilon_lower_bound(extreme, ordinary) <= 1.0


@pytest.mark.parametrize("value", EXTREMES, ids=str)
@pytest.mark.parametrize("name", sorted(name for name in MECHANISMS if name.startswith("group_")))
@pytest.mark.parametrize("keys", [{"keys": [0.0, 1.0]}, {}], ids=["public", "found"])
def test_no_record_makes_a_grouped_release_fail_or_say_nan(name: str, keys: Any, value: float) -> None:
    """In none of the columns: who it is of, its group, its value."""
    options = {"by": 1, "max_groups": 2, "max_rows": 2, **keys}
    if name != "group_count":
        options |= {"value": 2, "bounds": (-1.0, 3.0)}
    request = Request(name, 1.0, 0.0 if keys else 1e-5, options, (3, 3), person_column=0)
    settle(request, torch.float64)
    for column in range(3):
        for extreme in (value, float(2**63)):
            rows = torch.tensor([[0.0, 0.0, 1.0], [1.0, 1.0, 2.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
            rows[1, column] = extreme
            released = answer(rows, request)
            assert all(np.isfinite(float(one)) for pair in released.items() for one in pair)
            assert not keys or set(released) == {0.0, 1.0}


@pytest.mark.parametrize("value", EXTREMES, ids=str)
@pytest.mark.parametrize("name", sorted(name for name in MECHANISMS if not name.startswith("group_")))
def test_no_record_makes_a_release_fail_or_say_nan(name: str, value: float) -> None:
    options: dict[str, Any] = {
        "histogram": {"edges": [0, 1]},
        "count": {},
        "quantile": {"bounds": (0, 1), "fraction": 0.5},
        "gnmax": {"classes": 3, "sigma": 2.0},
    }.get(name, {"bounds": (-1.0, 3.0)})
    request = Request(
        name, 0.0 if name == "gnmax" else 1.0, 1e-5 if name == "gaussian" else 0.0, options, (3,)
    )
    settle(request, torch.float64)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        released = answer(torch.tensor([0.0, value, 1.0], dtype=torch.float64).to(dtype), request)
        assert torch.as_tensor(released, dtype=torch.float64).isfinite().all()
    for extreme in (2**63 - 1, -(2**63)):
        released = answer(torch.tensor([0, extreme, 1]), request)
        assert torch.as_tensor(released, dtype=torch.float64).isfinite().all()


def test_bounds_of_any_size_give_finite_answers_and_larger_ones_are_refused() -> None:
    with pytest.raises(ValueError, match="1e150"):
        settle(Request("mean", 1.0, 0.0, {"bounds": (-1e151, 1.0)}, (2,)), torch.float64)
    largest = 1e150
    for name in ("mean", "variance", "laplace"):
        request = Request(name, 1.0, 0.0, {"bounds": (-largest, largest)}, (2,))
        settle(request, torch.float64)
        assert math.isfinite(answer(torch.tensor([1.7e308, -1.7e308], dtype=torch.float64), request))


def test_the_support_of_an_answer_does_not_depend_on_the_data() -> None:
    """With floating-point noise some answers are possible for one data set only (Mironov 2012)."""
    step = 2.0**-14
    for rows in ([0.1, 0.2], [1 / 3, 0.7], [5e-324, 1.0]):
        for released in runs("laplace", rows, count=200, bounds=(-1.0, 1.0)):
            assert (released / (2 * step)).is_integer() or (released / step).is_integer()


def test_the_order_of_records_leaves_no_trace() -> None:
    """Sums of floats depend on their order by more than a little noise hides; ours are of integers."""
    from syft.dp.release_mechanisms import _centred, _steps

    rows = np.random.default_rng(0).uniform(-1, 1, (5000, 1))
    request = Request("laplace", 1.0, 0.0, {"bounds": (-1.0, 1.0)}, (5000,))
    assert (
        len(
            {
                float(_steps(_centred(np.random.default_rng(i).permutation(rows), request)[0])[0])
                for i in range(5)
            }
        )
        == 1
    )


# -- the same audit catches what is broken -----------------------------------------------------------------


def _half_noise(rows: Any, request: Request) -> float:
    return MECHANISMS["laplace"].answer(rows, Request("laplace", 3.0, 0.0, request.options, request.shape))


def _nan_shows(rows: Any, request: Request) -> float:
    return float(rows.sum()) if np.isnan(rows).any() else MECHANISMS["laplace"].answer(rows, request)


def _clamped_after(rows: Any, request: Request) -> float:
    """Bounds are not enforced: an infinite record is clamped in the sum only."""
    return float(np.clip(rows.sum(), -1e6, 1e6)) + float(MECHANISMS["laplace"].answer(0 * rows, request))


BROKEN: dict[str, tuple[Any, float]] = {
    "noise for a third of the sensitivity": (_half_noise, 1.0),
    "a NaN that comes through": (_nan_shows, math.nan),
    "bounds that are not enforced": (_clamped_after, 1.7e308),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_mechanism_is_caught_by_the_same_audit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, value = BROKEN[name]
    monkeypatch.setitem(
        MECHANISMS, "broken", Mechanism(broken, MECHANISMS["laplace"].charge, required=("bounds",))
    )
    with np.errstate(all="ignore"):
        one, other = (
            runs("broken", [0.0, 0.5, v], lambda x: 9e9 if math.isnan(x) else float(x), bounds=(0, 1))
            for v in (value, 0.0)
        )
    assert epsilon_lower_bound(one, other) > 1.2


def test_an_audit_through_the_worker(bob: Any) -> None:
    """The whole way: two data sets on a worker, one with a NaN, a pipeline before the release, budgets charged."""
    answers = []
    for number, last in enumerate((math.nan, 1.0)):
        data = torch.tensor([[0.5, 1.0], [0.25, 1.0], [last, 1.0]])
        pointer = data.private_tensor(allowed_users=("owner",)).tag(f"#{number}").send(bob, user="owner")
        bob.set_budget(dataset=pointer, epsilon=1e6)
        rows = (pointer * 3).sum(1)
        answers.append([bob.release(rows, "mean", 1.0, user="eve", bounds=(0, 6)) for _ in range(250)])
    assert epsilon_lower_bound(*answers) <= 1.0
