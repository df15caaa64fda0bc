"""int64 arithmetic, fast: products, matrix products, convolutions and their transposes and gradients.

One duty: be the only place that knows how to be fast on ring tensors. Everything is exact mod 2^64. Where the processor
is slow at int64, larger products are made in doubles (`syft.mpc.doubles`).

What was measured (torch 2.13, one thread, processor time, on a shared two-core EPYC: read as sizes):
- `mm` of 1024 takes 65 ms (33 Gop/s) with AVX-512, 5 s without it, 0.4 s in doubles. In int64 it uses one thread: rows
  are split over Python threads when torch has several (torch lets go of the interpreter lock); on a machine whose cores
  were busy that gained 8 %.
- the gradient for a 64x64x3x3 weight on 56x56: `F.conv2d` with the gradient as its kernel 58 ms, patches
  and one `mm` 16 ms. torch's own convolution_backward does not know int64.
- 1e6 divisions: torch's floor division 3.7 ms, numpy's 0.7 ms, a shift 0.4 ms. `torch.where` 3.6 ms: use
  masks.
- filling 80 MB: 37 ms in a fresh buffer, 3.4 ms in a kept one; up to 32 MB the difference is less than
  twofold. So: in place, `out=`, `addcmul_`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from syft.mpc import bands, blocks, doubles
from syft.mpc.threads import share_out

Ints = tuple[int, ...]
Kernel = Callable[..., torch.Tensor]

_SPLIT_WORK = 1 << 24  # multiplications from which a second thread pays for its wake-up

KERNELS: dict[str, Kernel] = {}
"""Bilinear maps by name: the closed vocabulary of `Bilinear`."""


def kernel(function: Kernel) -> Kernel:
    """Add a bilinear map under its own name."""
    KERNELS[function.__name__] = function
    return function


@dataclass(frozen=True)
class Bilinear:
    """A bilinear map of two tensors by name and parameters: hashable, comparable, fit for the wire."""

    name: str
    params: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise ValueError(
                f"No bilinear kernel is called {self.name!r}, only {', '.join(sorted(KERNELS))}."
            )

    @classmethod
    def of(cls, name: str, **params: Any) -> Bilinear:
        """`Bilinear.of("conv", stride=2)`; lists become tuples so that the record can be hashed."""
        return cls(
            name, tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in params.items()))
        )

    def __call__(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return KERNELS[self.name](x, y, **dict(self.params))

    def output_shape(self, x: Sequence[int], y: Sequence[int]) -> Ints:
        """The shape of the result, found on meta tensors and remembered."""
        return _output_shape(self, tuple(x), tuple(y))


def is_on_cuda(x: Any) -> bool:
    """Whether a tensor, or what tells its device, lies where torch has no products of int64."""
    return bool(x.device.type == "cuda")


def accumulate(out: torch.Tensor, op: Bilinear, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """out += op(x, y), in place; elementwise and matrix products need no buffer of their own for that."""
    if op.name == "mul":
        return out.addcmul_(x, y)
    if op == _MATMUL and is_on_cuda(x):
        return _on_cuda().matmul(x, y, out, add=True)
    if op.name == "matmul" and x.ndim >= 2 and y.ndim == 2 and not is_on_cuda(x):
        params = dict(op.params)
        x = x.transpose(-1, -2) if params.get("transpose_x") else x
        y = y.t() if params.get("transpose_y") else y
        if not x.numel() or not y.numel():
            return out
        rows = x.reshape(-1, x.shape[-1])
        if _is_one_call(rows, y):
            out.view(-1, y.shape[1]).addmm_(rows, y)
            return out
        return out.add_(_mm(rows, y).view(out.shape))
    return out.add_(op(x, y))


Pair = tuple[torch.Tensor, torch.Tensor]


def accumulate_both(out: torch.Tensor, op: Bilinear, first: Pair, second: Pair) -> torch.Tensor:
    """out += op(*first) + op(*second), in place."""
    if op.name == "mul" and blocks.pay_for(out, *first, *second):
        return blocks.add_products(out, *first, *second)
    return accumulate(accumulate(out, op, *first), op, *second)


def sum_of_both(op: Bilinear, first: Pair, second: Pair) -> torch.Tensor:
    """op(*first) + op(*second)."""
    if op.name == "mul" and blocks.pay_for(*first, *second):
        return blocks.products(*first, *second)
    return accumulate(op(*first), op, *second)


_GEOMETRY = (("stride", 1), ("padding", 0), ("dilation", 1))


@lru_cache(maxsize=4096)
def _output_shape(op: Bilinear, x: Ints, y: Ints) -> Ints:
    if op.name == "mul":
        return tuple(torch.broadcast_shapes(x, y))
    if op.name == "conv" and len(x) == len(y) > 2 and x[1] == y[1] * dict(op.params).get("groups", 1):
        # NB: the first convolution on meta tensors takes torch two seconds.
        stride, padding, dilation = (dict(op.params).get(k, v) for k, v in _GEOMETRY)
        sizes = _conv_size(x, y, stride, padding, dilation)
        if min(sizes) > 0:
            return (x[0], y[0], *sizes)
    # float32 because a few int64 kernels have no meta form; only the shape is read.
    return tuple(op(torch.empty(x, device="meta"), torch.empty(y, device="meta")).shape)


# -- products ------------------------------------------------------------------------------------------


@kernel
def mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Element by element, with broadcasting."""
    return torch.mul(x, y)


