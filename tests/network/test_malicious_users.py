"""What a user who proved a name tries on a worker that denies by default."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from network import hospital as hospital_worker
from network.hospital import PATIENTS, attempt, id_of, user
from network.waiting import wait_until
from syft.core.chain import new_wrapper
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import (
    AttributeMessage,
    CallObjectMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    GetShapeMessage,
    ListObjectsMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCommandMessage,
    Ref,
    RemoteGetMessage,
    ShareMessage,
    StatusMessage,
)
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.tensors.object_wrapper import ObjectWrapper
from syft.tensors.pointer import PointerTensor
from syft.tensors.string import String
from syft.workers.network.settings import ServerSettings

pytestmark = pytest.mark.network


class At:
    """Stands for a worker of that id in a pointer that is to be forged."""

    def __init__(self, id: Any) -> None:
        self.id = id

    def queue_delete(self, _obj_id: Any) -> None:
        pass


@contextlib.contextmanager
def serving(hook: Any, authority: TokenAuthority, policy: str = "", **options: Any) -> Any:
    labels = torch.tensor([1, 2]).tag("#labels")
    with hospital_worker.serving(hook, authority, policy, more=[labels], **options) as server:
        yield server


@pytest.fixture
def hospital(hook: Any, me: Any, authority: TokenAuthority) -> Iterator[Any]:
    with serving(hook, authority) as server:
        yield server


def refused(server: Any, client: Any, message: Any, action: str, obj_id: Any, reason: str = "") -> None:
    """It is refused, and there is one line more in the log, which says who tried what with which object."""
    log = server.policy.audit_log
    before = len(log)
    with pytest.raises(sy.exceptions.PermissionDeniedError, match=repr(client.user)):
        client._link.ask(message)
    (record,) = list(log)[before:]
    assert (record.action, record.user, record.obj_id) == (action, client.user, obj_id)
    assert (record.granted, record.reason) == (False, reason) and record.peer.startswith("tcp://")


def shows(value: Any) -> bool:
    """Whether an answer holds one of the values."""
    return isinstance(value, torch.Tensor) and bool(
        torch.isin(value.float().flatten(), PATIENTS.flatten()).any()
    )


def test_a_forged_pointer_to_the_worker_itself_does_not_carry_values_out(eve: Any, hospital: Any) -> None:
    patients = id_of(eve, "#patients")
    attempt(
        eve,
        Operation("aten.select.int", None, [Ref(patients), 0, 0], {}, (10,)),
        Operation("aten.select.int", None, [Ref(10), 0, 0], {}, (11,)),
        ObjectMessage(torch.tensor(0.0), 12),
    )
    forged = new_wrapper(PointerTensor(At("hospital"), 12, garbage_collect_data=False, shape=()))
    (refusal,) = attempt(eve, ObjectMessage(forged, 13))
    assert "accepts no pointers" in str(refusal)
    attempt(eve, Operation("torch.nn.functional.l1_loss", None, [Ref(13), Ref(11)], {}, (14,)))
    for obj_id in eve._link.ask(ListObjectsMessage()):
        assert not any(map(shows, attempt(eve, ObjectRequestMessage((obj_id, None, ""), keep=True))))


def test_a_forged_pointer_deletes_nothing_when_it_goes(eve: Any, hospital: Any) -> None:
    patients = id_of(eve, "#patients")
    pointer = PointerTensor(At("hospital"), patients, garbage_collect_data=True)
    attempt(eve, ObjectMessage(new_wrapper(pointer), 777), ForceObjectDeleteMessage((777,)))
    refused(hospital, eve, ForceObjectDeleteMessage((patients,)), "send", patients, "delete")
    assert torch.equal(hospital._objects[patients], PATIENTS)


def test_a_worker_does_not_fetch_from_its_peers_for_others(
    hook: Any, me: Any, authority: TokenAuthority
) -> None:
    shared = '[[data]]\ntags = ["#patients"]\nmay_get = ["hospital"]\n'
    with (
        serving(hook, authority, shared, id="clinic") as clinic,
        serving(hook, authority) as hospital,
        user(clinic, authority, "hospital") as link,
        user(hospital, authority, "eve") as eve,
        user(clinic, authority, "eve") as eve_there,
    ):
        hospital.add_worker(link)
        target = id_of(eve_there, "#patients")
        forged = new_wrapper(PointerTensor(At("clinic"), target, garbage_collect_data=False, shape=(3, 2)))
        said = attempt(
            eve, ObjectMessage(forged, 778), RemoteGetMessage(778), ObjectRequestMessage((778, None, ""))
        )
        assert not any(map(shows, said))


class Thief(sy.Plan):
    def __init__(self) -> None:
        super().__init__()
        self.stolen = torch.zeros(3, 2)

    def forward(self, nested: Any) -> Any:
        self.stolen.copy_(nested[0][0])
        return self.stolen.sum()


@pytest.mark.parametrize("inside", [False, True])
def test_a_plan_that_keeps_what_it_is_given_is_not_given_it(eve: Any, inside: bool) -> None:
    thief = Thief()
    thief.build([[torch.zeros(3, 2)]])
    patients = id_of(eve, "#patients")
    wrapped = ObjectWrapper(ObjectWrapper(thief)) if inside else ObjectWrapper(thief)
    attempt(eve, ObjectMessage(wrapped, 100), AttributeMessage(100, "obj", return_id=101))
    for callee in (100, 101):
        attempt(eve, CallObjectMessage(callee, ([[Ref(patients)]],), {}, 102))
        for obj_id in (callee, 102):
            (said,) = attempt(eve, ObjectRequestMessage((obj_id, None, ""), keep=True))
            state = getattr(getattr(said, "obj", said), "state", None)
            assert not shows(said)
            assert state is None or not any(map(shows, state.tensors()))


def test_whether_an_operation_on_private_data_failed_does_not_show_in_numbers(eve: Any) -> None:
    patients = id_of(eve, "#patients")
    attempt(
        eve,
        Operation("aten._to_copy.default", None, [Ref(patients)], {"dtype": torch.int64}, (10,)),
        Operation("aten.view.default", None, [Ref(10), [-1]], {}, (11,)),
        Operation("aten.ones.default", None, [[256]], {}, (12,)),
        Operation("aten.slice.Tensor", None, [Ref(11), 0, 0, 1], {}, (13,)),
    )
    grown = set()
    for offset in (0, 51, 52, 1000):
        attempt(eve, Operation("aten.sub.Scalar", None, [Ref(13), offset], {}, (14,)))
        before = eve._link.ask(StatusMessage())
        attempt(eve, Operation("aten.index_select.default", None, [Ref(12), 0, Ref(14)], {}, (15,)))
        after = eve._link.ask(StatusMessage())
        grown.add((after["bytes"] - before["bytes"], after["objects"] - before["objects"]))
        attempt(eve, ForceObjectDeleteMessage((14, 15)))
    assert len(grown) == 1


def test_every_refusal_is_one_line_with_its_action_user_and_object(eve: Any, hospital: Any) -> None:
    patients = id_of(eve, "#patients")
    eve._link.ask(ObjectMessage(torch.zeros(3, 2), 60))
    for message, action, reason in (
        (ObjectRequestMessage((patients, None, "curiosity")), "get", "curiosity"),
        (ObjectRequestMessage((patients, "owner", ""), keep=True), "get", ""),
        (ForwardMessage(patients, "elsewhere", 61), "move", ""),
        (ObjectMessage(torch.zeros(3, 2), patients), "send", "replace"),
        (Operation("aten.clone.default", None, [Ref(60)], {}, (patients,)), "send", "replace"),
        (Operation("aten.copy_.default", None, [Ref(patients), Ref(60)], {}, ()), "send", "write into"),
        (ForceObjectDeleteMessage(patients), "send", "delete"),
        (ForceObjectDeleteMessage((60, patients)), "send", "delete"),
        (AttributeMessage(60, "data", return_id=patients), "send", "replace"),
    ):
        refused(hospital, eve, message, action, patients, reason)
    assert torch.equal(hospital._objects[patients], PATIENTS)
    assert torch.equal(eve._link.ask(ObjectRequestMessage((60, None, ""))), torch.zeros(3, 2))


def test_others_are_not_counted_in_what_a_user_is_told(eve: Any, hospital: Any, authority: Any) -> None:
    before = eve.status()
    with user(hospital, authority, "bob") as bob:
        x = torch.ones(100).send(bob)
        bob.sync()
        assert {**eve.status(), "uptime": 0} == {**before, "uptime": 0}
        del x


def test_shares_do_not_take_the_place_of_the_owners_data(eve: Any, hospital: Any) -> None:
    labels = id_of(eve, "#labels")
    attempt(
        eve,
        ObjectMessage(torch.tensor([666, 666]), 20),
        ShareMessage(20, ("hospital", "hospital"), (labels, 21)),
        ForceObjectDeleteMessage((labels,)),
    )
    assert hospital._objects[labels].tolist() == [1, 2]


def test_data_that_everybody_may_fetch_is_not_theirs_to_change(hook: Any, me: Any, authority: Any) -> None:
    with serving(hook, authority, '[defaults]\nmay_get = "all"\n') as hospital:
        with user(hospital, authority, "eve") as eve:
            patients = id_of(eve, "#patients")
            eve._link.ask(ObjectMessage(torch.zeros(3, 2), 30))
            for message, reason in (
                (Operation("aten.add.Tensor", None, [Ref(30), 1], {}, (patients,)), "replace"),
                (ObjectMessage(torch.zeros(3, 2), patients), "replace"),
                (Operation("aten.zero_.default", None, [Ref(patients)], {}, ()), "write into"),
                (ForceObjectDeleteMessage((patients,)), "delete"),
            ):
                refused(hospital, eve, message, "send", patients, reason)
            assert torch.equal(hospital._objects[patients], PATIENTS)
            assert torch.equal(eve.search("#patients")[0].copy().get(), PATIENTS)


def test_one_user_does_not_take_away_what_another_may_have(hook: Any, me: Any, authority: Any) -> None:
    policy = '[[data]]\ntags = ["#patients"]\nmay_get = ["ana"]\nmay_compute = ["ana", "eve"]\n'
    with serving(hook, authority, policy) as hospital:
        with user(hospital, authority, "ana") as ana, user(hospital, authority, "eve") as eve:
            view = ana.search("#patients")[0].view(6)
            ana.sync()
            patients = id_of(eve, "#patients")
            attempt(
                eve,
                ObjectMessage(torch.ones(3, 2), 40),
                Operation("torch.add", None, [Ref(patients), Ref(40)], {}, (41,)),
            )
            assert torch.equal(view.sum().get(), PATIENTS.sum())


def test_what_is_found_by_few_is_used_by_few(hook: Any, me: Any, authority: Any) -> None:
    with serving(hook, authority, '[[data]]\ntags = ["#patients"]\nmay_find = ["ana"]\n') as hospital:
        with user(hospital, authority, "ana") as ana, user(hospital, authority, "eve") as eve:
            patients = id_of(ana, "#patients")
            assert eve.search("#patients") == []
            negate = Operation("aten.neg.default", None, [Ref(patients)], {}, (50,))
            (refusal,) = attempt(eve, negate)
            assert isinstance(refusal, sy.exceptions.ComputeNotPermittedError)
            refused(hospital, eve, negate, "compute", patients)


def test_texts_count_towards_the_quota(hook: Any, me: Any, authority: Any) -> None:
    with serving(hook, authority, '[limits]\nmax_bytes = "1 MB"\n') as hospital:
        with user(hospital, authority, "eve") as eve:
            torch.ones(1).describe("x" * 2_000_000).send(eve)
            with pytest.raises(sy.exceptions.QuotaExceededError):
                eve.sync()


def test_a_text_on_a_worker_is_in_nobodys_way(eve: Any) -> None:
    note = String("hello").send(eve)
    x = torch.ones(3).send(eve)
    x.add_(1)
    assert x.get().tolist() == [2.0, 2.0, 2.0]
    del note


@pytest.mark.parametrize("obj_id", [True, 1.5, (1, 2)])
def test_ids_are_numbers_and_texts(eve: Any, hospital: Any, obj_id: Any) -> None:
    (refusal,) = attempt(eve, ObjectMessage(torch.ones(1).tag("#t"), obj_id))
    assert isinstance(refusal, Exception)
    assert obj_id is True or obj_id not in hospital._objects


def test_data_that_the_owner_withdraws_is_gone_at_the_next_start(
    hook: Any, me: Any, authority: Any, tmp_path: Path
) -> None:
    with (
        serving(hook, authority, directory=tmp_path / "kept") as hospital,
        user(hospital, authority, "ana") as ana,
    ):
        torch.ones(2).tag("#mine").send(ana, garbage_collect_data=False)
        ana.sync()
    with (
        sy.NetworkServerWorker(
            hook,
            "tcp://127.0.0.1:0",
            id="hospital",
            tokens=authority.verifier("hospital"),
            directory=tmp_path / "kept",
        ) as again,
        user(again, authority, "ana") as ana,
    ):
        assert ana.search("#patients") == []
        assert ana.search("#mine")[0].get().tolist() == [1.0, 1.0]


def test_every_refusal_is_noted_once(eve: Any, hospital: Any) -> None:
    (patients,) = eve.search("#patients")
    private = patients.child.id_at_location
    load = Operation("torch.load", None, ["x"], {}, (1,))
    zeros = Operation("aten.zeros.default", None, [[10**13]], {}, (2,))
    attempts = [
        (load, ("operation", "torch.load", "UnknownCommandError")),
        (zeros, ("operation", "aten.zeros.default", "QuotaExceededError")),
        (AttributeMessage(private, "_id", 9), ("attribute", str(private), "CannotRequestObjectAttribute")),
        (PlanCommandMessage("forget", ()), ("plancommand", "forget", "PlanCommandUnknownError")),
        (GetShapeMessage("nobody's"), ("getshape", "nobody's", "ObjectNotFoundError")),
        (ObjectRequestMessage((private, None, "")), ("get", private, "")),
    ]
    for message, noted in attempts:
        before = list(hospital.policy.audit_log)
        with pytest.raises(Exception):  # noqa: B017, PT011  (whatever it is)
            eve._link.ask(message)
        (line,) = [r for r in list(hospital.policy.audit_log)[len(before) :] if not r.granted]
        assert (line.action, line.obj_id, line.reason) == noted and line.user == "eve"


def test_what_those_without_a_name_leave_is_no_more_than_one_of_them_may_hold(hook: Any, me: Any) -> None:
    settings = ServerSettings(heartbeat=0.2, grace=0.2)
    rules = OwnerPolicy(read_rules('[limits]\nmax_bytes = "1 MB"\n'))
    with sy.NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="open", settings=settings, policy=rules
    ) as server:
        names = set()
        for number in range(4):
            with sy.connect(server.address, auto_add=False) as client:
                large: Any = torch.zeros(100_000)
                large.tag(f"#{number}").send(client, garbage_collect_data=False)
                client.sync()
                (session,) = server._server._sessions.values()
                names.add(session.user)
                assert session.id[:8] not in session.user  # who knows the name cannot continue the session
            wait_until(lambda: not server._server._sessions)
        assert len(names) == 4
        wait_until(lambda: len(server._objects) == 2)
        assert server._holdings.quotas.usage("anonymous:").bytes > 800_000
        assert list(server._holdings.quotas.users()) == ["anonymous:"]
