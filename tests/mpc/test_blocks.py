"""What is made block by block is bit by bit what the passes one after the other give."""

from __future__ import annotations

import pytest
import torch

from mpc.lower import deal, revealed, spread
from syft.mpc import blocks
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import lookup
from syft.mpc.protocols.beaver import MUL, spdz_mul
from syft.mpc.protocols.scaled import multiply_truncated
from syft.mpc.protocols.truncate import LOW, truncate
from syft.mpc.provider import Provider
from syft.mpc.randomness import new_seed

SIZES = [blocks._LEAST, blocks._LEAST + 1, 3 * blocks._WORDS - 1, 100_003]


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("size", SIZES)
def test_products_and_truncations_are_the_same_in_blocks(monkeypatch, size, holders):
    x, y = spread(size), spread(size).flip(0)
    small = (spread(size) >> 2).clamp_min(LOW)
    seeds = [new_seed() for _ in range(holders)]
    given = [deal(value, holders) for value in (x, y, small)]
    found = []
    for least in (blocks._LEAST, 1 << 60):
        monkeypatch.setattr(blocks, "_LEAST", least)
        lockstep = Lockstep(holders, Provider(holders, seeds))
        shares = [tuple(part.clone() for part in one) for one in given]
        product = lockstep.run(spdz_mul, *map(type(given[0]), shares[:2]))
        parts = [
            lockstep.run(truncate, type(given[0])(shares[2]), divisor)
            for divisor in (2, 1 << 16, 1 << 61, 77, 1_310_720, (1 << 62) - 1)
        ]
        assert torch.equal(revealed(product), x * y)
        for divisor in (1 << 16, 77):
            parts += lockstep.run(
                multiply_truncated, *map(type(given[0]), (shares[2], shares[0])), MUL, divisor
            )
        found.append([product, *parts])
    for ours, others in zip(*found, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, others, strict=True))


@pytest.mark.parametrize("size", [7, SIZES[0], 100_003])
def test_sums_and_differences_wrap(size):
    x, y = spread(size), spread(size).flip(0)
    assert torch.equal(blocks.add_(x.clone(), y), x + y)
    assert torch.equal(blocks.subtract(x, y), x - y)
    into = y.clone()
    assert blocks.subtract(x, into, into=into) is into and torch.equal(into, x - y)
    assert torch.equal(blocks.subtract(x, y[:1]), x - y[:1])


def test_what_is_not_alike_or_small_has_no_blocks():
    x = torch.zeros(blocks._LEAST, dtype=torch.int64)
    assert blocks.pay_for(x, x)
    assert not blocks.pay_for(x[1:], x[1:])
    assert not blocks.pay_for(x, x.view(2, -1))
    assert not blocks.pay_for(x.view(2, -1).t(), x.view(2, -1).t())
    assert not blocks.pay_for(x, x.double())
    assert not blocks.pay_for(x.to("meta"), x)


@pytest.mark.parametrize("tables", [1, 2, 3, 4])
@pytest.mark.parametrize(("size", "count"), [(1, 5), (4, 3), (16, 5000), (64, 1025)])
def test_tables_are_read_at_a_digit_however_many_there_are(tables, size, count):
    rows, digit = spread(count * size).view(count, size), spread(count) & (size - 1)
    entries = spread(tables * size).view(tables, size)
    places = (digit.unsqueeze(1) - torch.arange(size)) & (size - 1)
    expected = torch.stack([(rows.gather(1, places) * table).sum(1) for table in entries])
    assert torch.equal(lookup._read(rows, digit, entries), expected)
    assert torch.equal(lookup._read(rows.clone()[:1], digit[:1], entries), expected[:, :1])
