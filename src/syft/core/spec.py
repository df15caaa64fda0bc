"""`TensorSpec`: all that can be known about a tensor without its values.

Specs are interned: two tensors of the same metadata share one spec object, so that a spec hashes and
compares by identity and the cache of result metadata (see `syft.core.shapes`) is one dict lookup.
"""

from __future__ import annotations

from typing import Any

import torch

_interned: dict[tuple[Any, ...], TensorSpec] = {}
_INTERNED_LIMIT = 65536


class TensorSpec:
    """Shape, strides, offset and dtype of a tensor. Make one with `spec_of` or `make_spec`.

    `number_format`: it is a remote chain in fixed precision, of this base and so many fractional digits, and its
    comparisons are the numbers 0 and 1. The mark stays on this machine: a spec that travelled has lost it.
    """

    __slots__ = ("dtype", "extent", "number_format", "offset", "shape", "strides")

    def __init__(
        self,
        shape: torch.Size,
        strides: tuple[int, ...],
        offset: int,
        dtype: torch.dtype,
        number_format: tuple[int, int] | None = None,
    ) -> None:
        self.shape, self.strides, self.offset, self.dtype = shape, strides, offset, dtype
        self.number_format = number_format
        #: What `extent_in_bytes` says of it, once somebody has asked.
        self.extent = -1

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize

    def meta(self) -> torch.Tensor:
        """A tensor of this spec with no values, for asking torch what an operation would return."""
        made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")
        if self.offset:
            # The offset can only be had on a larger storage.
            extent = self.offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
            made = torch.empty(max(extent, self.offset), dtype=self.dtype, device="meta").as_strided(
                self.shape, self.strides, self.offset
            )
        return made

    def __repr__(self) -> str:
        return f"TensorSpec({tuple(self.shape)}, {self.dtype}, strides={self.strides})"


def make_spec(
    shape: torch.Size,
    strides: tuple[int, ...],
    offset: int,
    dtype: torch.dtype,
    number_format: tuple[int, int] | None = None,
) -> TensorSpec:
    key = (shape, strides, offset, dtype, number_format)
    spec = _interned.get(key)
    if spec is None:
        if len(_interned) >= _INTERNED_LIMIT:
            # Specs still in use stay valid: identity only matters as a cache key.
            _interned.clear()
        spec = _interned[key] = TensorSpec(shape, strides, offset, dtype, number_format)
    return spec


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a strided torch tensor."""
    offset: Any = tensor.storage_offset()
    key = (tensor.shape, tensor.stride(), offset, tensor.dtype, None)
    return _interned.get(key) or make_spec(*key)


def is_dense_layout(shape: torch.Size, strides: tuple[int, ...]) -> bool:
    """Whether the elements of a tensor fill its memory, in whatever order."""
    if len(strides) == 2 and strides == (1, shape[0]):  # a transposed matrix
        return True
    step = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != step:
                return shape.numel() == 0
            step *= size
    return True


def extent_in_bytes(spec: TensorSpec | torch.Tensor) -> int:
    """The memory behind a tensor: an expanded view is no larger than what it was made of."""
    if isinstance(spec, torch.Tensor):
        return _extent(spec.shape, spec.stride(), spec.dtype)
    if spec.extent < 0:
        spec.extent = _extent(spec.shape, spec.strides, spec.dtype)
    return spec.extent


def _extent(shape: torch.Size, strides: tuple[int, ...], dtype: torch.dtype) -> int:
    if 0 in shape:
        return 0
    reach = 1 + sum((size - 1) * abs(stride) for size, stride in zip(shape, strides, strict=True))
    return int(reach * dtype.itemsize)
