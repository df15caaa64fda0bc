"""The owner's socket, and `syft sessions`."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.cli import owner_socket
from syft.cli.owner_socket import answered, ask, served

pytestmark = pytest.mark.network


@pytest.fixture
def clinic(hook: Any, me: Any, here: Path) -> Iterator[Any]:
    data = [torch.ones(3, 2).tag("#scans").describe("three of them")]
    with (
        sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", "clinic", data) as worker,
        served(worker, "w.sock"),
    ):
        worker.add_dataset(torch.utils.data.TensorDataset(torch.ones(4, 2), torch.ones(4)), "trial", ["ana"])
        yield worker


def test_the_owner_sees_who_is_connected_and_what_is_served(clinic: Any, types: Any) -> None:
    assert types("sessions", "w.sock")[1] == "Nobody is connected.\n"
    with sy.connect(clinic.address, auto_add=False) as far:
        far.search("#scans")
        (one,) = ask("w.sock", "sessions")
        assert one["user"] == far.user and one["connected"] and not one["proved"] and one["commands"] >= 1
        assert json.loads(types("sessions", "w.sock", "--json")[1])[0]["user"] == far.user
        assert far.user in types("sessions", "w.sock")[1]
        (session,) = clinic.server_sessions()
        assert session.id not in json.dumps(ask("w.sock", "sessions"))  # with it, one could go on as the user
    tensor, offer = ask("w.sock", "datasets")
    assert (
        tensor["tags"] == ["#scans"]
        and tensor["shape"] == [3, 2]
        and tensor["description"] == "three of them"
    )
    assert offer["name"] == "trial" and offer["rows"] == 4 and offer["allowed"] == ["ana"]
    said = ask("w.sock", "status")
    assert said["id"] == "clinic" and said["pid"] == os.getpid() and said["addresses"] == clinic.addresses


def test_only_the_owner_is_answered(clinic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stat.S_IMODE(os.stat("w.sock").st_mode) == 0o600
    monkeypatch.setattr(owner_socket, "_is_owner", lambda _connection: False)
    with pytest.raises(ConnectionError, match="No worker can be asked"):
        ask("w.sock", "status")


@pytest.mark.parametrize(
    "line", [b"", b"x", b"[]", b'{"ask": []}', b'{"ask": "secrets"}', b"\xff", b"[" * 4000]
)
def test_a_wrong_question_is_answered_by_a_sentence(line: bytes) -> None:
    assert "error" in answered(None, line)


def test_a_socket_in_use_is_not_taken_and_a_left_one_is(clinic: Any, types: Any) -> None:
    with pytest.raises(ValueError, match="a worker that runs"), served(clinic, "w.sock"):
        pass
    with socket.socket(socket.AF_UNIX) as left:
        left.bind("left.sock")
    with served(clinic, "left.sock"):
        assert ask("left.sock", "status")["id"] == "clinic"
    Path("plain").write_text("x")
    for name, said in (("plain", "no socket"), ("x" * 200, "100 characters"), ("no/where", "cannot be made")):
        with pytest.raises(ValueError, match=said), served(clinic, name):
            pass
    status, _, err = types("sessions", "left.sock")
    assert status == 1 and "--control" in err
