"""How much memory a method of a text would take, worked out before it takes any.

Methods are called only for users who may see the text and the arguments, so the values may be looked at.
"""

from __future__ import annotations

from typing import Any

#: Of a character, at most; and of a String, beside its characters.
_WIDEST = 4
_PIECE = 512

_TO_A_WIDTH = frozenset("center ljust rjust zfill".split())
_INTO_PIECES = frozenset("split rsplit splitlines partition rpartition".split())
#: What may triple a text: one character becomes up to three in another case.
_MOST_LARGER = 3


def bytes_of_method(method: str, text: str, args: Any, kwargs: dict[str, Any]) -> int:
    """An upper bound of what `text.method(*args, **kwargs)` takes, in bytes."""
    given = [_plain(value) for value in (*args, *kwargs.values())]
    numbers = [abs(value) for value in given if isinstance(value, int)]
    length = len(text)
    most = max(numbers, default=0)
    if method == "__mul__":
        return _WIDEST * length * most
    if method in _TO_A_WIDTH:
        return _WIDEST * max(length, most)
    if method == "expandtabs":
        return _WIDEST * (length + text.count("\t") * (most if numbers else 8))
    if method in _INTO_PIECES:
        return _WIDEST * length + _PIECE * _pieces(method, text, given)
    if method == "replace":
        old, new = (*(v for v in given if isinstance(v, str)), "", "")[:2]
        return _WIDEST * (length + text.count(old) * len(new))
    if method == "join":
        parts = [_plain(part) for value in given if isinstance(value, (list, tuple, str)) for part in value]
        return _WIDEST * (sum(map(_length, parts)) + length * len(parts))
    if method == "translate":
        tables = [value for value in given if isinstance(value, dict)]
        return _WIDEST * length * max((_length(v) for table in tables for v in table.values()), default=1)
    return _WIDEST * (_MOST_LARGER * length + sum(map(_length, given)))


def _pieces(method: str, text: str, given: list[Any]) -> int:
    if method.endswith("partition"):
        return 3
    separators = [value for value in given if isinstance(value, str)]
    if separators and separators[0]:
        return text.count(separators[0]) + 1
    return len(text) + 1  # between any two characters, at most


def _plain(value: Any) -> Any:
    """A text that is held here, as one."""
    inner = getattr(value, "child", value)
    return inner if isinstance(inner, str) else value


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else 1
