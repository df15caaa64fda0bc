"""Certificates, listeners and pairs of connections, for every transport. Nothing here needs torch."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import shutil
import ssl
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from syft import transport
from syft.transport import Connection, FrameLimits, Listener

ENCRYPTED = ("tls", "wss")
_numbers = itertools.count()


class Certificates:
    """An authority, and what it signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = self._write("ca", self._key, "test authority", self._key, "test authority", is_ca=True)

    def issue(self, name: str, hosts: tuple[str, ...] = (), days: int = 1) -> Path:
        """A file with a key and a certificate for `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, key, name, self._key, "test authority", hosts=hosts, days=days)

    def _write(
        self,
        file: str,
        key: ec.EllipticCurvePrivateKey,
        subject: str,
        signer: ec.EllipticCurvePrivateKey,
        issuer: str,
        hosts: tuple[str, ...] = (),
        is_ca: bool = False,
        days: int = 1,
    ) -> Path:
        now = datetime.datetime.now(datetime.UTC)
        end = now + datetime.timedelta(days=days)
        names: list[x509.GeneralName] = [_general_name(host) for host in hosts]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, end) - datetime.timedelta(days=1))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path = self.folder / f"{file}.pem"
        path.write_bytes(
            (b"" if is_ca else private) + builder.sign(signer, hashes.SHA256()).public_bytes(pem)
        )
        return path

    def server(self, certificate: Path | None = None, client_ca: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate or self.localhost)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, certificate: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    @property
    def localhost(self) -> Path:
        path = self.folder / "localhost.pem"
        return path if path.exists() else self.issue("localhost", ("localhost", "127.0.0.1"))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def other_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of an authority that nobody trusts."""
    return Certificates(tmp_path_factory.mktemp("others"))


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """Short enough for the path of a socket."""
    folder = Path(tempfile.mkdtemp(prefix="syft"))
    yield folder
    shutil.rmtree(folder)


class Wires:
    """Makes listeners and pairs of connections of one scheme, and closes them all."""

    def __init__(self, scheme: str, certificates: Certificates, folder: Path) -> None:
        self.scheme, self.certificates, self.folder = scheme, certificates, folder
        self._open: list[Any] = []

    def place(self) -> str:
        number = next(_numbers)
        if self.scheme == "inproc":
            return f"inproc://test{number}"
        return f"unix://{self.folder}/{number}" if self.scheme == "unix" else f"{self.scheme}://127.0.0.1:0"

    def listen(self, limits: FrameLimits = transport.DEFAULT_LIMITS) -> Listener:
        tls = self.certificates.server() if self.scheme in ENCRYPTED else None
        return self.keep(transport.listen(self.place(), tls=tls, limits=limits))

    def connect(self, listener: Listener, limits: FrameLimits = transport.DEFAULT_LIMITS) -> Connection:
        tls = self.certificates.client() if self.scheme in ENCRYPTED else None
        return self.keep(transport.connect(listener.address, tls=tls, limits=limits))

    def pair(
        self, here: FrameLimits = transport.DEFAULT_LIMITS, there: FrameLimits = transport.DEFAULT_LIMITS
    ) -> tuple[Connection, Connection]:
        """(the end that connected, the end that was accepted)."""
        listener = self.listen(there)
        ours = self.connect(listener, here)
        return ours, self.keep(listener.accept(5))

    def keep(self, thing: Any) -> Any:
        self._open.append(thing)
        return thing

    def close(self) -> None:
        for thing in reversed(self._open):
            thing.close()


@pytest.fixture
def make_wires(certificates: Certificates, socket_folder: Path) -> Iterator[Callable[[str], Wires]]:
    made: list[Wires] = []

    def make(scheme: str) -> Wires:
        made.append(Wires(scheme, certificates, socket_folder))
        return made[-1]

    yield make
    for wires in made:
        wires.close()


@pytest.fixture
def run_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process in which `transport` is our room, and torch is neither needed nor loaded."""
    package = Path(transport.__file__).parent.parent
    # NB: `import syft` alone would import torch; the room has to work without.
    head = f"""
        import sys, types
        package = types.ModuleType("syft")
        package.__path__ = [{str(package)!r}]
        sys.modules["syft"] = package
        sys.modules["torch"] = None
        from syft import transport
        """
    started: list[subprocess.Popen[str]] = []

    def run(body: str, *arguments: str) -> subprocess.Popen[str]:
        code = textwrap.dedent(head) + textwrap.dedent(body)
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
