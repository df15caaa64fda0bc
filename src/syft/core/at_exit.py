"""What is stopped before the interpreter ends.

One duty: `stop_at_exit`. Python ends a daemon thread as soon as it comes back from torch's code, in the middle of it;
the whole process then aborts ("terminate called without an active exception"). So whoever computes in daemon threads
is stopped before. Imports nothing of ours.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Protocol

logger = logging.getLogger("syft")


class Stoppable(Protocol):
    def stop(self) -> None: ...


#: With the process in which each was started: its threads are not in those that are forked.
_STARTED: weakref.WeakKeyDictionary[Stoppable, int] = weakref.WeakKeyDictionary()


def stop_at_exit(what: Stoppable) -> None:
    """Call its `stop` when this process ends, unless it is gone by then. It may be stopped already."""
    _STARTED[what] = os.getpid()


@atexit.register
def _stop_all() -> None:
    for what, process in list(_STARTED.items()):
        if process == os.getpid():
            try:
                what.stop()
            except Exception:
                logger.exception("%r could not be stopped at the end of the process", what)
