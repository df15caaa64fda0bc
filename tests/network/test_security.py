"""Who may come in, and what they may touch: every refusal is a sentence, and is in the audit log."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from network.waiting import wait_until
from stopwatch import Stopwatch
from syft import transport
from syft.exceptions import (
    AuthenticationError,
    ComputeNotPermittedError,
    ConnectionRefusedByWorkerError,
    ExpiredTokenError,
    InvalidTokenError,
    ObjectNotFoundError,
    PermissionDeniedError,
    RevokedTokenError,
)
from syft.identity.certificates import client_context, make_certificate, make_client_certificate
from syft.identity.tokens import TokenAuthority, TokenVerifier
from syft.messaging.message import (
    AttributeMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PointersGoneMessage,
    Ref,
    SyncMessage,
)
from syft.policy.audit import AuditLog, read_audit_log
from syft.workers.network.server_worker import NetworkServerWorker

pytestmark = pytest.mark.network


@pytest.fixture
def guarded(serve: Any, authority: TokenAuthority, tmp_path: Path) -> Any:
    """A worker that wants tokens, and writes an audit log."""
    server = serve(id="hospital", tokens=authority.verifier("hospital"))
    server.policy.audit_sink = AuditLog(tmp_path / "audit.jsonl", "hospital")
    yield server
    server.policy.audit_sink.close()


def noted(tmp_path: Path, words: str) -> Any:
    """The last refusal in the file, which says these words."""
    wait_until(lambda: any(words in line.reason for line in _refusals(tmp_path)), 5.0)
    return next(line for line in reversed(_refusals(tmp_path)) if words in line.reason)


def _refusals(tmp_path: Path) -> list[Any]:
    return [line for line in read_audit_log(tmp_path / "audit.jsonl") if not line.granted]


# -- tokens ------------------------------------------------------------------------------------------------


def test_who_shows_no_token_is_told_to_ask_for_one(connect: Any, guarded: Any, tmp_path: Path) -> None:
    with pytest.raises(AuthenticationError, match="Ask its owner for a token"):
        connect(guarded)
    assert noted(tmp_path, "Ask its owner").action == "connect"


def test_tokens_that_are_wrong_expired_revoked_or_for_others_are_refused_and_noted(
    connect: Any, guarded: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    good = authority.issue("ann", 3600)
    connect(guarded, token=good).sync()
    with pytest.raises(InvalidTokenError, match="signature"):
        connect(guarded, token=good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB"))
    noted(tmp_path, "signature")
    with pytest.raises(InvalidTokenError, match="not a token"):
        connect(guarded, token="let me in")
    noted(tmp_path, "not a token")
    with pytest.raises(InvalidTokenError, match="made for worker 'bank'"):
        connect(guarded, token=authority.issue("ann", 3600, worker="bank"))
    noted(tmp_path, "made for worker")
    stranger = TokenAuthority.create(tmp_path / "stranger").issue("ann", 3600)
    with pytest.raises(InvalidTokenError, match="signature"):
        connect(guarded, token=stranger)
    authority.revoke(good)
    with pytest.raises(RevokedTokenError, match="taken back"):
        connect(guarded, token=good)
    noted(tmp_path, "taken back")
    assert all(good not in line.reason for line in _refusals(tmp_path))


def test_an_expired_token_is_refused_and_noted(
    connect: Any, serve: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    verifier = TokenVerifier(
        authority.public_key, authority.revoked, "hospital", clock=lambda: time.time() + 7200
    )
    server = serve(id="hospital", tokens=verifier)
    server.policy.audit_sink = AuditLog(tmp_path / "audit.jsonl", "hospital")
    with pytest.raises(ExpiredTokenError, match="expired"):
        connect(server, token=authority.issue("ann", datetime.timedelta(hours=1)))
    noted(tmp_path, "expired")
    server.policy.audit_sink.close()


def test_a_session_ends_with_its_token_when_it_reconnects(
    connect: Any, guarded: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    token = authority.issue("ann", 3600)
    client = connect(guarded, token=token)
    client.sync()
    authority.revoke(token)
    client._link._connection.close()
    with pytest.raises(RevokedTokenError):
        client.sync()
    noted(tmp_path, "taken back")


def test_a_token_that_nobody_verifies_is_refused(
    connect: Any, serve: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    server = serve(id="open")
    assert connect(server).user.startswith("anonymous:")
    with pytest.raises(AuthenticationError, match="'open' takes none, so it proves nothing here"):
        connect(server, token=authority.issue("ann", 3600))
    assert any("takes none" in record.reason for record in server.policy.audit_log if not record.granted)


def test_a_worker_of_another_name_is_refused(connect: Any, serve: Any) -> None:
    server = serve(id="bob")
    with pytest.raises(ConnectionRefusedByWorkerError, match="is 'bob', not 'alice'"):
        connect(server, id="alice")
    assert any("not 'alice'" in record.reason for record in server.policy.audit_log)


# -- other people's objects --------------------------------------------------------------------------------


def test_other_users_objects_cannot_be_read_deleted_overwritten_or_computed_with(
    connect: Any, guarded: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    ann = connect(guarded, token=authority.issue("ann", 3600))
    eve = connect(guarded, token=authority.issue("eve", 3600))
    secret = torch.tensor([1.0, 2.0]).send(ann)
    ann.sync()
    theirs = secret.id_at_location
    mine = torch.zeros(2).send(eve)
    eve.sync()
    own = mine.id_at_location

    def tried(message: Any, action: str, reason: str = "", *, asks: bool = True) -> None:
        """It is refused, and there is one line more in the file, which says who tried what with which object."""
        before = _refusals(tmp_path)
        if not asks:
            eve._link.post(message)
        with pytest.raises(PermissionDeniedError, match="'eve' may not"):
            eve._link.ask(message if asks else SyncMessage())
        (line,) = _refusals(tmp_path)[len(before) :]
        assert (line.action, line.user, line.object, line.reason) == (action, "eve", str(theirs), reason)
        assert line.worker == "hospital" and line.peer.startswith("tcp://127.0.0.1:")

    tried(ObjectRequestMessage((theirs, None, "")), "get")
    tried(ObjectRequestMessage((theirs, "ann", "I am Ann")), "get", "I am Ann")
    tried(ObjectRequestMessage((theirs, "owner", ""), keep=True), "get")
    tried(ForwardMessage(theirs, "elsewhere", 97), "move")
    tried(IsNoneMessage(theirs), "compute")
    tried(GetShapeMessage(theirs), "compute")
    tried(AttributeMessage(theirs, "grad", return_id=98), "compute")
    add = Operation("aten.add.Tensor", None, (Ref(theirs), Ref(own)), {}, (99,), wants_specs=True, user="ann")
    write_into = Operation("aten.copy_.default", None, (Ref(theirs), Ref(own)), {}, (), wants_specs=True)
    put_in_place = Operation("aten.clone.default", None, (Ref(own),), {}, (theirs,), wants_specs=True)
    for asks in (True, False):
        tried(add, "compute", asks=asks)
        tried(write_into, "compute", asks=asks)
        tried(put_in_place, "send", "replace", asks=asks)
        tried(ObjectMessage(torch.tensor([6.0, 6.0]), theirs), "send", "replace", asks=asks)
        tried(ForceObjectDeleteMessage(theirs), "send", "delete", asks=asks)
        tried(ForceObjectDeleteMessage((own, theirs)), "send", "delete", asks=asks)
    tried(AttributeMessage(own, "data", return_id=theirs), "send", "replace")
    # To let go of what one never held is no attempt at anything: it does nothing.
    eve._link.post(PointersGoneMessage((theirs,)))
    eve.sync()
    # Naming an id without using it does not make it one's own.
    for message in (
        Operation("aten.add_.Tensor", None, (Ref(own), Ref(own)), {}, (theirs,)),
        AttributeMessage(own, "requires_grad", return_id=theirs, value=False, is_write=True),
    ):
        eve._link.post(message)
        eve._link.post(PointersGoneMessage((theirs,)))
        try:
            eve.sync()
        except Exception:  # noqa: BLE001  (whether it is refused is another test's business)
            pass
    assert mine.shape == mine.get().shape, "a delete that is refused for one object deletes none"
    eve.close()  # which frees what is hers
    wait_until(lambda: guarded.status()["sessions"] == 1)
    assert secret.get().tolist() == [1, 2]


def test_compute_is_refused_with_a_sentence(connect: Any, guarded: Any, authority: TokenAuthority) -> None:
    ann = connect(guarded, token=authority.issue("ann", 3600))
    eve = connect(guarded, token=authority.issue("eve", 3600))
    secret = torch.tensor([1.0]).send(ann)
    ann.sync()
    with pytest.raises((ComputeNotPermittedError, ObjectNotFoundError), match=r"eve|not found"):
        eve._link.ask(
            Operation("aten.neg.default", None, (Ref(secret.id_at_location),), {}, (1,), wants_specs=True)
        )


def test_sessions_without_a_name_do_not_see_each_other(connect: Any, serve: Any) -> None:
    server = serve()
    one, two = connect(server), connect(server)
    assert one.user != two.user
    held = torch.ones(2).send(one)
    one.sync()
    assert two.list_objects_remote() == []
    with pytest.raises((PermissionDeniedError, ObjectNotFoundError)):
        two._link.ask(ObjectRequestMessage((held.id_at_location, one.user, "")))
    two.clear_objects_remote()
    assert held.get().tolist() == [1, 1]


def test_a_session_of_somebody_else_cannot_be_continued(
    connect: Any, guarded: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    ann = connect(guarded, token=authority.issue("ann", 3600))
    held = torch.ones(1).send(ann)
    ann.sync()
    eve = connect(guarded, token=authority.issue("eve", 3600))
    eve._link.welcome = ann._link.welcome
    eve._link._connection.close()
    with pytest.raises(ConnectionRefusedByWorkerError, match="somebody else"):
        eve.sync()
    assert noted(tmp_path, "somebody else").user == "eve"
    assert held.get().item() == 1


# -- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture
def encrypted(serve: Any, certificates: Any, tmp_path: Path) -> Any:
    server = serve(
        ["tls://localhost:0", "wss://localhost:0", "tcp://127.0.0.1:0"],
        certificate=certificates.certificate,
        key=certificates.key,
    )
    server.policy.audit_sink = AuditLog(tmp_path / "audit.jsonl", "bob")
    yield server
    server.policy.audit_sink.close()


def test_encrypted_addresses_serve_those_who_trust_the_authority(
    connect: Any, encrypted: Any, certificates: Any
) -> None:
    for address in encrypted.addresses[:2]:
        client = connect(address, ca=str(certificates.authority))
        assert torch.ones(2).send(client).get().tolist() == [1, 1]


@pytest.mark.parametrize(("scheme", "number"), [("tcp", 0), ("ws", 1)])
def test_a_plain_client_is_refused_by_a_tls_port(
    connect: Any, encrypted: Any, tmp_path: Path, scheme: str, number: int
) -> None:
    port = encrypted.addresses[number].rsplit(":", 1)[1]
    with pytest.raises(transport.HandshakeRefused, match="TLS"):
        connect(f"{scheme}://127.0.0.1:{port}", patience=0.1)
    assert noted(tmp_path, "TLS").action == "connect"


def test_a_tls_client_is_refused_by_a_plain_port(
    connect: Any, encrypted: Any, certificates: Any, tmp_path: Path
) -> None:
    port = encrypted.addresses[2].rsplit(":", 1)[1]
    with pytest.raises(transport.HandshakeRefused, match="speaks no TLS"):
        connect(f"tls://localhost:{port}", ca=str(certificates.authority), patience=0.1)
    noted(tmp_path, "TLS")


def test_a_certificate_nobody_vouches_for_is_refused_at_once(
    connect: Any, encrypted: Any, tmp_path: Path
) -> None:
    other = make_certificate(tmp_path / "other")
    for ca in (None, str(other.authority)):
        clock = Stopwatch()
        with pytest.raises(ConnectionError, match="could not be verified"):
            connect(encrypted.addresses[0], ca=ca, patience=30.0)
        assert clock.seconds < 1.5  # it would not be better later
    noted(tmp_path, "does not trust")


def test_a_certificate_for_another_host_is_refused(connect: Any, serve: Any, tmp_path: Path) -> None:
    made = make_certificate(tmp_path / "elsewhere", hosts=["elsewhere.example"])
    server = serve("tls://127.0.0.1:0", certificate=made.certificate, key=made.key)
    with pytest.raises(ConnectionError, match="for another host"):
        connect(server.address, ca=str(made.authority))
    wait_until(lambda: any(not record.granted for record in server.policy.audit_log), 5.0)


def test_a_worker_that_wants_certificates_refuses_those_without(
    connect: Any, serve: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    made = make_certificate(tmp_path / "ca")
    ann = make_client_certificate(tmp_path / "ca", "ann")
    server = serve(
        "tls://localhost:0",
        certificate=made.certificate,
        key=made.key,
        client_ca=made.authority,
        tokens=authority.verifier("bob"),
    )
    files = {"ca": str(made.authority), "certificate": str(ann.certificate), "key": str(ann.key)}
    assert connect(server, **files).user == "ann"
    assert connect(server, token=authority.issue("ann", 60), **files).user == "ann"
    with pytest.raises(AuthenticationError, match="names 'ann' and the token names 'eve'"):
        connect(server, token=authority.issue("eve", 60), **files)
    with pytest.raises(ConnectionError):
        connect(server, ca=str(made.authority), token=authority.issue("ann", 60), patience=0.1)
    wait_until(lambda: any("no certificate" in record.reason for record in server.policy.audit_log), 5.0)
    assert any("the token names 'eve'" in record.reason for record in server.policy.audit_log)


def test_contexts_that_verify_nothing_are_refused(encrypted: Any, certificates: Any) -> None:
    context = client_context(str(certificates.authority))
    context.check_hostname = False
    with pytest.raises(ValueError, match="does not verify"):
        transport.connect(encrypted.addresses[0], tls=context)


# -- exposure ----------------------------------------------------------------------------------------------


def test_a_public_address_needs_tls_and_proof(
    hook: Any, certificates: Any, authority: TokenAuthority
) -> None:
    files = {"certificate": certificates.certificate, "key": certificates.key}
    for address, options, words in (
        ("tcp://0.0.0.0:0", {}, "TLS .* and proof"),
        ("tcp://0.0.0.0:0", {"tokens": authority.verifier("bob")}, "needs TLS"),
        ("tls://0.0.0.0:0", files, "needs proof"),
        ("tls://0.0.0.0:0", files | {"tokens": authority.verifier("bob"), "anonymous": True}, "needs proof"),
        ("ws://[::]:0", {}, "TLS"),
    ):
        with pytest.raises(ValueError, match=words):
            NetworkServerWorker(hook, address, id="bob", **options)
    NetworkServerWorker(hook, "tls://0.0.0.0:0", id="bob", tokens=authority.verifier("bob"), **files)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "ws://127.0.0.1:0", "inproc://plain"])
def test_files_for_tls_are_not_ignored_where_nothing_is_encrypted(
    hook: Any, me: Any, certificates: Any, authority: TokenAuthority, address: str
) -> None:
    files = {"certificate": certificates.certificate, "key": certificates.key}
    for options, words in (
        (files, r"certificate=\.\.\. and key=\.\.\. was given"),
        ({"key": certificates.key}, r"key=\.\.\. was given"),
        ({"client_ca": certificates.authority}, r"client_ca=\.\.\. was given"),
        ({"client_ca": certificates.authority, "tokens": authority.verifier("bob")}, "client_ca"),
    ):
        with pytest.raises(ValueError, match=rf"{words}.*{address} is encrypted.*tls:// or wss://"):
            NetworkServerWorker(hook, address, id="bob", **options)
    # Where one address is encrypted they are of use, whatever the others are.
    NetworkServerWorker(
        hook, [address, "tls://127.0.0.1:0"], id="bob", client_ca=certificates.authority, **files
    )


def test_a_closed_worker_is_forgotten_and_a_new_connection_takes_its_name(
    serve: Any, connect: Any, me: Any, make_worker: Any
) -> None:
    bob = make_worker("bob")
    server = serve(id="once more")
    first = connect(server, auto_add=True)
    assert me.get_worker("once more") is first and bob.get_worker("once more") is first
    first.close()
    for worker in (me, bob, first):
        assert worker.get_worker("once more") == "once more"
    second = connect(server, auto_add=True)
    assert me.get_worker("once more") is second and bob.get_worker("once more") is second
    first.close()  # again: the other stays
    assert me.get_worker("once more") is second
    moved = torch.ones(2).send(bob).move(me.get_worker("once more"))
    assert moved.location is second and moved.get().tolist() == [1, 1]


def test_who_shares_a_connection_is_forgotten_with_it(serve: Any, connect: Any, me: Any) -> None:
    server = serve(id="shared")
    first, again = connect(server, auto_add=True), connect(server, auto_add=True)
    assert again._link is first._link
    again.close()
    assert me.get_worker("shared") == "shared"
