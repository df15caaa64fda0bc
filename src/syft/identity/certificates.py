"""A small certificate authority for an owner without one, and TLS contexts that verify.

    ca.pem, ca.key       the authority; `ca.pem` goes to everybody, `ca.key` to nobody
    NAME.pem, NAME.key   a server, by its host names; or a client, by its user name (mutual TLS)

Keys are ECDSA on P-256. Verification cannot be switched off here.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from syft.exceptions import AuthenticationError, SyftError
from syft.identity.files import make_private_directory, write_file
from syft.identity.names import check_user_name, is_user_name

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_DAYS_OF_AUTHORITY = 3650
#: A certificate is valid from a little before it was made: clocks differ.
_SKEW = datetime.timedelta(minutes=5)
#: X.509's limit for a common name.
_MAX_COMMON_NAME = 64
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")


class CertificateError(SyftError, ValueError):
    """A certificate or key that cannot be made or used."""


@dataclass(frozen=True)
class CertificateFiles:
    """Where a certificate, its key, and the certificate of its authority are."""

    certificate: Path
    key: Path
    authority: Path


# -- making ----------------------------------------------------------------------------------------


def make_certificate(
    directory: str | Path,
    hosts: Sequence[str] = LOOPBACK,
    name: str = "server",
    days: int = 365,
    authority: str | Path | None = None,
    overwrite: bool = False,
) -> CertificateFiles:
    """A certificate for a server that is reached under `hosts` (names and addresses).

    authority  the directory of `ca.pem` and `ca.key`; `directory` by default, where they are made if missing
    """
    if isinstance(hosts, str) or not hosts:
        raise CertificateError(
            f"hosts are the names and addresses under which the server is reached, e.g. ['data.example.org', "
            f"'10.0.0.7']; got {hosts!r}."
        )
    alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
    common_name = f"syft worker {name}"
    return _make(
        Path(directory),
        name,
        common_name,
        days,
        authority,
        overwrite,
        ExtendedKeyUsageOID.SERVER_AUTH,
        alternatives,
    )


def make_client_certificate(
    directory: str | Path,
    user: str,
    name: str | None = None,
    days: int = 365,
    authority: str | Path | None = None,
    overwrite: bool = False,
) -> CertificateFiles:
    """A certificate with which `user` proves who they are, to servers that ask for one (mutual TLS)."""
    if len(check_user_name(user)) > _MAX_COMMON_NAME:
        raise CertificateError(
            f"A certificate holds names of up to {_MAX_COMMON_NAME} characters, and {user!r} has {len(user)}. "
            "Choose a shorter name for this user, or use a token."
        )
    if name is None:
        fits = _FILE_NAME.fullmatch(user) and user != "ca"
        name = user if fits else f"client-{hashlib.sha256(user.encode()).hexdigest()[:16]}"
    return _make(
        Path(directory), name, user, days, authority, overwrite, ExtendedKeyUsageOID.CLIENT_AUTH, None
    )


def _make(
    directory: Path,
    name: str,
    common_name: str,
    days: int,
    authority: str | Path | None,
    overwrite: bool,
    usage: x509.ObjectIdentifier,
    alternatives: x509.SubjectAlternativeName | None,
) -> CertificateFiles:
    if not _FILE_NAME.fullmatch(name) or name == "ca":
        raise CertificateError(
            f"The name of a certificate names its files: letters, digits, '.', '_' and '-', 64 at most, and not 'ca'; "
            f"got {name[:80]!r}."
        )
    if isinstance(days, bool) or not isinstance(days, int) or not 0 < days <= _DAYS_OF_AUTHORITY:
        raise CertificateError(f"days is a whole number from 1 to {_DAYS_OF_AUTHORITY}, got {days!r}.")
    make_private_directory(directory)
    files = CertificateFiles(directory / f"{name}.pem", directory / f"{name}.key", directory / "ca.pem")
    taken = [path for path in (files.certificate, files.key) if path.exists()]
    if taken and not overwrite:
        raise FileExistsError(
            f"{taken[0]} exists already and is not overwritten. Choose another name, or pass overwrite=True: clients "
            "that trust the authority will trust the new certificate, too."
        )
    home = directory if authority is None else Path(authority)
    ca, ca_key = _authority(home, may_make=authority is None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    end = now + datetime.timedelta(days=days)
    if end > ca.not_valid_after_utc:
        raise CertificateError(
            f"The authority {home / 'ca.pem'} ends on {ca.not_valid_after_utc:%Y-%m-%d}, before the certificate would "
            f"({end:%Y-%m-%d}). Ask for fewer days, or make a new authority in another directory."
        )
    builder = _builder(_named(common_name), ca.subject, key.public_key(), now, end)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    builder = builder.add_extension(_authority_identifier(ca), critical=False)
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    certificate = builder.sign(ca_key, hashes.SHA256())
    write_file(files.key, _key_bytes(key), private=True, overwrite=overwrite)
    write_file(files.certificate, _certificate_bytes(certificate), private=False, overwrite=overwrite)
    if home != directory:
        write_file(files.authority, _certificate_bytes(ca), private=False, overwrite=True)
    return files


def _authority(directory: Path, may_make: bool) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The authority of a directory, made if there is none and `may_make`."""
    certificate_path, key_path = directory / "ca.pem", directory / "ca.key"
    if not certificate_path.exists() and not key_path.exists() and may_make:
        _make_authority(certificate_path, key_path)
    certificate, key = _load_pair(certificate_path, key_path)
    if not _is_authority(certificate) or not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(
            f"{certificate_path} is not the certificate of an authority made here, so it cannot sign others. Make the "
            "certificate in a new directory."
        )
    return certificate, key


