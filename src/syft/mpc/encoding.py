"""Reals as integers of a fixed precision: NOTE [Range] in syft.mpc.precision."""

from __future__ import annotations

import torch

#: Encoded values stay below this, so that one more product by a small number still fits the ring.
ENCODE_LIMIT = 2**62


def encode_number(value: float, scale: int) -> int:
    """round(value * scale); !! ValueError with the range for what does not fit."""
    if isinstance(value, complex):
        raise _no_complex()
    if value != value or value in (float("inf"), float("-inf")):
        raise _out_of_range(value, scale)
    units = int(value) * scale if value == int(value) else round(value * scale)
    if abs(units) >= ENCODE_LIMIT:
        raise _out_of_range(float(value), scale)
    return units


def encode_integers(tensor: torch.Tensor, scale: int) -> torch.Tensor:
    """round(tensor * scale) as int64."""
    if tensor.is_complex():
        raise _no_complex()
    if not tensor.is_floating_point():
        integers = tensor.detach().to(torch.int64)
        limit = (ENCODE_LIMIT - 1) // scale
        if integers.numel() and (integers.max() > limit or integers.min() < -limit):
            worst = max(abs(int(integers.max())), abs(int(integers.min())))
            raise _out_of_range(float(worst), scale)
        return integers * scale
    scaled = tensor.detach().to(torch.float64) * scale
    outside = ~(scaled.abs() < float(ENCODE_LIMIT))
    if outside.any():
        raise _out_of_range(float(tensor.detach()[outside].flatten()[0]), scale)
    return scaled.round().to(torch.int64)


def _no_complex() -> ValueError:
    return ValueError("Complex numbers have no fixed-precision form. Encode real and imaginary part apart.")


def _out_of_range(value: float, scale: int) -> ValueError:
    largest = ENCODE_LIMIT / scale
    return ValueError(
        f"The value {value} cannot be represented with {scale} units to the one: values must be "
        "finite and between "
        f"{-largest:.6g} and {largest:.6g}. Scale the data down, or choose a smaller precision_fractional."
    )
