"""Products of shares: any bilinear map, exact mod 2^64, each operand opened once, each triple used once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import HOLDERS, STREAM, deal, revealed, run, spread
from syft.mpc import ring
from syft.mpc.binding import purpose
from syft.mpc.correlations import (
    And,
    Bits,
    Comparison,
    Conjunction,
    Digit,
    Mask,
    MaskedWord,
    OneHot,
    Prefix,
    Square,
    Triple,
    Truncation,
)
from syft.mpc.correlations_of_functions import (
    DigitPowers,
    InverseExponential,
    MaskedNibbles,
    MaskedPlace,
    PowersOfFraction,
    Waves,
)
from syft.mpc.drivers import Lockstep, RoundMismatchError, Shares
from syft.mpc.kernels import Bilinear
from syft.mpc.party import done, together
from syft.mpc.protocols import beaver
from syft.mpc.protocols.beaver import MATMUL, MUL, spdz_mul, square
from syft.mpc.protocols.scaled import ScaledTriple
from syft.mpc.protocols.truncate import HIGH, LOW, truncate
from syft.mpc.provider import CorrelationReusedError, Provider, drawn_shapes, expand, joined
from syft.mpc.randomness import BoundStream, new_seed

INT64 = st.integers(ring.MIN, ring.MAX)
CASES = [
    (MUL, (5, 7), (5, 7)),
    (MUL, (5, 7), (7,)),
    (MUL, (3, 1, 2), (4, 1)),
    (MATMUL, (4, 6), (6, 3)),
    (MATMUL, (2, 4, 6), (6, 3)),
    (MATMUL, (2, 4, 6), (2, 6, 3)),
    (MATMUL, (6,), (6,)),
    (Bilinear.of("matmul", transpose_x=True, transpose_y=True), (6, 4), (3, 6)),
    (Bilinear.of("conv", stride=2, padding=1), (2, 3, 9, 9), (4, 3, 3, 3)),
    (
        Bilinear.of("conv", stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        (2, 4, 9, 9),
        (6, 2, 3, 3),
    ),
    (Bilinear.of("conv", padding=2, dilation=2), (2, 3, 11), (4, 3, 3)),
    (Bilinear.of("conv_transpose", stride=2, output_padding=1), (2, 3, 5, 5), (3, 4, 3, 3)),
]


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize(("op", "x", "y"), CASES)
def test_a_product_is_exact_for_every_bilinear_map(holders, op, x, y):
    x, y = STREAM.words(x), STREAM.words(y)
    assert torch.equal(run(holders, spdz_mul, x, y, op=op), op(x, y))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(INT64, INT64), min_size=1, max_size=20), st.sampled_from(HOLDERS))
def test_products_and_squares_wrap_like_int64(pairs, holders):
    x, y = torch.tensor(pairs).unbind(1)
    assert torch.equal(run(holders, spdz_mul, x, y), x * y)
    assert torch.equal(run(holders, square, x), x * x)
    driver = Lockstep(holders)
    words = driver.run(beaver.and_bits, *(Shares(ring.share_bits(t, holders, STREAM)) for t in (x, y)))
    assert torch.equal(ring.reconstruct_bits(words), x & y)


def test_a_product_takes_one_round_and_two_openings():
    driver = Lockstep(2)
    driver.run(spdz_mul, deal(spread(100), 2), deal(spread(100), 2))
    assert (driver.cost.rounds, driver.cost.bytes_sent) == (1, [1600, 1600, 0])
    driver.reset()
    driver.run(square, deal(spread(100), 2))
    assert (driver.cost.rounds, driver.cost.bytes_sent) == (1, [800, 800, 0])
    assert (driver.provider.cost.bytes, driver.provider.cost.correlations) == (800, 1)


def test_with_more_holders_everybody_sends_to_everybody():
    driver = Lockstep(5)
    driver.run(spdz_mul, deal(spread(10), 5), deal(spread(10), 5))
    assert driver.cost.bytes_sent == [4 * 160] * 5 + [0]


def test_a_masked_operand_is_opened_once():
    driver = Lockstep(3)
    w = STREAM.words((6, 4))
    masked = driver.run(beaver.mask, deal(w, 3))
    assert driver.cost.rounds == 1
    for batch in (1, 5):
        driver.reset()
        x = STREAM.words((batch, 6))
        assert torch.equal(revealed(driver.run(spdz_mul, deal(x, 3), masked, op=MATMUL)), x @ w)
        assert driver.cost.bytes_sent[0] == 2 * x.nbytes  # w is not sent again
    g = STREAM.words((4, 2))
    assert torch.equal(revealed(driver.run(spdz_mul, masked, deal(g, 3), op=MATMUL)), w @ g)
    other = driver.run(beaver.mask, deal(g, 3))
    driver.reset()
    assert torch.equal(revealed(driver.run(spdz_mul, masked, other, op=MATMUL)), w @ g)
    assert driver.cost.rounds == 0


@pytest.mark.parametrize("keep", ["x", "y", "xy"])
def test_an_operand_is_masked_for_later_in_the_round_of_its_first_product(keep):
    driver = Lockstep(3)
    x, w = STREAM.words((5, 6)), STREAM.words((6, 4))
    given = {"x": deal(x, 3), "y": deal(w, 3)}
    product, *kept = driver.run(beaver.multiply_keeping, given["x"], given["y"], MATMUL, keep)
    assert torch.equal(revealed(product), x @ w)
    assert driver.cost.rounds == 1 and driver.cost.bytes_sent[0] == 2 * (x.nbytes + w.nbytes)
    driver.reset()
    given |= dict(zip(keep, kept, strict=True))
    assert torch.equal(revealed(driver.run(spdz_mul, given["x"], given["y"], MATMUL)), x @ w)
    left = sum(t.nbytes for name, t in (("x", x), ("y", w)) if name not in keep)
    assert driver.cost.bytes_sent[0] == 2 * left


def test_a_masked_operand_knows_whether_its_share_was_written_to():
    share = STREAM.words((4, 3))
    operand = Lockstep(2).run(beaver.mask, Shares((share, STREAM.words((4, 3)))))[0]
    assert operand.is_of(share) and operand.is_of(share.detach())
    assert not operand.is_of(share.clone()) and not operand.is_of(share[:2]) and not operand.is_of(share.t())
    share.t()[0, 0] += 1
    assert not operand.is_of(share)


def test_masks_of_two_operands_differ():
    driver = Lockstep(2)
    x = spread(50)
    one, two = driver.run(beaver.mask, deal(x, 2)), driver.run(beaver.mask, deal(x, 2))
    assert one[0].place != two[0].place
    assert not torch.equal(one[0].opened, two[0].opened)


# -- truncation ----------------------------------------------------------------------------------------

DIVISORS = [1, 2, 3, 7, 10, 1000, 1024, 10**6, 2**16, 2**31 - 1, 10**17, 2**61, 2**61 + 1, 2**62 - 1]


def assert_within_one_unit(x: torch.Tensor, divisor: int, result: torch.Tensor) -> None:
    floor = torch.div(x, divisor, rounding_mode="floor")
    ceiling = floor + (floor * divisor != x).long()
    assert bool(((result == floor) | (result == ceiling)).all())


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("divisor", DIVISORS)
def test_truncation_is_the_floor_or_the_ceiling(holders, divisor):
    x = spread(20_000, bits=63)
    assert int(x.min()) == LOW and int(x.max()) == HIGH
    assert_within_one_unit(x, divisor, run(holders, truncate, x, divisor=divisor))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(LOW, HIGH), min_size=1, max_size=30),
    st.integers(1, 2**62 - 1),
    st.sampled_from(HOLDERS),
)
def test_truncation_by_any_divisor(values, divisor, holders):
    x = torch.tensor(values)
    assert_within_one_unit(x, divisor, run(holders, truncate, x, divisor=divisor))


def test_multiples_are_divided_exactly_and_errors_average_out():
    x = spread(10_000, bits=40)
    assert torch.equal(run(2, truncate, x * 1000, divisor=1000), x)
    third = run(3, truncate, torch.full((200_000,), -4), divisor=3)  # -1.333...
    assert abs(float(third.double().mean()) + 4 / 3) < 0.01


def test_truncation_costs_one_round_and_refuses_bad_divisors():
    driver = Lockstep(2)
    driver.run(truncate, deal(spread(10, 63), 2), 1000)
    assert (driver.cost.rounds, driver.cost.bytes_sent) == (1, [80, 80, 0])
    for divisor in (0, -3, 2**62):
        with pytest.raises(ValueError, match="2\\^62"):
            driver.run(truncate, deal(spread(10, 63), 2), divisor)


# -- provider and rounds -----------------------------------------------------------------------------------

KINDS = [
    Triple(MATMUL, (2, 3), (3, 4)),
    ScaledTriple(MATMUL, (2, 3), (3, 4), divisor=10),
    ScaledTriple(MUL, (5,), (5,), divisor=1 << 16),
    ScaledTriple(MUL, (5,), (5,), divisor=1 << 20),
    ScaledTriple(MUL, (5,), (5,), divisor=1 << 40),
    Square((5,)),
    And((4,)),
    Conjunction(3, (2, 4)),
    Truncation((6,), 10),
    Truncation((6,), 1 << 16),
    OneHot(5, 8),
    Digit(5, 7, 8),
    InverseExponential(5, 18, 16, 1 << 16, 25),
    DigitPowers(5, 18, 16, 3, 30),
    MaskedNibbles(130),
    MaskedPlace(13),
    PowersOfFraction(5, 7, 31),
    Waves(5, 24, 30, (1 << 40, -5, 1 << 30)),
    Bits(70, (1, 3)),
    Prefix((3,), 4),
    MaskedWord((3,)),
    Mask((2, 2)),
    Comparison(130, 2, True, True),
    Comparison(130, 4, True, True),
    Comparison(9, 4, False, False),
    Comparison(130, 4, True, edges=3),
]


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_seeds_and_one_correction_expand_to_what_was_dealt(holders, kind):
    seeds = [new_seed() for _ in range(holders)]
    dealt = [Provider(holders, seeds).begin(7, b"p").source(rank) for rank in range(holders)]
    here = Provider(holders, seeds).begin(7, b"p")
    parts = [here.source(rank).take(kind) for rank in range(holders)]
    corrections = Provider(holders, seeds).begin(7, b"p").corrections(kind)
    for rank, seed in enumerate(seeds):
        stream = BoundStream(seed).at(purpose(7, b"p", 0, kind))
        is_last = rank == holders - 1
        drawn = stream.draw_all(drawn_shapes(kind, is_last))
        grown = expand(kind, drawn, lambda rank=rank: corrections[rank], is_last)
        for mine, theirs, alone in zip(grown, parts[rank], dealt[rank].take(kind), strict=True):
            assert torch.equal(mine, theirs) and torch.equal(mine, alone)
    fields = [*kind.base, *kind.derived]
    assert [tuple(t.shape) for t in parts[0]] == [one.shape for one in fields]
    whole = [joined([part[i] for part in parts], one) for i, one in enumerate(fields)]
    base, derived = whole[: len(kind.base)], whole[len(kind.base) :]
    for value, expected in zip(derived, kind.derive(*base), strict=True):
        assert torch.equal(value, expected)


def test_a_correlation_is_handed_out_once_and_erased():
    provider = Provider(2)
    kind = Square((4,))
    provider.provide(kind)
    deal_ = provider._ready[kind, None][0]
    assert provider.ready(kind) == 1
    source = provider.begin().source(0)
    first = source.take(kind)
    assert deal_.parts[0] is None
    with pytest.raises(CorrelationReusedError, match="consumed once"):
        deal_.take(0)
    assert not torch.equal(first[0], source.take(kind)[0])
    assert provider.ready(kind) == 0


def test_what_was_provided_ahead_is_used_and_nothing_is_left():
    driver = Lockstep(3)
    kind = Triple(MUL, (8,), (8,))
    driver.provider.provide(kind, count=2)
    made = driver.provider.cost.correlations
    for _ in range(2):
        driver.run(spdz_mul, deal(spread(8), 3), deal(spread(8), 3))
    assert driver.provider.cost.correlations == made == 2
    assert not driver.provider._ready
    driver.run(spdz_mul, deal(spread(8), 3), deal(spread(8), 3))
    assert driver.provider.cost.correlations == 3


def test_a_provider_needs_as_many_seeds_as_holders():
    with pytest.raises(ValueError, match="different seeds"):
        Provider(2, [b"0" * 16, b"0" * 16])
    with pytest.raises(ValueError, match="two holders"):
        Provider(1)
    with pytest.raises(ValueError, match="holders"):
        Lockstep(3, Provider(2))


def test_independent_programs_share_rounds():
    def program(party, x, y):
        return (yield from together(spdz_mul(party, x, y), square(party, x), truncate(party, y, 10), done(7)))

    driver = Lockstep(3)
    x, y = spread(20, 60), spread(20, 60)
    product, squared, quotient, seven = driver.run(program, deal(x, 3), deal(y, 3))
    assert driver.cost.rounds == 1
    assert torch.equal(revealed(product), x * y) and torch.equal(revealed(squared), x * x)
    assert_within_one_unit(y, 10, revealed(quotient))
    assert seven == (7, 7, 7)


def test_programs_that_diverge_are_stopped():
    def program(party, x):
        return (yield party.open(x[: 2 + party.rank]))

    with pytest.raises(RoundMismatchError, match="expects"):
        Lockstep(2).run(program, deal(spread(9), 2))

    def leaver(party, x):
        if party.first:
            return x
        return (yield party.open(x))

    with pytest.raises(RoundMismatchError, match="ended"):
        Lockstep(2).run(leaver, deal(spread(9), 2))
