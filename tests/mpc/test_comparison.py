"""Signs and zeros of shares: no error on any int64, for any number of holders and either fan-in."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import FAN_INS, HOLDERS, STREAM, deal, run, spread
from syft.mpc import ring
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import convert
from syft.mpc.protocols.compare import negative_bits, negative_sums, zero_bits
from syft.mpc.protocols.select import is_negative, is_zero
from syft.mpc.provider import Provider
from syft.mpc.randomness import new_seed

INT64 = st.integers(ring.MIN, ring.MAX)


def bits_of(compared, count):
    return ring.unpack_bits(ring.reconstruct_bits([one.bits for one in compared]), count)


@pytest.mark.parametrize("fan_in", FAN_INS)
@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 63, 64, 65, 127, 130, 1000, 4097])
def test_signs_and_zeros_of_every_length(holders, fan_in, count):
    x = spread(count)
    assert torch.equal(run(holders, is_negative, x, how=fan_in), (x < 0).long())
    assert torch.equal(run(holders, is_zero, x, how=fan_in), (x == 0).long())


@settings(max_examples=100, deadline=None)
@given(st.lists(INT64, min_size=1, max_size=70), st.sampled_from(HOLDERS), st.sampled_from(FAN_INS))
def test_signs_and_zeros_of_anything(values, holders, fan_in):
    x = torch.tensor(values)
    assert torch.equal(run(holders, is_negative, x, how=fan_in), (x < 0).long())
    assert torch.equal(run(holders, is_zero, x, how=fan_in), (x == 0).long())


def sweep(total: int, holders: int, fan_in: int) -> None:
    driver = Lockstep(holders)
    for start in range(0, total, 1 << 18):
        count = min(1 << 18, total - start)
        x = spread(count) if start % (1 << 19) else STREAM.words(count)
        shares = deal(x, holders)
        assert torch.equal(bits_of(driver.run(negative_bits, shares, fan_in), count), (x < 0).long())
        assert torch.equal(bits_of(driver.run(zero_bits, shares, fan_in), count), (x == 0).long())


@pytest.mark.parametrize(("holders", "fan_in"), [(2, 2), (2, 4), (3, 4), (5, 2)])
def test_no_error_in_a_million(holders, fan_in):
    sweep(1_000_000, holders, fan_in)


@pytest.mark.slow
@pytest.mark.parametrize("fan_in", FAN_INS)
@pytest.mark.timeout(600)
def test_no_error_in_ten_million(fan_in):
    sweep(10_000_000, 2, fan_in)


@pytest.mark.parametrize(("holders", "how"), [(2, 4), (3, 4), (2, 2), (5, 4), (2, "fss")])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_a_number_opened_once_is_compared_with_several(holders: int, how: int | str, count: int) -> None:
    x = torch.cat([torch.tensor([7, 8, -1000, -999]), spread(count, 62)])[:count]
    numbers = (0, -8, 1000, -8, 1 << 61)
    driver = Lockstep(holders)
    found = driver.run(negative_sums, deal(x, holders), numbers, how)
    for number, words in zip(numbers, zip(*found, strict=True), strict=True):
        assert torch.equal(
            ring.unpack_bits(ring.reconstruct_bits(list(words)), count), (x + number < 0).long()
        )


def test_a_second_comparison_of_a_number_opens_a_third_of_the_first_one() -> None:
    driver, x = Lockstep(2), deal(spread(6400, 62), 2)
    driver.run(negative_sums, x, (0,))
    one = driver.cost.bytes_sent[0]
    driver.reset()
    driver.run(negative_sums, x, (0, 5))
    assert (one, driver.cost.bytes_sent[0], driver.cost.rounds) == (12.25 * 6400, 16.5 * 6400, 3)


@pytest.mark.parametrize("bit", range(64))
def test_neighbours_of_powers_of_two_are_told_apart(bit):
    power = ring.signed(1 << bit)
    x = torch.tensor([power, ring.signed(power - 1), ring.signed(power + 1), ring.signed(-power), 0])
    assert torch.equal(run(2, is_negative, x), (x < 0).long())
    assert torch.equal(run(2, is_zero, x), (x == 0).long())


@pytest.mark.parametrize(("fan_in", "rounds", "words"), [(2, 6, 19.5), (4, 3, 12.25)])
def test_the_cost_of_a_comparison(fan_in, rounds, words):
    driver = Lockstep(2)
    driver.run(negative_bits, deal(spread(6400), 2), fan_in)
    assert (driver.cost.rounds, driver.cost.bytes_sent) == (rounds, [words * 6400, words * 6400, 0])
    assert rounds <= 8 and words <= 48


@pytest.mark.parametrize("fan_in", FAN_INS)
@pytest.mark.parametrize("count", [3, 4, 10, 65, 129, 1001])
def test_short_vectors_stay_under_48_bytes_per_element(fan_in, count):
    driver = Lockstep(2)
    driver.run(is_negative, deal(spread(count), 2), fan_in)
    assert driver.cost.bytes_sent[0] <= 48 * count + 8 * ring.words_for(count)
    assert driver.cost.rounds <= 8


@pytest.mark.parametrize("fan_in", FAN_INS)
def test_the_same_seeds_give_the_same_shares(fan_in):
    seeds = [new_seed(), new_seed()]
    shares = deal(spread(500), 2)
    runs = [Lockstep(2, Provider(2, seeds)).run(is_negative, shares, fan_in) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_an_unknown_fan_in_is_refused():
    with pytest.raises(ValueError, match="fan-in"):
        Lockstep(2).run(is_negative, deal(spread(3), 2), 3)


def test_inputs_are_left_as_they_were():
    shares = deal(spread(100), 2)
    before = [share.clone() for share in shares]
    Lockstep(2).run(is_negative, shares)
    Lockstep(2).run(is_zero, shares)
    assert all(torch.equal(a, b) for a, b in zip(before, shares, strict=True))


@settings(max_examples=30, deadline=None)
@given(st.lists(INT64, min_size=0, max_size=20), st.sampled_from(HOLDERS))
def test_values_to_bits_and_back(values, holders):
    x = torch.tensor(values, dtype=torch.int64)
    driver = Lockstep(holders)
    words = driver.run(convert.to_bits, deal(x, holders))
    assert torch.equal(ring.reconstruct_bits(words), x)
    assert torch.equal(ring.reconstruct(driver.run(convert.from_bits, words)), x)
