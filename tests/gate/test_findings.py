"""What a hostile review found, from the user's side: each finding of the gate's design is a test here.

`hospital` is a worker that denies by default, with the owner's `#private`; `eve` is a user who may compute on it and not
fetch it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.dp.worker_budgets import BudgetBook
from syft.exceptions import GetNotPermittedError, PermissionDeniedError, SendNotPermittedError
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import (
    AttributeMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
    SearchMessage,
)
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.policy.permissions import Policy
from syft.serde.errors import SerdeError
from syft.tensors.pointer import PointerTensor
from syft.workers.network.server_worker import NetworkServerWorker


@pytest.fixture
def authority(tmp_path: Path) -> TokenAuthority:
    return TokenAuthority.create(tmp_path / "tokens")


@contextlib.contextmanager
def served(hook: Any, id: str, **options: Any) -> Iterator[NetworkServerWorker]:
    with NetworkServerWorker(hook, "tcp://127.0.0.1:0", id=id, **options) as server:
        yield server


LIMITS = '[limits]\nmax_bytes = "48 MB"\nmax_objects = 200\n'


class Eve:
    """A user who may compute on `#private` of a worker of her own kind of owner, and not fetch it."""

    def __init__(self, make_worker: Any, private: torch.Tensor, name: str = "hospital") -> None:
        self.worker = make_worker(name, policy=OwnerPolicy(read_rules(LIMITS)))
        self.worker.register_obj(private.tag("#private"), "private")  # type: ignore[attr-defined]

    def says(self, *messages: Any) -> list[Any]:
        """What she hears: answers, and the texts of errors."""
        heard = []
        with speaking_for("eve"):
            for message in messages:
                try:
                    heard.append(self.worker.recv_msg(message))
                except Exception as error:  # noqa: BLE001  (whatever it is, it is looked at)
                    heard.append(f"{type(error).__name__}: {error}")
            heard.append(self.worker._holdings.quotas.usage("eve"))
        return heard


def op(name: str, args: list[Any], *ids: Any, **kwargs: Any) -> Operation:
    return Operation(name, None, args, kwargs, ids)


# -- 1: a value in an error --------------------------------------------------------------------------


def test_1_no_error_holds_a_private_value(make_worker: Any) -> None:
    own = ObjectMessage(torch.zeros(1, 1), "own")
    heard = [
        Eve(make_worker, torch.full((1, 1), value), name).says(
            own,
            op("aten.mul.Scalar", [Ref("private"), 2**24], "scaled"),
            op("aten.mm.out", [Ref("scaled"), Ref("own")], out=Ref("own")),
            op("aten.mm.default", [Ref("scaled"), Ref("private")], "product"),
            op("aten.repeat_interleave.Tensor", [Ref("scaled")], "repeated"),
            op("aten.zeros.default", [[Ref("scaled")]], "sized"),
        )
        for name, value in (("one", 3.0), ("two", 40.0))
    ]
    assert heard[0] == heard[1]
    assert "OperationNotAdmittedError" in heard[0][2]


# -- 2: memory of others -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leftover",
    [
        op("aten.unique_consecutive.default", [Ref("own")], "a", "b", "c"),
        op(
            "aten._batch_norm_impl_index.default",
            [Ref("none"), None, None, None, None, True, 0.1, 1e-5, False],
            "a",
        ),
        op("aten.multilabel_margin_loss_forward.default", [Ref("none"), Ref("none"), 0], "a", "b"),
        op("aten.set.source_Tensor", [Ref("own"), Ref("none")], "a"),
        op("aten.empty.memory_format", [[600]], "a"),
        op("aten.new_empty.default", [Ref("own"), [600]], "a"),
        op("aten.empty_strided.default", [[600], [1]], "a"),
        op("aten.resize.default", [Ref("own"), [600]], "a"),
    ],
    ids=lambda message: message.cmd_name,
)
def test_2_no_freed_memory_is_handed_out(make_worker: Any, leftover: Operation) -> None:
    secret = 1234.5
    eve = Eve(make_worker, torch.full((600,), secret))
    for _ in range(20):
        eve.says(op("aten.mul.Scalar", [Ref("private"), 1], "copy"), ForceObjectDeleteMessage(("copy",)))
        eve.says(ObjectMessage(torch.zeros(3), "own"), ObjectMessage(torch.zeros(0, 3), "none"), leftover)
        eve.says(op("aten.as_strided.default", [Ref("a"), [600], [1], 0], "all"))
        for obj_id in ("a", "b", "c", "all"):
            found = eve.worker._objects.get(obj_id)
            assert found is None or secret not in found.untyped_storage().tolist()
            assert found is None or not torch.any(torch.as_strided(found, (found.numel(),), (1,)) == secret)


def test_2_a_tensor_reaches_no_further_than_its_own_memory(make_worker: Any) -> None:
    eve = Eve(make_worker, torch.ones(2))
    said = eve.says(
        ObjectMessage(torch.zeros(4), "own"),
        op("aten.as_strided.default", [Ref("own"), [600], [1], 0], "far"),
    )
    assert "Error" in said[1] and "far" not in eve.worker._objects


# -- 3: whether it failed ----------------------------------------------------------------------------


def test_3_whether_a_hidden_operation_failed_is_not_told(make_worker: Any) -> None:
    """`index_select` fails iff the private value is above the threshold."""
    program = [
        ObjectMessage(torch.ones(1), "one"),
        op("aten.gt.Scalar", [Ref("private"), 10.0], "above"),
        op("aten._to_copy.default", [Ref("above")], "index", dtype=torch.int64),
        op("aten.index_select.default", [Ref("one"), 0, Ref("index")], "picked"),
        op("aten.add_.Tensor", [Ref("one"), Ref("picked")]),
        op("aten.add.out", [Ref("picked"), Ref("picked")], out=Ref("picked")),
        op("aten.expand.default", [Ref("picked"), [5]], "wide"),
        op(
            "aten.view.default",
            [Ref("picked"), [1, 1]],
            "viewed",
        ),
        op("aten.mm.default", [Ref("viewed"), Ref("viewed")], "product"),
        op("aten.mm.default", [Ref("viewed"), Ref("wide")], "wrong"),
        GetShapeMessage("picked"),
        IsNoneMessage("picked"),
        SearchMessage(("picked",)),
        AttributeMessage("picked", "data", "detached"),
        ObjectRequestMessage(("picked", "eve", "")),
        ObjectRequestMessage(("one", "eve", "")),
    ]
    heard = []
    for name, value in (("one", 3.0), ("two", 40.0)):
        eve = Eve(make_worker, torch.tensor([value]), name)
        heard.append(eve.says(*program))
        assert (eve.worker._entries["product"].failure is not None) == (value > 10)
    assert heard[0] == heard[1]


# -- 4, 5, 6: what torch trusts, what a quota does not see, what does not end ----------------------------


def test_4_pivots_are_not_trusted(make_worker: Any) -> None:
    eve = Eve(make_worker, torch.ones(2))
    n = 8
    pivots = torch.tensor([*range(1, n), -n], dtype=torch.int32)
    said = eve.says(
        ObjectMessage(torch.eye(n), "ld"),
        ObjectMessage(pivots, "pivots"),
        op("aten.linalg_ldl_solve.default", [Ref("ld"), Ref("pivots"), Ref("ld")], "solved"),
    )
    assert "OperationNotAdmittedError" in said[2]


def test_5_a_user_holds_no_more_than_is_charged(make_worker: Any) -> None:
    eve = Eve(make_worker, torch.ones(2))
    eve.says(
        ObjectMessage(torch.zeros(4), "own"),
        op("aten.expand.default", [Ref("own"), [1000, 4]], "wide"),
        op("aten.set.source_Tensor", [Ref("own"), Ref("wide")], "set"),
        op("aten.view.dtype", [Ref("own"), torch.uint8], "bytes"),
    )
    worker = eve.worker
    storages = {
        entry.value.untyped_storage()._cdata: entry.value.untyped_storage().nbytes()
        for entry in worker._entries.values()
        if entry.holder == "eve"
    }
    assert worker._holdings.quotas.usage("eve").bytes == sum(storages.values())
    assert "set" not in worker._objects


@pytest.mark.parametrize(
    "endless",
    [
        op("aten.special_zeta.default", [Ref("two"), Ref("far")], "z"),
        op("aten.mvlgamma.default", [Ref("two"), 200_000_000], "z"),
    ],
    ids=lambda message: message.cmd_name,
)
def test_6_what_takes_for_ever_is_not_run(make_worker: Any, endless: Operation) -> None:
    eve = Eve(make_worker, torch.ones(2))
    said = eve.says(
        ObjectMessage(torch.full((1,), 2.0, dtype=torch.float64), "two"),
        ObjectMessage(torch.full((1,), -1e15 + 0.5, dtype=torch.float64), "far"),
        endless,
    )
    assert "Error" in said[2] and "z" not in eve.worker._objects


# -- 7: a malicious server ---------------------------------------------------------------------------


def test_7_a_pointer_in_a_reply_deletes_nothing_elsewhere(hook: Any, me: Any) -> None:
    is_open = {"policy": Policy()}
    with served(hook, "good", **is_open) as good, served(hook, "evil", **is_open) as evil:
        at_good = sy.connect(good.address)
        at_evil = sy.connect(evil.address)
        try:
            mine = torch.tensor([7.0]).send(at_good)
            lure = torch.tensor([1.0]).send(at_evil)
            at_evil.sync()
            at_good.sync()
            # What `evil` has in the place of the tensor is a pointer, which owns the client's tensor on `good`.
            evil._known_workers["good"] = good
            evil.set_obj(
                lure.id_at_location, stolen := _wrapped(PointerTensor(good, mine.id_at_location, evil)), None
            )
            with pytest.raises(SerdeError, match="'evil' answered with a pointer to worker 'good'"):
                lure.get()
            stolen.child.garbage_collect_data = False
            del lure, stolen
            gc.collect()
            at_good.sync()
            assert mine.get().tolist() == [7.0]
        finally:
            at_good.close()
            at_evil.close()


def _wrapped(pointer: PointerTensor) -> Any:
    from syft.core.chain import new_wrapper

    return new_wrapper(pointer)


def test_7_what_was_handed_over_comes_back(hook: Any, me: Any) -> None:
    """A pointer to a pointer is the client's again when it is fetched."""
    is_open = {"policy": Policy()}
    with served(hook, "good", **is_open) as good, served(hook, "next", **is_open) as other:
        at_good, at_next = sy.connect(good.address), sy.connect(other.address)
        other._known_workers["good"] = sy.connect(good.address, auto_add=False)
        try:
            chain = torch.tensor([7.0]).send(at_good).send(at_next)
            back = chain.get()
            assert back.location is at_good and back.child.garbage_collect_data
            assert back.get().tolist() == [7.0]
        finally:
            other._known_workers["good"].close()
            at_good.close()
            at_next.close()


