"""Pooling: windows are strided slices of the integers, stacked, then reduced."""

from __future__ import annotations

import math
from typing import Any

import torch

from syft.mpc.precision import ENCODE_LIMIT, FixedPrecisionTensor
from syft.mpc.protocols.select import Pooling
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.fixed_compare import undone_relu
from syft.mpc.rules.fixed_folding import computed_later
from syft.mpc.rules.registry import on_children, rule

aten = torch.ops.aten


class Windows:
    """The geometry of 2d windows over the last two dimensions."""

    def __init__(
        self, shape: torch.Size, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
    ) -> None:
        self.shape = shape
        self.kernel = _pair(kernel)
        self.stride = _pair(stride) if stride else self.kernel
        self.padding, self.dilation, self.ceil_mode = _pair(padding), _pair(dilation), ceil_mode
        self.out = [self._count(i, ceil_mode) for i in (0, 1)]
        #: Rows and columns that a last, incomplete window needs beyond the padded input.
        self.beyond = [
            max(0, (self.out[i] - 1) * self.stride[i] + self._reach(i) - self._padded(i)) for i in (0, 1)
        ]

    def _padded(self, i: int) -> int:
        return self.shape[i - 2] + 2 * self.padding[i]

    @property
    def pooling(self) -> Pooling:
        """The same, as programs take it."""
        return Pooling(self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)

    def _reach(self, i: int) -> int:
        return self.dilation[i] * (self.kernel[i] - 1) + 1

    def _count(self, i: int, ceil_mode: bool) -> int:
        steps = (self._padded(i) - self._reach(i)) / self.stride[i]
        count = (math.ceil(steps) if ceil_mode else math.floor(steps)) + 1
        if ceil_mode and (count - 1) * self.stride[i] >= self.shape[i - 2] + self.padding[i]:
            count -= 1  # a window that would start in the padding
        return count

    def _pads(self) -> list[int]:
        (top, left), (below, right) = self.padding, self.beyond
        return [left, left + right, top, top + below]

    def _slices(self) -> list[tuple[int, int]]:
        return [
            (y * self.dilation[0], x * self.dilation[1])
            for y in range(self.kernel[0])
            for x in range(self.kernel[1])
        ]

    def cut(self, child: Any, value: int) -> Any:
        """(k, ..., h, w): row i of k is element i of every window; what lies outside is `value`."""
        if any(self._pads()):
            child = on_children(aten.constant_pad_nd.default, child, self._pads(), value)
        return ring.stacked([self._take(child, y, x) for y, x in self._slices()])

    def _take(self, child: Any, y: int, x: int) -> Any:
        rows = ring.sliced(child, -2, y, y + (self.out[0] - 1) * self.stride[0] + 1, self.stride[0])
        return ring.sliced(rows, -1, x, x + (self.out[1] - 1) * self.stride[1] + 1, self.stride[1])

    def put_back(self, rows: Any) -> Any:
        """The transpose of `cut`: elements of windows added where they came from."""
        whole = [self._padded(i) + self.beyond[i] for i in (0, 1)]
        lead = list(self.shape[:-2])
        total: Any = None
        for (y, x), row in zip(self._slices(), ring.unstacked(rows), strict=True):
            ends = [start + (self.out[i] - 1) * self.stride[i] + 1 for i, start in enumerate((y, x))]
            wide = on_children(
                aten.slice_backward.default,
                row,
                [*lead, self.out[0], whole[1]],
                -1,
                x,
                ends[1],
                self.stride[1],
            )
            full = on_children(
                aten.slice_backward.default, wide, [*lead, *whole], -2, y, ends[0], self.stride[0]
            )
            total = full if total is None else ring.plus(total, full)
        top, left = self.padding
        total = ring.sliced(total, -2, top, top + self.shape[-2])
        return ring.sliced(total, -1, left, left + self.shape[-1])

    def places(self) -> torch.Tensor:
        """The flat index in the input plane of every element of every window; -1 outside."""
        plane = torch.arange(self.shape[-2] * self.shape[-1]).view(1, self.shape[-2], self.shape[-1])
        return torch.as_tensor(self.cut(plane, -1)).view(len(self._slices()), *self.out)

    def counts(self, include_pad: bool) -> torch.Tensor:
        """How many elements every window averages."""
        ones = torch.ones(1, self.shape[-2], self.shape[-1], dtype=torch.int64)
        if include_pad:
            (top, left) = self.padding
            ones = torch.nn.functional.pad(ones, (left, left, top, top), value=1)
            bare = Windows(ones.shape, self.kernel, self.stride, (0, 0), self.dilation, False)
            bare.out, bare.beyond = self.out, self.beyond
            return torch.as_tensor(bare.cut(ones, 0)).sum(0).view(*self.out)
        return torch.as_tensor(self.cut(ones, 0)).sum(0).view(*self.out)


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


# -- maxima -------------------------------------------------------------------------------------------------


