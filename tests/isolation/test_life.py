"""From the first session to the last signal: many users at once, what is durable, and how a worker ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from isolation.conftest import Isolated, find
from isolation.hooked_fork_server import CRASH, ENDLESS
from network.waiting import wait_until
from syft.exceptions import NetworkError, WorkerUnreachableError
from syft.isolation.executors import MOST_DEATHS, Executors
from syft.messaging.message import Operation, Ref
from syft.workers.network.client_worker import NetworkClientWorker

pytestmark = pytest.mark.network
USERS = 64
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Isolated]:
    made = Isolated(tmp_path_factory.mktemp("life"))
    yield made
    if made.process.poll() is None:
        made.end(signal.SIGKILL)


@contextlib.contextmanager
def user(hook: Any, worker: Isolated, name: str) -> Iterator[NetworkClientWorker]:
    client = NetworkClientWorker(
        hook, worker.address, "hospital", token=worker.token(name), auto_add=False, patience=5.0
    )
    try:
        yield client
    finally:
        client.close()


def proportional(pid: int) -> int:
    """The memory of a process, what it shares divided by how many share it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def test_many_users_at_once_have_a_process_each_and_little_memory(
    hook: Any, me: Any, worker: Isolated
) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(8) as threads:
        clients = [stack.enter_context(user(hook, worker, f"user{number}")) for number in range(USERS)]

        def work(number: int) -> list[float]:
            mine = torch.full((3,), float(number)).send(clients[number])
            shape = (find(clients[number], "#patients") @ torch.eye(2).send(clients[number])).shape
            assert shape == (4, 2)
            return (mine + number).get().tolist()  # type: ignore[no-any-return]

        assert list(threads.map(work, range(USERS))) == [[2.0 * n] * 3 for n in range(USERS)]
        processes = list(worker.children())
        assert len(processes) == USERS
        assert max(map(proportional, processes)) < 30 * MEGABYTE
    wait_until(lambda: not worker.children())  # with the last session the process ends


def test_what_was_acknowledged_as_kept_survives_its_process_and_the_worker(
    hook: Any, me: Any, worker: Isolated
) -> None:
    with user(hook, worker, "ann") as ann:
        torch.tensor([5.0, 6.0]).tag("#handed").send(ann, garbage_collect_data=False)  # type: ignore[attr-defined]
        trouble = torch.ones(2).send(ann)
        ann.sync()
        trouble = trouble * CRASH
        with pytest.raises(NetworkError, match="what has tags is still on the worker"):
            trouble.get()
        assert find(ann, "#handed").copy().get().tolist() == [5.0, 6.0]
    worker.end(signal.SIGKILL)
    wait_until(lambda: not worker.children())
    worker.start()
    with user(hook, worker, "ann") as ann, user(hook, worker, "bob") as bob:
        assert find(ann, "#handed").copy().get().tolist() == [5.0, 6.0]
        assert find(bob, "#handed").shape == (2,)
        find(ann, "#handed").get()
        ann.sync()
        assert not bob.search("#handed")


def test_a_fork_server_that_ends_is_started_anew(hook: Any, me: Any, worker: Isolated) -> None:
    with user(hook, worker, "ann") as ann:
        torch.tensor([7.0]).tag("#handed").send(ann, garbage_collect_data=False)  # type: ignore[attr-defined]
        lost = torch.ones(2).send(ann)
        ann.sync()
        (server,) = set(worker.children().values())
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not worker.children())
        with pytest.raises(
            NetworkError, match=r"forked from has ended.*what has tags is still on the worker"
        ):
            lost.get()
        assert (find(ann, "#handed") * 2).copy().shape == (1,)
        with user(hook, worker, "bob") as bob:
            assert (torch.ones(2).send(bob) + 1).get().tolist() == [2.0, 2.0]
            assert set(worker.children().values()) and server not in worker.children().values()
        find(ann, "#handed").get()
    reasons = [line.reason for line in worker.audit if line.action == "process"]
    assert "the fork server has ended (signal 9 ended it); another is started" in reasons
    assert "the fork server has ended" in (worker.folder / "log").read_text()


def test_a_fork_server_that_ends_again_and_again_is_given_up() -> None:
    said: list[str] = []
    executors = Executors(None, None, said.append, False, "__hello__")  # type: ignore[arg-type]
    with pytest.raises(WorkerUnreachableError, match="has ended"):
        executors.of("ann")
    assert len(said) == MOST_DEATHS + 1
    assert all("it ended, status 0" in line for line in said)
    assert ["another is started" in line for line in said] == [True] * MOST_DEATHS + [False]
    assert "Restart the worker" in said[-1]
    executors.close()


def test_a_signal_ends_the_worker_and_all_processes_whatever_runs(
    hook: Any, me: Any, worker: Isolated
) -> None:
    with user(hook, worker, "eve") as eve, user(hook, worker, "ann") as ann:
        x = torch.ones(2).send(eve)
        eve.sync()
        node: Any = x.child
        eve._link.post(
            Operation("aten.mul.Tensor", None, [Ref(node.id_at_location), ENDLESS], {}, (5,)), at_once=True
        )
        assert (torch.ones(2).send(ann) + 1).get().tolist() == [2.0, 2.0]
        assert len(worker.children()) == 2
        began = time.monotonic()
        assert worker.end(signal.SIGTERM) == 0
        # NB: 3 s are promised, of a machine that has nothing else to do.
        others = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert time.monotonic() - began < 3.0 * others
        assert not worker.children()
        assert "Traceback" not in (worker.folder / "log").read_text()
