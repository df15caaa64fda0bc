"""Who may talk to whom: certificates, mutual TLS, and clients at the wrong port. Every refusal is a sentence."""

from __future__ import annotations

import ssl
import threading
from typing import Any

import pytest

from stopwatch import Stopwatch
from syft import transport
from syft.transport import FrameLimits, HandshakeRefused

pytestmark = pytest.mark.network
ENCRYPTED = ["tls", "wss"]


class Refusals:
    """What a listener said of those it turned away."""

    def __init__(self, listener: Any) -> None:
        self.reasons: list[str] = []
        self._said = threading.Event()
        listener.on_refused = self._note

    def _note(self, peer: str, reason: str) -> None:
        assert "127.0.0.1" in peer
        self.reasons.append(reason)
        self._said.set()

    def wait(self) -> str:
        assert self._said.wait(60), "nobody was refused"
        return self.reasons[0]


def listen(wires: Any, tls: ssl.SSLContext | None) -> tuple[Any, Refusals]:
    listener = wires.keep(transport.listen(wires.place(), tls=tls, limits=FrameLimits(handshake_timeout=3)))
    return listener, Refusals(listener)


# -- certificates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ENCRYPTED)
def test_a_certificate_of_an_unknown_authority_is_refused(
    scheme: str, make_wires: Any, certificates: Any, other_certificates: Any
) -> None:
    listener, refusals = listen(make_wires(scheme), other_certificates.server())
    with pytest.raises(
        HandshakeRefused, match=r"could not be verified.*Trust the authority.*ca='ca\.pem'.*--ca"
    ):
        transport.connect(listener.address, tls=certificates.client())
    assert "does not trust the certificate" in refusals.wait()


@pytest.mark.parametrize("scheme", ENCRYPTED)
def test_without_a_context_only_the_systems_authorities_are_trusted(
    scheme: str, make_wires: Any, certificates: Any
) -> None:
    listener, refusals = listen(make_wires(scheme), certificates.server())
    with pytest.raises(HandshakeRefused, match="could not be verified"):
        transport.connect(listener.address)
    refusals.wait()


@pytest.mark.parametrize("scheme", ENCRYPTED)
def test_a_certificate_for_another_host_is_refused(scheme: str, make_wires: Any, certificates: Any) -> None:
    certificate = certificates.issue("elsewhere", ("example.org",))
    listener, refusals = listen(make_wires(scheme), certificates.server(certificate))
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(HandshakeRefused, match="for another host"):
            transport.connect(listener.address.replace("127.0.0.1", host), tls=certificates.client())
    refusals.wait()


@pytest.mark.parametrize("scheme", ENCRYPTED)
def test_an_expired_certificate_is_refused(scheme: str, make_wires: Any, certificates: Any) -> None:
    expired = certificates.issue("expired", ("localhost", "127.0.0.1"), days=-1)
    listener, refusals = listen(make_wires(scheme), certificates.server(expired))
    with pytest.raises(HandshakeRefused, match="expired"):
        transport.connect(listener.address, tls=certificates.client())
    refusals.wait()


@pytest.mark.parametrize("scheme", ENCRYPTED)
def test_mutual_tls_names_the_client(scheme: str, make_wires: Any, certificates: Any) -> None:
    wires = make_wires(scheme)
    listener, _refusals = listen(wires, certificates.server(client_ca=certificates.ca))
    client = certificates.client(certificates.issue("ana", ("ana.example.org",)))
    ours = wires.keep(transport.connect(listener.address, tls=client))
    theirs = wires.keep(listener.accept(5))
    assert theirs.peer_certificate_name == "ana"
    assert ours.peer_certificate_name is None
    assert ours.is_encrypted and theirs.is_encrypted
    ours.send([b"hello"])
    assert theirs.receive(5) == b"hello"


@pytest.mark.parametrize("scheme", ENCRYPTED)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_mutual_tls_refuses_a_client_without_a_certificate(
    scheme: str, version: ssl.TLSVersion, make_wires: Any, certificates: Any
) -> None:
    listener, refusals = listen(make_wires(scheme), certificates.server(client_ca=certificates.ca))
    client = certificates.client()
    client.minimum_version = client.maximum_version = version
    with pytest.raises(HandshakeRefused, match=r"client certificate \(mutual TLS\)"):
        transport.connect(listener.address, tls=client)
    assert "showed no certificate" in refusals.wait()
    with pytest.raises(TimeoutError):
        listener.accept(0.05)


