"""Private training: the sum is clipped, the noise is as stated, epsilon belongs to the steps taken."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from syft.dp import dpsgd
from syft.dp.accounting import Accountant, BudgetExceededError, Gaussian
from syft.dp.audit import epsilon_lower_bound
from syft.dp.clipping import clipped_sum
from syft.dp.dpsgd import PoissonLoader, make_private, replace_batch_norm
from syft.dp.noise import ROUNDED_STEPS
from syft.dp.per_sample import per_sample_gradients
from syft.mpc.randomness import Stream

pytest.importorskip("dp_accounting")
torch.set_num_threads(1)


def data(rows: int = 200) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 6, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))


def training(model: nn.Module | None = None, rows: int = 200, batch: int = 20, **options: Any) -> Any:
    model = model or network()
    options = dict(loss_fn=F.cross_entropy) | options
    if "target_epsilon" not in options:
        options.setdefault("noise_multiplier", 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.pop("lr", 0.5))
    return make_private(model, optimizer, DataLoader(data(rows), batch_size=batch), **options)


# -- clipping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.05, 0.5, 100.0])
def test_a_flat_sum_is_that_of_gradients_clipped_one_by_one(bound: float) -> None:
    model, (x, y) = network(), data(9).tensors
    rows = per_sample_gradients(model, F.cross_entropy, x, y, "vmap")
    expected = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    for i in range(9):
        norm = math.sqrt(sum(float(g[i].square().sum()) for g in rows.values()))
        for name in expected:
            expected[name] += rows[name][i] * min(1.0, bound / norm)
    found, _losses = clipped_sum(model, F.cross_entropy, x, y, {"": bound})
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-6)


def test_a_per_layer_sum_is_clipped_layer_by_layer() -> None:
    model, (x, y) = network(), data(9).tensors
    rows = per_sample_gradients(model, F.cross_entropy, x, y)
    bounds = {"0": 0.2, "2": 0.03}
    found, _losses = clipped_sum(model, F.cross_entropy, x, y, bounds)
    for layer, bound in bounds.items():
        norms = (
            rows[f"{layer}.weight"].flatten(1).square().sum(1) + rows[f"{layer}.bias"].square().sum(1)
        ).sqrt()
        weights = (bound / norms).clamp(max=1.0)
        torch.testing.assert_close(
            found[f"{layer}.weight"],
            torch.einsum("n,nij->ij", weights, rows[f"{layer}.weight"]).double(),
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_one_example_moves_the_sum_by_at_most_the_bound(value: float) -> None:
    model, (x, y) = network(), data(9).tensors
    x = x.clone()
    x[4] = value
    others = torch.arange(9) != 4
    with_it, _ = clipped_sum(model, F.cross_entropy, x, y, {"": 0.7})
    without, _ = clipped_sum(model, F.cross_entropy, x[others], y[others], {"": 0.7})
    moved = math.sqrt(sum(float((with_it[n] - without[n]).double().square().sum()) for n in without))
    assert moved <= 0.7 * (1 + 1e-5)
    assert all(v.isfinite().all() for v in with_it.values())


# -- noise -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_the_gradient_is_the_clipped_sum_plus_noise_over_the_expected_batch(clipping: str) -> None:
    private = training(clipping=clipping, noise_multiplier=2.0, max_grad_norm=0.5)
    assert private.sensitivity == pytest.approx(0.5)
    zero = {n: torch.zeros_like(p) for n, p in private.model.named_parameters()}
    drawn = []
    for _ in range(150):
        private.set_noisy_gradients(zero)
        drawn.append(torch.cat([p.grad.flatten() for p in private.model.parameters()]))
    noise = torch.stack(drawn)
    assert float(noise.std()) == pytest.approx(2.0 * 0.5 / 20, rel=0.03)
    assert abs(float(noise.mean())) < 0.002
    shifted = {n: torch.full_like(p, 40.0) for n, p in private.model.named_parameters()}
    private.set_noisy_gradients(shifted)
    assert float(torch.cat([p.grad.flatten() for p in private.model.parameters()]).mean()) == pytest.approx(
        2, abs=0.05
    )


def test_virtual_steps_give_the_same_sum() -> None:
    whole, parts = training(), training(physical_batch=7)
    x, y = data(50).tensors
    a, loss_a = whole.clipped_sums(x, y)
    b, loss_b = parts.clipped_sums(x, y)
    assert loss_a == pytest.approx(loss_b, rel=1e-5)
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-4, atol=1e-5)


def test_torch_s_generator_does_not_decide_the_noise_nor_the_sample() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        private = training(rows=200)
        x, y = next(iter(private.loader))
        private.step(x, y)
        found.append((x.shape, torch.cat([p.detach().flatten() for p in private.model.parameters()])))
    assert not torch.equal(found[0][1], found[1][1])


# -- sampling --------------------------------------------------------------------------------------------


def test_every_row_is_drawn_with_the_rate_independently() -> None:
    loader = PoissonLoader(data(100), 0.2, stream=Stream(bytes(16)))
    batches = [loader.sample() for _ in range(2000)]
    hits = torch.bincount(torch.cat(batches), minlength=100) / 2000
    assert (hits - 0.2).abs().max() < 5 * math.sqrt(0.16 / 2000)
    sizes = torch.tensor([len(b) for b in batches], dtype=torch.float32)
    assert float(sizes.mean()) == pytest.approx(20, abs=0.5)
    assert float(sizes.var()) == pytest.approx(16, rel=0.2)  # a fixed size would have 0
    assert len(PoissonLoader(data(100), 1.0).sample()) == 100


def test_a_data_set_of_any_kind_and_an_empty_batch() -> None:
    class Plain(Dataset[Any]):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, row: int) -> Any:
            return torch.full((6,), float(row)), row % 3

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(
        model, optimizer, DataLoader(Plain(), batch_size=1), loss_fn=F.cross_entropy, noise_multiplier=1.0
    )
    sizes = []
    for x, y in private.loader:
        before = model[0].weight.detach().clone()
        private.step(x, y)
        sizes.append(len(x))
        assert x.shape[1:] == (6,)
        assert not torch.equal(before, model[0].weight)  # noise, if nothing else
    assert len(sizes) == 40 and 0 in sizes


def test_a_batch_is_stepped_on_once_and_comes_from_the_loader() -> None:
    private = training()
    x, y = data(20).tensors
    with pytest.raises(ValueError, match="none outstanding"):
        private.step(x, y)
    batch = next(iter(private.loader))
    private.step(*batch)
    with pytest.raises(ValueError, match="Step once"):
        private.step(*batch)


# -- what it costs ---------------------------------------------------------------------------------------


def test_epsilon_is_that_of_the_steps_taken() -> None:
    private = training(noise_multiplier=1.3)
    assert private.epsilon(1e-5) == 0.0
    for x, y in private.loader:
        private.step(x, y)
    assert len(private.loader) == 10
    assert private.epsilon(1e-5) == Accountant("pld").compose(Gaussian(1.3, 0.1), 10).epsilon(1e-5)
    with pytest.raises(ValueError, match="needs a delta"):
        private.epsilon()


def test_epsilon_equals_that_of_opacus_after_the_same_steps() -> None:
    opacus = pytest.importorskip("opacus.accountants")
    theirs = opacus.RDPAccountant()
    for _ in range(10):
        theirs.step(noise_multiplier=1.3, sample_rate=0.1)
    private = training(noise_multiplier=1.3, accountant="rdp")
    for x, y in private.loader:
        private.step(x, y)
    assert private.epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=5e-3)


def test_training_to_a_target_reaches_it_learns_and_stops_there() -> None:
    private = training(rows=2000, batch=200, lr=3.0, target_epsilon=6.0, target_delta=1e-5, epochs=4)
    for _ in range(4):
        for x, y in private.loader:
            private.step(x, y)
    assert 5.9 < private.epsilon() <= 6.0
    x, y = data(2000).tensors
    assert float((private.model(x).argmax(1) == y).float().mean()) > 0.7
    before = private.model[0].weight.detach().clone()
    batch = next(iter(private.loader))
    with pytest.raises(BudgetExceededError, match=r"goes beyond the plan of this budget, .* of epsilon 6"):
        private.step(*batch)
    assert torch.equal(before, private.model[0].weight)


class TiedByHand(nn.Module):
    """The table is used once by its layer and once behind the layer's back."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.table(x).mean(1), self.table.weight)


