"""Text of others, to be shown to people: what is no printable character could command their terminal."""

from __future__ import annotations

_SHOWN_INSTEAD = "\N{REPLACEMENT CHARACTER}"


def printable(text: object) -> str:
    """The text with a mark in place of every control character, line break and direction mark."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else _SHOWN_INSTEAD for c in plain)
