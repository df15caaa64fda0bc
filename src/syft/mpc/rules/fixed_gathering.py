"""Maxima over windows of any shape, and the gradients of upsampling: both are public rearrangements of their input."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from syft.core.chain import new_wrapper
from syft.mpc.precision import FixedPrecisionTensor
from syft.mpc.rules import fixed_kinds as kinds
from syft.mpc.rules import fixed_ring as ring
from syft.mpc.rules.registry import on_children, rule, rule_with_func

aten = torch.ops.aten

# -- maxima ------------------------------------------------------------------------------------------------


def _adaptive_spans(size: int, out: int) -> list[list[int]]:
    """Per output the places along one dimension that torch's adaptive pooling looks at."""
    return [list(range((i * size) // out, -(-((i + 1) * size) // out))) for i in range(out)]


def _window_spans(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> list[list[int]]:
    """The same for a pooling with a kernel; places beyond the border are left out."""
    span = dilation * (kernel - 1) + 1
    room = size + 2 * padding - span
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    starts = [i * stride - padding for i in range(count)]
    return [[p for p in range(start, start + span, dilation) if 0 <= p < size] for start in starts]


def _places(spans: list[list[list[int]]], sizes: list[int]) -> torch.Tensor:
    """(longest window, outputs): flat places; a shorter window repeats its first, which changes no maximum."""
    windows = []
    for window in itertools.product(*spans):
        flat = [0]
        for places, size in zip(window, sizes, strict=True):
            flat = [at * size + place for at in flat for place in places]
        windows.append(flat)
    longest = max(len(window) for window in windows)
    return (
        torch.tensor([window + window[:1] * (longest - len(window)) for window in windows]).t().contiguous()
    )


def _largest(self: Any, spans: list[list[list[int]]]) -> tuple[Any, Any]:
    """(values, indices) as torch's poolings return them; the selection stays with the indices for backward."""
    dims = len(spans)
    lead, sizes = list(self.shape[:-dims]), list(self.shape[-dims:])
    out = [len(span) for span in spans]
    places = _places(spans, sizes)
    flat = on_children(aten.reshape.default, self.child, [*lead, math.prod(sizes)])
    picked = on_children(aten.index_select.default, flat, len(lead), places.flatten())
    rows = on_children(aten.reshape.default, picked, [*lead, *places.shape])
    values, selection = ring.maximum_along(rows, len(lead))
    indices = ring.summed(ring.times(selection, places), [len(lead)])
    shape = [*lead, *out]
    made = kinds.whole(on_children(aten.reshape.default, indices, shape), self)
    made.known["chosen"] = (selection, places)
    return kinds.same_kind(on_children(aten.reshape.default, values, shape), self), made


def _spread_back(grad_output: Any, self: Any, indices: Any, spans: list[list[list[int]]]) -> Any:
    dims = len(spans)
    like = kinds.template_of(grad_output, self)
    lead, sizes = list(self.shape[:-dims]), list(self.shape[-dims:])
    known = indices.known.get("chosen") if kinds.is_node(indices) else None
    grad = on_children(aten.reshape.default, kinds.units(grad_output, like), [*lead, 1, -1])
    if known is None:
        places = _places(spans, sizes)
        node = indices.child if kinds.is_node(indices) else indices
        chosen = on_children(aten.reshape.default, node, [*lead, 1, -1])
        selection = ring.equals_zero(ring.minus(chosen, places))
        # A repeated place must not count twice.
        first = torch.cat([torch.ones_like(places[:1]), (places[1:] != places[:1]).to(torch.int64)])
        selection = ring.times(selection, first)
    else:
        selection, places = known
    moved = ring.multiply_bit(selection, grad)
    flat = on_children(aten.reshape.default, moved, [*lead, places.numel()])
    empty = on_children(aten.new_zeros.default, flat, [*lead, math.prod(sizes)])
    made = on_children(aten.index_add.default, empty, len(lead), places.flatten(), flat)
    return kinds.real(on_children(aten.reshape.default, made, list(self.shape)), like)


def _adaptive(self: Any, output_size: Any) -> list[list[list[int]]]:
    sizes = self.shape[-len(output_size) :]
    return [_adaptive_spans(size, out) for size, out in zip(sizes, output_size, strict=True)]


@rule(FixedPrecisionTensor, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(self: Any, output_size: Any) -> Any:
    """Exact."""
    return _largest(self, _adaptive(self, output_size))


@rule_with_func(
    FixedPrecisionTensor, aten.adaptive_max_pool2d_backward.default, aten.adaptive_max_pool3d_backward.default
)
def adaptive_max_pool_backward(func: Any, grad_output: Any, self: Any, indices: Any) -> Any:
    dims = 2 if "2d" in func._schema.name else 3
    return _spread_back(grad_output, self, indices, _adaptive(self, grad_output.shape[-dims:]))


def _triple(value: Any) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * 3 if len(values) == 1 else values


def _kernel_spans(
    self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> list[list[list[int]]]:
    kernel = _triple(kernel_size)
    steps = _triple(stride) if stride else kernel
    numbers = zip(self.shape[-3:], kernel, steps, _triple(padding), _triple(dilation), strict=True)
    return [_window_spans(*one, ceil_mode) for one in numbers]


@rule(FixedPrecisionTensor, aten.max_pool3d_with_indices.default)
def max_pool3d(
    self: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Exact."""
    return _largest(self, _kernel_spans(self, kernel_size, stride, padding, dilation, ceil_mode))


@rule(FixedPrecisionTensor, aten.max_pool3d_with_indices_backward.default)
def max_pool3d_backward(
    grad_output: Any,
    self: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    indices: Any,
) -> Any:
    spans = _kernel_spans(self, kernel_size, stride, padding, dilation, ceil_mode)
    return _spread_back(grad_output, self, indices, spans)


# -- upsampling ----------------------------------------------------------------------------------------------

#: Forward operations by the number of dimensions they work on; those that are told about corners come second.
_NEAREST = {
    f"{name}{dims}d": dims for name in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)
}
_CORNERED = {
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_bicubic2d": 2,
    "upsample_trilinear3d": 3,
}


def _along(name: str, dims: int, dim: int, size: int, out: int, *options: Any) -> torch.Tensor:
    """(size, out): what torch's own upsampling does along one dimension, from what it makes of the unit vectors."""
    units = torch.eye(size, dtype=torch.float64)
    shape, target = [1] * dims, [1] * dims
    shape[dim], target[dim] = size, out
    scales: list[Any] = [None] * dims
    *corners, scale = options
    scales[dim] = scale
    forward = getattr(aten, name).default
    made: torch.Tensor = forward(units.view(1, size, *shape), target, *corners, *scales)
    return made.view(size, out)


@rule_with_func(
    FixedPrecisionTensor, *(getattr(aten, f"{name}_backward").default for name in (*_NEAREST, *_CORNERED))
)
def upsample_backward(func: Any, grad_output: Any, output_size: Any, input_size: Any, *options: Any) -> Any:
    """The transposed of a public linear map, dimension by dimension. 1 unit per dimension; nearest: exact."""
    name = func._schema.name.split("::")[1].removesuffix("_backward")
    dims = _NEAREST.get(name) or _CORNERED[name]
    corners = list(options[:1]) if name in _CORNERED else []
    scales = [*options[len(corners) :], *[None] * dims][:dims]
    made: Any = new_wrapper(grad_output)
    for dim in range(dims):
        matrix = _along(name, dims, dim, input_size[2 + dim], output_size[dim], *corners, scales[dim])
        rows = made.movedim(2 + dim, -1)
        made = torch.matmul(rows, matrix.t().to(made.dtype)).movedim(-1, 2 + dim)
    return made.child
