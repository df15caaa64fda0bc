"""Figures that were computed from private data without noise, and say so wherever they are printed.

Imports nothing of ours.
"""

from __future__ import annotations


class NotReleasable(float):
    """A float to steer by and not to publish: it was computed from private data and has no noise of its own.

    Arithmetic and `float(x)` give plain floats, so that whoever drops the label does it on purpose.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{float(self)!r} (data-dependent: not releasable)"

    __str__ = __repr__
