"""Where in the user's program a command was issued, for an error that comes later. Cheap: nothing is formatted before."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from syft.core.chain import Wrapper

#: The lines of the user that led to a command, innermost first.
Site = tuple[tuple[CodeType, int], ...]

_MOST_LINES = 4
_INSIDE = ("syft.", "torch.", "contextlib", "threading")
#: Name of a module -> whether it is this library or torch.
_is_inside: dict[str, bool] = {}

#: How far away torch called us for an operation on a pointer. What is between is our own, and there is much of it.
_USUAL_DEPTH = 8
_DISPATCH: CodeType = Wrapper.__torch_dispatch__.__code__


def site_of_caller() -> Site:
    """The lines outside of this library and of torch that led here."""
    frame: FrameType | None = _innermost()
    found: list[tuple[CodeType, int]] = []
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        inside = _is_inside.get(name)
        if inside is None:
            inside = _is_inside[name] = name.startswith(_INSIDE)
        if not inside:
            found.append((frame.f_code, frame.f_lineno))
            if len(found) == _MOST_LINES:
                break
        frame = frame.f_back
    return tuple(found)


def _innermost() -> FrameType:
    try:
        frame = sys._getframe(_USUAL_DEPTH)
    except ValueError:  # so many there are not
        return sys._getframe(2)
    return frame if frame.f_code is _DISPATCH else sys._getframe(2)


def shown(site: Site) -> str:
    lines = [f'  File "{code.co_filename}", line {line}, in {code.co_name}' for code, line in site]
    return "\nIt was issued here (innermost first):\n" + "\n".join(lines) if lines else ""