def _make_authority(certificate_path: Path, key_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = _named(f"syft authority {x509.random_serial_number() >> 128:08x}")
    builder = _builder(
        subject, subject, key.public_key(), now, now + datetime.timedelta(days=_DAYS_OF_AUTHORITY)
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True), critical=True)
    certificate = builder.sign(key, hashes.SHA256())
    write_file(key_path, _key_bytes(key), private=True)
    write_file(certificate_path, _certificate_bytes(certificate), private=False)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _authority_identifier(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_MAX_COMMON_NAME])])


def _usage(digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not isinstance(host, str) or not _HOST_NAME.fullmatch(host) or len(host) > 253:
        raise CertificateError(
            f"{str(host)[:80]!r} is neither a host name nor an address. Write 'data.example.org' or '10.0.0.7', without "
            "scheme and port; a name in other letters as its xn-- form."
        )
    return x509.DNSName(host)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


# -- using -----------------------------------------------------------------------------------------


def server_context(cert: str | Path, key: str | Path, client_ca: str | Path | None = None) -> ssl.SSLContext:
    """TLS of a server. With `client_ca`, clients have to show a certificate of that authority. !! CertificateError"""
    _load_pair(Path(cert), Path(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        _check_authority(Path(client_ca))
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    ca: str | Path | None = None, cert: str | Path | None = None, key: str | Path | None = None
) -> ssl.SSLContext:
    """TLS of a client: the server's certificate and host name are always verified. !! CertificateError

    ca         whom to trust, and nobody else; None: the authorities of the system
    cert, key  the certificate with which this client proves who it is
    """
    if (cert is None) != (key is None):
        raise CertificateError(
            "A client's certificate comes with its key: pass both `cert` and `key`, or neither."
        )
    if ca is not None:
        _check_authority(Path(ca))
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if cert is not None and key is not None:
        _load_pair(Path(cert), Path(key))
        context.load_cert_chain(cert, key)
    return context


def user_of_certificate(peer: Mapping[str, Any] | None) -> str:
    """The user whom a verified certificate names, from `ssl.SSLSocket.getpeercert()`. !! AuthenticationError"""
    names = [value for part in (peer or {}).get("subject", ()) for key, value in part if key == "commonName"]
    if len(names) != 1 or not is_user_name(names[0]):
        raise AuthenticationError(
            "The client showed no certificate that names one user. Make one with make_client_certificate(directory, "
            "user) and connect with it."
        )
    return str(names[0])


def _load_pair(certificate_path: Path, key_path: Path) -> tuple[x509.Certificate, Any]:
    """A certificate that is valid today, and the key that belongs to it."""
    certificate = _load_certificate(certificate_path)
    try:
        key = serialization.load_pem_private_key(_read(key_path), None)
    except TypeError:
        raise CertificateError(
            f"The key {key_path} is locked with a password, which nobody can type in when a worker starts. Store it "
            "unlocked, readable by the worker alone."
        ) from None
    except ValueError as error:
        raise CertificateError(f"{key_path} is not a private key in PEM form: {error}") from error
    _check_dates(certificate, certificate_path)
    if _public_bytes(key.public_key()) != _public_bytes(certificate.public_key()):
        raise CertificateError(
            f"The key {key_path} does not belong to the certificate {certificate_path}. Pass the two that were made "
            "together."
        )
    return certificate, key


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise CertificateError(f"{path} is not a certificate in PEM form: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{path} cannot be read ({error.strerror}). Make certificates with make_certificate(directory), or pass "
            "the path where yours are."
        ) from error


def _check_dates(certificate: x509.Certificate, path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            f"The certificate {path} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC. Make a new one, "
            "with overwrite=True if it is to have the same name."
        )
    if now < certificate.not_valid_before_utc:
        raise CertificateError(
            f"The certificate {path} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and "
            f"here it is {now:%Y-%m-%d %H:%M} UTC. Set the clock of this machine, or wait."
        )


def _check_authority(path: Path) -> None:
    """A file of trusted certificates: each is an authority's, and one of them is valid today at least."""
    try:
        found = x509.load_pem_x509_certificates(_read(path))
    except ValueError as error:
        raise CertificateError(f"{path} holds no certificate in PEM form: {error}") from error
    for certificate in found:
        if not _is_authority(certificate):
            raise CertificateError(
                f"{path} is the certificate of a server or client, not of an authority. Pass the ca.pem that was made "
                "beside it."
            )
    if len(found) == 1:
        _check_dates(found[0], path)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def _public_bytes(key: Any) -> bytes:
    data: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data