def test_a_parameter_used_outside_its_layer_is_noticed_at_the_first_step() -> None:
    model = TiedByHand()
    rows = TensorDataset(torch.randint(0, 7, (30, 5)), torch.randint(0, 7, (30,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(
        model, optimizer, DataLoader(rows, batch_size=30), loss_fn=F.cross_entropy, noise_multiplier=1.0
    )
    assert private.way == "auto"
    private.step(*next(iter(private.loader)))
    assert private.way == "vmap"
    usual = training()
    usual.step(*next(iter(usual.loader)))
    assert usual.way == "auto"


# -- audit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True])
def test_a_canary_does_not_betray_more_than_epsilon_and_a_broken_clipping_does(broken: bool) -> None:
    """The best attack there is: look along the canary's own gradient, in many first steps on all rows."""
    private = training(rows=10, batch=10, noise_multiplier=2.0)
    claimed = Accountant("pld").compose(Gaussian(2.0)).epsilon(1e-2)
    if broken:  # clipped to more than the noise is made for
        private.bounds = {"": 8.0}
        private.__class__ = type("Broken", (dpsgd.PrivateTraining,), {"sensitivity": 1.0})
    x, y = torch.zeros(10, 6), torch.zeros(10, dtype=torch.long)
    x[-1, 5] = 100.0
    canary, _ = clipped_sum(private.model, F.cross_entropy, x[-1:], y[-1:], private.bounds)
    scores: list[list[float]] = []
    for rows in (10, 9):
        total, _loss = private.clipped_sums(x[:rows], y[:rows])
        scores.append([])
        for _ in range(1500):
            private.set_noisy_gradients(total)
            gradients = {n: p.grad for n, p in private.model.named_parameters()}
            scores[-1].append(sum(float((gradients[n] * canary[n]).sum()) for n in canary))
    found = epsilon_lower_bound(*scores, delta=1e-2)
    if broken:
        assert found > claimed
    else:
        assert found <= claimed


# -- refusals --------------------------------------------------------------------------------------------


def test_batch_norm_is_refused_and_its_replacement_named() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48), nn.Sequential(nn.BatchNorm2d(48)), nn.Flatten()
    )
    with pytest.raises(ValueError, match=r"1 is BatchNorm2d.*nn\.GroupNorm\(16, 48\).*2\.0 is BatchNorm2d"):
        training(model)
    replaced = replace_batch_norm(model)
    assert isinstance(replaced[1], nn.GroupNorm) and isinstance(replaced[2][0], nn.GroupNorm)
    dpsgd.check_model(replaced)
    with pytest.raises(ValueError, match="track_running_stats=False"):
        dpsgd.check_model(nn.InstanceNorm1d(3, track_running_stats=True))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(noise_multiplier=0.0), "noise_multiplier"),
        (dict(noise_multiplier=1.0, target_epsilon=1.0), "either"),
        (dict(target_epsilon=1.0), "target_delta and epochs"),
        (dict(max_grad_norm=0.0), "max_grad_norm"),
        (dict(max_grad_norm={"0": 1.0}), "per_layer"),
        (dict(max_grad_norm={"0": 1.0}, clipping="per_layer"), "each of the layers"),
        (dict(clipping="guess"), "per_layer"),
        (dict(physical_batch=0), "physical_batch"),
    ],
)
def test_a_wrong_argument_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        training(**options)


