"""Training without random batches: the noise is as the matrices say, the sensitivity right, and wrong use refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from syft.dp.accounting import Accountant, BudgetExceededError, Gaussian
from syft.dp.audit import epsilon_lower_bound
from syft.dp.correlated_noise import Banded, Mechanism, Tree
from syft.dp.ftrl import FtrlTraining, make_private_ftrl
from syft.dp.noise import ROUNDED_STEPS
from syft.dp.own_loop import own_loop
from syft.mpc.randomness import Stream

pytestmark = pytest.mark.chance

dp = pytest.importorskip("dp_accounting")
torch.set_num_threads(1)

MECHANISMS: dict[str, Any] = {
    "tree": lambda steps, epochs: Tree(steps, epochs),
    "restarted": lambda steps, epochs: Tree(steps, epochs, restart=True),
    "banded": lambda steps, epochs: Banded(steps, epochs, max(steps // 2, 1)),
    "root": lambda steps, epochs: Banded(steps, epochs, steps),
}


def made(rows: int = 40, batch: int = 10, width: int = 4, **options: Any) -> FtrlTraining:
    torch.manual_seed(0)
    x = torch.randn(rows, width)
    model = nn.Linear(width, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=options.pop("momentum", 0.0))
    loader: Any = options.pop("loader", None) or DataLoader(
        TensorDataset(x, (x[:, 0] > 0).long()), batch_size=batch
    )
    if "target_epsilon" not in options:
        options.setdefault("noise_multiplier", 1.0)
    return make_private_ftrl(model, optimizer, loader, loss_fn=nn.CrossEntropyLoss(), **options)


def run(mechanism: Mechanism, sums: torch.Tensor) -> torch.Tensor:
    """Noisy sums in standard deviations: steps x coordinates."""
    return torch.stack([mechanism.noisy(row * ROUNDED_STEPS, Stream()) for row in sums]) / ROUNDED_STEPS


# -- noise and sensitivity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_noise_has_the_covariance_of_the_matrices_and_the_sums_come_through(name: str) -> None:
    mechanism, steps = MECHANISMS[name](4, 2), 8
    sums = torch.arange(8.0)[:, None].expand(steps, 40_000).double()
    noise = run(mechanism, sums) - sums
    inverse = torch.linalg.pinv(mechanism.matrix())
    if isinstance(mechanism, Tree):
        # Not the least squares, but the sum of the fewest intervals: of each prefix, those that its binary digits name.
        inverse = decoded(mechanism)
    expected = inverse @ inverse.T
    found = noise @ noise.T / noise.shape[1]
    assert torch.allclose(found, expected, atol=0.15 * float(expected.max()) / math.sqrt(10))
    assert torch.allclose(inverse @ mechanism.matrix(), torch.eye(steps, dtype=torch.float64), atol=1e-9)


def decoded(tree: Tree) -> torch.Tensor:
    """Steps x intervals: what the gradient of a step is made of, by the rows of `matrix()`."""
    size = tree.steps_per_epoch * (1 if tree.restart else tree.epochs)
    index = {
        (level, m): row
        for row, (level, m) in enumerate(
            (level, m) for level in range(size.bit_length()) for m in range(size >> level)
        )
    }
    prefixes = torch.zeros(size + 1, len(index), dtype=torch.float64)
    for t in range(1, size + 1):
        start = 0
        for level in reversed(range(size.bit_length())):
            if t >> level & 1:
                prefixes[t, index[level, start >> level]] = 1
                start += 1 << level
    one = prefixes.diff(dim=0)
    return torch.block_diag(*[one] * tree.epochs) if tree.restart else one


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (5, 1), (8, 1), (6, 2), (3, 4)])
def test_the_sensitivity_is_the_most_that_one_example_changes(name: str, steps: int, epochs: int) -> None:
    mechanism = MECHANISMS[name](steps, epochs)
    gram = mechanism.matrix().T @ mechanism.matrix()
    assert float(gram.min()) >= 0
    patterns = [[i + j * steps for j in range(epochs)] for i in range(steps)]
    largest = max(float(gram[p][:, p].sum()) for p in patterns)
    assert mechanism.sensitivity() == pytest.approx(math.sqrt(largest), rel=1e-9)
    # No signs, nor directions, of the gradients make more of it.
    for signs in itertools.product([1.0, -1.0], repeat=min(epochs, 3)):
        vector = torch.zeros(steps * epochs, dtype=torch.float64)
        vector[patterns[0][: len(signs)]] = torch.tensor(signs, dtype=torch.float64)
        assert float((mechanism.matrix() @ vector).norm()) <= mechanism.sensitivity() * (1 + 1e-9)


@pytest.mark.parametrize(("steps", "epochs"), [(1, 1), (7, 1), (8, 3), (1000, 1), (1023, 2), (1024, 2)])
def test_trees_cost_what_dp_accounting_says(steps: int, epochs: int) -> None:
    """Kairouz et al. 2021, appendix D: every example is in ceil(log2(n + 1)) nodes of a tree of n steps."""
    tree = Tree(steps, epochs, restart=True)
    node_noise = 20.0
    event = dp.SelfComposedDpEvent(dp.SingleEpochTreeAggregationDpEvent(node_noise, steps), epochs)
    orders = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
    theirs = (
        dp.rdp.RdpAccountant(orders, dp.NeighboringRelation.REPLACE_SPECIAL).compose(event).get_epsilon(1e-6)
    )
    ours = Accountant("rdp", orders).compose(Gaussian(node_noise / tree.sensitivity())).epsilon(1e-6)
    assert ours == pytest.approx(theirs)
    if epochs == 1:
        assert Tree(steps, 1).sensitivity() == tree.sensitivity()


@pytest.mark.parametrize("steps", [16, 256, 4096])
def test_the_square_root_has_its_published_error(steps: int) -> None:
    """Its sensitivity^2 is Landau's constant, (ln n + gamma + 4 ln 2) / pi (Watson 1930)."""
    landau = (math.log(steps) + 0.5772156649 + 4 * math.log(2)) / math.pi
    assert Banded(steps, 1, steps).sensitivity() ** 2 == pytest.approx(landau, abs=0.1 / steps)


