"""Frames of one message in a form of its own, for messages that are sent so often that the general form costs too much.

Such a frame begins with four bytes that no other has. `batch` reads it like any other; who sends one message at once asks
for its form here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.serde.limits import Limits

WRITERS: dict[type, Callable[[Any], list[Any] | None]] = {}
"""Class of a message -> its bytes in pieces, or None for one that travels in the general form."""

READERS: dict[bytes, Callable[[memoryview, Limits], Any]] = {}
"""First four bytes of a frame -> the message. !! SerdeError"""


def lone_frame(message: Any) -> list[Any] | None:
    """The bytes of a frame with this message alone, in pieces; None: it has no form of its own."""
    write = WRITERS.get(type(message))
    return None if write is None else write(message)
