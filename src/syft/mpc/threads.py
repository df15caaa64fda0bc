"""`share_out`: parts of one computation over as many threads as torch has. (torch lets go of the interpreter lock.)"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

T = TypeVar("T")


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="syft-mpc-kernel")


def share_out(work: Callable[[Sequence[T]], None], parts: Sequence[T]) -> None:
    """Call `work` with some of the parts in each thread, the caller's included; returns when all are done."""
    threads = max(1, min(torch.get_num_threads(), len(parts)))
    jobs = [_pool().submit(work, parts[number::threads]) for number in range(1, threads)]
    work(parts[::threads])
    for job in jobs:
        job.result()