@pytest.mark.parametrize("name", ["tree", "root"])
def test_sums_over_steps_have_less_noise_than_with_independent_noise(name: str) -> None:
    mechanism, steps = MECHANISMS[name](64, 1), 64
    noise = run(mechanism, torch.zeros(steps, 400)) * mechanism.sensitivity()
    prefixes = noise.cumsum(0).square().mean(1).sqrt()
    assert float(prefixes.max()) < math.sqrt(steps)  # that of the last sum, with independent noise
    assert float(prefixes.square().mean()) < 0.8 * (steps + 1) / 2


# -- an audit ------------------------------------------------------------------------------------------------


def audited(name: str, noise: float, sensitivity: float | None = None, trials: int = 20_000) -> float:
    """The epsilon that the best attack shows on an example in the steps i, i + 4, ..., or not there.

    Every coordinate is a run of its own.
    """
    mechanism = MECHANISMS[name](4, 3)
    scale = noise * (mechanism.sensitivity() if sensitivity is None else sensitivity)
    encoded = mechanism.matrix()
    patterns = [torch.tensor([float(t % 4 == i) for t in range(12)]).double() for i in range(4)]
    worst = max(patterns, key=lambda p: float((encoded @ p).norm()))
    seen = []
    for there in (1.0, 0.0):
        released = run(MECHANISMS[name](4, 3), (worst / scale * there)[:, None].expand(12, trials))
        seen.append(((encoded @ worst) @ (encoded @ released)).numpy())
    return epsilon_lower_bound(*seen, delta=1e-2)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_canary_shows_no_more_than_epsilon_and_half_the_noise_is_found_out(name: str) -> None:
    claimed = Accountant("pld").compose(Gaussian(1.5)).epsilon(1e-2)
    assert audited(name, 1.5) <= claimed
    assert audited(name, 0.75) > claimed


