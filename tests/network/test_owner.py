"""What the owner of a network worker decides, while it runs."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from network.hospital import serving, user
from network.waiting import Running, wait_until
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import Operation, Ref
from syft.policy.owner_policy import OwnerPolicy
from syft.workers.network.server import ServerSettings

pytestmark = pytest.mark.network


until = partial(wait_until, seconds=10.0)


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
        with pytest.raises(sy.exceptions.ConnectNotPermittedError, match="ana"):
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


# -- the time that one operation may take ------------------------------------------------------------------

#: Rounds of the watcher are far apart, so that only the limit itself makes it look in time.
SLEEPY = ServerSettings(heartbeat=600.0, grace=600.0)
SECONDS = 0.5


class SlowKernel:
    """Makes one operation of a worker take as long as its session lasts, and counts how often it ran.

    It gives up after a while: then nobody has noticed how long it took, and it is answered.
    """

    def __init__(self, server: Any, name: str = "aten.mm.default") -> None:
        self.ran = 0
        self._server, self._name, self._answer = server, name, server.recv_msg
        server.recv_msg = self

    def __call__(self, message: Any) -> Any:
        if getattr(message, "cmd_name", None) == self._name:
            self.ran += 1
            end = time.monotonic() + 20.0
            while not self._is_ended(message) and time.monotonic() < end:
                time.sleep(0.01)
        return self._answer(message)

    def _is_ended(self, message: Any) -> bool:
        running = [s for s in self._server._server.sessions() if s.running and s.running[1] is message]
        return all(session.ended for session in running)


@pytest.mark.parametrize("place", ["policy", "settings"])
def test_an_operation_that_runs_too_long_ends_its_session_and_no_other(
    hook: Any, me: Any, authority: TokenAuthority, place: str
) -> None:
    policy = f"[users.eve]\nseconds_per_operation = {SECONDS}\n" if place == "policy" else ""
    settings = SLEEPY if place == "policy" else replace(SLEEPY, seconds_per_operation=SECONDS)
    with (
        serving(hook, authority, policy, settings=settings) as server,
        user(server, authority, "ann") as ann,
        user(server, authority, "eve") as eve,
        user(server, authority, "eve") as other,
    ):
        before = set(server._objects)
        held = torch.ones(2).send(ann)
        theirs = torch.ones(2).send(other)
        x = torch.eye(3).send(eve)
        kept = torch.ones(1).tag("#kept").send(eve, garbage_collect_data=False)
        for worker in (ann, other, eve):
            worker.sync()
        kernel = SlowKernel(server)
        long = [x.mm(x) for _ in range(3)]  # which travel together
        with pytest.raises(
            sy.exceptions.ConnectionRefusedByWorkerError,
            match=rf"aten.mm.default ran for more than {SECONDS:g} s.*seconds_per_operation",
        ):
            eve.sync()
        (record,) = [r for r in server.policy.audit_log if r.action == "operation"]
        assert (record.user, record.granted) == ("eve", False) and record.peer.startswith("tcp://")
        assert f"ran for more than {SECONDS:g} s" in record.reason
        # What she held and what the operation made is gone, but for what she tagged; nothing after it was begun.
        (kept_id,) = [
            i for i, obj in server._objects.items() if "#kept" in (getattr(obj, "tags", None) or ())
        ]
        until(lambda: set(server._objects) == before | {held.id_at_location, theirs.id_at_location, kept_id})
        assert kernel.ran == 1
        assert held.get().tolist() == [1, 1] and theirs.get().tolist() == [1, 1]
        # A new session of the same user's is like any other.
        assert (torch.ones(2).send(eve) + 1).get().tolist() == [2, 2]
        del long, x, kept


def test_others_wait_for_an_operation_that_runs_too_long_and_are_served_then(
    hook: Any, me: Any, authority: TokenAuthority
) -> None:
    policy = f"[users.eve]\nseconds_per_operation = {SECONDS}\n"
    with (
        serving(hook, authority, policy, settings=SLEEPY) as server,
        user(server, authority, "ann") as ann,
        user(server, authority, "eve") as eve,
    ):
        x = torch.eye(3).send(eve)
        eve.sync()
        kernel = SlowKernel(server)
        eve._link.post(
            Operation("aten.mm.default", None, [Ref(x.id_at_location)] * 2, {}, (5,)), at_once=True
        )
        until(lambda: kernel.ran == 1)
        Running(ann.sync).result()
        with pytest.raises(sy.exceptions.ConnectionRefusedByWorkerError, match="ran for more than"):
            eve.sync()


def test_the_watch_follows_the_shortest_limit_of_those_who_are_here(
    hook: Any, me: Any, tmp_path: Path
) -> None:
    policy_file = tmp_path / "policy.toml"
    policy_file.write_text("[users.eve]\nseconds_per_operation = 0.4\n")
    authority = TokenAuthority.create(tmp_path / "tokens")
    with sy.NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id="hospital",
        tokens=authority.verifier("hospital"),
        policy=OwnerPolicy.load(policy_file),
        settings=ServerSettings(heartbeat=2.0),
    ) as server:
        watcher = server._server._watcher
        with user(server, authority, "ann"):
            assert watcher._pause == 0.5
            with user(server, authority, "eve"):
                until(lambda: watcher._pause == 0.1)
            until(lambda: watcher._pause == 0.5)
            policy_file.write_text("[limits]\nseconds_per_operation = 0.2\n")
            until(lambda: watcher._pause == 0.05)


def test_the_smaller_of_two_limits_counts(hook: Any, me: Any, authority: TokenAuthority) -> None:
    policy = "[users.eve]\nseconds_per_operation = 5\n"
    for seconds, expected in ((None, 5), (3.0, 3), (9.0, 5)):
        settings = ServerSettings(seconds_per_operation=seconds)
        with serving(hook, authority, policy, settings=settings) as server:
            assert server._server.settings_of("eve").seconds_per_operation == expected
