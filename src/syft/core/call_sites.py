"""Where in the user's program a command was issued, for an error that comes later. Cheap: nothing is formatted before."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from syft.core.chain import Wrapper

#: The places of the user's that led to a command, innermost first: code, and how far it had come in it.
Site = tuple[tuple[CodeType, int], ...]

_MOST_LINES = 4
_INSIDE = ("syft.", "torch.", "contextlib", "threading")
#: Name of a module -> whether it is this library or torch.
_is_inside: dict[str, bool] = {}

#: How far away torch called us for an operation on a pointer. What is between is our own, and there is much of it.
_USUAL_DEPTH = 7
_DISPATCH: CodeType = Wrapper.__torch_dispatch__.__code__


def site_of_caller() -> Site:
    """The lines outside of this library and of torch that led here."""
    frame: FrameType | None
    try:
        frame = sys._getframe(_USUAL_DEPTH)
        if frame.f_code is not _DISPATCH:
            frame = sys._getframe(1)
    except ValueError:  # so many there are not
        frame = sys._getframe(1)
    found: list[tuple[CodeType, int]] = []
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        inside = _is_inside.get(name)
        if inside is None:
            inside = _is_inside[name] = name.startswith(_INSIDE)
        if not inside:
            # NB: not its line, which takes a walk through a table: nobody may ever ask for it.
            found.append((frame.f_code, frame.f_lasti))
            if len(found) == _MOST_LINES:
                break
        frame = frame.f_back
    return tuple(found)


def _line(code: CodeType, position: int) -> int:
    for begin, end, line in code.co_lines():
        if begin <= position < end and line is not None:
            return line
    return code.co_firstlineno


def shown(site: Site) -> str:
    lines = [f'  File "{code.co_filename}", line {_line(code, at)}, in {code.co_name}' for code, at in site]
    return "\nIt was issued here (innermost first):\n" + "\n".join(lines) if lines else ""
