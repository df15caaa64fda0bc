"""What one user's trouble costs another, and how long a worker takes to end: on an isolated worker.

The worker is that of the tests (`tests/isolation`), whose executors obey three numbers: an operation that does not end
(killed after `seconds_per_operation`, here half a second), one that crashes its process, one that takes memory until
there is none left for it. The troubled user repeats it without a pause. Blocks of round trips alone and beside the
trouble take turns in one run.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench.harness import Figure, benchmark

_BLOCKS, _TRIPS = 5, 200
_TESTS = Path(__file__).parent.parent / "tests"


@contextlib.contextmanager
def _worker() -> Iterator[tuple[Any, Any]]:
    """A worker of the tests, and the module with the numbers."""
    sys.path.insert(0, str(_TESTS))
    try:
        conftest = importlib.import_module("isolation.conftest")
        numbers = importlib.import_module("isolation.hooked_fork_server")
    finally:
        sys.path.remove(str(_TESTS))
    with tempfile.TemporaryDirectory() as folder:
        made = conftest.Isolated(Path(folder))
        try:
            yield made, numbers
        finally:
            if made.process.poll() is None:
                made.end(signal.SIGKILL)


def _client(worker: Any, user: str) -> Any:
    import syft as sy
    from syft.workers.network.client_worker import NetworkClientWorker

    return NetworkClientWorker(
        sy.local_worker.hook, worker.address, "hospital", token=worker.token(user), auto_add=False
    )


class _Trouble:
    """A user who runs one operation again and again, each time from the start of a new process."""

    def __init__(self, worker: Any, number: float) -> None:
        self._number, self._stop = number, threading.Event()
        self._client = _client(worker, "hurried")
        self.runs = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(Exception):
                x = torch.ones(2).send(self._client)  # type: ignore[attr-defined]
                self.runs += 1
                (x * self._number).get()

    def __enter__(self) -> _Trouble:
        self._thread.start()
        while not self.runs:
            time.sleep(0.01)
        return self

    def stop_soon(self) -> None:
        """After what is running."""
        self._stop.set()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        with contextlib.suppress(Exception):
            self._client.close()


def _trips(x: Any) -> list[float]:
    times = []
    for _ in range(_TRIPS):
        began = time.perf_counter()
        (x * 2).get()
        times.append(time.perf_counter() - began)
    return times


def _compared(worker: Any, name: str, number: float) -> list[Figure]:
    alone: list[float] = []
    beside: list[float] = []
    with contextlib.closing(_client(worker, "ann")) as ann:
        x = torch.ones(10).send(ann)  # type: ignore[attr-defined]
        _trips(x)
        for _ in range(_BLOCKS):
            alone += _trips(x)
            with _Trouble(worker, number):
                beside += _trips(x)
    alone.sort()
    beside.sort()
    return [
        Figure(
            f"{what} of get() beside {name}",
            beside[int(part * len(beside))],
            alone[int(part * len(alone))],
            "alone",
            "",
            None,
        )
        for what, part in (("median", 0.5), ("p99", 0.99))
    ]


def _at(times: list[float], part: float) -> float:
    return times[int(part * len(times))]


def _end(name: str, number: float | None) -> Figure:
    """From SIGTERM to the end of the worker and of all its processes."""
    with _worker() as (worker, _), contextlib.ExitStack() as stack:
        if number is not None:
            stack.enter_context(_Trouble(worker, number)).stop_soon()
        else:
            stack.enter_context(contextlib.closing(_client(worker, "ann"))).sync()
        began = time.perf_counter()
        status = worker.end(signal.SIGTERM)
        while worker.children():
            time.sleep(0.005)
        seconds = time.perf_counter() - began
        assert status == 0, status
    return Figure(f"SIGTERM to end, {name}", seconds, None, "", "<= 3 s", seconds <= 3.0)


@benchmark
def network_trouble() -> list[Figure]:
    figures: list[Figure] = []
    with _worker() as (worker, numbers):
        troubles = {
            "an endless user": numbers.ENDLESS,
            "a crashing user": numbers.CRASH,
            "a memory-exhausting user": numbers.MEMORY,
        }
        for name, number in troubles.items():
            figures += _compared(worker, name, number)
    for name, number in {"nothing running": None, **troubles}.items():
        figures.append(_end(name, number))
    return figures