@pytest.mark.parametrize("scheme", ENCRYPTED)
def test_mutual_tls_refuses_a_certificate_of_an_unknown_authority(
    scheme: str, make_wires: Any, certificates: Any, other_certificates: Any
) -> None:
    listener, refusals = listen(make_wires(scheme), certificates.server(client_ca=certificates.ca))
    client = certificates.client(other_certificates.issue("ana"))
    with pytest.raises(HandshakeRefused):
        transport.connect(listener.address, tls=client)
    assert "could not be verified" in refusals.wait()


# -- contexts --------------------------------------------------------------------------------------------


def test_a_client_that_verifies_nothing_is_refused_before_it_connects(certificates: Any) -> None:
    blind = certificates.client()
    blind.check_hostname = False
    with pytest.raises(ValueError, match="does not verify host names"):
        transport.connect("tls://127.0.0.1:1", tls=blind)
    blind.verify_mode = ssl.CERT_NONE
    with pytest.raises(ValueError, match=r"does not verify certificates.*anybody could pose"):
        transport.connect("wss://127.0.0.1:1", tls=blind)


def test_old_versions_of_tls_are_refused(certificates: Any) -> None:
    old = certificates.client()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ValueError, match=r"versions before 1\.2"):
        transport.connect("tls://127.0.0.1:1", tls=old)
    server = certificates.server()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        server.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.raises(ValueError, match=r"versions before 1\.2"):
        transport.listen("wss://127.0.0.1:0", tls=server)


def test_a_least_version_that_nobody_chose_is_made_one(certificates: Any) -> None:
    client, server = certificates.client(), certificates.server()
    for context in (client, server):
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with transport.listen("tls://127.0.0.1:0", tls=server) as listener:
        with (
            transport.connect(listener.address, tls=client) as connection,
            listener.accept(timeout=60.0) as there,
        ):
            connection.send([b"hello"])
            assert bytes(there.receive(timeout=60.0)) == b"hello"
    assert client.minimum_version == server.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_server_needs_a_context_for_servers(certificates: Any) -> None:
    with pytest.raises(ValueError, match="needs tls="):
        transport.listen("tls://127.0.0.1:0")
    with pytest.raises(ValueError, match="for clients"):
        transport.listen("wss://127.0.0.1:0", tls=certificates.client())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "ws://127.0.0.1:0", "unix:///tmp/x", "inproc://x"])
def test_a_context_for_a_plain_address_is_refused(address: str, certificates: Any) -> None:
    with pytest.raises(ValueError, match="not encrypted"):
        transport.listen(address, tls=certificates.server())
    with pytest.raises(ValueError, match="not encrypted"):
        transport.connect(address, tls=certificates.client())


# -- the wrong port --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speaks", "expected", "here", "there"),
    [
        (
            "tcp",
            "tls",
            "speaks TLS at this port: connect with tls://",
            "this port speaks TLS: connect with tls://",
        ),
        ("tls", "tcp", "speaks no TLS at this port", "speaks TLS, not this protocol"),
        (
            "ws",
            "wss",
            "This port speaks TLS: connect with wss://",
            "this port speaks TLS: connect with wss://",
        ),
        ("wss", "ws", "speaks no TLS at this port", "speaks WebSocket without TLS: connect with ws://"),
        ("tcp", "ws", "speaks HTTP, not this protocol", "connect with ws://"),
        ("ws", "tcp", "speaks the protocol of tcp://", "speaks HTTP, not this protocol"),
        (
            "tls",
            "wss",
            "speaks HTTP, not this protocol|closed the connection",
            "speaks the protocol of tcp://",
        ),
        ("wss", "tls", "speaks the protocol of tcp://", "speaks HTTP, not this protocol"),
        ("tcp", "wss", "speaks HTTP, not this protocol", "connect with wss://"),
        ("ws", "tls", "This port speaks TLS: connect with tls://", "speaks HTTP, and this port speaks TLS"),
    ],
)
def test_a_client_at_the_wrong_port_and_the_server_are_both_told(
    speaks: str, expected: str, here: str, there: str, make_wires: Any, certificates: Any
) -> None:
    listener, refusals = listen(
        make_wires(expected), certificates.server() if expected in ENCRYPTED else None
    )
    address = listener.address.replace(f"{expected}://", f"{speaks}://")
    clock = Stopwatch()
    with pytest.raises(HandshakeRefused, match=here) as refused:
        transport.connect(address, tls=certificates.client() if speaks in ENCRYPTED else None)
    assert there in refusals.wait()
    assert refused.value.is_definite or "closed the connection" in str(refused.value)
    assert clock.seconds < 2, "it was told at once"