@kernel
def matmul(
    x: torch.Tensor, y: torch.Tensor, transpose_x: bool = False, transpose_y: bool = False
) -> torch.Tensor:
    """`torch.matmul`, the last two dimensions of either side exchanged on request."""
    if transpose_x:
        x = x.transpose(-1, -2)
    if transpose_y:
        y = y.transpose(-1, -2)
    if is_on_cuda(x):
        return _on_cuda().matmul(x, y)
    if x.ndim >= 2 and y.ndim == 2 and x.device.type == "cpu":
        rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        return _mm(rows, y).view(*x.shape[:-1], y.shape[-1])
    if x.ndim == y.ndim > 2 and _is_in_doubles(
        x, x.shape[-2], x.shape[-1], y.shape[-1], math.prod(x.shape[:-2])
    ):
        return doubles.contracted(torch.matmul, x, y, (-1, -2))
    return torch.matmul(x, y)


def _on_cuda() -> Any:
    """The CUDA backend, imported when the first tensor lies there: it needs Triton."""
    from syft.mpc.cuda import matmul as backend

    return backend


_MATMUL = Bilinear("matmul")


def _is_split(rows: int, inner: int, columns: int) -> bool:
    """Whether a product is large enough for several threads, and there are some."""
    return min(torch.get_num_threads(), rows) > 1 and rows * inner * columns >= _SPLIT_WORK


def _is_in_doubles(x: torch.Tensor, rows: int, inner: int, columns: int, batch: int = 1) -> bool:
    """Whether a product of this size, of which x is one side, is made in doubles."""
    return x.device.type == "cpu" and x.dtype == torch.int64 and doubles.pay_for(rows, inner, columns, batch)


