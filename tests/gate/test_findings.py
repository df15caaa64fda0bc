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
from syft.messaging.message import ForwardMessage
from syft.serde.errors import SerdeError
from syft.tensors.pointer import PointerTensor
from syft.workers.caller import speaking_for
from syft.workers.network.server_worker import NetworkServerWorker
from syft.workers.owner_policy import OwnerPolicy, read_rules
from syft.workers.permissions import Policy


@pytest.fixture
def authority(tmp_path: Path) -> TokenAuthority:
    return TokenAuthority.create(tmp_path / "tokens")


@contextlib.contextmanager
def served(hook: Any, id: str, **options: Any) -> Iterator[NetworkServerWorker]:
    with NetworkServerWorker(hook, "tcp://127.0.0.1:0", id=id, **options) as server:
        yield server


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