def test_an_optimizer_of_another_model_is_refused() -> None:
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="other parameters"):
        make_private(
            network(),
            optimizer,
            DataLoader(data(), batch_size=5),
            loss_fn=F.cross_entropy,
            noise_multiplier=1.0,
        )


def test_noise_is_added_to_a_sum_as_to_whole_numbers_whatever_its_size() -> None:
    """In doubles: the exact sum, rounded once, which is what 64-bit integers give."""
    from syft.dp.noise import rounded_gaussian
    from syft.mpc.randomness import Stream

    drawn = rounded_gaussian(2000, Stream(bytes(16)))
    assert torch.equal(drawn, drawn.round()) and float(drawn.abs().max()) < 2.0**53
    sums = torch.tensor([0.0, 1.0, -(2.0**31), 2.0**52 + 1, -(2.0**53), 2.0**60, -(2.0**62)]).double()
    sums = sums.repeat_interleave(2000)
    noise = drawn.repeat(7)
    assert torch.equal(sums + noise, (sums.long() + noise.long()).double())


@pytest.mark.parametrize("largest", [2.0**62, 2.0**30])
def test_a_sum_that_is_too_large_for_the_grid_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, largest: float
) -> None:
    """Without noise, the gradient is the sum on its grid, whether or not its numbers had to be looked at."""

    class Nothing:
        def __init__(self, count: int, stream: Any) -> None: ...

        def take(self, count: int) -> Any:
            yield 0, torch.zeros(count, dtype=torch.float64)

    monkeypatch.setattr(dpsgd, "RoundedGaussians", Nothing)
    private = training(network(), batch=8, noise_multiplier=1.0)
    monkeypatch.setattr(dpsgd, "LARGEST_SUM", largest)
    inputs, targets = next(iter(private.loader))
    sums, _loss = private.clipped_sums(inputs, targets)
    unit = private.noise_multiplier * private.sensitivity / ROUNDED_STEPS
    private.set_noisy_gradients(sums)
    beyond = 0
    for name, parameter in private.model.named_parameters():
        exact = sums[name].div(unit).round().clamp(-largest, largest).mul(unit / private.expected_batch)
        torch.testing.assert_close(parameter.grad, exact.float(), rtol=1e-6, atol=1e-9)
        assert float(sums[name].abs().max()) <= sums.most
        beyond += int((sums[name].abs() > largest * unit).sum())
    assert (beyond > 0) == (largest < 2.0**62)


