"""A process that is wholly under its user's control: what it can reach, and what it cannot.

The test's fork server (`hooked_fork_server.attack`) makes the executor of a user try everything that a process can: it
asks the broker for what is not its user's, forges, opens, connects, signals. What came of each attempt comes back.
"""

from __future__ import annotations

import ast
import json
import struct
from typing import Any

import pytest
import torch

from isolation.conftest import PATIENTS, RELEASED, SECRET, Isolated, find, id_of
from isolation.hooked_fork_server import ATTACK
from syft.workers.network.client_worker import NetworkClientWorker

pytestmark = pytest.mark.network
_ROOM = 1 << 15


@pytest.fixture(scope="module")
def outcome(isolated: Isolated, hook: Any) -> Any:
    """What eve's process obtained; and what the worker wrote down meanwhile."""

    def connect(user: str) -> Any:
        return NetworkClientWorker(
            hook, isolated.address, "hospital", token=isolated.token(user), auto_add=False
        )

    with connect("ann") as ann, connect("eve") as eve:
        secret, patients = find(ann, "#secret"), find(eve, "#patients")
        hers = torch.tensor([31.0, 32.0]).send(ann)
        tagged = torch.tensor([41.0, 42.0]).tag("#brought").send(ann)  # type: ignore[attr-defined]
        for_bob = (
            torch.tensor([51.0, 52.0]).private_tensor(allowed_users=["ann", "bob"]).send(ann, user="ann")  # type: ignore[attr-defined]
        )
        ann.sync()
        own = torch.tensor([7.0]).send(eve)
        pids = [isolated.process.pid, *isolated.children(), *isolated.children().values()]
        orders = {
            "ids": {
                "a patient": id_of(patients),
                "the secret": id_of(secret),
                "what is only released": id_of(find(eve, "#released")),
                "hers": id_of(hers),
                "tagged": id_of(tagged),
                "for bob": id_of(for_bob),
            },
            "own": id_of(own),
            "peer": "another",
            "pids": sorted(set(pids)),
            "files": [
                str(isolated.folder / "tokens" / "token.key"),
                str(isolated.folder / "budgets"),
                str(isolated.folder / "audit.jsonl"),
                f"/proc/{isolated.process.pid}/mem",
                f"/proc/{isolated.process.pid}/environ",
                "/proc/self/environ",
                "/etc/passwd",
            ],
        }
        before = len(isolated.audit)
        left = {user: isolated.book.state("#patients", user).left for user in ("ann", "eve")}
        text = json.dumps(orders).encode().ljust(_ROOM)
        said = torch.tensor(list(text), dtype=torch.float32).send(eve)
        raw = (said * ATTACK).get()
        told = json.loads(bytes(int(v) for v in raw.tolist()).rstrip(b"\0 "))
        after = {user: isolated.book.state("#patients", user).left for user in ("ann", "eve")}
        yield {
            "told": told,
            "orders": orders,
            "lines": isolated.audit[before:],
            "left": left,
            "after": after,
            "isolated": isolated,
            "hers": (hers + 0).get().tolist(),
            "patients": find(eve, "#patients"),
            "ann": ann,
        }


def test_the_hook_works_and_the_user_has_what_they_may_compute_with(outcome: Any) -> None:
    """Stated in SECURITY.md: who breaks a kernel has what the policy lets them compute with, and no more."""
    kind, shape, content = ast.literal_eval(outcome["told"]["look up a patient"])
    assert (kind, shape) == ("tensor", [4, 2])
    assert struct.unpack("<8f", bytes.fromhex(content[0])) == tuple(v for row in PATIENTS for v in row)


@pytest.mark.parametrize("name", ["the secret", "what is only released", "hers", "tagged", "for bob"])
def test_no_other_users_object_and_no_unpermitted_data_of_the_owners(outcome: Any, name: str) -> None:
    kind, _, content = ast.literal_eval(outcome["told"][f"look up {name}"])
    assert kind in ("none", "withheld") and content == []
    values = [*SECRET, *RELEASED, 31.0, 32.0, 41.0, 42.0, 51.0, 52.0]
    everything = json.dumps({k: v for k, v in outcome["told"].items() if k != "look up a patient"})
    for value in values:
        assert struct.pack("<f", value).hex() not in everything


def test_no_file_no_socket_no_other_process(outcome: Any) -> None:
    ways = ("open", "socket", "fork", "execute", "kill", "limits")
    tried = [name for name in outcome["told"] if name.split()[0] in ways]
    assert len(tried) >= 7 + 3 + 2 * len(outcome["orders"]["pids"])
    for name in tried:
        assert outcome["told"][name].startswith("PermissionError"), (name, outcome["told"][name])
    for pid in outcome["orders"]["pids"]:
        assert outcome["told"][f"trace {pid}"] == "(-1, 1)"  # EPERM
    assert outcome["isolated"].process.poll() is None


def test_no_budget(outcome: Any) -> None:
    assert outcome["after"] == outcome["left"]
    refused = (
        "less than nothing",
        "nothing at all",
        "more often than can be counted",
        "no number",
        "an unknown event",
    )
    for name in refused:
        assert "Error" in outcome["told"][f"charge {name}"], name


def test_nothing_of_the_owners_is_replaced_and_what_is_published_is_the_users_own(outcome: Any) -> None:
    told = outcome["told"]
    assert told["replace the owner's data"].startswith("SendNotPermittedError")
    assert told["publish memory that is not sealed"].startswith("ProtocolError")
    assert told["publish"].startswith("(Answer")
    assert (
        outcome["ann"].search("#mine") == []
    )  # it said that it was the owner's, which would be found by all
    assert outcome["patients"].shape == (4, 2) and outcome["hers"] == [31.0, 32.0]


def test_nothing_is_said_to_peers_or_groups_in_the_workers_name(outcome: Any) -> None:
    assert outcome["told"]["ask a peer for an object"].startswith("WorkerNotFoundException")
    assert outcome["told"]["a ticket of nobody"].startswith("ProtocolError")


def test_the_audit_log_has_no_line_of_its_making_but_marked_ones_about_its_own_user(outcome: Any) -> None:
    lines = outcome["lines"]
    assert [line for line in lines if "forged" in line.reason] == []
    assert {line.user for line in lines} <= {"eve", "ann"}
    (claimed,) = [line for line in lines if line.object is not None and line.object.startswith("a line")]
    assert claimed.reported and claimed.user == "eve" and "\n" not in claimed.object
    assert all(line.user == "eve" for line in lines if line.reported and line.object == claimed.object)
    raw = (outcome["isolated"].folder / "audit.jsonl").read_text().splitlines()
    assert all(json.loads(line)["worker"] == "hospital" for line in raw)