@rule(FixedPrecisionTensor, aten.max_pool2d_with_indices.default)
def max_pool2d(
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Exact. The one-hot selection stays with the indices for the backward pass."""
    windows = Windows(self.shape, kernel_size, stride, padding, dilation, ceil_mode)
    below = undone_relu(self)
    if below is not None and math.prod(windows.out) <= math.prod(self.shape[-2:]):
        return _relu_of_maxima(self, below, windows)
    values, selection = _maxima(self.child, windows)

    def place() -> Any:
        places = windows.places().view(-1, *[1] * (len(self.shape) - 2), *windows.out)
        return ring.summed(ring.times(selection, places), [0])

    indices = kinds.whole(computed_later(selection, ring.shape_of(values), place), self)
    indices.known["selection"] = selection
    return kinds.same_kind(values, self), indices


def _relu_of_maxima(self: FixedPrecisionTensor, below: Any, windows: Windows) -> Any:
    """The same where x = relu(below): NOTE [A relu before a pooling]. Places are those in x, if they are asked for."""
    own = ring.fused(below, "relu_of_windows")
    values = None if own is None else own(windows.pooling, _LOWEST)
    if values is None:
        values, _ = ring.positive_part(_maxima(below, windows)[0])

    def place() -> Any:
        places = windows.places().view(-1, *[1] * (len(self.shape) - 2), *windows.out)
        return ring.summed(ring.times(_maxima(self.child, windows)[1], places), [0])

    indices = kinds.whole(computed_later(self.child, ring.shape_of(values), place), self)
    return kinds.same_kind(values, self), indices


def _maxima(child: Any, windows: Windows) -> tuple[Any, Any]:
    """The maximum of every window, and its one-hot place."""
    own = ring.fused(child, "maximum_of_windows")
    made = None if own is None else own(windows.pooling, _LOWEST)
    return ring.maximum_along(windows.cut(child, _LOWEST), 0) if made is None else made


#: Below every value, and no difference to one leaves the ring.
_LOWEST = -ENCODE_LIMIT


@rule(FixedPrecisionTensor, aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    grad_output: Any,
    self: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    windows = Windows(self.shape, kernel_size, stride, padding, dilation, ceil_mode)
    like = kinds.template_of(grad_output, self)
    selection = indices.known.get("selection") if kinds.is_node(indices) else None
    if selection is None:
        places = windows.places().view(-1, *[1] * (len(self.shape) - 2), *windows.out)
        if kinds.is_node(indices):
            selection = ring.equals_zero(ring.minus(ring.unsqueezed(indices.child, 0), places))
        else:
            selection = (indices.unsqueeze(0) == places).to(torch.int64)
    grad = ring.unsqueezed(kinds.units(grad_output, like), 0)
    return kinds.real(windows.put_back(ring.multiply_bit(selection, grad)), like)


# -- means --------------------------------------------------------------------------------------------------


def _mean_of(total: Any, counts: torch.Tensor, divisor: int | None) -> Any:
    """Window sums divided by the number of elements: one truncation per different number."""
    if divisor is not None:
        mean = ring.truncate(total, abs(divisor))
        return ring.negated(mean) if divisor < 0 else mean
    numbers = counts.unique().tolist()
    if len(numbers) == 1:
        return ring.truncate(total, int(numbers[0]))
    parts = [ring.times(ring.truncate(total, int(n)), (counts == n).to(torch.int64)) for n in numbers]
    made = parts[0]
    for part in parts[1:]:
        made = ring.plus(made, part)
    return made


@rule(FixedPrecisionTensor, aten.avg_pool2d.default)
def avg_pool2d(
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Error less than 1 unit."""
    windows = Windows(self.shape, kernel_size, stride, padding, 1, ceil_mode)
    total = ring.summed(windows.cut(self.child, 0), [0])
    return kinds.real(_mean_of(total, windows.counts(count_include_pad), divisor_override), self)


@rule(FixedPrecisionTensor, aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    grad_output: Any,
    self: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    windows = Windows(self.shape, kernel_size, stride, padding, 1, ceil_mode)
    like = kinds.template_of(grad_output, self)
    share = _mean_of(kinds.units(grad_output, like), windows.counts(count_include_pad), divisor_override)
    count = windows.kernel[0] * windows.kernel[1]
    return kinds.real(windows.put_back(ring.stacked([share] * count)), like)


def _bins(size: int, out: int) -> torch.Tensor:
    """(out, size): 1 where an element belongs to the bin, as torch's adaptive pooling cuts."""
    made = torch.zeros(out, size, dtype=torch.int64)
    for i in range(out):
        made[i, (i * size) // out : -(-((i + 1) * size) // out)] = 1
    return made


def _through(child: Any, rows: torch.Tensor, columns: torch.Tensor) -> Any:
    """rows @ child @ columns^T over the last two dimensions."""
    lead = list(ring.shape_of(child)[:-2])
    count, (height, width) = math.prod(lead), ring.shape_of(child)[-2:]
    flat = on_children(aten.reshape.default, child, [count * height, width])
    wide = on_children(aten.mm.default, flat, columns.t())
    shaped = on_children(aten.reshape.default, wide, [count, height, columns.shape[0]])
    turned = on_children(aten.transpose.int, shaped, -1, -2)
    flat = on_children(aten.reshape.default, turned, [count * columns.shape[0], height])
    tall = on_children(aten.mm.default, flat, rows.t())
    back = on_children(aten.reshape.default, tall, [*lead, columns.shape[0], rows.shape[0]])
    return on_children(aten.transpose.int, back, -1, -2)


@rule(FixedPrecisionTensor, aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    """Error less than 1 unit."""
    rows, columns = _bins(self.shape[-2], output_size[0]), _bins(self.shape[-1], output_size[1])
    counts = rows.sum(1).view(-1, 1) * columns.sum(1)
    return kinds.real(_mean_of(_through(self.child, rows, columns), counts, None), self)


@rule(FixedPrecisionTensor, aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(grad_output: Any, self: Any) -> Any:
    out = grad_output.shape
    rows, columns = _bins(self.shape[-2], out[-2]), _bins(self.shape[-1], out[-1])
    counts = rows.sum(1).view(-1, 1) * columns.sum(1)
    like = kinds.template_of(grad_output, self)
    share = _mean_of(kinds.units(grad_output, like), counts, None)
    return kinds.real(_through(share, rows.t(), columns.t()), like)
