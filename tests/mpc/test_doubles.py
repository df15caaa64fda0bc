"""Products of int64 in doubles are those of the ring, whatever the numbers: see NOTE [Products in doubles]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mpc.lower import STREAM
from mpc.test_kernels import CONVS
from syft.mpc import doubles, kernels
from syft.mpc.kernels import Bilinear

#: Where limbs change, have their largest size, or carry into the next one.
BORDERS = [
    sign * (1 << bit) + near
    for bit in (0, 20, 21, 22, 42, 43, 44, 62)
    for sign in (1, -1)
    for near in (-1, 0, 1)
] + [2**63 - 1, -(2**63), 2**63 - 2**21, 2**63 - 2**43, -(2**63) + 2**21, 0x1FFFFF7FFFFF1FFFFF]


def words(*shape: int) -> torch.Tensor:
    """Numbers of the whole ring, every other one from the borders."""
    some = STREAM.words(shape)
    borders = torch.tensor([((v + 2**63) % 2**64) - 2**63 for v in BORDERS])
    picked = borders[STREAM.below(len(BORDERS), shape)]
    return torch.where(STREAM.below(2, shape) == 0, some, picked)


@pytest.fixture(params=[True, False], ids=["in doubles", "in int64"])
def in_doubles(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Whether doubles are used, whatever the machine and the sizes; how often they were."""
    calls: list[int] = []
    contracted = doubles.contracted

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return contracted(*args, **kwargs)

    monkeypatch.setattr(doubles, "pay_for", lambda *sizes: request.param)
    monkeypatch.setattr(doubles, "contracted", counted)
    yield calls
    assert bool(calls) is request.param


def test_every_pair_of_borders_and_their_sums(in_doubles: Any) -> None:
    borders = torch.tensor([((v + 2**63) % 2**64) - 2**63 for v in BORDERS])
    pairs = kernels.matmul(borders[:, None], borders[None, :])
    for i, one in enumerate(borders.tolist()):
        for j, other in enumerate(borders.tolist()):
            assert (pairs[i, j].item() - one * other) % 2**64 == 0
    assert kernels.matmul(borders[None, :], borders[:, None]).item() == sum_in_ring(borders)


def sum_in_ring(x: torch.Tensor) -> int:
    return (sum(v * v for v in x.tolist()) + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("value", [-(2**63), -(2**21), 2**21 - 1, -(2**21) * (1 + 2**22), 2**63 - 1])
def test_the_longest_exact_sum_of_the_largest_limbs(value: int, in_doubles: Any) -> None:
    """1024 equal terms, and one more, which begins another piece."""
    for length in (1023, 1024, 1025, 4097):
        x = torch.full((2, length), value)
        wanted = (length * value * value + 2**63) % 2**64 - 2**63
        assert kernels.matmul(x, x.t().contiguous()).tolist() == [[wanted] * 2] * 2


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((3, 5), (5, 4)),
        ((3, 2500), (2500, 4)),
        ((1, 1), (1, 1)),
        ((2, 3, 7), (7, 4)),
        ((2, 3, 7), (2, 7, 4)),
        ((1, 3, 7), (2, 7, 4)),
        ((2, 2, 3, 1500), (2, 2, 1500, 2)),
        ((3, 0), (0, 4)),
        ((0, 3), (3, 4)),
    ],
)
def test_matrix_products(x: Any, y: Any, in_doubles: Any) -> None:
    one, other = words(*x), words(*y)
    wanted = torch.matmul(one, other)
    assert torch.equal(kernels.matmul(one, other), wanted)
    assert torch.equal(kernels.matmul(one.mT.contiguous(), other, transpose_x=True), wanted)
    assert torch.equal(kernels.matmul(one, other.mT.contiguous(), transpose_y=True), wanted)
    before = words(*wanted.shape)
    after = kernels.accumulate(before.clone(), Bilinear("matmul"), one, other)
    assert torch.equal(after, before + wanted)


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "params"),
    [
        *CONVS,
        ((1, 300, 5, 5), (2, 300, 3, 3), dict(stride=1, padding=1, dilation=1, groups=1)),
        ((1, 500, 9), (4, 250, 3), dict(stride=1, padding=1, dilation=1, groups=2)),
    ],
)
def test_convolutions_and_their_gradients(x_shape: Any, w_shape: Any, params: Any, in_doubles: Any) -> None:
    """Against convolutions of Python's integers, which are sums of products of pieces."""
    x, w = words(*x_shape), words(*w_shape)
    made = Bilinear.of("conv", **params)(x, w)
    assert torch.equal(made, in_pieces(Bilinear.of("conv", **params), x, w))
    grad = words(*made.shape)
    grad_input = Bilinear.of("conv_grad_input", input_size=tuple(x.shape[2:]), **params)
    assert torch.equal(grad_input(grad, w), in_pieces(grad_input, grad, w))
    grad_weight = Bilinear.of("conv_grad_weight", kernel_size=tuple(w.shape[2:]), **params)
    assert torch.equal(grad_weight(x, grad), in_pieces(grad_weight, x, grad))


def in_pieces(op: Bilinear, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The bilinear map by torch's own int64 kernels, of 16 bits of each side at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doubles, "pay_for", lambda *sizes: False)
        total = torch.zeros(op.output_shape(x.shape, y.shape), dtype=torch.int64)
        for i in range(4):
            for j in range(4 - i):
                parts = [(v >> 16 * k) & 0xFFFF for v, k in ((x, i), (y, j))]
                total += op(*parts) << 16 * (i + j)
    return total


def test_shapes_that_do_not_fit_are_torchs_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubles, "pay_for", lambda *sizes: True)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        kernels.matmul(words(2, 3), words(4, 2))
    with pytest.raises(RuntimeError, match="channels"):
        kernels.conv(words(1, 3, 5, 5), words(2, 4, 3, 3))


def test_doubles_pay_where_they_are_faster_and_there_is_much_to_multiply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doubles, "are_faster", lambda: True)
    assert doubles.pay_for(64, 64, 64) and doubles.pay_for(128, 784, 128) and doubles.pay_for(32, 32, 32, 64)
    assert not doubles.pay_for(32, 32, 32) and not doubles.pay_for(1, 4096, 4096)
    monkeypatch.setattr(doubles, "are_faster", lambda: False)
    assert not doubles.pay_for(512, 512, 512)


def test_the_machine_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    doubles.are_faster.cache_clear()
    seconds = iter([0.1, 1.0])  # int64, then doubles
    monkeypatch.setattr(doubles, "_shortest", lambda square: next(seconds))
    try:
        assert [doubles.are_faster(), doubles.are_faster()] == [False, False]
        doubles.are_faster.cache_clear()
        seconds = iter([0.7, 0.1])
        assert doubles.are_faster()
    finally:
        doubles.are_faster.cache_clear()
