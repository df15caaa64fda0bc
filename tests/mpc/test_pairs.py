"""The largest of a few secrets, all pairs of which are compared at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from mpc.lower import deal
from syft.mpc import ring
from syft.mpc.correlations import Conjunction
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.group import Group
from syft.mpc.protocols import beaver, derived, pairs


def _joined(parts: Any) -> torch.Tensor:
    return sum(parts[1:], start=parts[0])


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize(("length", "rounds"), [(3, 5), (4, 5), (5, 5), (10, 5), (11, 6), (32, 6)])
@pytest.mark.parametrize("count", [1, 63, 64, 65])
def test_the_first_of_the_largest_is_found_in_few_rounds(
    length: int, rounds: int, count: int, holders: int
) -> None:
    torch.manual_seed(length * count)
    x = torch.randint(-3, 3, (length, count))  # many are equal
    x[:, 0] = torch.tensor([-(1 << 61), 1 << 61]).repeat(length)[:length]
    driver = Lockstep(holders)
    values, place = driver.run(derived.maximum_and_place, deal(x, holders), 0)
    assert driver.cost.rounds == rounds
    assert torch.equal(_joined(values), x.amax(0))
    assert torch.equal(_joined(place), F.one_hot((x == x.amax(0)).long().argmax(0), length).t())


def test_a_pooling_of_two_by_two_takes_five_rounds(hook: Any) -> None:
    workers = [sy.VirtualWorker(hook, id=f"pairs {name}", auto_add=False) for name in "abc"]
    x = torch.randn(1, 16, 32, 32)
    fixed: Any = x.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    secret = fixed.share(*workers[:2], crypto_provider=workers[2])
    group = Group.of(workers[:2], workers[2])
    group.reset_costs()
    found = F.max_pool2d(secret, 2)
    assert group.online.rounds == 5
    # 24576 comparisons of 12.25 bytes; of each window 3 elements, a bit of each, and 9 bits of who wins.
    assert group.online.bytes_sent[:2] == [24576 * 12.25 + 4096 * (3 * 8 + 3 / 8 + 9 / 8)] * 2
    assert (found.get().float_precision() - F.max_pool2d(x, 2)).abs().max() <= 2.0**-16


@pytest.mark.parametrize("factors", [1, 2, 3, 9])
def test_a_conjunction_is_the_product_of_all_its_factors(factors: int) -> None:
    words = torch.randint(ring.MIN, ring.MAX, (factors, 7)) | torch.randint(ring.MIN, ring.MAX, (factors, 7))
    mask = torch.randint(ring.MIN, ring.MAX, words.shape)
    driver = Lockstep(2)
    found = driver.run(beaver.conjunction, Shares((words ^ mask, mask)))
    expected = words[0]
    for other in words[1:]:
        expected = expected & other
    assert torch.equal(found[0] ^ found[1], expected) and not torch.equal(found[0], expected)
    assert driver.cost.rounds == 1 and driver.cost.bytes_sent[0] == 8 * words.numel()


@pytest.mark.parametrize("factors", [0, 11])
def test_a_conjunction_has_few_factors(factors: int) -> None:
    with pytest.raises(ValueError, match="1 to 10 factors"):
        Conjunction(factors, (1,))


@pytest.mark.parametrize("count", range(10, 32))
def test_every_factor_is_in_a_product_and_two_rounds_are_enough(count: int) -> None:
    places = torch.tensor(pairs._grouped(count))
    assert set(places.reshape(-1).tolist()) == set(range(count))
    assert places.shape[0] <= 9 and places.shape[1] <= 9


def test_bits_are_regrouped_by_rows() -> None:
    for length in (1, 5, 64, 100):
        bits = torch.randint(0, 2, (6, length))
        words = torch.stack([ring.pack_bits(half.reshape(-1)) for half in bits.view(2, 3, length)])
        rows = torch.tensor([[5, 0], [3, 3], [1, 4]])
        found = ring.regrouped(words, 3 * length, length, rows)
        for word, row in zip(found, rows, strict=True):
            assert torch.equal(ring.unpack_bits(word, 2 * length), bits[row].reshape(-1))