def test_draws_taken_in_parts_are_all_draws_once() -> None:
    from syft.dp.noise import RoundedGaussians, rounded_gaussian
    from syft.mpc.randomness import Stream

    source = RoundedGaussians(140_000, Stream(bytes(16)))
    taken = [part.clone() for size in (3, 80_000, 0, 59_997) for _, part in source.take(size)]
    again = Stream(bytes(16))
    expected = torch.cat([rounded_gaussian(size, again) for size in (1 << 16, 1 << 16, 140_000 - (1 << 17))])
    assert torch.equal(torch.cat(taken), expected)


@pytest.mark.parametrize("examples", [0, 1, 5, 1030])
def test_the_sum_of_outer_products_in_parts_is_their_sum(examples: int) -> None:
    from syft.dp.gradient_factors import Outer, sum_in_parts

    left, right = torch.randn(examples, 90), torch.randn(examples, 1000)
    weights = torch.rand(examples).double()
    factor = Outer(left, right)
    exact = torch.einsum("b,bi,bj->ij", weights, left.double(), right.double())
    parts = [part.clone() for part in sum_in_parts(factor, weights)]
    assert len(parts) == (1 if examples > 1024 else 2)
    torch.testing.assert_close(torch.cat(parts).view(90, 1000), exact)
    assert torch.equal(factor.weighted_sum(weights), torch.cat(parts).view(90, 1000))