def _is_one_call(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether torch's own product of two matrices is the fastest."""
    sizes = (*x.shape, y.shape[1])
    return not (_is_split(*sizes) or _is_in_doubles(x, *sizes))


def _mm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    rows, inner = x.shape
    if _is_in_doubles(x, rows, inner, y.shape[1]):
        return doubles.contracted(torch.mm, x, y, (1, 0))
    out = x.new_empty((rows, y.shape[1]))
    if not _is_split(rows, inner, y.shape[1]):
        return torch.mm(x, y, out=out)
    threads = min(torch.get_num_threads(), rows)

    def work(bounds: Sequence[tuple[int, int]]) -> None:
        for first, last in bounds:
            torch.mm(x[first:last], y, out=out[first:last])

    share_out(work, list(pairwise(rows * k // threads for k in range(threads + 1))))
    return out


# -- convolutions --------------------------------------------------------------------------------------
# One set of functions for one, two and three dimensions: the picture's number of dimensions decides.

_CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
_CONV_TRANSPOSE = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


def _spread(value: int | Sequence[int], dims: int) -> Ints:
    """One number for each dimension; a single one, also in a list (`padding="valid"`), is that of all."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * dims if len(numbers) == 1 else numbers


@kernel
def conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | Ints = 1,
    padding: int | Ints = 0,
    dilation: int | Ints = 1,
    groups: int = 1,
) -> torch.Tensor:
    """conv1d, conv2d or conv3d of (N, C, ...) with (O, C / groups, ...)."""
    if is_on_cuda(x):
        outs = _conv_size(x.shape, weight.shape, stride, padding, dilation)
        return _conv_by_groups(x, weight, stride, padding, dilation, outs, groups)
    outs = _conv_size(x.shape, weight.shape, stride, padding, dilation)
    places, inside = math.prod(outs), math.prod(weight.shape[2:])
    if groups == 1 and x.device.type == "cpu" and 0 < places < inside:
        return _conv_by_patches(x, weight, stride, padding, dilation, outs)
    product = partial(_CONV[x.ndim], stride=stride, padding=padding, dilation=dilation, groups=groups)
    sizes = weight.shape[0] // groups, weight.shape[1] * inside, x.shape[0] * places
    if doubles.are_exact_for(inside) and _is_in_doubles(x, *sizes, groups):
        return doubles.contracted(product, x, weight, (1, 1), inside, groups)
    if groups == 1 and x.device.type == "cpu" and bands.pay_for(sizes[1], outs, x.dtype):
        patches = _patches(x, tuple(weight.shape[2:]), stride, padding, dilation, outs)
        return bands.multiplied(patches, weight)
    return product(x, weight)


def _conv_size(
    x: Sequence[int], weight: Sequence[int], stride: int | Ints, padding: int | Ints, dilation: int | Ints
) -> Ints:
    dims = len(x) - 2
    return tuple(
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(
            x[2:],
            weight[2:],
            *(_spread(v, dims) for v in (stride, padding, dilation)),
            strict=True,
        )
    )


def _conv_by_patches(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | Ints,
    padding: int | Ints,
    dilation: int | Ints,
    outs: Ints,
) -> torch.Tensor:
    """The same as one `mm`: faster when the kernel is larger than the result, as in the gradient for a weight."""
    dims, kernel_size = x.ndim - 2, tuple(weight.shape[2:])
    patches = _patches(x, kernel_size, stride, padding, dilation, outs)  # (N, C, *kernel, *outs)
    rows = patches.permute(0, *range(2 + dims, 2 + 2 * dims), *range(1, 2 + dims))  # (N, *outs, C, *kernel)
    flat = rows.reshape(x.shape[0] * math.prod(outs), -1)
    product = matmul(flat, weight.reshape(weight.shape[0], -1).t())  # (N * outs, O)
    return product.view(x.shape[0], *outs, -1).movedim(-1, 1).contiguous()


def _conv_by_groups(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | Ints,
    padding: int | Ints,
    dilation: int | Ints,
    outs: Ints,
    groups: int,
) -> torch.Tensor:
    """Patches and one batched product over pictures and groups: (N, groups) of (O / groups, C k) x (C k, outs)."""
    dims, kernel_size = x.ndim - 2, tuple(weight.shape[2:])
    batch, channels = x.shape[0], x.shape[1] // groups
    inner, places = channels * math.prod(kernel_size), math.prod(outs)
    if math.prod(kernel_size) == 1 and not any(_spread(padding, dims)) and set(_spread(stride, dims)) == {1}:
        columns = x.reshape(batch, groups, inner, places)
    else:
        patches = _patches(x, kernel_size, stride, padding, dilation, outs)  # (N, C, *kernel, *outs)
        columns = patches.reshape(batch, groups, inner, places)
    rows = weight.reshape(1, groups, weight.shape[0] // groups, inner)
    return matmul(rows.expand(batch, -1, -1, -1), columns).view(batch, weight.shape[0], *outs)


def _conv_transpose_by_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | Ints,
    padding: int | Ints,
    output_padding: int | Ints,
    groups: int,
    dilation: int | Ints,
) -> torch.Tensor:
    """A convolution of the picture with zeros between its pixels, by the kernel turned round."""
    dims = x.ndim - 2
    strides, pads = _spread(stride, dims), _spread(padding, dims)
    dils, extra = _spread(dilation, dims), _spread(output_padding, dims)
    sizes = weight.shape[2:]
    reach = [d * (k - 1) for d, k in zip(dils, sizes, strict=True)]
    spread = x.new_zeros(
        *x.shape[:2],
        *(
            (n - 1) * s + 1 + r - p + r - p + e
            for n, s, r, p, e in zip(x.shape[2:], strides, reach, pads, extra, strict=True)
        ),
    )
    places = tuple(
        slice(max(r - p, 0), r - p + (n - 1) * s + 1, s)
        for n, s, r, p in zip(x.shape[2:], strides, reach, pads, strict=True)
    )
    if any(r < p for r, p in zip(reach, pads, strict=True)):
        raise NotImplementedError(
            "A transposed convolution on CUDA takes padding up to dilation * (kernel - 1)."
        )
    spread[(slice(None), slice(None), *places)] = x
    per_group = x.shape[1] // groups
    turned = weight.flip(tuple(range(2, weight.ndim))).view(groups, per_group, -1, *sizes).transpose(1, 2)
    kernels_ = turned.reshape(-1, per_group, *sizes)
    return conv(spread, kernels_, 1, 0, dils, groups)


@kernel
def conv_transpose(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: int | Ints = 1,
    padding: int | Ints = 0,
    output_padding: int | Ints = 0,
    groups: int = 1,
    dilation: int | Ints = 1,
) -> torch.Tensor:
    """conv_transpose1d, 2d or 3d of (N, C, ...) with (C, O / groups, ...)."""
    if is_on_cuda(x):
        return _conv_transpose_by_conv(x, weight, stride, padding, output_padding, groups, dilation)
    product = partial(
        _CONV_TRANSPOSE[x.ndim],
        stride=stride,
        padding=padding,
        output_padding=output_padding,
        groups=groups,
        dilation=dilation,
    )
    inside = math.prod(weight.shape[2:])
    sizes = weight.shape[1] * inside, weight.shape[0] // groups, x.shape[0] * math.prod(x.shape[2:])
    if doubles.are_exact_for(inside) and _is_in_doubles(x, *sizes, groups):
        return doubles.contracted(product, x, weight, (1, 0), inside, groups)
    return product(x, weight)


@kernel
def conv_grad_input(
    grad: torch.Tensor,
    weight: torch.Tensor,
    input_size: Ints = (),
    stride: int | Ints = 1,
    padding: int | Ints = 0,
    dilation: int | Ints = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The gradient of `conv` for its picture of spatial size `input_size`: a transposed convolution."""
    dims = grad.ndim - 2
    strides, pads, dils = _spread(stride, dims), _spread(padding, dims), _spread(dilation, dims)
    extra = tuple(
        size - ((out - 1) * s - 2 * p + d * (k - 1) + 1)
        for size, out, s, p, d, k in zip(
            input_size, grad.shape[2:], strides, pads, dils, weight.shape[2:], strict=True
        )
    )
    return conv_transpose(grad, weight, strides, pads, extra, groups, dils)


@kernel
def conv_grad_weight(
    x: torch.Tensor,
    grad: torch.Tensor,
    kernel_size: Ints = (),
    stride: int | Ints = 1,
    padding: int | Ints = 0,
    dilation: int | Ints = 1,
    groups: int = 1,
) -> torch.Tensor:
    """The gradient of `conv` for its weight of spatial size `kernel_size`.

    Patches, then one `mm` per group.
    """
    dims = x.ndim - 2
    outs = tuple(grad.shape[2:])
    patches = _patches(x, tuple(kernel_size), stride, padding, dilation, outs)  # (N, C, *kernel, *outs)
    per_group, out_channels = x.shape[1] // groups, grad.shape[1]
    order = (0, *range(2 + dims, 2 + 2 * dims), 1, *range(2, 2 + dims))  # (N, *outs, C, *kernel)
    columns = patches.permute(order).reshape(-1, groups, per_group * int(np.prod(kernel_size)))
    rows = grad.transpose(0, 1).reshape(groups, out_channels // groups, -1)
    weights = [matmul(rows[g], columns[:, g]) for g in range(groups)]
    return torch.cat(weights).view(out_channels, per_group, *kernel_size)


def _patches(
    x: torch.Tensor,
    kernel_size: Ints,
    stride: int | Ints,
    padding: int | Ints,
    dilation: int | Ints,
    outs: Ints,
) -> torch.Tensor:
    """A view (N, C, *kernel, *outs) of the padded picture; `F.unfold` does not know int64."""
    dims = x.ndim - 2
    pads = _spread(padding, dims)
    if any(pads):
        x = F.pad(x, [amount for p in reversed(pads) for amount in (p, p)])
    x = x.contiguous()
    steps = x.stride()[2:]
    inside = tuple(step * d for step, d in zip(steps, _spread(dilation, dims), strict=True))
    across = tuple(step * s for step, s in zip(steps, _spread(stride, dims), strict=True))
    return x.as_strided((*x.shape[:2], *kernel_size, *outs), (*x.stride()[:2], *inside, *across))


def windows(
    x: torch.Tensor,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    fill: int,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """The windows of a pooling over (N, C, H, W): (N, C, oh, ow, kh * kw), the border filled with `fill`."""
    outs, extra = [], []
    for size, k, s, p, d in zip(x.shape[2:], kernel_size, stride, padding, dilation, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        out = -(-room // s) + 1 if ceil_mode else room // s + 1
        if ceil_mode and (out - 1) * s >= size + p:  # torch's rule: no window starts in the right padding
            out -= 1
        outs.append(out)
        extra.append(max(0, (out - 1) * s + d * (k - 1) + 1 - size - 2 * p))
    pads = [amount for p, e in zip(reversed(padding), reversed(extra), strict=True) for amount in (p, p + e)]
    if any(pads):
        x = F.pad(x, pads, value=fill)
    view = _patches(x, tuple(kernel_size), stride, 0, dilation, tuple(outs))
    return view.permute(0, 1, 4, 5, 2, 3).reshape(*x.shape[:2], *outs, -1)


def unwindow(
    grads: torch.Tensor, size: Sequence[int], kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> torch.Tensor:
    """The transpose of `windows`: adds (N, C, oh, ow, kh * kw) back onto a picture of `size` (H, W)."""
    batch, channels, oh, ow, _ = grads.shape
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = kernel_size, stride, padding, dilation
    height = max(size[0] + 2 * ph, (oh - 1) * sh + dh * (kh - 1) + 1)
    width = max(size[1] + 2 * pw, (ow - 1) * sw + dw * (kw - 1) + 1)
    out = grads.new_zeros((batch, channels, height, width))
    for i in range(kh):
        for j in range(kw):
            rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
            cols = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
            out[:, :, rows, cols] += grads[..., i * kw + j]
    return out[:, :, ph : ph + size[0], pw : pw + size[1]].contiguous()


# -- division ------------------------------------------------------------------------------------------


def floor_divide(x: torch.Tensor, divisor: int) -> torch.Tensor:
    """Floor of the signed quotient by a public positive divisor.

    A shift where the divisor is a power of two.
    """
    if divisor & (divisor - 1) == 0:
        return torch.bitwise_right_shift(x, divisor.bit_length() - 1)
    if type(x) is not torch.Tensor or x.device.type != "cpu":  # numpy cannot look into it
        return torch.div(x, divisor, rounding_mode="floor")
    quotient = np.floor_divide(x.numpy(), np.int64(divisor))
    return torch.from_numpy(np.asarray(quotient))  # NB: numpy makes scalars of arrays without dimensions


# -- memory --------------------------------------------------------------------------------------------


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the next allocation; True where it does (glibc).

    By default blocks over 32 MiB go back to the system at once and come back as fresh pages. Measured,
    processor time of a relu for both parties and the provider: 1e6 elements 85 ms with and without, 4e6
    elements 450 ms without and 335 ms with. Threads besides the first get an arena each, which gives memory
    back whatever the threshold is, so there is one for all. It holds for the whole process, so a process that
    does little else (a worker, a benchmark) calls it, before it has threads, and the library never does by itself.
    """
    m_trim_threshold, m_mmap_max, m_arena_max = -1, -4, -8  # <malloc.h>
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = ((m_arena_max, 1), (m_mmap_max, 0), (m_trim_threshold, 1 << 30))
    return mallopt is not None and all(mallopt(option, value) for option, value in wanted)
