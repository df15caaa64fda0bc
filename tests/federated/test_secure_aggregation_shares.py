"""Updates summed through additive shares, from here and from pointers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.federated.secure_aggregation import ShareAggregation
from syft.mpc import ring

torch.set_num_threads(1)


@pytest.mark.parametrize("count", [2, 3])
def test_the_sum_is_the_plain_sum_and_nothing_is_left_behind(
    count: int, workers: Any, make_worker: Any
) -> None:
    holders = [workers.alice, workers.bob, workers.charlie][:count]
    values = {f"c{k}": torch.randn(30, dtype=torch.float64) for k in range(5)}
    weights = {name: float(k + 1) for k, name in enumerate(values)}
    aggregation = ShareAggregation(holders, make_worker("provider"))
    total = aggregation.weighted_sum(values, weights)
    torch.testing.assert_close(total, sum(weights[n] * values[n] for n in values), rtol=0, atol=1e-6)
    assert total.dtype == torch.float64
    assert all(not holder._objects for holder in holders)


def test_holders_are_sent_uniform_shares(alice: Any, bob: Any, make_worker: Any, monkeypatch: Any) -> None:
    seen: list[torch.Tensor] = []
    original = ring.share

    def spying(secret: torch.Tensor, count: int, stream: Any) -> list[torch.Tensor]:
        shares = original(secret, count, stream)
        seen.extend(shares)
        return shares

    monkeypatch.setattr(ring, "share", spying)
    values = {name: torch.full((4000,), 1.0) for name in ("c0", "c1")}
    ShareAggregation([alice, bob], make_worker("provider")).weighted_sum(values, dict.fromkeys(values, 1.0))
    assert len(seen) == 4
    for share in seen:
        assert abs(float((share < 0).float().mean()) - 0.5) < 0.05
        assert abs(float((share & 1).float().mean()) - 0.5) < 0.05
        assert share.unique().numel() == 4000


def test_updates_on_other_machines_are_split_there(workers: Any, make_worker: Any) -> None:
    """The client that runs the aggregation holds pointers; no update comes to it."""
    provider = make_worker("provider")
    dan, eve = make_worker("dan"), make_worker("eve")
    values = {"dan": torch.tensor([1.5, -2.0]), "eve": torch.tensor([0.25, 8.0])}
    pointers = {"dan": values["dan"].send(dan), "eve": values["eve"].send(eve)}
    total = ShareAggregation([workers.alice, workers.bob], provider).weighted_sum(
        pointers, {"dan": 2.0, "eve": 4.0}
    )
    assert total.tolist() == [4.0, 28.0]
    assert torch.equal(pointers["dan"].get(), values["dan"])


def test_values_are_clamped_to_the_declared_range(workers: Any, make_worker: Any) -> None:
    aggregation = ShareAggregation([workers.alice, workers.bob], make_worker("provider"), clip=1.0)
    total = aggregation.weighted_sum(
        {"a": torch.tensor([5.0]), "b": torch.tensor([-0.5])}, {"a": 1.0, "b": 1.0}
    )
    assert total.tolist() == [0.5]


def test_what_cannot_be_summed_is_refused(workers: Any, make_worker: Any) -> None:
    with pytest.raises(ValueError, match="two workers or more, got 1"):
        ShareAggregation([workers.alice])
    aggregation = ShareAggregation([workers.alice, workers.bob], make_worker("provider"))
    with pytest.raises(ValueError, match="'b' has values that are NaN"):
        aggregation.weighted_sum({"a": torch.ones(1), "b": torch.tensor([torch.nan])}, {"a": 1.0, "b": 1.0})
    with pytest.raises(ValueError, match="max_weight"):
        aggregation.weighted_sum({"a": torch.ones(1), "b": torch.ones(1)}, {"a": 1.0, "b": 1e7})
    with pytest.raises(ValueError, match="holds no share"):
        ShareAggregation([workers.alice, workers.bob], workers.alice).weighted_sum(
            {"a": torch.ones(1), "b": torch.ones(1)}, {"a": 1.0, "b": 1.0}
        )


def test_the_tutorials_way_averages_models(workers: Any, make_worker: Any) -> None:
    """Models on workers; their parameters shared among the workers, summed as shares, and only the sum opened."""
    provider = make_worker("provider")
    models = {w: torch.nn.Linear(2, 1) for w in (workers.alice, workers.bob, workers.charlie)}
    expected = sum(model.weight.detach().clone() for model in models.values()) / 3
    for worker, model in models.items():
        model.send(worker)
    with torch.no_grad():
        shared = [
            model.weight.fix_precision(precision_fractional=6)
            .share(workers.alice, workers.bob, crypto_provider=provider)
            .get()  # the secret itself, which is still secret
            for model in models.values()
        ]
        total = (shared[0] + shared[1] + shared[2]).get().float_precision() / 3
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-5)
