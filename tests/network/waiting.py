"""Waiting in tests, never for ever. The limits are for what hangs: a machine may be busy with much else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from stopwatch import Stopwatch


def wait_until(is_so: Callable[[], Any], seconds: float = 120.0) -> None:
    until, clock = time.monotonic() + seconds, Stopwatch()
    while not is_so():
        assert time.monotonic() < until or clock.seconds < seconds, "it did not come to pass"
        time.sleep(0.005)


class Running:
    """A call in a thread of its own; `result` waits for it, and raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._value = call()
            except BaseException as error:  # noqa: BLE001  (raised by `result`)
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, seconds: float = 120.0) -> Any:
        self._thread.join(timeout=seconds)
        assert self.is_done, "it hangs"
        if self._error is not None:
            raise self._error
        return self._value
