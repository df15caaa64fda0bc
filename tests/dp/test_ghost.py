"""Norms and sums of gradients that are never made: those of the gradients themselves, never too short."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from syft.dp import layer_rules
from syft.dp.clipping import _weights, clipped_sum
from syft.dp.gradient_factors import Full, Sequences
from syft.dp.layer_rules import linear

torch.set_num_threads(1)


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.one, self.two, self.out = (
            nn.Embedding(20, 24),
            nn.Linear(24, 48),
            nn.Linear(48, 24),
            nn.Linear(24, 3),
        )

    def forward(self, words: Tensor) -> Tensor:
        x = self.table(words)
        return self.out((x + self.two(torch.relu(self.one(x)))).mean(1))


def test_a_clipped_sum_of_sequences_is_that_of_a_loop_over_examples() -> None:
    torch.manual_seed(0)
    model, words, labels = Text(), torch.randint(0, 20, (6, 4)), torch.randint(0, 3, (6,))
    assert type(linear(model.one, torch.randn(6, 4, 24), torch.randn(6, 4, 48))["weight"]) is Sequences
    model = model.double()
    expected = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for i in range(6):
        loss = F.cross_entropy(model(words[i : i + 1]), labels[i : i + 1])
        own = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.cat([g.flatten() for g in own]).norm()
        for name, gradient in zip(expected, own, strict=True):
            expected[name] += gradient * min(1.0, 0.5 * (1 - 1e-6) / float(norm))
    found, _ = clipped_sum(model.float(), F.cross_entropy, words, labels, {"": 0.5}, way="rules")
    largest = max(float(e.abs().max()) for e in expected.values())
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) < 1e-6 * largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cancelling", [0.0, 1e-2, 1e-6, 1.0])
def test_no_norm_is_too_short_also_where_terms_cancel(cancelling: float, dtype: torch.dtype) -> None:
    """Half of the terms are the others' negatives, but for a part `cancelling`."""
    torch.manual_seed(1)
    left, right = torch.randn(5, 6, 40), torch.randn(5, 6, 30)
    left = torch.cat([left, -left * (1 - cancelling)], 1).to(dtype)
    right = torch.cat([right, right], 1).to(dtype)
    ghost = Sequences(left, right)
    weights = torch.linspace(0.1, 1, 5)
    exact = left.double().transpose(1, 2) @ right.double()
    norms = exact.flatten(1).norm(dim=1)
    is_made = norms < ghost._measured[1] / 64
    added = torch.where(is_made[:, None, None], ghost.expand().double(), exact)  # made ones are rounded
    true_norms = added.flatten(1).norm(dim=1)
    assert bool((ghost.norms() >= true_norms * (1 - 1e-12)).all())
    assert torch.allclose(ghost.norms(), true_norms, rtol=1e-7, atol=0)
    summed = torch.einsum("b,bij->ij", weights.double(), added)
    assert torch.allclose(ghost.weighted_sum(weights), summed, rtol=1e-12, atol=1e-12)
    assert is_made.tolist() == [cancelling < 0.1] * 5


def test_an_example_whose_terms_cancel_changes_nothing_about_how_others_are_added() -> None:
    """Made gradients are rounded to single precision: of 300 alike, that is 15 parts in a million of the bound."""
    torch.manual_seed(0)
    left, right = (
        torch.randn(1, 6, 40).expand(301, 6, 40).clone(),
        torch.randn(1, 6, 30).expand(301, 6, 30).clone(),
    )
    left[300, 3:], right[300, 3:] = -left[300, :3], right[300, :3]

    def added(first: int, last: int) -> Tensor:
        factor = Sequences(left[first:last], right[first:last])
        return factor.weighted_sum(_weights({"w": factor}, {"": 1.0})[""])

    assert float((added(0, 301) - added(0, 300) - added(300, 301)).norm()) <= 1e-9
    assert float(added(0, 300).norm()) > 299 and 0 < float(added(300, 301).norm()) < 1e-4


@pytest.mark.parametrize(("steps", "width", "out"), [(0, 30, 40), (7, 300, 600), (40, 1500, 30)])
def test_the_sum_of_sequences_in_parts_is_their_sum(steps: int, width: int, out: int) -> None:
    """More terms, rows and columns than are put into double precision at once."""
    from syft.dp.gradient_factors import numbers_at_once, sum_in_parts

    torch.manual_seed(2)
    left, right, weights = torch.randn(20, steps, out), torch.randn(20, steps, width), torch.rand(20)
    exact = torch.einsum("b,bti,btj->ij", weights.double(), left.double(), right.double())
    parts = list(sum_in_parts(Sequences(left, right), weights))
    assert max(map(len, parts)) <= max(numbers_at_once(left), width)
    assert len(parts) == (3 if out == 600 else 1)
    torch.testing.assert_close(torch.cat(parts).view(out, width), exact)
    assert torch.equal(Sequences(left, right).weighted_sum(weights), torch.cat(parts).view(out, width))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(5, 6, 40), (3, 0, 7), (0, 4, 7), (2, 33, 5)])
def test_norms_of_sequences_do_not_depend_on_who_makes_the_products(
    shape: tuple[int, ...], threads: int
) -> None:
    torch.manual_seed(3)
    left = torch.randn(shape).transpose(0, 1).contiguous().transpose(0, 1)
    right = torch.randn(*shape[:2], 3)
    exact = torch.einsum("bti,btj->bij", left.double(), right.double()).flatten(1).norm(dim=1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        norms = Sequences(left, right).norms()
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(norms, exact, rtol=1e-7, atol=0)


def test_the_lengths_of_terms_are_read_off_the_products() -> None:
    left, right = torch.randn(5, 6, 40), torch.randn(5, 6, 30) * 1e-20
    _, lengths = Sequences(left, right)._measured
    exact = (left.double().norm(dim=2) * right.double().norm(dim=2)).sum(1)
    torch.testing.assert_close(lengths, exact, rtol=1e-12, atol=0)


def test_what_is_not_finite_has_no_finite_norm_and_doubles_and_long_sequences_are_made() -> None:
    left, right = torch.ones(3, 4, 40), torch.ones(3, 4, 30)
    left[1, 2, 3] = float("inf")
    right[2, 0, 0] = float("nan")
    assert Sequences(left, right).norms().isfinite().tolist() == [True, False, False]
    layer = nn.Linear(30, 40)
    assert type(linear(layer, right.double(), left.double())["weight"]) is Full
    long, wide = torch.ones(3, 400, 30), torch.ones(3, 400, 40)
    assert type(linear(layer, long, wide)["weight"]) is Full
    assert layer_rules.MOST_MADE >= 1 << 20
