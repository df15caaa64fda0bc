"""One product for each of two holders: the same numbers, and nothing more seen than with Beaver's triple."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from mpc.lower import STREAM, deal, run
from mpc.test_security import bit_correlation, chi_square
from syft.mpc import halves
from syft.mpc.correlations import Mask, Place, Triple
from syft.mpc.drivers import Lockstep
from syft.mpc.integrity.sealed import Sealed
from syft.mpc.kernels import KERNELS, Bilinear
from syft.mpc.protocols import beaver
from syft.mpc.protocols.scaled import ScaledTriple, multiply_truncated
from syft.mpc.provider import Provider

of = Bilinear.of
INNER = (2, 7, 8)
"""Sizes of the dimension that is summed over: a pair, an odd one, an even one."""

PRODUCTS = {
    "matmul": lambda n: (of("matmul"), (6, n), (n, 5)),
    "matmul of batches": lambda n: (of("matmul"), (2, 3, n), (2, n, 4)),
    "matmul by one": lambda n: (of("matmul"), (2, 3, n), (n, 4)),
    "matmul, x turned": lambda n: (of("matmul", transpose_x=True), (n, 6), (n, 5)),
    "matmul, y turned": lambda n: (of("matmul", transpose_y=True), (3, 6, n), (5, n)),
    "matmul, both turned": lambda n: (of("matmul", transpose_x=True, transpose_y=True), (n, 6), (5, n)),
    "conv": lambda n: (of("conv", stride=2, padding=1), (2, n, 9, 9), (3, n, 3, 3)),
    "conv of lines": lambda n: (of("conv", dilation=2), (2, n, 9), (3, n, 3)),
    "conv_transpose": lambda n: (of("conv_transpose", stride=2, padding=1), (2, n, 6, 6), (n, 3, 3, 3)),
    "conv_grad_input": lambda n: (
        of("conv_grad_input", input_size=(9, 9), stride=2, padding=1),
        (2, n, 5, 5),
        (n, 4, 3, 3),
    ),
    "conv_grad_weight": lambda n: (
        of("conv_grad_weight", kernel_size=(3, 3), stride=2, padding=1),
        (n, 4, 9, 9),
        (n, 5, 5, 5),
    ),
}


def words(shape):
    return STREAM.words(shape)


def test_the_products_tried_are_all_that_sum_over_a_dimension():
    assert {make(2)[0].name for make in PRODUCTS.values()} == set(KERNELS) - {"mul"}


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("name", PRODUCTS)
def test_two_products_and_the_providers_are_the_product(name, inner):
    """With masks that were drawn, and with shares of masks that were kept; bit for bit."""
    op, x_shape, y_shape = PRODUCTS[name](inner)
    dims = halves.inner_dims(op, x_shape, y_shape)
    for keeps in itertools.product((False, True), repeat=2):
        opened, drawn, values, shares = [], [], [], []
        for shape, dim, is_kept in zip((x_shape, y_shape), dims, keeps, strict=True):
            value, first = words(shape), words(shape)
            parts = first, value - first
            own = words(shape), words(shape)
            if is_kept:
                opened.append(value - own[0] - own[1])
                taken = halves.difference(own, dim)
                own = tuple(halves.drawn_for(own[rank], rank, dim) for rank in (0, 1))
                assert torch.equal(taken, own[0] - own[1])
            else:
                opened.append(sum(halves.masked(parts[rank], own[rank], rank, dim) for rank in (0, 1)))
            drawn.append(own)
            values.append(value)
            shares.append(parts)
        (u, s), (v, t) = drawn
        total = op(u - s, v - t)
        for rank, mine in enumerate(((u, v), (s, t))):
            mine = mine[0].clone(), mine[1].clone()
            for pair in halves.factors(rank, dims, tuple(opened), mine, shares[1][rank]):
                total = total + op(*pair)
        assert torch.equal(total, op(*values)), keeps


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("size", range(1, 7))
def test_a_share_of_a_mask_is_uniform(size, rank):
    """It is a map with an inverse of what the holder drew, so one is uniform mod 2^64 because the other is."""
    drawn = words((3, size))
    share = -halves.masked(torch.zeros_like(drawn), drawn, rank, 1)
    assert torch.equal(halves.drawn_for(share, rank, 1), drawn)
    again = halves.drawn_for(drawn, rank, 1)
    assert torch.equal(-halves.masked(torch.zeros_like(drawn), again, rank, 1), drawn)


# -- programs ----------------------------------------------------------------------------------------------

LARGE = {
    "matmul": (of("matmul"), (256, 251), (251, 256)),
    "matmul, x turned": (of("matmul", transpose_x=True), (250, 256), (250, 256)),
    "conv": (of("conv", padding=1), (2, 17, 32, 32), (64, 17, 3, 3)),
}


def _kept(party, x, y, op):
    """Both operands masked by the first product, and used again."""
    first, *kept = yield from beaver.multiply_keeping(party, x, y, op, "xy")
    second = yield from beaver.spdz_mul(party, *kept, op)
    third = yield from beaver.spdz_mul(party, kept[0], y, op)
    fourth = yield from beaver.spdz_mul(party, x, kept[1], op)
    return first, second, third, fourth


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("name", LARGE)
def test_large_products_are_split_between_two_and_are_right_with_more(name, holders):
    op, x_shape, y_shape = LARGE[name]
    assert halves.pay_for(holders, op, x_shape, y_shape) == (holders == 2)
    x, y = words(x_shape), words(y_shape)
    for product in run(holders, _kept, x, y, op=op):
        assert torch.equal(product, op(x, y))
    small = x >> 50, y >> 50
    (quotient,) = run(holders, multiply_truncated, *small, op=op, divisor=1 << 10)
    off = quotient - (op(*small) >> 10)
    assert off.min() >= 0 and off.max() <= 1


@pytest.mark.parametrize("dealt", [False, True])
def test_two_holders_make_a_large_product_once_each(dealt, monkeypatch):
    op, *shapes = LARGE["matmul"]
    multiplied = []

    def counted(x, y, **params):
        multiplied.append(x.shape[0] * x.shape[1] * y.shape[1])
        return torch.matmul(x, y, **params)

    def added(out, _op, x, y):
        return out.add_(counted(x, y))

    monkeypatch.setitem(KERNELS, "matmul", counted)
    monkeypatch.setattr(beaver, "accumulate", added)
    monkeypatch.setattr("syft.mpc.kernels.accumulate", added)
    driver = Lockstep(2)
    shares = [deal(words(shape), 2) for shape in shapes]
    driver.run(beaver.spdz_mul, *shares, op, dealt)
    (rows, inner), (_, columns) = shapes
    products = sum(multiplied) / (rows * inner * columns)
    assert products == 5 if dealt else 3 <= products < 3.02, "with the provider's; one place is left over"
    x, y = (math.prod(shape) for shape in shapes)
    assert driver.cost.bytes_sent[:2] == [8 * (x + y)] * 2
    assert driver.cost.rounds == 1


@pytest.mark.parametrize("secret", ["zeros", "pattern"])
@pytest.mark.parametrize("program", ["free", "kept"])
def test_what_each_holder_sees_is_uniform(secret, program):
    op, shape = of("matmul"), (256, 256)
    x = torch.zeros(shape, dtype=torch.int64) if secret == "zeros" else torch.arange(1 << 16).view(shape) % 7
    driver = Lockstep(2, transcript=True)
    shares = deal(x, 2), deal(x, 2)
    driver.run(_kept if program == "kept" else beaver.spdz_mul, *shares, op)
    for rank in (0, 1):
        for sender in ("opened", 1 - rank):
            seen = [one.tensor.reshape(-1) for one in driver.seen[rank] if one.sender == sender]
            assert chi_square(torch.cat(seen).view(torch.uint8)) < 255 + 6.5 * math.sqrt(510)
            for one, two in itertools.combinations(seen, 2):  # no mask is used for two of them
                for difference in (one - two, one + two):
                    assert chi_square(difference.view(torch.uint8)) < 255 + 6.5 * math.sqrt(510)
            if secret != "zeros":
                for tensor in seen:
                    assert bit_correlation(tensor, x.view(-1)) < 6.5 / math.sqrt(x.numel())


# -- refused -----------------------------------------------------------------------------------------------


def test_what_cannot_be_split_is_refused():
    mul, vectors = of("mul"), of("matmul")
    for op, x, y in ((mul, (4,), (4,)), (vectors, (4,), (4,)), (of("conv", groups=2), (1, 4, 5), (4, 2, 3))):
        assert not halves.pay_for(2, op, x, y)
        with pytest.raises(ValueError, match="cannot be split"):
            Triple(op, x, y, split=True)
        with pytest.raises(ValueError, match="cannot be split"):
            ScaledTriple(op, x, y, split=True, divisor=10)
    kind = Triple(vectors, (2, 4), (4, 2), split=True)
    with pytest.raises(TypeError, match="no MACs"):
        Sealed(kind)
    kept = Triple(vectors, (2, 4), (4, 2), Place(0, b"p", 0), split=True)
    for refused in (kind, kept):
        for make in ("make", "corrections"):
            dealing = Provider(3).begin(1, b"p")
            dealing.make(Mask((2, 4)))
            with pytest.raises(ValueError, match="between two holders"):
                getattr(dealing, make)(refused)