def test_7_each_worker_has_a_tensor_under_an_id_of_its_own(bob: Any, alice: Any) -> None:
    sent = torch.ones(2).send(bob, alice)
    ids = [pointer.id_at_location for pointer in sent.child.child.values()]
    assert len(set(ids)) == 2
    total = sent.get(sum_results=True)
    assert total.tolist() == [2, 2]


# -- 8: a confused deputy ----------------------------------------------------------------------------


def test_8_a_worker_that_moves_for_one_user_does_not_replace_what_it_moved_for_another(
    hook: Any, me: Any, authority: TokenAuthority
) -> None:
    rules = OwnerPolicy(read_rules(""))
    with served(hook, "next", policy=OwnerPolicy(read_rules("")), tokens=authority.verifier("next")) as other:
        with served(hook, "deputy", policy=rules, tokens=authority.verifier("deputy")) as deputy:
            peer = sy.connect(other.address, token=authority.issue("deputy", 60), auto_add=False)
            deputy.add_worker(peer)
            ana, eve = (
                sy.connect(deputy.address, token=authority.issue(name, 60), auto_add=False)
                for name in ("ana", "eve")
            )
            try:
                anas, eves = torch.tensor([1.0]).send(ana), torch.tensor([6.0]).send(eve)
                ana._link.ask(ForwardMessage(anas.id_at_location, "next", 4711, None))
                assert other._objects[4711].tolist() == [1.0]
                with pytest.raises(PermissionDeniedError):
                    eve._link.ask(ForwardMessage(eves.id_at_location, "next", 4711, None))
                assert other._objects[4711].tolist() == [1.0]
                ana._recv_msg(
                    ForwardMessage(anas.id_at_location, "next", 4711, None)
                )  # her own she may replace
                ana.sync()
            finally:
                for client in (ana, eve, peer):
                    client.close()


