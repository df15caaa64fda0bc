"""Whatever a model does with a batch, one example moves the clipped sum by the bound at most."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.clipping import clipped_sum
from syft.dp.dpsgd import make_private
from syft.dp.kept_state import KeptStateError
from syft.dp.per_sample import factors, per_sample_gradients
from syft.dp.ruled_pass import Checked

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

ROWS, BOUND = 201, 1.0


def cut_off_at_a_quantile(x: Tensor) -> Tensor:
    return torch.minimum(x, torch.quantile(x, 0.9, dim=0, keepdim=True, interpolation="lower"))


def a_little_of_the_mean(x: Tensor) -> Tensor:
    return x + 0.004 * x.mean(0, keepdim=True)


def some_rows_see_another(x: Tensor) -> Tensor:
    half = len(x) // 2
    return torch.cat([x[:1], x[1:half] + x[2:3], x[half:]]) if len(x) > 4 else x


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "outliers are cut off": cut_off_at_a_quantile,
    "less than a percent": a_little_of_the_mean,
    "rows in between": some_rows_see_another,
    "the largest of the batch": lambda x: x / x.abs().amax(0, keepdim=True).clamp(min=1.0),
    "sorted": lambda x: x.sort(0).values,
    "the one before": lambda x: x + x.roll(1, 0),
    "softmax over the batch": lambda x: x.softmax(0) + x / 1000,
    "MixUp": lambda x: 0.7 * x + 0.3 * x[torch.randperm(len(x))],
    "standardised": lambda x: x + (x - x.mean(0)) / (x.std(0, correction=0) + 1),
}


class Mixing(nn.Module):
    def __init__(self, mix: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.mix, self.layer = mix, nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.layer.weight, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.mix(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["auto", "rules", "vmap"])
@pytest.mark.parametrize("name", MIXING)
def test_a_replaced_example_moves_the_sum_by_twice_the_bound_at_most(name: str, way: str) -> None:
    def total(outliers: int) -> Tensor:
        x, checked = torch.ones(ROWS, 1), Checked()
        x[2 : 2 + outliers] = 1000.0
        for _ in range(3):
            sums, _ = clipped_sum(
                Mixing(MIXING[name]), nn.MSELoss(), x, y, {"": BOUND}, way=way, checked=checked
            )
        return sums["layer.weight"]

    y = torch.full((ROWS, 1), 0.6)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")  # of quantiles under vmap
        for outliers in (0, 20):
            assert float((total(outliers) - total(outliers + 1)).norm()) <= 2 * BOUND


@pytest.mark.parametrize("name", MIXING)
def test_one_example_more_moves_the_sum_by_the_bound_at_most(name: str) -> None:
    x = torch.cat([torch.ones(2000, 1), torch.full((1, 1), 2000.0)])
    y = torch.cat([torch.full((2000, 1), 0.6), torch.zeros(1, 1)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        with_it, without = (
            clipped_sum(Mixing(MIXING[name]), nn.MSELoss(), x[:n], y[:n], {"": BOUND})[0]["layer.weight"]
            for n in (2001, 2000)
        )
    assert float((with_it - without).norm()) <= BOUND


@pytest.mark.parametrize("way", ["auto", "rules", "vmap"])
def test_what_a_model_decides_by_the_whole_batch_is_refused(way: str) -> None:
    model = Mixing(lambda x: x / 255 if x.max() > 1 else x)
    with pytest.raises((NotImplementedError, ValueError), match="control flow"):
        clipped_sum(model, nn.MSELoss(), torch.ones(5, 1), torch.ones(5, 1), {"": BOUND}, way=way)


def test_a_buffer_cannot_be_filled_from_the_examples() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.mul_(0.9).add_(x.detach().mean(0))
            return self.layer(x - self.mean)  # type: ignore[no-any-return]

    model = Counting()
    with pytest.raises(NotImplementedError, match=r"changes in place.*new_zeros"):
        factors(model, nn.MSELoss(), torch.ones(5, 2), torch.ones(5, 2))
    assert float(model.mean.abs().sum()) == 0


def test_a_buffer_that_is_made_anew_from_the_examples_is_refused() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("last", torch.zeros(2))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            self.last = x.detach().mean(0)
            return self.layer(x)  # type: ignore[no-any-return]

    with pytest.raises(KeptStateError, match=r"model\.(calls|last)"):
        factors(Last(), nn.MSELoss(), torch.ones(5, 2), torch.ones(5, 2), "auto", Checked())


# -- draws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["rules", "vmap"])
def test_each_example_has_its_own_dropout(way: str) -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 1, bias=False))
    found = per_sample_gradients(model, lambda out, _t: out.sum(), torch.ones(6, 64), torch.zeros(6), way)
    masks = {tuple(row.flatten().tolist()) for row in found["1.weight"]}
    assert len(masks) == 6 and all(set(mask) == {0.0, 2.0} for mask in masks)


@pytest.mark.parametrize("way", ["auto", "vmap"])
def test_a_draw_that_decides_what_is_called_is_one_for_all(way: str) -> None:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layer(x) if torch.rand(()) < 0.5 else x + 0 * self.layer(x)

    torch.manual_seed(0)
    model, checked, used = Dropped(), Checked(), set()
    for _ in range(20):
        found, _ = factors(model, F.mse_loss, torch.ones(5, 2), torch.zeros(5, 2), way, checked)
        used.add(tuple((found["layer.weight"].norms() > 0).tolist()))
    assert used == {(True,) * 5, (False,) * 5} and checked.randomness == "same" and not checked.against


def test_a_checkpoint_computes_again_what_is_the_example_s_own() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mid, self.drop, self.out = nn.Linear(3, 32), nn.Dropout(0.5), nn.Linear(32, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(checkpoint(self.inner, x, use_reentrant=False))  # type: ignore[no-any-return]

        def inner(self, x: Tensor) -> Tensor:
            return self.drop(torch.tanh(self.mid(x)))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model, x = Kept(), torch.randn(5, 3)
    found = per_sample_gradients(model, lambda out, _t: out.sum(), x, torch.zeros(5), "rules")
    for row in range(5):
        hidden = torch.tanh(model.mid(x[row]))
        mask = found["out.weight"][row].flatten() / hidden.detach()
        assert set(mask.round(decimals=3).tolist()) == {0.0, 2.0}
        wanted = torch.autograd.grad((model.out(mask * hidden)).sum(), model.mid.weight)[0]
        torch.testing.assert_close(found["mid.weight"][row], wanted, rtol=1e-4, atol=1e-6)


# -- one way, and the other ------------------------------------------------------------------------------


def test_a_loss_that_only_the_other_way_can_compute() -> None:
    rows = TensorDataset(torch.randn(60, 4), torch.randint(0, 4, (60,)))
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]), label_smoothing=0.1)
    model: Any = nn.Linear(4, 4)
    training = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(rows, batch_size=20),
        loss_fn=loss,
        noise_multiplier=1.0,
    )
    for inputs, targets in training.loader:
        training.step(inputs, targets)
    assert training.way == "vmap" and "cannot be run by the rules" in training.checked.against


def test_a_model_that_cannot_be_run_at_all_says_so_and_keeps_its_rules() -> None:
    model, checked = nn.Linear(4, 2), Checked()
    with pytest.raises(RuntimeError, match="shape"):
        factors(model, F.cross_entropy, torch.ones(3, 5), torch.zeros(3, dtype=torch.long), "auto", checked)
    assert not checked.against
    factors(model, F.cross_entropy, torch.ones(3, 4), torch.zeros(3, dtype=torch.long), "auto", checked)
    assert checked.graphs and not checked.against
