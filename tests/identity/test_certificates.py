"""Certificates that are made here work, and TLS refuses what it should."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from syft.exceptions import AuthenticationError
from syft.identity import certificates, files
from syft.identity.certificates import (
    CertificateError,
    CertificateFiles,
    client_context,
    make_certificate,
    make_client_certificate,
    server_context,
    user_of_certificate,
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def server(home: Path) -> CertificateFiles:
    return make_certificate(home)


def talk(server_tls: ssl.SSLContext, client_tls: ssl.SSLContext | None, name: str = "localhost") -> Any:
    """The certificate that the server saw, after one byte each way over loopback."""
    seen: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                try:
                    with server_tls.wrap_socket(connection, server_side=True) as tls:
                        seen.append(tls.getpeercert())
                        tls.sendall(tls.recv(1))
                except (OSError, ssl.SSLError) as error:
                    seen.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with socket.create_connection(listener.getsockname(), timeout=10) as raw:
                if client_tls is None:
                    raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    with contextlib.suppress(ConnectionError):
                        raw.recv(1)
                else:
                    with client_tls.wrap_socket(raw, server_hostname=name) as tls:
                        tls.sendall(b"x")
                        # NB: in TLS 1.3 a client learns here that its certificate was not accepted.
                        assert tls.recv(1) == b"x"
        finally:
            thread.join()
    return seen[0]


# -- making ----------------------------------------------------------------------------------------


def test_files_are_made_and_secrets_are_their_owners(home: Path, server: CertificateFiles) -> None:
    assert {"ca.pem", "ca.key", "server.pem", "server.key"} <= {path.name for path in home.iterdir()}
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
    assert server.authority == home / "ca.pem"


def test_what_the_certificates_say(server: CertificateFiles) -> None:
    made = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    ca = x509.load_pem_x509_certificate(server.authority.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert sorted(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    made.verify_directly_issued_by(ca)
    days = (made.not_valid_after_utc - datetime.datetime.now(datetime.UTC)).days
    assert days in (364, 365)


def test_one_authority_for_several_certificates_also_from_elsewhere(
    home: Path, server: Any, tmp_path: Path
) -> None:
    before = server.authority.read_bytes()
    make_certificate(home, ["data.example.org", "10.0.0.7"], name="second")
    far = make_certificate(tmp_path, name="third", authority=home)
    assert server.authority.read_bytes() == before == far.authority.read_bytes()
    assert not (tmp_path / "ca.key").exists()
    assert talk(server_context(far.certificate, far.key), client_context(server.authority)) in (None, {})


def test_nothing_is_overwritten_unless_asked(home: Path, server: CertificateFiles) -> None:
    key = server.key.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        make_certificate(home)
    assert server.key.read_bytes() == key
    made = make_certificate(home, name="again")
    old = made.key.read_bytes()
    make_certificate(home, name="again", overwrite=True)
    assert made.key.read_bytes() != old
    server_context(made.certificate, made.key)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hosts": "localhost"}, "hosts are"),
        ({"hosts": []}, "hosts are"),
        ({"hosts": ["https://x"]}, "without scheme"),
        ({"hosts": ["a b"]}, "neither a host name"),
        ({"name": "../evil"}, "names its files"),
        ({"name": "ca"}, "names its files"),
        ({"name": ""}, "names its files"),
        ({"days": 0}, "days is"),
        ({"days": True}, "days is"),
        ({"days": 10_000}, "days is"),
        ({"authority": "/nowhere"}, "cannot be read"),
        ({"days": 3650}, "authority .* ends on"),
    ],
)
def test_mistakes_are_told(home: Path, server: Any, options: dict[str, Any], words: str) -> None:
    before = sorted(home.iterdir())
    with pytest.raises(CertificateError, match=words):
        make_certificate(home, **{"name": "wrong", **options})
    assert sorted(home.iterdir()) == before


def test_names_of_users(home: Path, server: Any) -> None:
    assert make_client_certificate(home, "ana@example.org").certificate.name.startswith("client-")
    assert make_client_certificate(home, "ben").certificate.name == "ben.pem"
    for wrong in ("", " ben", "a\nb", "x" * 129):
        with pytest.raises(ValueError, match="name of a user"):
            make_client_certificate(home, wrong)
    with pytest.raises(CertificateError, match="64 characters"):
        make_client_certificate(home, "x" * 65)


# -- TLS -------------------------------------------------------------------------------------------


@pytest.mark.network
def test_a_client_that_trusts_the_authority_connects(server: CertificateFiles) -> None:
    assert talk(server_context(server.certificate, server.key), client_context(server.authority)) in (
        None,
        {},
    )


@pytest.mark.network
def test_a_client_that_does_not_is_not_connected(server: CertificateFiles, tmp_path: Path) -> None:
    other = make_certificate(tmp_path)
    tls = server_context(server.certificate, server.key)
    for client in (client_context(), client_context(other.authority)):
        with pytest.raises(ssl.SSLCertVerificationError):
            talk(tls, client)


@pytest.mark.network
def test_the_host_name_is_verified(server: CertificateFiles) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname mismatch"):
        talk(server_context(server.certificate, server.key), client_context(server.authority), "example.org")


@pytest.mark.network
def test_mutual_tls_tells_who_connects(home: Path, server: CertificateFiles) -> None:
    tls = server_context(server.certificate, server.key, client_ca=server.authority)
    ana = make_client_certificate(home, "ána müller")
    seen = talk(tls, client_context(server.authority, ana.certificate, ana.key))
    assert user_of_certificate(seen) == "ána müller"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        talk(tls, client_context(server.authority))


@pytest.mark.network
def test_mutual_tls_refuses_others_certificates(server: CertificateFiles, tmp_path: Path) -> None:
    tls = server_context(server.certificate, server.key, client_ca=server.authority)
    other = make_client_certificate(tmp_path, "ana")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        talk(tls, client_context(server.authority, other.certificate, other.key))
    # The certificate of a server is none of a client, though the same authority made it.
    with pytest.raises((ssl.SSLError, ConnectionError)):
        talk(tls, client_context(server.authority, server.certificate, server.key))


@pytest.mark.network
def test_a_client_without_tls_gets_nowhere(server: CertificateFiles) -> None:
    assert isinstance(talk(server_context(server.certificate, server.key), None), ssl.SSLError)


def test_old_versions_are_off(server: CertificateFiles) -> None:
    for context in (server_context(server.certificate, server.key), client_context(server.authority)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    client = client_context()
    assert client.check_hostname and client.verify_mode is ssl.CERT_REQUIRED


# -- files that are wrong ---------------------------------------------------------------------------


def shifted(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Certificates are made as if it were another day."""

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:
            return datetime.datetime.now(tz) + datetime.timedelta(days=days)

    fake = type("fake", (), {"datetime": Clock, "timedelta": datetime.timedelta, "UTC": datetime.UTC})
    monkeypatch.setattr(certificates, "datetime", fake)