def test_a_training_that_forgets_that_examples_come_again_is_found_out() -> None:
    claimed = Accountant("pld").compose(Gaussian(1.5)).epsilon(1e-2)
    assert audited("root", 1.5, sensitivity=MECHANISMS["root"](4, 1).sensitivity()) > claimed


# -- training ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [dict(restart=True), dict(mechanism="banded", bands=3, physical_batch=4)])
def test_a_training_learns_in_the_order_of_the_data_and_costs_what_was_asked(options: dict[str, Any]) -> None:
    private = made(
        rows=405, batch=40, epochs=3, momentum=0.5, target_epsilon=4.0, target_delta=1e-5, **options
    )
    first = []
    for epoch in range(3):
        for x, y in private.loader:
            if epoch == 0:
                first.append(x)
            private.step(x, y)
        assert 3.9 < private.epsilon() <= 4.0  # all of it from the first step on
    assert torch.equal(torch.cat(first), private.loader.dataset.tensors[0])
    x, y = private.loader.dataset.tensors
    assert float((private.model(x).argmax(1) == y).float().mean()) > 0.75
    with pytest.raises(BudgetExceededError, match="made for 3 epochs, all of them are done"):
        next(iter(private.loader))


def test_the_noise_of_a_training_is_that_of_its_noise_scale_and_its_own_loop_is_the_same() -> None:
    stepped, looped = (
        made(width=6000, batch=40, noise_multiplier=3.0),
        made(width=6000, batch=40, noise_multiplier=3.0),
    )
    for private in (stepped, looped):
        private.stream = Stream(b"sixteen bytes!!!")
    zero = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in stepped.model.named_parameters()}
    start = stepped.model.weight.detach().clone()
    model, optimizer, criterion, loader = own_loop(looped)
    for (x, y), (inputs, targets) in zip(loader, stepped.loader, strict=True):
        stepped.step(inputs, targets)
        criterion(model(x), y).backward()
        optimizer.step()
    assert torch.equal(stepped.model.weight, looped.model.weight)
    moved = (stepped.model.weight.detach() - start) * 40 / 0.5  # 40 rows at a rate of 0.5: mostly noise
    assert float(moved.std()) == pytest.approx(3.0, rel=0.05)  # one step: an example is in one interval
    assert stepped.noise_scale == pytest.approx(3.0, rel=1e-3)
    again = made(width=6000, batch=40, noise_multiplier=3.0)
    again.set_noisy_gradients(zero)
    assert float(again.model.weight.grad.std() * 40) == pytest.approx(3.0, rel=0.05)


SHUFFLED = DataLoader(
    TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)), batch_size=2, shuffle=True
)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(loader=SHUFFLED), "shuffles"),
        (dict(epochs=0), "epochs is a whole number"),
        (dict(mechanism="banded", bands=5), "bands=5"),
        (dict(bands=2), "goes with"),
        (dict(mechanism="banded", restart=True), "goes with"),
        (dict(mechanism="forest"), "tree"),
        (dict(target_epsilon=1.0), "target_delta"),
        (dict(noise_multiplier=1.0, target_epsilon=1.0, target_delta=1e-5), "either"),
        (dict(noise_multiplier=-1.0), "noise_multiplier"),
        (dict(way="guess"), "way is one of"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        made(**options)


def test_a_batch_that_is_skipped_and_a_training_that_would_be_saved_are_refused() -> None:
    private = made()
    batches = iter(private.loader)
    next(batches)
    with pytest.raises(ValueError, match="Step on every batch"):
        private.step(*next(batches))
    assert not private.accountant.spent
    with pytest.raises(NotImplementedError, match="noise itself"):
        private.state_dict()
    other = made()
    other.step(*next(iter(other.loader)))
    x, _ = next(iter(other.loader))  # goes on where the other iterator stopped
    assert torch.equal(x, other.loader.dataset.tensors[0][10:20])
    other.model.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen or unfrozen"):
        other.step(x, torch.zeros(10, dtype=torch.long))
