"""What happens before the first frame: connecting, TLS, and reading what a stranger says, all against one deadline.

There is no way to turn the verification of certificates off.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from syft.transport.address import HostPort, is_loopback_host
from syft.transport.errors import CannotConnect, HandshakeRefused
from syft.transport.sockets import tune

_DISMISSAL_SECONDS = 0.5
#: How to trust an authority: for those who connect to workers, and for those who make a context themselves.
_TRUST = "ca='ca.pem' (`syft`: --ca ca.pem), or tls=ssl.create_default_context(cafile='ca.pem')"
_TRUST_CLIENTS = "client_ca='ca.pem' (`syft worker`: --client-ca ca.pem), or SSLContext.load_verify_locations"

# -- bytes, by a deadline --------------------------------------------------------------------------------


def receive_by(sock: socket.socket, count: int, deadline: float) -> bytes:
    """Some bytes. The deadline is for the whole handshake, so that nobody holds it open byte by byte."""
    sock.settimeout(_left(deadline))
    return sock.recv(count)


def send_by(sock: socket.socket, data: bytes, deadline: float) -> None:
    sock.settimeout(_left(deadline))
    sock.sendall(data)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the handshake took too long")
    return left


def peek(sock: socket.socket, deadline: float) -> bytes:
    """The first bytes of a stranger, which stay where they are."""
    sock.settimeout(_left(deadline))
    return sock.recv(8, socket.MSG_PEEK)


def describe(data: bytes) -> str:
    """What the first bytes of a stranger look like."""
    if data[:1] in (b"\x15", b"\x16"):
        return "speaks TLS"
    if data[:4] == b"\x8bSYT":
        return "speaks the protocol of tcp://"
    if data[:4] in (b"GET ", b"PUT ", b"POST", b"HEAD", b"HTTP", b"OPTI", b"DELE", b"PATC", b"CONN"):
        return "speaks HTTP"
    return f"sent {data[:8]!r}"


# -- connecting ------------------------------------------------------------------------------------------


def dial(
    address: str,
    place: HostPort,
    tls: ssl.SSLContext | None,
    timeout: float,
    handshake: Callable[[socket.socket, float], None],
) -> socket.socket:
    """A socket to `place`, in TLS if there is a context, on which `handshake` succeeded. !! CannotConnect."""
    deadline = time.monotonic() + timeout
    try:
        sock = socket.create_connection((place.host, place.port), timeout=timeout)
    except (OSError, UnicodeError) as error:
        raise CannotConnect(f"Nobody answers at {address}: {error}. Is the worker running there?") from error
    return shake_hands(sock, address, lambda s: _dialled(s, place, tls, deadline, handshake))


def _dialled(
    sock: socket.socket,
    place: HostPort,
    tls: ssl.SSLContext | None,
    deadline: float,
    handshake: Callable[[socket.socket, float], None],
) -> socket.socket:
    tune(sock, is_local=is_loopback_host(sock.getpeername()[0]))
    if tls is not None:
        sock = wrap_tls(sock, tls, place.host)
    try:
        if isinstance(sock, ssl.SSLSocket):
            finish_tls(sock, deadline)
        handshake(sock, deadline)
    except BaseException:
        sock.close()
        raise
    return sock


def shake_hands(
    sock: socket.socket, address: str, work: Callable[[socket.socket], socket.socket]
) -> socket.socket:
    """What `work` makes of a new socket; every fault closes it and becomes a sentence."""
    try:
        return work(sock)
    except BaseException as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise HandshakeRefused(
                f"{address} took the connection and did not finish the handshake in time. It may be busy, or no "
                "worker at all.",
                is_definite=False,
            ) from error
        if isinstance(error, ssl.SSLError):
            raise HandshakeRefused(
                f"{address} was not connected to: {tls_fault(error)}",
                is_definite=not isinstance(error, ssl.SSLEOFError),
            ) from error
        if isinstance(error, OSError) and not isinstance(error, HandshakeRefused):
            raise HandshakeRefused(
                f"{address} ended the connection during the handshake: {error}.", is_definite=False
            ) from error
        raise


# -- TLS -------------------------------------------------------------------------------------------------


def wrap_tls(
    sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None
) -> ssl.SSLSocket:
    """The socket, which gives its file away, in TLS; as the server if no host name is to be verified."""
    return context.wrap_socket(
        sock,
        server_side=server_hostname is None,
        server_hostname=server_hostname,
        do_handshake_on_connect=False,
    )


def finish_tls(sock: ssl.SSLSocket, deadline: float) -> None:
    sock.settimeout(_left(deadline))
    sock.do_handshake()


def dismiss(sock: socket.socket) -> None:
    """Close the socket of somebody who was refused, so that they can read why: TCP takes that back if they still send."""
    try:
        sock.settimeout(_DISMISSAL_SECONDS)
        socket.socket.shutdown(sock, socket.SHUT_WR)
        deadline = time.monotonic() + _DISMISSAL_SECONDS
        while socket.socket.recv(sock, 1 << 16) and time.monotonic() < deadline:
            pass
    except OSError:
        pass
    sock.close()


def client_context(address: str, tls: ssl.SSLContext | None, is_encrypted: bool) -> ssl.SSLContext | None:
    """The context to connect with; the system's authorities are trusted if none is given."""
    if not is_encrypted:
        _refuse_tls(address, tls)
        return None
    if tls is None:
        tls = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        return tls
    if tls.verify_mode == ssl.CERT_NONE or not tls.check_hostname:
        raise ValueError(
            f"connect({address!r}) got a TLS context that does not verify "
            f"{'certificates' if tls.verify_mode == ssl.CERT_NONE else 'host names'}, so anybody could pose as the "
            f"worker. Trust the authority of its certificate instead: {_TRUST}."
        )
    _check_version(f"connect({address!r})", tls)
    return tls


