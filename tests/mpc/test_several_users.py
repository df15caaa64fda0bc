"""Two users compute on each other's secrets: the holders say who may compute and who may have results."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mpc.network_parties import HOLDERS, Parties, node_of
from syft.exceptions import (
    ComputeNotPermittedError,
    GetNotPermittedError,
    ObjectNotFoundError,
    SyftError,
)
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ForwardMessage, ObjectRequestMessage, Ref, ShareMessage
from syft.mpc.network import messages
from syft.mpc.offers import DescribeSecret, LetUsers, find_secrets, record_of
from syft.mpc.protocols import beaver
from syft.tensors.pointer import new_pointer

pytestmark = pytest.mark.network


@pytest.fixture
def users(hook: Any, me: Any, tmp_path: Any) -> Iterator[SimpleNamespace]:
    """ben has data, ana a model, pat a question, eve none of this."""
    made = Parties(hook, (*HOLDERS, "carol"), TokenAuthority.create(tmp_path / "keys"))
    with made.closing:
        made.introduce()
        clients = {name: made.client(**made.shown(name)) for name in ("ben", "ana", "pat", "eve")}
        yield SimpleNamespace(parties=made, **clients)


def found(user: Any, tag: str) -> Any:
    (secret,) = find_secrets(tag, *user.holders, crypto_provider=user.provider)
    return secret


def allowed(users: Any, secret: Any) -> list[Any]:
    """Who may fetch the shares of a secret, at each holder."""
    node = node_of(secret)
    for pointer in node.pointers:
        pointer.location.sync()
    return [users.parties.servers[p.location.id].allowed_users(p.id_at_location) for p in node.pointers]


X, W = torch.tensor([[1.0, -2.0, 3.0]]), torch.tensor([[0.5], [1.0], [-1.0]])


def offered(users: Any) -> tuple[Any, Any]:
    """ben's data, which ana may compute with and pat have, as ana finds it; and ana's weights."""
    users.ben.share(X, may_compute=["ana"], may_get=["pat"]).offer("#scan")
    return found(users.ana, "#scan"), users.ana.share(W, may_get="pat")


def test_data_of_one_model_of_another_answer_for_a_third(users: Any) -> None:
    scan, weights = offered(users)
    answer = torch.relu(scan @ weights + 5)
    assert allowed(users, answer) == [{"pat"}] * 2
    answer.offer("#answer")
    for name in ("alice", "bob", "carol"):  # it stays when they have gone
        getattr(users.ana, name).close()
        getattr(users.ben, name).close()
    got = found(users.pat, "#answer").get().float_precision()
    assert torch.allclose(got, torch.relu(X @ W + 5), atol=0.01)
    assert torch.allclose(found(users.pat, "#answer").get().float_precision(), got)  # and when it was fetched


def test_holders_refuse_everybody_else(users: Any) -> None:
    scan, weights = offered(users)
    answer = scan @ weights
    answer.offer("#answer")
    for secret in (scan, weights, answer):
        with pytest.raises(GetNotPermittedError, match="'ana' may not get"):
            secret.get()
    for rank, holder in enumerate(users.ana.holders):  # whatever the client is, by the messages themselves
        for secret in (scan, answer):
            share = node_of(secret).pointers[rank].id_at_location
            for message in (
                ObjectRequestMessage((share, "pat", "")),
                ObjectRequestMessage((share, "pat", ""), keep=True),
                ForwardMessage(share, users.ana.holders[1 - rank].id, 77, "pat"),
                ShareMessage(share, tuple(HOLDERS), (78, 79), "pat"),
            ):
                with pytest.raises(GetNotPermittedError):
                    holder._recv_msg(message)
    with pytest.raises(GetNotPermittedError):
        answer.reconstruct().get()
    assert find_secrets("#answer", *users.eve.holders) == find_secrets("#scan", *users.eve.holders) == []
    with pytest.raises(ObjectNotFoundError):
        users.eve.alice._recv_msg(DescribeSecret(record_of(answer).ids[0]))
    for user in (users.eve, users.ben):
        with pytest.raises(GetNotPermittedError):
            user.alice._recv_msg(ObjectRequestMessage((record_of(answer).ids[0], "pat", "")))
    (share,) = record_of(scan).ids[:1]
    users.eve.alice._recv_msg(messages.RunProgram(1, 1, "beaver.square", (Ref(share),), {}, (1,)))
    with pytest.raises(ObjectNotFoundError):
        users.eve.alice.sync()


def test_who_may_not_compute_is_refused_by_the_holders(users: Any) -> None:
    secret = users.ben.share(X, may_get=["pat"])
    secret.offer("#scan", may_compute=["eve"])
    assert find_secrets("#scan", *users.ana.holders) == []
    stolen = found(users.eve, "#scan")
    (stolen * 2).offer("#eves")  # she may
    node = node_of(users.ana.share(X))
    pointers = []
    for holder, obj_id in zip(users.ana.holders, record_of(stolen).ids, strict=True):
        pointers.append(new_pointer(holder, obj_id, node.spec))
        pointers[-1].garbage_collect_data = False
    thief = node.of(pointers)
    thief.run(beaver.square)
    with pytest.raises(ComputeNotPermittedError):
        users.ana.alice.sync()
    thief.wrap() + 1
    with pytest.raises(ComputeNotPermittedError):
        users.ana.bob.sync()


def test_only_owners_and_receivers_name_further_users(users: Any) -> None:
    scan, weights = offered(users)
    answer = scan @ weights
    for secret in (scan, answer):
        with pytest.raises(GetNotPermittedError, match="let others use"):
            secret.offer("#more", may_get=["ana"])
        with pytest.raises(GetNotPermittedError, match="let others use"):
            secret.offer("#more", may_compute=["eve"])
        for pointer in node_of(secret).pointers:
            with pytest.raises(GetNotPermittedError):
                pointer.location._recv_msg(
                    LetUsers(pointer.id_at_location, frozenset({"ana"}), None, is_first=True, user="ben")
                )
    with pytest.raises(GetNotPermittedError):
        scan.offer("#mine")
    answer.offer("#answer")
    found(users.pat, "#answer").offer("#ours", may_get=["eve"])
    assert found(users.eve, "#ours").get().float_precision().shape == (1, 1)
    mine = users.ben.share(X, may_get=["pat"])
    mine.offer("#later", may_get=["ana"])
    assert torch.equal(found(users.ana, "#later").get().float_precision(), X)


def test_an_offer_is_withdrawn_by_its_owner(users: Any) -> None:
    mine = users.ben.share(X, may_compute=["ana"], may_get=["pat"])
    mine.offer("#scan")
    theirs = found(users.ana, "#scan")
    with pytest.raises(SyftError):
        theirs.withdraw()
    mine.withdraw()
    assert find_secrets("#scan", *users.ana.holders) == []
    with pytest.raises(SyftError):
        (theirs * theirs).get()


def test_the_audit_log_says_who_was_let(users: Any) -> None:
    offered(users)
    (first, *_) = [r for r in users.parties.servers["alice"].policy.audit_log if r.action == "let others use"]
    assert first.user == "ben" and first.reason == "get: pat; compute: ana"


def test_names_that_cannot_be_users_are_refused_here(users: Any) -> None:
    for bad, error in ((7, TypeError), (["a\nb"], ValueError), ([""], ValueError)):
        for parameter in ("may_get", "may_compute"):
            with pytest.raises(error, match=parameter):
                users.ben.share(X, **{parameter: bad})
    with pytest.raises(ValueError, match="takes tags"):
        users.ben.share(X).offer(may_get=["pat"])
    with pytest.raises(Exception, match="is here"):
        X.offer("#x")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "wrong",
    [
        ("x" * 300,),
        ("",),
        tuple(f"#{n}" for n in range(40)),
    ],
)
def test_holders_bound_what_they_keep_of_tags(users: Any, wrong: tuple[str, ...]) -> None:
    secret = users.ben.share(X)
    pointer = node_of(secret).pointers[0]
    with pytest.raises(ValueError, match="tags"):
        pointer.location._recv_msg(LetUsers(pointer.id_at_location, None, None, tags=wrong))
