"""What a review found: memory that somebody could make a worker use, and mistakes that should be told at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from network.served import rss_of
from network.waiting import Running, wait_until
from stopwatch import Stopwatch
from syft import serde, transport
from syft.exceptions import (
    GetNotPermittedError,
    ProtocolError,
    QuotaExceededError,
    SyftError,
    WorkerUnreachableError,
)
from syft.identity.certificates import make_certificate, make_client_certificate
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ForwardMessage, ObjectMessage, ObjectRequestMessage, Operation, Ref
from syft.transport import session_frames as frames
from syft.transport import session_greeting as greeting
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind
from syft.workers.network import incoming, sessions
from syft.workers.network.server import ServerSettings

pytestmark = pytest.mark.network
SCHEMES = ["inproc", "unix", "tcp", "tls", "ws", "wss"]


def refusals(server: Any) -> list[str]:
    return [record.reason for record in server.policy.audit_log if not record.granted]


class ByHand:
    """A session of frames, as no client of ours would speak."""

    def __init__(self, address: str) -> None:
        self.connection = transport.connect(address)
        hello = handshake.Hello(handshake.PROTOCOL, "by hand")
        self.connection.send(frames.encode(Head(Kind.HELLO), [handshake.encode(hello)]))
        _head, payload = frames.decode(self.connection.receive(timeout=10))
        self.welcome = handshake.decode(payload, handshake.Welcome)
        self.number = 0

    def ask(self, message: Any, confirmed: int = 0) -> None:
        batch = serde.BatchWriter()
        batch.add(message)
        self.number += 1
        head = Head(Kind.COMMANDS, frames.WAITS, number=self.number, confirmed=confirmed, count=1)
        self.connection.send(frames.encode(head, batch.frames()))

    def answers(self) -> Iterator[tuple[Head, memoryview]]:
        while True:
            yield frames.decode(self.connection.receive(timeout=20))

    def answer(self) -> tuple[Head, memoryview]:
        return next(answer for answer in self.answers() if answer[0].kind != Kind.HEARTBEAT)


# -- replies that nobody confirms --------------------------------------------------------------------------


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> ServerSettings:
    """Two megabytes of replies are kept."""
    monkeypatch.setattr(sessions, "_REPLY_SLACK", 1 << 20)
    return ServerSettings(heartbeat=0.4, grace=60.0, max_message=1 << 20)


def test_who_never_confirms_does_not_fill_the_worker(serve: Any, little_room: Any) -> None:
    server = serve(settings=little_room)
    client = ByHand(server.address)
    client.ask(ObjectMessage(torch.zeros(200_000), 7))
    for _ in range(20):
        client.ask(ObjectRequestMessage((7, None, ""), keep=True))
    kinds: list[int] = []
    refusal = None
    with contextlib.suppress(ConnectionError):
        for head, payload in client.answers():
            kinds.append(head.kind)
            if head.kind == Kind.REFUSAL:
                refusal = greeting.refusal(payload)
                break
    assert isinstance(refusal, ProtocolError)
    assert "have not been confirmed" in str(refusal)
    assert kinds.count(Kind.REPLY) <= 5
    (session,) = server._server._sessions.values()
    assert session.reply_bytes == sum(len(p) for r in session._replies for p in r.payload) < 3_000_000
    assert session.executed < 10, "the rest was not run"
    client.connection.close()
    wait_until(lambda: any("have not been confirmed" in reason for reason in refusals(server)))


def test_what_is_confirmed_is_not_counted(serve: Any, little_room: Any) -> None:
    server = serve(settings=little_room)
    client = ByHand(server.address)
    client.ask(ObjectMessage(torch.zeros(200_000), 7))
    client.answer()
    for _ in range(12):
        client.ask(ObjectRequestMessage((7, None, ""), keep=True), confirmed=client.number)
        assert client.answer()[0].kind == Kind.REPLY
    (session,) = server._server._sessions.values()
    assert 800_000 <= session.reply_bytes < 900_000
    # In a heartbeat, after more was asked for than is kept.
    for _ in range(6):
        client.ask(ObjectRequestMessage((7, None, ""), keep=True), confirmed=client.number - 1)
    got = 0
    while got < 6:
        head, _payload = client.answer()
        assert head.kind == Kind.REPLY
        got += 1
        client.connection.send(frames.encode(Head(Kind.HEARTBEAT, confirmed=head.number)))
    client.connection.close()


@pytest.mark.parametrize("scheme", ["tcp", "inproc"])
def test_a_client_with_many_threads_is_not_taken_for_one_that_never_confirms(
    connect: Any, by_scheme: Any, little_room: Any, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syft.workers.network.link._LARGE_REPLY", 1 << 18)
    waits, wait = [], incoming.Incoming.await_confirmation
    monkeypatch.setattr(
        incoming.Incoming, "await_confirmation", lambda *args: (waits.append(1), wait(*args))[1]
    )
    server, _ = by_scheme(scheme, settings=little_room)
    client = connect(server)
    held = [torch.full((200_000,), float(n)).send(client) for n in range(12)]
    client.sync()

    def fetch(n: int) -> None:
        for _ in range(5):
            got = client._link.ask(ObjectRequestMessage((held[n].id_at_location, None, ""), keep=True))
            assert got[0] == n and got[-1] == n

    for one in [Running(lambda n=n: fetch(n)) for n in range(12)]:  # type: ignore[misc]
        one.result()
    assert not refusals(server)
    assert client._link._epoch == 0, "it is the same session"
    assert waits, "there was something to wait for"


def test_a_goodbye_makes_room_for_what_was_asked_before_it(serve: Any, little_room: Any) -> None:
    server = serve(settings=little_room)
    client = ByHand(server.address)
    client.ask(ObjectMessage(torch.zeros(200_000), 7))
    for _ in range(6):
        client.ask(ObjectRequestMessage((7, None, ""), keep=True))
    client.connection.send(frames.encode(Head(Kind.GOODBYE)))
    heads = []
    with contextlib.suppress(ConnectionError):
        for head, _payload in client.answers():
            heads.append(head.kind)
            if head.kind == Kind.GOODBYE:
                break
    assert heads[-1] == Kind.GOODBYE and heads.count(Kind.REPLY) == 7
    wait_until(lambda: not server._server._sessions)
    client.connection.close()


def test_reading_ahead_is_bounded(serve: Any, little_room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "_AHEAD_BYTES", 300_000)
    server = serve(settings=ServerSettings(heartbeat=30.0, max_message=1 << 20))
    client = ByHand(server.address)
    client.ask(ObjectMessage(torch.zeros(200_000), 7))
    for _ in range(4):
        client.ask(ObjectRequestMessage((7, None, ""), keep=True))
    for n in range(4):
        client.ask(ObjectMessage(torch.zeros(50_000), n))
    last = None
    with contextlib.suppress(ConnectionError):
        for head, _payload in client.answers():
            last = head.kind
            if last == Kind.REFUSAL:
                break
    assert last == Kind.REFUSAL
    client.connection.close()


# -- what is larger than any message -----------------------------------------------------------------------


def test_a_view_of_four_bytes_that_stands_for_gigabytes_is_refused_before_it_is_copied(
    connect: Any, serve: Any
) -> None:
    server = serve(settings=ServerSettings(max_message=1 << 20))
    client = connect(server)
    one = torch.ones(1).send(client)
    client._link.ask(Operation("aten.expand.default", None, (Ref(one.id_at_location), [1 << 29]), {}, (99,)))
    before = rss_of()
    for keep in (True, False):
        with pytest.raises(QuotaExceededError, match=r"cannot leave.*2147483648 bytes.*at most 1048576"):
            client._link.ask(ObjectRequestMessage((99, None, ""), keep=keep))
    with pytest.raises(QuotaExceededError, match="cannot leave"):
        client._link.ask(ForwardMessage(99, "elsewhere", 100))
    assert rss_of() - before < 100 << 20
    assert any("2147483648 bytes" in reason for reason in refusals(server))
    assert one.get().item() == 1, "the session goes on"


def test_who_may_not_have_it_is_not_told_how_large_it_is(connect: Any, serve: Any) -> None:
    data = torch.zeros(1 << 19).tag("#large")
    server = serve(settings=ServerSettings(max_message=1 << 20), data=[data])
    client = connect(server)
    with pytest.raises(GetNotPermittedError) as refused:
        client._link.ask(ObjectRequestMessage((data.id, None, ""), keep=True))
    assert "bytes" not in str(refused.value)
    with pytest.raises((SyftError, TypeError, KeyError)):
        client._link.ask(ObjectRequestMessage(((1, 2), None, ""), keep=True))


def test_what_is_decompressed_is_no_larger_than_a_message(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(max_message=1 << 20))
    client = connect(server, compression="zstd")
    (session,) = server._server._sessions.values()
    assert session.limits.max_decompressed == session.limits.max_bytes == 1 << 20

    def send() -> None:
        torch.zeros(4 << 20).send(client)  # 16 MB of zeros are small on their way
        client.sync()

    with pytest.raises(SyftError, match=r"decompress|limit|allowed"):
        send()
    assert torch.ones(2).send(client).get().tolist() == [1, 1]
    roomy = serve(id="roomy")
    connect(roomy)
    (session,) = roomy._server._sessions.values()
    assert session.limits.max_decompressed == serde.Limits().max_decompressed


# -- strangers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [70_000, 50_000_000])  # the second is refused while it is being sent
@pytest.mark.parametrize("scheme", SCHEMES)
def test_before_the_greeting_a_frame_is_small_and_afterwards_it_is_not(
    connect: Any, by_scheme: Any, certificates: Any, scheme: str, count: int
) -> None:
    server, options = by_scheme(scheme)
    tls = None
    if options:
        from network.conftest import verified

        tls = verified(certificates)
    stranger = transport.connect(server.address, tls=tls)

    def say_much() -> None:
        stranger.send([bytes(count)])
        stranger.receive(timeout=10)

    with contextlib.closing(stranger), pytest.raises(ConnectionError, match="longer than it takes"):
        say_much()
    wait_until(lambda: any("the limit here is 65536" in reason for reason in refusals(server)))
    client = connect(server, **options)
    large = torch.arange(300_000)
    assert torch.equal(large.send(client).get(), large)


def test_many_unfinished_greetings_cost_little(serve: Any) -> None:
    server = serve()
    before = rss_of()
    strangers = [transport.connect(server.address) for _ in range(30)]
    for stranger in strangers:
        with contextlib.suppress(ConnectionError):
            stranger.send([bytes(8 << 20)])
    wait_until(lambda: len(refusals(server)) >= 30)
    assert rss_of() - before < 60 << 20
    for stranger in strangers:
        stranger.close()


def test_silent_connections_make_room_for_those_who_greet(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(max_sessions=3))
    here = connect(server)
    here.sync()
    silent = [transport.connect(server.address) for _ in range(12)]
    wait_until(lambda: len(server._server._connections) >= 6)
    clock = Stopwatch()
    client = connect(server)
    client.sync()
    assert clock.seconds < 2.0
    here.sync()
    wait_until(lambda: sum("did not say who it is" in reason for reason in refusals(server)) >= 7)
    assert len(server._server._connections) <= 6
    for stranger in silent[:4]:  # the oldest had to go
        with pytest.raises(ConnectionError):
            stranger.receive(timeout=5)
    for stranger in silent:
        stranger.close()
    wait_until(lambda: len(server._server._connections) == 2)
    assert not server._server._silent


def test_when_all_have_greeted_one_more_is_refused(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(max_sessions=1))
    client = connect(server)
    client.sync()
    extra = object()
    server._server._connections.add(extra)
    try:
        with transport.connect(server.address) as late, pytest.raises(ConnectionError):
            late.receive(timeout=5)
        wait_until(lambda: any("The worker is full" in reason for reason in refusals(server)))
        client.sync()
    finally:
        server._server._connections.discard(extra)


# -- definite refusals -------------------------------------------------------------------------------------


@pytest.fixture
def mutual(serve: Any, certificates: Any) -> Any:
    """A worker that wants certificates of its clients."""
    return serve(
        "tls://localhost:0",
        certificate=certificates.certificate,
        key=certificates.key,
        client_ca=certificates.authority,
    )


def at_once(connect: Any, address: str, match: str, **options: Any) -> None:
    clock = Stopwatch()
    with pytest.raises(transport.HandshakeRefused, match=match):
        connect(address, **options)
    assert clock.seconds < 1.5, "it was not tried again"


def test_two_ends_that_do_not_go_together_are_told_at_once(
    connect: Any, mutual: Any, certificates: Any, tmp_path: Path
) -> None:
    ca = str(certificates.authority)
    at_once(connect, mutual.address, r"certificate= and key= .*--cert and --key.*load_cert_chain", ca=ca)
    stranger = make_certificate(tmp_path / "stranger")
    wrong = make_client_certificate(tmp_path / "stranger", "eve")
    files = {"certificate": str(wrong.certificate), "key": str(wrong.key)}
    at_once(connect, mutual.address, "does not trust the certificate", ca=ca, **files)
    at_once(connect, mutual.address, r"ca='ca\.pem' .*--ca ca\.pem", ca=str(stranger.authority))
    for scheme, words in (("ws", "connect with tls://"), ("tcp", "connect with tls://")):
        at_once(connect, mutual.address.replace("tls", scheme, 1), words)
    wait_until(lambda: any("client_ca=" in reason for reason in refusals(mutual)))


def test_a_worker_that_is_not_there_is_still_tried_for_a_while(connect: Any) -> None:
    with pytest.raises(WorkerUnreachableError, match=r"cannot be reached, after 0\.3 s of trying"):
        connect("tcp://127.0.0.1:1", patience=0.3)


def test_a_session_survives_somebody_else_at_the_address_for_a_while(connect: Any, serve: Any) -> None:
    client = connect(serve())
    held = torch.ones(2).send(client)
    client.sync()
    opener, refused = client._link._opener, 0

    def odd() -> Any:
        nonlocal refused
        refused += 1
        if refused < 4:
            raise transport.HandshakeRefused("It speaks HTTP, not this protocol.")
        return opener()

    client._link._opener = odd
    client._link._connection.close()
    assert held.get().tolist() == [1, 1]
    assert refused == 4


# -- one process, two users --------------------------------------------------------------------------------


def test_a_second_connection_never_speaks_as_the_first(serve: Any, me: Any, tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path / "tokens")
    server = serve(id="hospital", tokens=authority.verifier("hospital"))
    tokens = {user: authority.issue(user, 3600) for user in ("ana", "eve")}
    ana = sy.connect(server.address, token=tokens["ana"])
    try:
        with pytest.raises(RuntimeError, match=r"as 'ana' already.*auto_add=False.*remove_worker_from_local"):
            sy.connect(server.address, token=tokens["eve"])
        wait_until(lambda: len(server._server._sessions) == 1)
        ana.sync()
        again = sy.connect(server.address, token=tokens["ana"])
        assert again._link is ana._link, "the same one shares the connection"
        with sy.connect(server.address, token=tokens["eve"], auto_add=False) as eve:
            assert eve.user == "eve" and ana.user == "ana"
        ana.remove_worker_from_local_worker_registry()
        with sy.connect(server.address, token=tokens["eve"]) as eve:
            assert eve.user == "eve"
            assert me.get_worker("hospital") is eve
        eve.remove_worker_from_local_worker_registry()
    finally:
        ana.remove_worker_from_local_worker_registry()
        ana.close()


def test_after_a_close_another_may_connect(serve: Any, me: Any, tmp_path: Path) -> None:
    authority = TokenAuthority.create(tmp_path / "tokens")
    server = serve(id="hospital", tokens=authority.verifier("hospital"))
    with sy.connect(server.address, token=authority.issue("ana", 3600)) as ana:
        ana.sync()
    with sy.connect(server.address, token=authority.issue("eve", 3600)) as eve:
        assert eve.user == "eve"
        assert torch.ones(2).send(eve).get().tolist() == [1, 1]
    eve.remove_worker_from_local_worker_registry()