@pytest.mark.parametrize(("days", "words"), [(-400, "expired on"), (400, "not valid before")])
def test_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, words: str) -> None:
    with monkeypatch.context() as patch:
        shifted(patch, days)
        made = make_certificate(tmp_path)
    with pytest.raises(CertificateError, match=words):
        server_context(made.certificate, made.key)


def test_a_key_of_another_certificate(home: Path, server: CertificateFiles) -> None:
    with pytest.raises(CertificateError, match="does not belong to"):
        server_context(server.certificate, home / "ca.key")


def test_files_that_are_something_else(home: Path, server: CertificateFiles, tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_bytes(b"\x80\x04junk")
    with pytest.raises(CertificateError, match="not a certificate"):
        server_context(junk, server.key)
    with pytest.raises(CertificateError, match="not a private key"):
        server_context(server.certificate, junk)
    with pytest.raises(CertificateError, match="cannot be read"):
        server_context(tmp_path / "missing", server.key)
    with pytest.raises(CertificateError, match="no certificate"):
        client_context(junk)
    with pytest.raises(CertificateError, match="not of an authority"):
        client_context(server.certificate)
    with pytest.raises(CertificateError, match="both `cert` and `key`"):
        client_context(server.authority, cert=server.certificate)
    key = serialization.load_pem_private_key(server.key.read_bytes(), None)
    locked = tmp_path / "locked"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with pytest.raises(CertificateError, match="password"):
        server_context(server.certificate, locked)


@pytest.mark.parametrize(
    "peer",
    [
        None,
        {},
        {"subject": ()},
        {"subject": ((("commonName", "a"),), (("commonName", "b"),))},
        {"subject": ((("commonName", "a\nb"),),)},
    ],
)
def test_a_certificate_that_names_nobody(peer: Any) -> None:
    with pytest.raises(AuthenticationError, match="names one user"):
        user_of_certificate(peer)


def test_a_file_system_without_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(files.os, "link", refuse)
    made = make_certificate(tmp_path)
    server_context(made.certificate, made.key)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        files.write_file(made.key, b"", private=True)
    assert stat.S_IMODE(made.key.stat().st_mode) == 0o600
