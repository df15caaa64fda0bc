"""Which code outside of torch and syft is running: for errors that name the line which asked for something."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Any


def asking_code() -> str:
    """Function, file and line of the innermost code that is neither torch's nor ours; "" if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("syft", "torch"):
            code = frame.f_code
            return f"`{code.co_name}` ({PurePath(code.co_filename).name}, line {frame.f_lineno})"
        frame = frame.f_back
    return ""
