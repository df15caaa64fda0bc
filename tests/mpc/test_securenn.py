"""SecureNN: every function of the paper, exact over its range, and what its three parties see."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import STREAM, deal, revealed, spread
from syft.mpc import ring
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.party import with_provider
from syft.mpc.protocols import securenn as snn
from syft.mpc.protocols.select import Pooling

L1 = 2**64 - 1


def run(protocol, *tensors, **public):
    driver = Lockstep(2)
    return revealed(driver.run(protocol, *(deal(x, 2) for x in tensors), **public))


def unsigned(x: torch.Tensor) -> list[int]:
    return [value % 2**64 for value in x.view(-1).tolist()]


def odd_shares(values: list[int]) -> Shares:
    one = snn._odd_words(STREAM, (len(values),))
    whole = torch.tensor([ring.signed(value) for value in values])
    return Shares([one, snn.odd_sub(whole, one)])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, L1 - 1), st.integers(0, L1 - 1))
def test_the_odd_ring(a, b):
    x, y = torch.tensor([ring.signed(a)]), torch.tensor([ring.signed(b)])
    assert unsigned(snn.odd_add(x, y)) == [(a + b) % L1]
    assert unsigned(snn.odd_sub(x, y)) == [(a - b) % L1]
    assert int(snn.wrap(x, y)) == int(a + b >= 2**64)


def test_decompose_gives_the_bits_lowest_first():
    x = spread(100)
    weights = torch.tensor([ring.signed(1 << k) for k in range(64)])
    assert torch.equal((snn.decompose(x).long() * weights).sum(-1), x)


def test_private_compare_tells_the_provider_and_only_it():
    edges = [0, 1, -1, -2, ring.MIN, ring.MAX, 5]
    x = torch.tensor([a for a in edges for _ in edges] * 2 + STREAM.words(400).tolist())
    r = torch.tensor([b for _ in edges for b in edges] * 2 + STREAM.words(400).tolist())
    r[-100:] = x[-100:]
    beta = STREAM.bits(x.shape)
    beta[: len(edges) ** 2], beta[len(edges) ** 2 : 2 * len(edges) ** 2] = 0, 1
    bits = snn.decompose(x)
    one = STREAM.residues(snn.PRIME, bits.shape)
    learnt = []

    @with_provider
    def program(party, x_bits):
        result = yield from snn.private_compare(party, x_bits, r, beta)
        learnt.append((party.rank, result))
        return None

    Lockstep(2).run(program, Shares([one, (bits + (snn.PRIME - one)) % snn.PRIME]))
    found = dict(learnt)
    larger = torch.tensor([int(a > b) for a, b in zip(unsigned(x), unsigned(r), strict=True)])
    assert found[0] is None and found[1] is None
    assert torch.equal(found[2], beta ^ larger)


def test_share_convert_and_msb():
    a = spread(3000)
    a = a[a != -1]
    driver = Lockstep(2)
    odd = driver.run(snn.share_convert, deal(a, 2))
    assert unsigned(snn.odd_add(*odd)) == unsigned(a)
    assert torch.equal(revealed(driver.run(snn.msb, odd)), (a < 0).long())
    shares = odd_shares([0, 1, 2**63 - 1, 2**63, L1 - 1])
    assert revealed(driver.run(snn.msb, shares)).tolist() == [0, 0, 0, 1, 1]


def test_relu_and_its_derivative():
    x = spread(20_000, bits=63)
    assert torch.equal(run(snn.relu_deriv, x), (x >= 0).long())
    assert torch.equal(run(snn.relu, x), x.relu())


def test_a_derivative_takes_eight_rounds():
    driver = Lockstep(2)
    driver.run(snn.relu_deriv, deal(spread(64, 63), 2))
    assert driver.cost.rounds == 8


def test_select_share_and_division():
    a, b, bit = spread(100), spread(100).flip(0), STREAM.bits(100)
    assert torch.equal(run(snn.select_share, bit, a, b), torch.where(bit == 1, b, a))
    x, y = STREAM.below(10**8, 40), STREAM.below(1000, 40) + 1
    assert torch.equal(run(snn.division, x, y), x // y)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_maxpool_its_index_and_its_derivative(n):
    x = STREAM.below(7, (n, 40)) - 3
    value, index = run(snn.maxpool, x)
    expected = x.max(0)
    assert torch.equal(value, expected.values) and torch.equal(index, x.argmax(0))
    assert torch.equal(run(snn.maxpool_deriv, x), F.one_hot(x.argmax(0), n).t())


def test_maxpool2d():
    x = STREAM.below(200, (1, 2, 6, 6)) - 100
    result = run(snn.maxpool2d, x, pooling=Pooling((2, 2), (2, 2)))
    assert torch.equal(result, F.max_pool2d(x.double(), 2).long())


@pytest.mark.parametrize("secret", [0, -12345, 1 << 60])
def test_what_the_three_parties_see_is_uniform(secret):
    driver = Lockstep(2, transcript=True)
    driver.run(snn.relu, deal(torch.full((2000,), secret), 2))
    for rank in range(3):
        words = [one.tensor for one in driver.seen[rank] if one.tensor.dtype == torch.int64]
        raw = torch.cat([t.reshape(-1) for t in words]).view(torch.uint8)
        counts = torch.bincount(raw.long(), minlength=256).double()
        expected = counts.sum() / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 255 + 6.5 * math.sqrt(510), rank
        for one in driver.seen[rank]:
            if one.tensor.dtype == torch.uint8:  # residues mod 67
                counts = torch.bincount(one.tensor.long().view(-1), minlength=67).double()
                expected = counts.sum() / 67
                assert len(counts) == 67
                assert float(((counts - expected) ** 2 / expected).sum()) < 66 + 6.5 * math.sqrt(132), rank
