"""Finding things inside nested arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def found_in(value: Any, kinds: Any) -> Iterator[Any]:
    """Every instance of `kinds` in a value made of tuples, lists and dicts, in order."""
    if isinstance(value, kinds):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from found_in(item, kinds)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from found_in(item, kinds)
