"""`Limits`: what a frame may ask of its receiver, checked before anything is allocated for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Pass one to `deserialize` to be stricter, or more generous, than the default.

    max_bytes         of a whole frame; what is not compressed needs no memory beyond the frame itself
    max_decompressed  of all compressed buffers together, after decompression
    max_header        bytes of the header, which describes the structure
    max_objects       values in the header, numbers and strings included
    max_depth         containers within containers
    """

    max_bytes: int = 1 << 36
    max_decompressed: int = 1 << 30
    max_header: int = 1 << 26
    max_objects: int = 1 << 20
    max_depth: int = 100


DEFAULT_LIMITS = Limits()
