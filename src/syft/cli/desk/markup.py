"""HTML that cannot be broken out of: elements are made by a function, and every text in them is escaped.

One duty: escaping. A page is a tree of `Markup`; what is a plain text, an attribute too, was said by somebody and is
shown as it stands. Nothing else in the desk writes `<`. Imports `syft.core.plain_text`.
"""

from __future__ import annotations

import html
import re

from syft.core.plain_text import printable

_NAME = re.compile(r"[a-z][a-z0-9-]*")
_VOID = frozenset({"meta", "link", "input"})


class Markup(str):
    """A text that is HTML already. Made here alone."""

    __slots__ = ()


Child = Markup | str | int | float | None


def text(value: object) -> Markup:
    """What somebody said, without what would command a browser or turn the reading direction."""
    return Markup(html.escape(printable(value), quote=True))


def lines(value: str) -> Markup:
    """A text of several lines."""
    return Markup("\n".join(text(line) for line in value.split("\n")))


def el(tag: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. `class_` and `for_` are class and for, `_` in other names is `-`; None and False are left out."""
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        plain = key.rstrip("_").replace("_", "-")
        if not _NAME.fullmatch(plain.lower()) or plain.startswith("on") or plain == "style":
            raise ValueError(f"The desk has no attribute {key!r}.")
        parts.append(plain if value is True else f'{plain}="{text(value)}"')
    opened = f"<{' '.join(parts)}>"
    if tag in _VOID:
        return Markup(opened)
    inner = "".join(c if isinstance(c, Markup) else "" if c is None else text(c) for c in children)
    return Markup(f"{opened}{inner}</{tag}>")


def join(*children: Child) -> Markup:
    """Several, one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else "" if c is None else text(c) for c in children))
