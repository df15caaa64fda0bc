"""Where in the user's program a command was issued, for an error that comes later. Cheap: nothing is formatted before."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

#: The lines of the user that led to a command, innermost first.
Site = tuple[tuple[CodeType, int], ...]

_MOST_LINES = 4
_INSIDE = ("syft.", "torch.", "contextlib", "threading")


def site_of_caller() -> Site:
    """The lines outside of this library and of torch that led here."""
    frame: FrameType | None = sys._getframe(2)
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _MOST_LINES:
        if not frame.f_globals.get("__name__", "").startswith(_INSIDE):
            found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def shown(site: Site) -> str:
    lines = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in site]
    return "\nIt was issued here (innermost first):\n" + "\n".join(lines) if lines else ""
