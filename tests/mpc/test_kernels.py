"""int64 kernels agree with torch's float ones where those are exact, and wrap where they overflow."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from mpc.lower import STREAM, spread
from syft.mpc import bands, kernels
from syft.mpc.kernels import Bilinear

CONVS = [
    ((2, 3, 9, 8), (4, 3, 3, 3), dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)),
    ((2, 4, 9, 8), (6, 2, 3, 2), dict(stride=(2, 3), padding=(1, 1), dilation=(1, 2), groups=2)),
    ((1, 4, 7, 7), (4, 1, 5, 5), dict(stride=(1, 1), padding=(2, 2), dilation=(1, 1), groups=4)),
    ((2, 3, 9, 8), (4, 3, 3, 3), dict(stride=(2, 2), padding=(0,), dilation=(1,))),  # padding="valid"
    ((3, 2, 11), (4, 2, 3), dict(stride=(2,), padding=(1,), dilation=(2,), groups=1)),
    ((2, 3, 9, 8), (4, 3, 7, 6), dict(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)),
    ((2, 3, 9, 8), (4, 3, 5, 5), dict(stride=(3, 2), padding=(1, 2), dilation=(2, 1), groups=1)),
    (
        (2, 2, 5, 4, 6),
        (3, 2, 2, 3, 2),
        dict(stride=(1, 1, 2), padding=(1, 0, 1), dilation=(1, 1, 1), groups=1),
    ),
]
CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}


def small(*shape: int) -> torch.Tensor:
    return STREAM.below(2001, shape) - 1000


@pytest.mark.parametrize(("x_shape", "w_shape", "params"), CONVS)
def test_convolutions_and_their_gradients(x_shape, w_shape, params):
    x, w = small(*x_shape), small(*w_shape)
    xf, wf = x.double().requires_grad_(), w.double().requires_grad_()
    plain = CONV[x.ndim](xf, wf, **params)
    assert torch.equal(Bilinear.of("conv", **params)(x, w), plain.long())
    g = small(*plain.shape)
    plain.backward(g.double())
    grad_input = Bilinear.of("conv_grad_input", input_size=tuple(x.shape[2:]), **params)
    grad_weight = Bilinear.of("conv_grad_weight", kernel_size=tuple(w.shape[2:]), **params)
    assert torch.equal(grad_input(g, w), xf.grad.long())
    assert torch.equal(grad_weight(x, g), wf.grad.long())
    for op, a, b in ((grad_input, g, w), (grad_weight, x, g)):
        assert op.output_shape(a.shape, b.shape) == tuple(op(a, b).shape)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "params"),
    [
        ((1, 16, 70, 56), (5, 16, 3, 3), dict(padding=(1, 1))),
        ((2, 3, 225, 223), (4, 3, 7, 5), dict(stride=(1, 2), padding=(3, 1), dilation=(2, 1))),
        ((3, 300, 40, 41), (2, 300, 1, 2), dict(padding=(0, 1))),
    ],
)
def test_large_pictures_are_convolved_in_bands_and_wrap(x_shape, w_shape, params, threads, monkeypatch):
    x, w = STREAM.words(x_shape), STREAM.words(w_shape)
    before, made = torch.get_num_threads(), []
    multiplied = bands.multiplied
    monkeypatch.setattr(bands, "multiplied", lambda *given: made.append(1) or multiplied(*given))
    try:
        torch.set_num_threads(threads)
        found = Bilinear.of("conv", **params)(x, w)
    finally:
        torch.set_num_threads(before)
    assert made and found.is_contiguous()
    assert torch.equal(found, F.conv2d(x, w, **params))


def test_a_product_is_added_in_place_and_may_be_empty():
    for x, y in ((small(3, 4), small(4, 5)), (small(2, 3, 4), small(4, 5)), (small(0, 4), small(4, 5))):
        out = small(*x.shape[:-1], 5)
        wanted = out + torch.matmul(x, y)
        assert torch.equal(kernels.accumulate(out, Bilinear("matmul"), x, y), wanted)
    assert kernels.matmul(small(0, 0), small(0, 5)).shape == (0, 5)


def test_a_matmul_split_over_threads_is_the_same_matmul():
    x, y = STREAM.words((300, 256)), STREAM.words((256, 300))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = kernels.matmul(x, y)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(two, torch.mm(x, y))
    assert torch.equal(kernels.matmul(x, y.t().contiguous(), transpose_y=True), two)


@pytest.mark.parametrize("divisor", [1, 2, 3, 1000, 1 << 40, 2**62 - 1])
def test_floor_division(divisor):
    x = spread(1000)
    assert torch.equal(kernels.floor_divide(x, divisor), torch.div(x, divisor, rounding_mode="floor"))
    assert kernels.floor_divide(x[0], divisor).shape == ()


_TAKES_MEMORY_AGAIN = """
import resource, threading
from syft.mpc.kernels import keep_freed_memory
assert keep_freed_memory()
import torch
def take():
    for _ in range(30):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        large = [torch.ones(megabytes << 17, dtype=torch.int64) for megabytes in (8, 30, 8, 8, 16, 3)]
        del large
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
faults = []
thread = threading.Thread(target=take)
thread.start()
thread.join()
print(sorted(faults)[len(faults) // 2])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc is asked to keep memory")
def test_a_thread_takes_memory_that_was_kept():
    found = subprocess.run(
        [sys.executable, "-c", _TAKES_MEMORY_AGAIN], capture_output=True, text=True, check=True
    )
    # Of 18,700 pages, in most rounds: where small blocks lie in between, the heap has to grow for some rounds more.
    assert int(found.stdout) < 400


def test_an_unknown_kernel_is_refused_by_name():
    with pytest.raises(ValueError, match="matmul"):
        Bilinear("__import__")
