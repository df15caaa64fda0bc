"""The comparison protocols behind one interface: the same tests over all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import STREAM, deal, revealed, run, spread
from syft.mpc.binding import purpose
from syft.mpc.drivers import Lockstep
from syft.mpc.protocols import fss, select
from syft.mpc.protocols.compare import negative_bits, zero_bits
from syft.mpc.protocols.registry import comparison, registry
from syft.mpc.provider import Provider, drawn_shapes, expand
from syft.mpc.randomness import BoundStream, new_seed

NAMES = sorted(registry)


def in_range(name: str, count: int) -> torch.Tensor:
    protocol = comparison(name)
    return spread(count).clamp(protocol.low, protocol.high)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 5, 64, 65, 3000])
def test_every_protocol_is_exact_over_its_range(name, count):
    x = in_range(name, count)
    protocol = comparison(name)
    assert torch.equal(run(2, protocol.is_negative, x), (x < 0).long())
    assert torch.equal(run(2, protocol.is_zero, x), (x == 0).long())
    assert torch.equal(run(2, protocol.relu, x), x.relu())
    value, bit = run(2, protocol.relu_with_bit, x)
    assert torch.equal(value, x.relu()) and torch.equal(bit, (x >= 0).long())


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=20))
def test_every_protocol_on_anything(name, values):
    x = torch.tensor(values)
    assert torch.equal(run(2, comparison(name).is_negative, x), (x < 0).long())
    assert torch.equal(run(2, comparison(name).is_zero, x), (x == 0).long())


def test_names_and_holders_are_checked():
    with pytest.raises(ValueError, match="snn"):
        comparison("nonsense")
    with pytest.raises(ValueError, match="3"):
        comparison("fss", 3)
    assert comparison().name == "tree"
    with pytest.raises(ValueError, match="two holders"):
        run(3, comparison("fss").is_negative, spread(3))
    with pytest.raises(ValueError, match="called"):
        run(2, select.relu, spread(3), how="nonsense")


def test_the_functions_of_select_take_any_protocol_of_bits():
    x = spread(60, 63).view(5, 12)
    for how in (2, 4, "fss"):
        assert torch.equal(run(2, select.argmax, x, dim=1, how=how), x.argmax(1))
        assert torch.equal(run(2, select.clamp, x, low=-9, high=9, how=how), x.clamp(-9, 9))


# -- function secret sharing ---------------------------------------------------------------------------


@pytest.mark.parametrize("less", [True, False])
def test_keys_of_a_short_domain_are_right_everywhere(less):
    """All pairs of a 5-bit domain."""
    alpha, z = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    alpha, z = alpha.reshape(-1), z.reshape(-1)
    seeds = [STREAM.words((1024, 2)) for _ in range(2)]
    words = fss.generate(alpha, seeds, 5, less)
    shares = [fss.evaluate(rank, z, seeds[rank], words, 5, less) for rank in range(2)]
    expected = (z < alpha) if less else (z == alpha)
    assert torch.equal(shares[0] ^ shares[1], expected.long())
    assert 400 < int(shares[0].sum()) < 624 or not less  # each share alone looks like coins


def test_fss_compares_in_one_round_of_eight_bytes():
    for program in (negative_bits, zero_bits):
        driver = Lockstep(2)
        driver.run(program, deal(spread(100), 2), "fss")
        assert (driver.cost.rounds, driver.cost.bytes_sent) == (1, [800, 800, 0])


@pytest.mark.parametrize("sign", [True, False])
def test_fss_has_no_error_in_a_hundred_thousand(sign):
    x = spread(100_000)
    protocol = comparison("fss")
    result = revealed(Lockstep(2).run(protocol.is_negative if sign else protocol.is_zero, deal(x, 2)))
    assert torch.equal(result, ((x < 0) if sign else (x == 0)).long())


def test_fss_keys_expand_from_seeds():
    kind = fss.Key(70, True, True)
    seeds = [new_seed(), new_seed()]
    here, away = Provider(2, seeds).begin(), Provider(2, seeds).begin().corrections(kind)
    for rank, seed in enumerate(seeds):
        stream = BoundStream(seed).at(purpose(1, b"", 0, kind))
        drawn = stream.draw_all(drawn_shapes(kind, rank == 1))
        grown = expand(kind, drawn, lambda rank=rank: away[rank], rank == 1)
        assert all(torch.equal(a, b) for a, b in zip(grown, here.source(rank).take(kind), strict=True))


def test_holders_that_are_threads_of_one_process_hash_at_the_same_time():
    seeds = torch.randint(-(2**63), 2**63 - 1, (200_000, 2))
    alone = fss._hash(seeds, 1)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda _: fss._hash(seeds, 1), range(12)))
    assert all(torch.equal(each, alone) for each in together)
