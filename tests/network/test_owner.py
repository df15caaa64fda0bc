"""What the owner of a network worker decides, while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.identity.tokens import TokenAuthority
from syft.workers.network.server import ServerSettings
from syft.workers.owner_policy import OwnerPolicy

pytestmark = pytest.mark.network


def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_policy_file_is_obeyed_as_soon_as_it_changes(hook: Any, me: Any, tmp_path: Path) -> None:
    policy_file = tmp_path / "policy.toml"
    policy_file.write_text('[[data]]\ntags = ["#x"]\nmay_get = []\n')
    authority = TokenAuthority.create(tmp_path / "tokens")
    with sy.NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id="h",
        data=[torch.ones(2).tag("#x")],
        tokens=authority.verifier("h"),
        policy=OwnerPolicy.load(policy_file),
        settings=ServerSettings(heartbeat=0.4),
    ) as server:
        token = authority.issue("ana", 60)
        ana = sy.connect(server.address, token=token, auto_add=False, patience=1.0)
        (x,) = ana.search("#x")
        with pytest.raises(sy.exceptions.GetNotPermittedError):
            (x + 0).get()

        policy_file.write_text('[[data]]\ntags = ["#x"]\nmay_get = ["ana"]\n')
        until(lambda: server.policy.rules.data[0].may_get == frozenset({"ana"}))
        until(lambda: server.allowed_users(x.id_at_location) == frozenset({"ana"}))
        assert (x + 0).get().tolist() == [1.0, 1.0]

        policy_file.write_text("nonsense = 3\n")
        time.sleep(0.3)
        assert (x + 0).get().tolist() == [1.0, 1.0], "a file that cannot be understood changes nothing"

        policy_file.write_text("[users.ana]\nmay_connect = false\n")
        until(lambda: server.status()["sessions"] == 0)
        with pytest.raises((sy.exceptions.ConnectNotPermittedError, sy.exceptions.NetworkError)):
            ana.sync()
        with pytest.raises(sy.exceptions.ConnectNotPermittedError, match="ana"):
            sy.connect(server.address, token=token, auto_add=False)
        refused = [r for r in server.policy.audit_log if not r.granted and r.action == "connect"]
        assert refused and all(r.user == "ana" and r.peer for r in refused)
        ana.close()


def test_decisions_about_data_name_the_address(hook: Any, me: Any) -> None:
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="h", data=[torch.ones(2).tag("#x")]) as server:
        with sy.connect(server.address, auto_add=False) as client:
            (x,) = client.search("#x")
            with pytest.raises(sy.exceptions.GetNotPermittedError):
                x.get()
        record = next(r for r in server.policy.audit_log if r.action == "get")
        assert record.peer.startswith("tcp://127.0.0.1:") and record.user == client.user
