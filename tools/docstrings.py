"""An extension of griffe: the house's docstrings as Markdown.

Two forms that a terminal shows well, and Markdown does not, are rewritten: lines of `name  what it is` become a list,
and indented blocks stay code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

#: Where the source has a longer reason; nobody who reads the site can look there.
_NOTE = re.compile(r"\s*\bSee NOTE \[[^\]]*\](?: in [\w.`]+)?\.?|[,:;] see NOTE \[[^\]]*\](?: in [\w.`]+)?")
_ENTRY = re.compile(r"^(\w[\w.*, ]*?) {2,}(\S.*)$")


def as_markdown(text: str) -> str:
    """The docstring with lists where it has columns."""
    lines: list[str] = []
    in_list = False
    for line in _NOTE.sub("", text).splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            if not in_list and lines and lines[-1]:
                lines.append("")
            lines.append(f"- `{entry[1].strip()}`: {entry[2]}")
            in_list = True
        elif in_list and line.startswith("  "):
            lines.append("  " + line.strip())
        else:
            if in_list and line:
                lines.append("")
            in_list = in_list and not line
            lines.append(line)
    return "\n".join(lines)


class HouseDocstrings(griffe.Extension):
    """Rewrites every docstring as it is collected."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
