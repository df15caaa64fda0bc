"""The findings of the gate's design, as an attacker tries them: over a connection to a `syft worker` process.

The worker serves two files that differ in their values alone, `#low` and `#high`. Nobody has a token: the attacker is an
anonymous user, who may compute on both files and fetch neither. Each attack is run on both, and hears the same of both.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import forked
import syft as sy
from syft.messaging.message import (
    AttributeMessage,
    ForceObjectDeleteMessage,
    GetShapeMessage,
    ListObjectsMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
    ReleaseMessage,
    StatusMessage,
)

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]

LOW, HIGH = 3.0, 40.0
SECRET_TOKEN = "a-token-that-is-shown-to-nobody"


class Attacked:
    """The process of a worker, and how to connect to it."""

    def __init__(self, folder: Path) -> None:
        data = folder / "data"
        data.mkdir(parents=True)
        np.save(data / "low.npy", np.full((1, 600), LOW, dtype=np.float32))
        np.save(data / "high.npy", np.full((1, 600), HIGH, dtype=np.float32))
        (folder / "policy.toml").write_text('[limits]\nmax_bytes = "48 MB"\nmax_objects = 300\n')
        (folder / "peer").write_text(SECRET_TOKEN)
        self.folder = folder
        options = [
            "--data",
            str(data),
            "--policy",
            str(folder / "policy.toml"),
            "--listen",
            "tcp://127.0.0.1:0",
        ]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "syft", "worker", *options, "--peer-token-file", str(folder / "peer")],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        found = re.search(r"at (\S+?),", line)
        assert found, (folder / "log").read_text()
        self.address = found[1]

    def connect(self) -> Any:
        return sy.connect(self.address, auto_add=False)

    def end(self) -> float:
        """SIGTERM; how many seconds it took."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=800)
        return time.monotonic() - start


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    worker = Attacked(tmp_path_factory.mktemp("attacked"))
    yield worker
    if worker.process.poll() is None:
        worker.process.kill()
    worker.process.communicate()


@pytest.fixture
def heard(hook: Any, me: Any, attacked: Attacked) -> Callable[..., list[list[str]]]:
    """`heard(program)`: what the attacker hears of a program on `#low`, and on `#high`, in sessions of their own."""

    def run(program: Callable[[Ref], list[Any]]) -> list[list[str]]:
        return [_hear(attacked, tag, program) for tag in ("#low", "#high")]

    return run


def _hear(attacked: Attacked, tag: str, program: Callable[[Ref], list[Any]]) -> list[str]:
    client = attacked.connect()
    try:
        owners = {name: client.search(name)[0].child.id_at_location for name in ("#low", "#high")}
        private = owners.pop(tag)
        said = []
        for message in (*program(Ref(private)), StatusMessage(), ListObjectsMessage()):
            try:
                reply = client._link.ask(message)
                if type(message) is StatusMessage:
                    reply = reply["objects"], reply["bytes"]
                elif type(message) is ListObjectsMessage:
                    reply = sorted(set(reply) - {private, *owners.values()}, key=str)
                said.append(f"{type(message).__name__}: {reply}")
            except Exception as error:  # noqa: BLE001  (whatever it is, it is what is heard)
                said.append(f"{type(error).__name__}: {error}")
        # The id of the owner's tensor, and the name that an anonymous user is given, are new in each session.
        return [re.sub(r"anonymous[^ '\"]*", "USER", line.replace(str(private), "PRIVATE")) for line in said]
    finally:
        client.close()


def op(name: str, args: list[Any], *ids: Any, **kwargs: Any) -> Operation:
    return Operation(name, None, args, kwargs, ids)


def test_1_no_error_holds_a_private_value(heard: Any) -> None:
    low, high = heard(
        lambda private: [
            ObjectMessage(torch.zeros(1, 600), 1),
            op("aten.mul.Tensor", [private, 2.0**24], 2),
            op("aten.mm.out", [Ref(2), Ref(1)], out=Ref(1)),
            op("aten.mm.default", [Ref(2), private], 3),
            op("aten.repeat_interleave.Tensor", [Ref(2)], 4),
            op("aten.zeros.default", [[Ref(2)]], 5),
            op("aten.expand.default", [Ref(2), [2**40, 600]], 6),
            op("aten.repeat.default", [Ref(2), [2**30, 1]], 7),
        ]
    )
    assert low == high
    assert sum("Error" in line for line in low) >= 5


