"""Large products between two holders, of which each opens one half."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import STREAM, deal, revealed
from mpc.network_parties import node_of
from mpc.test_scaled import is_next_to, signed, source_of
from syft.mpc.correlations import Mask
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.group import Group
from syft.mpc.kernels import Bilinear
from syft.mpc.network.programs import name_of
from syft.mpc.party import Party
from syft.mpc.protocols import crossed
from syft.mpc.protocols.beaver import MUL
from syft.mpc.protocols.crossed import PIECE, Crossed, multiply_crossed
from syft.mpc.provider import Provider
from syft.mpc.randomness import new_seed

COUNTS = (0, 1, 2, 9, 2 * PIECE, 2 * PIECE + 1, 5 * PIECE + 13)


@pytest.mark.parametrize("shift", [1, 7, 16, 20, 32, 33, 61])
@pytest.mark.parametrize("count", COUNTS)
def test_a_product_is_divided(count: int, shift: int) -> None:
    x, y = signed((count,), 30), signed((count,), 26)
    driver = Lockstep(2)
    found = revealed(driver.run(multiply_crossed, deal(x, 2), deal(y, 2), shift))
    assert is_next_to(found, x * y, 1 << shift)


@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 2 * PIECE)])
def test_it_takes_three_rounds_and_five_words_and_a_bit_for_each_number(shape: tuple[int, ...]) -> None:
    x, y = signed(shape, 30), signed(shape, 26)
    driver, count = Lockstep(2), x.numel()
    found = revealed(driver.run(multiply_crossed, deal(x, 2), deal(y, 2), 16))
    assert found.shape == shape and is_next_to(found, x * y, 1 << 16)
    halves = count // 2, count - count // 2
    sent = [8 * (2 * mine + 3 * theirs) + -(-mine // 8) for mine, theirs in (halves, halves[::-1])]
    assert (driver.cost.rounds, driver.cost.bytes_sent) == (3, [*sent, 0])
    dealt = sum(8 * half + 8 * -(-half // 4) for half in halves)
    assert driver.provider.cost.bytes - 16 * 2 == dealt


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62 - 1), min_size=1, max_size=5), st.integers(1, 61))
def test_all_of_the_range_is_divided(products: list[int], shift: int) -> None:
    x = torch.tensor(products)
    found = revealed(Lockstep(2).run(multiply_crossed, deal(x, 2), deal(torch.ones_like(x), 2), shift))
    assert is_next_to(found, x, 1 << shift)


def test_inputs_are_not_written_to_and_may_be_views() -> None:
    x, y = signed((6, 40), 30), signed((40, 6), 26)
    shares = deal(x, 2), deal(y, 2)
    before = [[part.clone() for part in both] for both in shares]
    views = Shares(part.t() for part in shares[1])
    found = revealed(Lockstep(2).run(multiply_crossed, shares[0], views, 16))
    assert is_next_to(found, x * y.t(), 1 << 16)
    for both, was in zip(shares, before, strict=True):
        assert all(torch.equal(part, one) for part, one in zip(both, was, strict=True))


# -- what holders see ----------------------------------------------------------------------------------------------


def _ones(words: torch.Tensor) -> float:
    bits = (words.reshape(-1).view(torch.uint8).unsqueeze(-1) >> torch.arange(8)).bitwise_and(1)
    return float(bits.double().mean())


@pytest.mark.parametrize("value", [0, 1 << 30, -1])
def test_all_that_a_holder_receives_is_uniform_and_new_in_every_run(value: int) -> None:
    driver = Lockstep(2, transcript=True)
    x = torch.full((8_000,), value)
    for _ in range(2):
        driver.run(multiply_crossed, deal(x, 2), deal(x, 2), 16)
    assert driver.seen is not None
    for rank in range(2):
        received = [one.tensor for one in driver.seen[rank]]
        assert [tuple(one.shape) for one in received] == 2 * [(2, 4_000), (3, 4_000), (500,)]
        for index, one in enumerate(received):
            assert abs(_ones(one) - 0.5) < 6 * 0.5 / math.sqrt(8 * one.nbytes)
            alike = [other for other in received[:index] if other.shape == one.shape]
            assert all(abs(_ones(one ^ other) - 0.5) < 6 * 0.5 / math.sqrt(8 * one.nbytes) for other in alike)
        words = torch.cat([one.reshape(-1) for one in received if one.dtype == torch.int64])
        assert words.unique().numel() == words.numel()


def test_what_each_holder_learns_is_masked_by_words_that_the_other_drew() -> None:
    """Whoever is told a sign knows all of z but x, y and the other's u; whoever opens z knows all but the other's u."""
    count, seeds = 8_000, [new_seed(), new_seed()]
    x, y = signed((count,), 30), signed((count,), 26)
    driver = Lockstep(2, Provider(2, seeds), transcript=True)
    driver.run(multiply_crossed, deal(x, 2), deal(y, 2), 16)
    assert driver.seen is not None
    again, half = Provider(2, seeds).begin(), count // 2
    for opener in range(2):
        parts = again.make(Crossed(half, 16)).parts
        (a_q, b_q, u_q), (a_p, b_p, u_p) = (parts[rank][0] for rank in (opener, 1 - opener))  # type: ignore[index]
        place = slice(half) if opener == 0 else slice(half, None)
        unmasked = x[place] * y[place] - a_p * b_q - a_q * b_p
        answer = next(one.tensor for one in driver.seen[opener] if one.tensor.shape == (3, half))
        told = next(one.tensor for one in driver.seen[1 - opener] if one.tensor.dtype == torch.uint8)
        bits = torch.from_numpy(np.unpackbits(told.numpy())).bool()
        assert torch.equal(bits, unmasked + u_p + u_q < 0)
        d_e = (x[place] - a_q) * (y[place] - b_q)
        assert torch.equal(answer, torch.stack([x[place] - a_q - a_p, y[place] - b_q - b_p, d_e + u_p]))
        # Without the other's word the sign of what is masked says nothing of the sign of what is seen.
        for known, seen in ((unmasked + u_p < 0, bits), (d_e < 0, answer[2] < 0)):
            assert abs(float((known == seen).double().mean()) - 0.5) < 6 * 0.5 / math.sqrt(half)


# -- the correlation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [16, 20, 40])
def test_seeds_and_one_correction_expand_to_what_was_dealt(shift: int) -> None:
    seeds, kinds = [new_seed(), new_seed()], [Crossed(2 * PIECE + 5, shift), Mask((3,)), Crossed(7, shift)]
    dealing = Provider(2, seeds).begin(1, b"p")
    expected = [dealing.make(kind).parts for kind in kinds]
    for rank in range(2):
        source = source_of(rank, seeds, kinds)
        for kind, parts in zip(kinds, expected, strict=True):
            part: Any = parts[rank]
            found = tuple(source.take(kind))
            assert all(torch.equal(one, other) for one, other in zip(found, part, strict=True))


def test_the_provider_makes_the_truncation_of_the_mask() -> None:
    kind = Crossed(1000, 16)
    parts: list[Any] = Provider(2).begin().make(kind).parts
    (a, b, u), (other_a, other_b, other_u) = (part[0] for part in parts)
    r = u + other_u - a * other_b - other_a * b - (1 << 62)
    quotient, words = (parts[0][at] + parts[1][at] for at in (-2, -1))
    assert torch.equal(quotient, (r >> 16) + (1 << 46))
    signs = parts[0][-1].view(torch.int16) + parts[1][-1].view(torch.int16)
    assert words.shape == (250,) and torch.equal(signs, (r >> 63).to(torch.int16))


@pytest.mark.parametrize(("count", "shift"), [(-1, 16), ((1 << 31) + 1, 16), (1 << 62, 16), (5, 0), (5, 62)])
def test_what_cannot_be_dealt_is_refused_before_it_is_begun(count: int, shift: int) -> None:
    with pytest.raises(ValueError, match="A crossed product is"):
        Crossed(count, shift)


def test_it_is_for_two_holders() -> None:
    with pytest.raises(ValueError, match="two holders, got 3"):
        Lockstep(3).run(multiply_crossed, deal(torch.ones(3).long(), 3), deal(torch.ones(3).long(), 3), 16)
    with pytest.raises(ValueError, match="two holders, got 3"):
        Provider(3).begin().make(Crossed(4, 16))
    with pytest.raises(ValueError, match="two holders, got 3"):
        next(multiply_crossed(Party(0, 3, None), torch.ones(3).long(), torch.ones(3).long(), 16))  # type: ignore[arg-type]


# -- which products are made so -------------------------------------------------------------------------------------


def test_it_is_chosen_by_what_is_public() -> None:
    large = (1 << 17,)
    assert crossed.pays_for(2, MUL, large, large, 1 << 16)
    for holders, op, x, y, divisor in (
        (3, MUL, large, large, 1 << 16),
        (2, Bilinear("matmul"), (512, 512), (512, 512), 1 << 16),
        (2, MUL, large, (1,), 1 << 16),
        (2, MUL, (1000,), (1000,), 1 << 16),
        (2, MUL, large, large, 1000),
        (2, MUL, large, large, 1),
    ):
        assert not crossed.pays_for(holders, op, x, y, divisor)


def _shared(client: Any, plain: torch.Tensor) -> Any:
    fixed: Any = plain.fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    return fixed.share(*client.holders, crypto_provider=client.provider)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that run from now on, where a product of ten numbers is a large one."""
    monkeypatch.setattr(crossed, "_LEAST", 10)
    run, names = Group.run, []

    def noted(group: Group, protocol: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(name_of(protocol)[0])
        return run(group, protocol, *args, **kwargs)

    monkeypatch.setattr(Group, "run", noted)
    return names


def test_products_of_new_secrets_are_crossed_and_those_of_masked_ones_are_not(
    client: Any, programs: list[str]
) -> None:
    plain = STREAM.below(1000, (2, 30)).double() / 100 - 5
    x, y = (_shared(client, one) for one in plain)
    group = node_of(x).group
    for expected, rounds in (("crossed.multiply_crossed", 3), ("scaled.multiply_truncated", 2)):
        programs.clear()
        new = x + 0, y + 0
        for _ in range(2 if rounds == 2 else 1):  # the second product of two secrets keeps them masked
            group.reset_costs()
            product = new[0] * new[1]
        assert programs[-1] == expected
        assert group.online.rounds == rounds
        assert (product.get().float_precision() - plain[0] * plain[1]).abs().max() < 1e-3
    programs.clear()
    weight = _shared(client, plain[0])  # what users shared is kept masked at once
    assert ((weight * (y + 0)).get().float_precision() - plain[0] * plain[1]).abs().max() < 1e-3
    assert programs == ["scaled.multiply_truncated"]


def test_what_was_dealt_ahead_is_used(client: Any, programs: list[str]) -> None:
    plain = STREAM.below(1000, (2, 30)).double() / 100 - 5
    x, y = (_shared(client, one) for one in plain)
    group = node_of(x).group
    kind = Crossed(15, 16)
    group.provide(kind)
    group.provide(kind)
    assert group.driver.provider.ready(kind) == 2
    product = (x + 0) * (y + 0)
    assert (product.get().float_precision() - plain[0] * plain[1]).abs().max() < 1e-3
    assert programs == ["crossed.multiply_crossed"]
    assert group.driver.provider.ready(kind) == 0
