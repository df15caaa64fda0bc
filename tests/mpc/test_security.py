"""Everything a party sees is uniform and has nothing to do with the secret."""

from __future__ import annotations

import math

import pytest
import torch

from mpc.lower import STREAM, deal
from syft.mpc import ring
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import beaver, convert, derived, divide, select
from syft.mpc.protocols.registry import registry
from syft.mpc.protocols.truncate import truncate

N = 1 << 13
P = select.Pooling((2, 2), (2, 2))


def _pool(party, x):
    return (yield from select.max_pool2d(party, x.view(1, 1, 64, -1), P, onehot=True))


def _product(party, x):
    masked = yield from beaver.mask(party, x)
    one = yield from beaver.spdz_mul(party, masked, x)
    return (yield from beaver.spdz_mul(party, masked, one))


PROTOCOLS = {
    "mul": lambda party, x: beaver.spdz_mul(party, x, x),
    "matmul": lambda party, x: beaver.spdz_mul(party, x.view(64, -1), x.view(-1, 64), beaver.MATMUL),
    "masked": _product,
    "square": beaver.square,
    "truncate2": lambda party, x: truncate(party, x, 1 << 16),
    "truncate10": lambda party, x: truncate(party, x, 1000),
    "negative2": lambda party, x: select.is_negative(party, x, 2),
    "negative4": lambda party, x: select.is_negative(party, x, 4),
    "zero2": lambda party, x: select.is_zero(party, x, 2),
    "zero4": lambda party, x: select.is_zero(party, x, 4),
    "relu2": lambda party, x: select.relu(party, x, 2),
    "relu4": lambda party, x: select.relu(party, x, 4),
    "clamp": lambda party, x: select.clamp(party, x, -10, 10),
    "argmax": lambda party, x: select.argmax(party, x.view(8, -1), 0),
    "pool": _pool,
    "to_bits": convert.to_bits,
    "divide": lambda party, x: divide.divide_public(party, x, 1000),
    "positive_part": derived.positive_part,
    "maximum_and_place": lambda party, x: derived.maximum_and_place(party, x.view(64, -1), 0),
    "all pairs": lambda party, x: derived.maximum_and_place(party, x.view(8, -1), 0),
    "conjunction": lambda party, x: beaver.conjunction(party, x.view(4, -1)),
}

SECRETS = {
    "zeros": torch.zeros(N, dtype=torch.int64),
    "small": torch.arange(N) % 7 - 3,
    "two": torch.where(torch.arange(N) % 3 == 0, -(1 << 61), 12345),
}


def chi_square(raw: torch.Tensor) -> float:
    counts = torch.bincount(raw.long(), minlength=256).double()
    expected = counts.sum() / 256
    return float(((counts - expected) ** 2 / expected).sum())


def bit_correlation(words: torch.Tensor, secret: torch.Tensor) -> float:
    """The largest correlation of any of the 64 bits seen for an element with the (non-constant) secret."""
    bits = ((words.view(1, -1) >> torch.arange(64).unsqueeze(1)) & 1).double()
    s = secret.double()
    s = (s - s.mean()) / s.std()
    b = (bits - bits.mean(1, keepdim=True)) / bits.std(1, keepdim=True)
    return float((b @ s / s.numel()).abs().max())


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_each_party_sees_is_uniform(name, secret, holders):
    x = SECRETS[secret]
    driver = Lockstep(holders, transcript=True)
    driver.run(PROTOCOLS[name], deal(x, holders))
    for rank in range(holders):
        seen = driver.seen[rank]
        assert {one.sender for one in seen} == {"opened", *range(holders)} - {rank}
        for sender in {one.sender for one in seen}:
            tensors = [one.tensor.reshape(-1) for one in seen if one.sender == sender]
            raw = torch.cat(tensors).view(torch.uint8)
            # 255 degrees of freedom: mean 255, deviation 22.6; six of them are one false alarm in 1e8
            assert chi_square(raw) < 255 + 6.5 * math.sqrt(510), (rank, sender)
            assert len(raw) > 256 * 8
            if secret != "zeros":
                for words in tensors:
                    if words.numel() == N:
                        assert bit_correlation(words, x) < 6.5 / math.sqrt(N), (rank, sender)


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_one_hot_vector_shows_a_uniform_rest_and_nothing_more(secret, holders):
    x = SECRETS[secret]
    driver = Lockstep(holders, transcript=True)
    driver.run(derived.one_hot, deal(x, holders), 256)
    for rank in range(holders):
        for one in driver.seen[rank]:
            if one.sender != "opened":
                assert bool((one.tensor >> 8 == 0).all())
            rest = one.tensor & 255
            assert chi_square(rest) < 255 + 6.5 * math.sqrt(510)
            if secret != "zeros":
                correlation = torch.corrcoef(torch.stack([rest.double(), x.double()]))[0, 1]
                assert abs(correlation) < 6.5 / math.sqrt(N)


def test_the_test_would_notice_a_reused_mask():
    """The control:

    a protocol that opens something too narrow, or with the secret in it, fails the statistics.
    """
    x = SECRETS["small"]
    driver = Lockstep(2, transcript=True)

    def leaky(party, share):
        return (yield party.open(share + (STREAM.below(1 << 40, N) if party.first else 0)))

    driver.run(leaky, deal(x, 2))
    opened = next(one.tensor for one in driver.seen[0] if one.sender == "opened")
    assert chi_square(opened.view(torch.uint8)) > 1000
    noisy = x * (1 << 60) + STREAM.below(1 << 62, N)
    assert bit_correlation(noisy, x) > 6.5 / math.sqrt(N)


def test_openings_of_the_same_secret_differ_every_time():
    driver = Lockstep(2, transcript=True)
    shares = deal(SECRETS["small"], 2)
    for _ in range(2):
        driver.run(select.relu, shares)
    opened = [one.tensor for one in driver.seen[0] if one.sender == "opened"]
    half = len(opened) // 2
    for first, second in zip(opened[:half], opened[half:], strict=True):
        assert not bool((first == second).any())


def test_results_are_fresh_shares():
    shares = [Lockstep(2).run(select.relu, deal(SECRETS["zeros"], 2)) for _ in range(2)]
    for result in shares:
        assert torch.equal(ring.reconstruct(result), SECRETS["zeros"])
        for share in result:
            assert chi_square(share.view(torch.uint8)) < 255 + 6.5 * math.sqrt(510)


@pytest.mark.parametrize("secret", SECRETS)
def test_function_secret_sharing_opens_nothing_but_noise(secret):
    x = SECRETS[secret][:2048]
    driver = Lockstep(2, transcript=True)
    for program in (select.relu, select.is_zero):
        driver.run(program, deal(x, 2), how=registry["fss"].how)
    for rank in range(2):
        raw = torch.cat([one.tensor.reshape(-1) for one in driver.seen[rank]]).view(torch.uint8)
        assert chi_square(raw) < 255 + 6.5 * math.sqrt(510)


def test_the_provider_sees_no_opening():
    driver = Lockstep(3, transcript=True)
    driver.run(select.relu, deal(SECRETS["small"], 3))
    assert driver.seen[3] == [] and driver.cost.bytes_sent[3] == 0