def server_context(address: str, tls: ssl.SSLContext | None, is_encrypted: bool) -> ssl.SSLContext | None:
    """The context to listen with."""
    if not is_encrypted:
        _refuse_tls(address, tls)
        return None
    if tls is None:
        raise ValueError(
            f"listen({address!r}) needs tls=, a context with this server's certificate. Make a certificate with "
            "`syft cert`, and give it as certificate= and key= (`syft worker`: --cert and --key), or load it with "
            "SSLContext.load_cert_chain."
        )
    if tls.protocol == ssl.PROTOCOL_TLS_CLIENT:
        raise ValueError(
            f"listen({address!r}) got a TLS context for clients. Make one with "
            "ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)."
        )
    _check_version(f"listen({address!r})", tls)
    return tls


def _refuse_tls(address: str, tls: ssl.SSLContext | None) -> None:
    if tls is not None:
        raise ValueError(
            f"A TLS context was given for {address!r}, which is not encrypted. Use tls:// or wss://."
        )


def _check_version(call: str, tls: ssl.SSLContext) -> None:
    if tls.minimum_version is ssl.TLSVersion.MINIMUM_SUPPORTED:
        # Nobody chose it: Pythons that leave the least version to their system (Debian's, Ubuntu's) begin like that.
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.minimum_version < ssl.TLSVersion.TLSv1_2:
        raise ValueError(
            f"{call} got a TLS context that allows versions before 1.2. Set its minimum_version to "
            "ssl.TLSVersion.TLSv1_2 or later."
        )


def client_certificate_name(sock: socket.socket) -> str | None:
    """The name in the certificate that a client showed, if it was verified."""
    certificate = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
    if not certificate:
        return None
    # `getpeercert` describes a name as nested tuples: (((key, value), ...), ...).
    subject: Any = certificate.get("subject", ())
    alternatives: Any = certificate.get("subjectAltName", ())
    names = [value for group in subject for key, value in group if key == "commonName"]
    names += [value for _kind, value in alternatives]
    return str(names[0]) if names else None


def client_certificate_expiry(sock: socket.socket) -> float | None:
    """Until when the certificate is valid that a client showed, in seconds since 1970, if it was verified."""
    certificate = sock.getpeercert() if isinstance(sock, ssl.SSLSocket) else None
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"]))) if certificate else None


def http_refusal(text: str) -> bytes:
    """An answer for somebody who speaks HTTP at a port that does not, in words they can read."""
    body = text.encode()
    head = f"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def tls_fault(error: ssl.SSLError, is_server: bool = False) -> str:
    """What went wrong in a TLS handshake, in a sentence, for the end that it is told to."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (62, 64):  # host name or IP address mismatch
            return (
                f"its certificate is for another host ({error.verify_message}). Connect by a name that the certificate "
                "has, or make a certificate with this host in it."
            )
        return (
            f"its certificate could not be verified ({error.verify_message}). Trust the authority that signed it: "
            f"{_TRUST_CLIENTS if is_server else _TRUST}."
        )
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return "it speaks no TLS at this port. Use a plain address (tcp://, ws://) if that is meant."
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it showed no certificate, and this server asks for one (mutual TLS)."
    if "CERTIFICATE_REQUIRED" in reason or reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
        return (
            "it asks for a client certificate (mutual TLS): give yours with certificate= and key= (`syft`: --cert and "
            "--key), or load it into tls= with SSLContext.load_cert_chain."
        )
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "DECRYPT_ERROR")):
        return f"the other end does not trust the certificate it was shown ({reason})."
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection in the middle of the TLS handshake."
    return f"the TLS handshake failed ({reason or error})."