def test_2_no_freed_memory_is_handed_out(attacked: Attacked, hook: Any, me: Any) -> None:
    """What the attacker may fetch is read back, and holds none of the values that were dropped before."""
    client = attacked.connect()
    try:
        private = Ref(client.search("#high")[0].child.id_at_location)
        leftovers = [
            op("aten.unique_consecutive.default", [Ref(1)], 11),
            op(
                "aten._batch_norm_impl_index.default",
                [Ref(2), None, None, None, None, True, 0.1, 1e-5, False],
                11,
            ),
            op("aten.multilabel_margin_loss_forward.default", [Ref(2), Ref(2), 0], 11, 12),
            op("aten.set.source_Tensor", [Ref(1), Ref(2)], 11),
            op("aten.empty.memory_format", [[600]], 11),
            op("aten.new_empty.default", [Ref(1), [600]], 11),
            op("aten.empty_strided.default", [[600], [1]], 11),
            op("aten.resize.default", [Ref(1), [600]], 11),
            op("aten.as_strided.default", [Ref(1), [600], [1], 0], 11),
        ]
        fetched = 0
        for _ in range(5):
            for leftover in leftovers:
                prepare = [
                    op("aten.mul.Tensor", [private, 1.0], 9),
                    ForceObjectDeleteMessage((9,)),
                    ObjectMessage(torch.zeros(3), 1),
                    ObjectMessage(torch.zeros(0, 3), 2),
                    leftover,
                ]
                for message in prepare:
                    _attempt(client, message)
                for request in (ObjectRequestMessage((11, None, "")), ObjectRequestMessage((12, None, ""))):
                    found = _attempt(client, request)
                    if isinstance(found, torch.Tensor):
                        fetched += 1
                        assert not (found == HIGH).any()
        assert fetched > 10
    finally:
        client.close()


def _attempt(client: Any, message: Any) -> Any:
    try:
        return client._link.ask(message)
    except Exception as error:  # noqa: BLE001
        return error


def test_3_whether_a_hidden_operation_failed_is_not_told(heard: Any) -> None:
    low, high = heard(
        lambda private: [
            ObjectMessage(torch.ones(1), 1),
            op("aten.select.int", [private, 0, 0], 2),
            op("aten.slice.Tensor", [Ref(2), 0, 0, 1], 3),
            op("aten.gt.Scalar", [Ref(3), 10.0], 4),
            op("aten._to_copy.default", [Ref(4)], 5, dtype=torch.int64),
            op("aten.index_select.default", [Ref(1), 0, Ref(5)], 6),
            op("aten.add_.Tensor", [Ref(1), Ref(6)]),
            op("aten.add.out", [Ref(6), Ref(6)], out=Ref(6)),
            op("aten.expand.default", [Ref(6), [5]], 7),
            op("aten.mm.default", [Ref(6), Ref(7)], 8),
            GetShapeMessage(6),
            AttributeMessage(6, "data", 9),
            ObjectRequestMessage((6, None, "")),
            ObjectRequestMessage((1, None, "")),
            ReleaseMessage(6, "mean", 1.0, 0.0, {"bounds": (0.0, 1.0)}),
        ]
    )
    assert low == high
    assert any("GetNotPermittedError" in line for line in low)


def test_4_and_6_what_torch_trusts_and_what_does_not_end_is_not_run(heard: Any, attacked: Attacked) -> None:
    n = 8
    low, high = heard(
        lambda private: [
            ObjectMessage(torch.eye(n), 1),
            ObjectMessage(torch.tensor([*range(1, n), -n], dtype=torch.int32), 2),
            op("aten.linalg_ldl_solve.default", [Ref(1), Ref(2), Ref(1)], 3),
            ObjectMessage(torch.full((1,), 2.0, dtype=torch.float64), 4),
            ObjectMessage(torch.full((1,), -1e15 + 0.5, dtype=torch.float64), 5),
            op("aten.special_zeta.default", [Ref(4), Ref(5)], 6),
            op("aten.mvlgamma.default", [Ref(4), 200_000_000], 7),
        ]
    )
    assert low == high
    assert "OperationNotAdmittedError" in low[2] and "Error" in low[5] and "Error" in low[6]
    assert attacked.process.poll() is None


def test_5_a_user_holds_no_more_than_is_charged(heard: Any) -> None:
    low, high = heard(
        lambda private: [
            ObjectMessage(torch.zeros(4), 1),
            op("aten.expand.default", [Ref(1), [1000, 4]], 2),
            op("aten.set.source_Tensor", [Ref(1), Ref(2)], 3),
            op("aten.view.dtype", [Ref(1), torch.uint8], 4),
            op("aten.contiguous.default", [Ref(2)], 5),
            op("aten.repeat.default", [Ref(2), [4000, 1]], 6),
        ]
    )
    assert low == high
    assert "OperationNotAdmittedError" in low[2] and "QuotaExceededError" in low[5]


def test_10_the_token_for_peers_is_not_in_the_list_of_processes(attacked: Attacked) -> None:
    shown = Path(f"/proc/{attacked.process.pid}/cmdline").read_bytes()
    assert b"--peer-token-file" in shown and SECRET_TOKEN.encode() not in shown


def test_10_files_with_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    run = "import os, sys; os.umask(0); from syft.cli import main; sys.exit(main(sys.argv[1:]))"
    for arguments in (["token", "new", "ana"], ["budget", "create", "budgets"]):
        done = forked.run("-c", run, *arguments, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    secret = [path for path in files if not path.name.endswith(".pub") and "public" not in path.name]
    assert secret
    assert [path for path in secret if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_the_worker_has_lived_through_all_of_this_and_ends_when_told(attacked: Attacked) -> None:
    """The last test here: SIGTERM ends it within three seconds. (More on a machine that does much else.)"""
    assert attacked.process.poll() is None
    assert attacked.end() < 30
    assert attacked.process.returncode == 0