def test_8_nor_does_one_in_this_process(make_worker: Any) -> None:
    dan = make_worker("dan", policy=Policy(allows_by_default=False))
    erin = make_worker("erin", policy=Policy(allows_by_default=False))
    with speaking_for("ana"):
        kept = torch.tensor([1.0]).send(erin, garbage_collect_data=False)
    with speaking_for("eve"):
        eves = torch.tensor([6.0]).send(dan)
        with pytest.raises(SendNotPermittedError):
            dan.recv_msg(ForwardMessage(eves.id_at_location, "erin", kept.id_at_location, None))
    assert erin._objects[kept.id_at_location].tolist() == [1.0]


# -- 9: lockstep MPC ---------------------------------------------------------------------------------


@pytest.fixture
def parties(make_worker: Any) -> list[Any]:
    return [
        make_worker(name, policy=Policy(allows_by_default=False)) for name in ("holder1", "holder2", "dealer")
    ]


@pytest.mark.parametrize(
    "compute",
    [
        lambda s: s,
        lambda s: s * s,
        lambda s: s + 1,
        lambda s: s.child.refresh(),
        lambda s: s > 0,
        lambda s: s.child.reconstruct(),
    ],
    ids=["the secret", "product", "sum", "refresh", "comparison", "reconstruct"],
)
def test_9_what_is_computed_on_shares_is_as_restricted_as_the_shares(
    parties: list[Any], compute: Any
) -> None:
    with speaking_for("ana"):
        secret = torch.tensor([3, -4]).share(*parties[:2], crypto_provider=parties[2])
        result = compute(secret)
    with speaking_for("eve"), pytest.raises(GetNotPermittedError):
        result.get()
    with speaking_for("ana"):
        result.get()  # hers


# -- 10: secrets of the owner ------------------------------------------------------------------------


def test_10_no_token_is_shown_on_an_unencrypted_connection_to_another_machine(hook: Any, me: Any) -> None:
    for address in ("ws://hospital.example:8777", "tcp://192.0.2.1:8777"):
        with pytest.raises(ValueError, match="not encrypted"):
            sy.connect(address, token="secret")


def test_10_the_book_of_budgets_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        BudgetBook.create(tmp_path / "budgets.db")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "budgets.db").stat().st_mode) == 0o600


def test_10_a_token_for_peers_does_not_stand_in_the_list_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syft.cli.worker import _peer_token, serve

    assert "peer_token" not in serve.__annotations__
    monkeypatch.setenv("SYFT_PEER_TOKEN", "from the environment")
    assert _peer_token(None) == "from the environment"
    (tmp_path / "token").write_text("from the file\n")
    assert _peer_token(tmp_path / "token") == "from the file"
    with pytest.raises(ValueError, match="cannot be read"):
        _peer_token(tmp_path / "missing")
