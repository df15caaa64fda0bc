"""An isolated worker, its owner's data, and its users."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import forked
from syft.dp.worker_budgets import BudgetBook, Limit
from syft.identity.tokens import TokenAuthority
from syft.policy.audit import AuditLine, read_audit_log
from syft.workers.network.client_worker import NetworkClientWorker

HERE = Path(__file__).parent
#: What the users of these tests may do: eve little, ann more.
POLICY = """
[limits]
max_bytes = "64 MiB"
seconds_per_operation = 20
connections = 8

[users.hurried]
seconds_per_operation = 0.5

[[data]]
tags = ["#secret"]
may_find = ["ann"]
may_compute = ["ann"]

[[data]]
tags = ["#handed"]
may_find = ["ann", "bob"]
may_compute = ["ann", "bob"]
"""
PATIENTS = [[51.0, 120.0], [62.0, 131.0], [47.0, 118.0], [51.0, 99.0]]
SECRET = [1234.5, 6789.25]
#: What may only be released.
RELEASED = [4321.125, 4322.375, 4321.625, 4323.875]


class Isolated:
    """The process of the worker, as a test sees it."""

    def __init__(self, folder: Path, module: str = "hooked_fork_server") -> None:
        self.folder = folder
        self.authority = TokenAuthority.create(folder / "tokens")
        self.book = BudgetBook.create(folder / "budgets")
        self.book.set_limit("#patients", Limit(2.0, 1e-6))
        for tag in ("#released", "#classes", "#inputs"):
            self.book.set_limit(tag, Limit(8.0, 1e-5))
        self.module = module
        self.start()

    def start(self) -> None:
        options = {
            "folder": str(self.folder),
            "policy": POLICY,
            "module": self.module,
            "budgets": str(self.folder / "budgets"),
            "data": {"#patients": PATIENTS, "#secret": SECRET},
            "released": {"#released": RELEASED, "#classes": [0, 1, 1, 0], "#inputs": PATIENTS},
        }
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.log = (self.folder / "log").open("ab")
        self.process = forked.start(
            str(HERE / "isolated.py"),
            json.dumps(options),
            stdout=forked.PIPE,
            stderr=self.log,
            env=os.environ
            | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "SYFT_PEER_TOKEN": "a secret of the broker's"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "log").read_text()
        self.address: str = json.loads(line)[0]

    def token(self, user: str) -> str:
        return self.authority.issue(user, 3600)

    @property
    def audit(self) -> list[AuditLine]:
        return read_audit_log(self.folder / "audit.jsonl")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(240)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log.close()
        return status

    def children(self) -> dict[int, int]:
        """The processes of users: pid -> pid of the process that forked it."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    found[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        servers = {pid for pid, parent in found.items() if parent == self.process.pid}
        return {pid: parent for pid, parent in found.items() if parent in servers}


@pytest.fixture(scope="package")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Isolated]:
    made = Isolated(tmp_path_factory.mktemp("isolated"))
    yield made
    if made.process.poll() is None:
        made.end()


@pytest.fixture
def connect(hook: Any, me: Any, isolated: Isolated) -> Iterator[Callable[..., NetworkClientWorker]]:
    """`connect("ann")`: a user of the worker."""
    made: list[NetworkClientWorker] = []

    def make(user: str, **options: Any) -> NetworkClientWorker:
        made.append(
            NetworkClientWorker(
                hook, isolated.address, "hospital", token=isolated.token(user), auto_add=False, **options
            )
        )
        return made[-1]

    yield make
    for client in made:
        client.close()


def find(client: Any, tag: str) -> Any:
    return client.search(tag)[0]


def id_of(pointer: Any) -> Any:
    node = pointer.child if isinstance(pointer, torch.Tensor) else pointer
    return node.id_at_location
