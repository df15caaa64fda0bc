"""`parcels`: which tensors of what one party sends another travel together. Imports nothing of ours.

A large tensor travels alone: who receives it keeps the memory of the frame instead of copying the tensor out of it, and
works while the next one is under way. Small ones travel together, because each message has its price.
"""

from __future__ import annotations

from collections.abc import Sequence

LARGE_BYTES = 1 << 20


def parcels(sizes: Sequence[int]) -> list[slice]:
    """Slices of the tensors with these sizes in bytes, in order: one of nothing if there are none."""
    if len(sizes) < 2 or max(sizes) < LARGE_BYTES:
        return [slice(0, len(sizes))]
    alone = [size >= LARGE_BYTES for size in sizes]
    starts = [0, *(at for at in range(1, len(sizes)) if alone[at] or alone[at - 1])]
    return [slice(begin, end) for begin, end in zip(starts, [*starts[1:], len(sizes)], strict=True)]
