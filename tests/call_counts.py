"""How many Python functions something calls: what it costs, on any machine and however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls_of_python(run: Callable[[], Any], times: int = 48) -> float:
    """How many Python functions a call of `run` calls in this thread, on average; the first call is not counted."""
    run()
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for _ in range(times):
            run()
    finally:
        sys.setprofile(before)
    return count / times
