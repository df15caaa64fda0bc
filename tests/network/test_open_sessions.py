"""A name is proved when somebody connects. What proved it may end while they are connected: so does their session."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from network.waiting import Running, wait_until
from syft import transport
from syft.exceptions import AuthenticationError, ExpiredTokenError, RevokedTokenError
from syft.identity.certificates import make_certificate, make_client_certificate
from syft.identity.tokens import TokenAuthority, TokenVerifier, token_id_of
from syft.policy.audit import AuditLog, read_audit_log
from syft.transport import session_frames as frames
from syft.transport import session_greeting as greeting
from syft.transport import session_outgoing as outgoing
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind
from syft.workers.network.server import ServerSettings

pytestmark = pytest.mark.network


def dismissals(tmp_path: Path) -> list[str]:
    """Why eve was sent away, by the audit log. (Whoever is not let in has proved no name, and is noted without one.)"""
    return [
        line.reason
        for line in read_audit_log(tmp_path / "audit.jsonl")
        if not line.granted and line.user == "eve" and line.action == "connect" and line.peer
    ]


class Clock:
    """Tells the time, and can be put forward."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def attentive(serve: Any, authority: TokenAuthority, tmp_path: Path, clock: Clock) -> Any:
    """A worker that wants tokens, looks at its sessions often, and writes an audit log."""
    verifier = TokenVerifier(authority.public_key, authority.revoked, "hospital", clock)
    server = serve(id="hospital", tokens=verifier, settings=ServerSettings(heartbeat=2.0))
    server.policy.audit_sink = AuditLog(tmp_path / "audit.jsonl", "hospital")
    yield server
    server.policy.audit_sink.close()


@pytest.mark.parametrize("is_busy", [False, True])
def test_who_is_connected_with_a_token_that_is_revoked_is_sent_away(
    connect: Any, attentive: Any, authority: TokenAuthority, tmp_path: Path, is_busy: bool
) -> None:
    token = authority.issue("eve", 3600)
    eve = connect(attentive, token=token)
    second = connect(attentive, token=authority.issue("eve", 3600))  # another token of the same user's
    ann = connect(attentive, token=authority.issue("ann", 3600))
    held = torch.ones(3).send(ann)
    hers = torch.zeros(3).send(eve)
    eve.sync()
    TokenAuthority.open(tmp_path / "tokens").revoke(token)  # as `syft token revoke` does, in another process

    if is_busy:
        with pytest.raises(RevokedTokenError, match="user 'eve' was taken back"):
            Running(lambda: [(hers.add_(1), eve.sync()) for _ in range(1_000_000)]).result()
    wait_until(lambda: attentive.status()["sessions"] == 2)
    for _ in range(2):  # told why, as often as it is tried
        with pytest.raises(RevokedTokenError, match="user 'eve' was taken back"):
            eve.sync()
    (reason,) = dismissals(tmp_path)
    assert "was taken back by the owner" in reason
    wait_until(lambda: len(attentive._objects) == 1)  # what she brought is gone
    second.sync()
    assert held.get().tolist() == [1, 1, 1]


def test_who_is_connected_with_a_token_that_expires_is_sent_away(
    connect: Any, attentive: Any, authority: TokenAuthority, tmp_path: Path, clock: Clock
) -> None:
    eve = connect(attentive, token=authority.issue("eve", 600))
    ann = connect(attentive, token=authority.issue("ann", 7200))
    eve.sync()
    clock.ahead = 3600.0
    wait_until(lambda: attentive.status()["sessions"] == 1)
    with pytest.raises(ExpiredTokenError, match="user 'eve' expired"):
        eve.sync()
    (reason,) = dismissals(tmp_path)
    assert "expired" in reason
    ann.sync()


