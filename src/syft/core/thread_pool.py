"""`sy.pool()`: one pool that independent pieces of work share."""

from __future__ import annotations

import atexit
from functools import cache
from multiprocessing.pool import ThreadPool


@cache
def pool() -> ThreadPool:
    """The pool of this process, with a thread per core and the methods of `multiprocessing.Pool`.

    Threads and not processes: nothing has to be pickled, tensors are shared, and torch computes outside the
    interpreter's lock.
    """
    made = ThreadPool()
    atexit.register(made.terminate)
    return made
