"""relu, abs, sign, clamp, extremes, pooling and division on shares agree with torch on integers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc.lower import FAN_INS, HOLDERS, STREAM, deal, revealed, run, spread
from syft.mpc import ring
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.protocols import select
from syft.mpc.protocols.divide import divide_public, divide_shared

INT64 = st.integers(ring.MIN, ring.MAX)


@pytest.mark.parametrize("fan_in", FAN_INS)
@pytest.mark.parametrize("holders", HOLDERS)
def test_relu_abs_and_sign_of_every_int64(holders, fan_in):
    x = spread(3000).view(60, 50)
    assert torch.equal(run(holders, select.relu, x, how=fan_in), x.relu())
    assert torch.equal(run(holders, select.absolute, x, how=fan_in), x.abs())
    assert torch.equal(run(holders, select.sign, x, how=fan_in), x.sign())
    value, bit = run(holders, select.relu_with_bit, x, how=fan_in)
    assert torch.equal(value, x.relu()) and torch.equal(bit, (x >= 0).long())


@settings(max_examples=60, deadline=None)
@given(st.lists(INT64, min_size=1, max_size=30), st.sampled_from(HOLDERS))
def test_relu_of_anything(values, holders):
    x = torch.tensor(values)
    assert torch.equal(run(holders, select.relu, x), x.relu())


@pytest.mark.parametrize(
    ("low", "high"), [(-5, 7), (None, 100), (-100, None), (None, None), (5, -5), (-(2**62), 2**62)]
)
def test_clamp(low, high):
    x = torch.cat([spread(300, 63), torch.arange(-120, 120)])
    expected = x.clamp(low, high) if (low, high) != (None, None) else x
    assert torch.equal(run(3, select.clamp, x, low=low, high=high), expected)


@pytest.mark.parametrize("holders", [2, 3])
def test_a_shared_bit_chooses(holders):
    driver = Lockstep(holders)
    a, b, bits = spread(100), spread(100).flip(0), STREAM.bits(100)
    words = Shares(ring.share_bits(ring.pack_bits(bits), holders, STREAM))
    chosen = driver.run(select.select, words, deal(a, holders), deal(b, holders))
    assert torch.equal(revealed(chosen), torch.where(bits.bool(), a, b))
    assert driver.cost.rounds == 1


def test_the_cost_of_a_relu():
    driver = Lockstep(2)
    driver.run(select.relu, deal(spread(6400), 2))
    assert (driver.cost.rounds, driver.cost.bytes_sent[0]) == (4, 12.375 * 6400)


@pytest.mark.parametrize("holders", HOLDERS)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13])
def test_extremes_along_a_dimension(holders, length):
    x = spread(length * 12, 63).view(4, length, 3)
    for dim in (None, 0, 1, -1):
        kwargs = {} if dim is None else {"dim": dim}
        assert torch.equal(run(holders, select.maximum, x, **kwargs), torch.amax(x, **({"dim": ()} | kwargs)))
        assert torch.equal(run(holders, select.minimum, x, **kwargs), torch.amin(x, **({"dim": ()} | kwargs)))
        assert torch.equal(run(holders, select.argmax, x, **kwargs), x.argmax(**kwargs))
        assert torch.equal(run(holders, select.argmin, x, **kwargs), x.argmin(**kwargs))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_the_first_of_equals_wins(values):
    x = torch.tensor(values)
    best = max(values)
    value, index = run(2, select.max_with_indices, x, dim=0)
    assert (int(value), int(index)) == (best, values.index(best))
    found = Lockstep(2).run(select.tournament, deal(x, 2), onehot=True)
    onehot = ring.reconstruct([one.onehot for one in found])
    assert onehot.tolist() == [int(i == values.index(best)) for i in range(len(values))]


def test_keepdim_and_the_empty_dimension():
    x = spread(12, 63).view(3, 4)
    values, indices = run(2, select.max_with_indices, x, dim=1, keepdim=True)
    expected = x.max(1, keepdim=True)
    assert torch.equal(values, expected.values) and torch.equal(indices, expected.indices)
    with pytest.raises(ValueError, match="length 0"):
        run(2, select.maximum, torch.empty((0, 3), dtype=torch.int64), dim=0)


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "ceil"),
    [(2, 2, 0, 1, False), (3, 2, 1, 1, True), (3, 1, 1, 1, False), (2, 2, 0, 1, True), (2, 1, 0, 2, False)],
)
def test_max_pooling_and_its_gradient(holders, kernel, stride, padding, dilation, ceil):
    x = STREAM.below(50, (2, 3, 9, 8)) - 25  # small, so that windows have ties
    pooling = select.Pooling((kernel,) * 2, (stride,) * 2, (padding,) * 2, (dilation,) * 2, ceil)
    driver = Lockstep(holders)
    values, onehot = driver.run(select.max_pool2d, deal(x, holders), pooling, onehot=True)
    plain = x.double().requires_grad_()
    expected = F.max_pool2d(plain, kernel, stride, padding, dilation, ceil)
    assert torch.equal(revealed(values), expected.long())
    grad = STREAM.below(100, expected.shape)
    expected.backward(grad.double())
    back = driver.run(select.max_pool2d_backward, deal(grad, holders), onehot, (9, 8), pooling)
    assert torch.equal(revealed(back), plain.grad.long())


# -- division ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ["floor", "trunc"])
@pytest.mark.parametrize("divisor", [1, 2, 3, -7, 1000, 1 << 20, 10**17, -(10**17)])
def test_division_by_a_public_integer_is_exact(divisor, rounding):
    x = spread(500, 62)
    expected = torch.div(x, divisor, rounding_mode=rounding)
    assert torch.equal(run(3, divide_public, x, divisor=divisor, rounding=rounding), expected)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(2**30), 2**30), st.integers(-(2**30), 2**30).filter(bool)),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from(["floor", "trunc"]),
)
def test_division_by_a_shared_integer_is_exact(pairs, rounding):
    x, y = torch.tensor(pairs).unbind(1)
    expected = torch.div(x, y, rounding_mode=rounding)
    assert torch.equal(run(2, divide_shared, x, y, rounding=rounding), expected)


def test_division_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="non-zero"):
        run(2, divide_public, spread(3, 62), divisor=0)
    with pytest.raises(ValueError, match="binary digits"):
        run(2, divide_shared, spread(3, 30), spread(3, 30), bits=62)


@pytest.mark.parametrize("how", [2, 4, "fss"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)])
def test_tensors_without_dimensions_and_without_elements(shape, how):
    x = STREAM.words(shape) >> 4
    assert torch.equal(run(2, select.relu, x, how=how), x.relu())
    assert torch.equal(run(2, select.is_zero, x, how=how), (x == 0).long())
    assert torch.equal(run(2, select.sign, x, how=how), x.sign())
    assert torch.equal(run(2, select.clamp, x, low=-3, high=3, how=how), x.clamp(-3, 3))
    assert torch.equal(run(2, divide_public, x, divisor=10, how=how), torch.div(x, 10, rounding_mode="floor"))
    small = x >> 32
    expected = torch.div(small, 3, rounding_mode="trunc")
    assert torch.equal(run(2, divide_shared, small, torch.full_like(x, 3), how=how), expected)