def test_the_reason_is_told_on_the_connection_that_ends_whatever_else_comes_on_it(
    attentive: Any, authority: TokenAuthority, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = transport.connect(attentive.address)
    hello = handshake.Hello(handshake.PROTOCOL, "by hand", authority.issue("eve", 600))
    connection.send(frames.encode(Head(Kind.HELLO), [handshake.encode(hello)]))
    assert frames.decode(connection.receive(timeout=10))[0].kind == Kind.WELCOME
    (session,) = attentive._server.sessions()
    refuse, may_tell = outgoing.refuse, threading.Event()
    monkeypatch.setattr(outgoing, "refuse", lambda *args: (may_tell.wait(4.0), refuse(*args), None)[-1])
    clock.ahead = 3600.0
    wait_until(lambda: session.ended)
    # Before she can be told, her next frame is here: it is not obeyed, and not the end of the connection either.
    for _ in range(3):
        connection.send(frames.encode(Head(Kind.HEARTBEAT)))
        time.sleep(0.1)
    may_tell.set()
    while True:
        head, payload = frames.decode(connection.receive(timeout=20))
        if head.kind == Kind.REFUSAL:
            break
    error = greeting.refusal(payload)
    assert isinstance(error, ExpiredTokenError) and "eve" in str(error)
    connection.close()


def test_a_session_that_is_continued_with_a_new_token_ends_with_that(
    connect: Any, attentive: Any, authority: TokenAuthority, tmp_path: Path, clock: Clock
) -> None:
    eve = connect(attentive, token=authority.issue("eve", 600))
    held = torch.ones(2).send(eve)
    eve.sync()
    eve._token = authority.issue("eve", 7200)
    eve._link._connection.close()
    eve.sync()
    clock.ahead = 3600.0
    for _ in range(2):
        rounds(attentive)
    assert held.get().tolist() == [1, 1], "it is the same session"


def rounds(server: Any) -> None:
    """The worker has looked at everybody once more."""
    looked = threading.Event()
    keep_house = server._server.keep_house

    def keep() -> None:
        keep_house()
        looked.set()

    server._server.keep_house = keep
    try:
        assert looked.wait(30.0)
    finally:
        server._server.keep_house = keep_house


def test_while_the_list_cannot_be_read_nobody_comes_in_and_nobody_is_sent_away(
    connect: Any,
    attentive: Any,
    authority: TokenAuthority,
    tmp_path: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ann = connect(attentive, token=authority.issue("ann", 7200))
    eve_token, dan_token = authority.issue("eve", 7200), authority.issue("dan", 600)
    eve, dan = connect(attentive, token=eve_token), connect(attentive, token=dan_token)
    for client in (ann, eve, dan):
        client.sync()
    path = tmp_path / "tokens" / "revoked.txt"
    path.write_text("eve\n")  # not an id
    for _ in range(3):
        rounds(attentive)
    ann.sync()
    eve.sync()
    with pytest.raises(AuthenticationError, match="is not the id of a token"):
        connect(attentive, token=authority.issue("bob", 3600))
    told = [r.getMessage() for r in caplog.records if "Those who are connected stay" in r.getMessage()]
    assert len(told) == 1 and "Line 1" in told[0]
    clock.ahead = 3600.0  # time goes on
    wait_until(lambda: attentive.status()["sessions"] == 2)
    path.write_text(f"{token_id_of(eve_token)}  # eve\n")
    wait_until(lambda: attentive.status()["sessions"] == 1)
    ann.sync()


def test_who_is_connected_with_a_certificate_that_expires_is_sent_away(
    connect: Any, serve: Any, tmp_path: Path
) -> None:
    made = make_certificate(tmp_path / "ca")
    server = serve(
        ["tls://localhost:0", "wss://localhost:0"],
        certificate=made.certificate,
        key=made.key,
        client_ca=made.authority,
        settings=ServerSettings(heartbeat=2.0),
    )
    clients = {}
    for (name, days), address in zip({"ann": 300, "eve": 30}.items(), server.addresses, strict=True):
        own = make_client_certificate(tmp_path / "ca", name, days=days)
        files = {"ca": str(made.authority), "certificate": str(own.certificate), "key": str(own.key)}
        clients[name] = connect(address, **files)
        clients[name].sync()
    server._authenticator._clock = lambda: time.time() + 100 * 24 * 3600
    with pytest.raises(AuthenticationError, match="certificate of user 'eve' expired"):
        Running(lambda: [(clients["eve"].sync(), time.sleep(0.01)) for _ in range(3000)]).result()
    clients["ann"].sync()
    wait_until(lambda: server.status()["sessions"] == 1)
    record = next(r for r in server.policy.audit_log if not r.granted)
    assert record.user == "eve" and "certificate of user 'eve' expired" in record.reason


def test_a_session_is_ended_by_whoever_holds_its_lock(
    connect: Any, attentive: Any, authority: TokenAuthority, tmp_path: Path
) -> None:
    """What a command makes that was running when its session was dismissed is freed with the rest."""
    token = authority.issue("eve", 3600)
    eve = connect(attentive, token=token)
    eve.sync()
    ((session_id, session),) = attentive._server._sessions.items()
    with attentive._server._worker_lock:  # somebody else's command runs, and hers waits
        held = torch.ones(4).send(eve)
        eve.flush()
        wait_until(lambda: session.busy_since is not None)
        authority.revoke(token)
        wait_until(lambda: session.ended)
        rounds(attentive)
        assert session_id in attentive._server._sessions, "it has not ended while its command is under way"
    wait_until(lambda: attentive.status()["sessions"] == 0)
    assert not attentive._objects and not session.lock.locked()
    with pytest.raises(RevokedTokenError):
        eve.sync()
    del held


def test_a_full_disk_keeps_nobody_in(connect: Any, attentive: Any, authority: TokenAuthority) -> None:
    token = authority.issue("eve", 3600)
    eve, ann = connect(attentive, token=token), connect(attentive, token=authority.issue("ann", 3600))
    eve.sync()
    sink = attentive.policy.audit_sink

    def full(_record: Any) -> None:
        raise OSError("No space left on device")

    attentive.policy.audit_sink = full
    authority.revoke(token)
    wait_until(lambda: attentive.status()["sessions"] == 1)
    attentive.policy.audit_sink = sink
    ann.sync()
