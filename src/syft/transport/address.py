"""Addresses: `scheme://place`, taken apart and checked. Does no I/O."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostPort:
    """The place of a network address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def split(address: str) -> tuple[str, str]:
    """(scheme, rest) of an address."""
    if not isinstance(address, str):
        raise ValueError(
            f"An address is a string such as 'tcp://127.0.0.1:8777', got {type(address).__name__}."
        )
    scheme, separator, rest = address.partition("://")
    if not separator or not scheme or not rest:
        # Most who leave the scheme out speak of a worker that was started with no address but its default.
        likely = f"ws://{address}" if not separator and ":" in address else "ws://127.0.0.1:8777"
        raise ValueError(
            f"{address!r} is no address: those begin with a scheme. A worker that `syft worker` started is at "
            f"{likely!r}, and at wss:// if it has a certificate; others look like 'tcp://127.0.0.1:8777', "
            "'tls://host:8777', 'unix:///run/worker.sock' or 'inproc://name'."
        )
    return scheme.lower(), rest


def host_and_port(address: str) -> HostPort:
    """The place of `scheme://host:port`; an IPv6 host stands in brackets."""
    _scheme, rest = split(address)
    place = rest.removesuffix("/")
    host, separator, digits = place.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ipv6(host):
            raise ValueError(f"The address {address!r} has no IPv6 address between its brackets.")
    elif ":" in host:
        raise ValueError(
            f"The address {address!r} has an IPv6 host: put it in brackets, as in 'tcp://[::1]:8777'."
        )
    if not separator or not host or any(c in host for c in "/?#@ \t\r\n"):
        raise ValueError(f"The address {address!r} is not of the form scheme://host:port.")
    if not (digits.isascii() and digits.isdigit()) or int(digits) > 65535:
        raise ValueError(
            f"The address {address!r} has the port {digits!r}; a port is a number up to 65535, and 0 for any free one."
        )
    return HostPort(host, int(digits))


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def is_loopback_host(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(number, "ipv4_mapped", None)
    return bool((mapped or number).is_loopback)


def is_loopback(address: str) -> bool:
    """Whether an address can be reached from this machine only. Names other than localhost are not looked up."""
    scheme, _rest = split(address)
    return scheme in ("inproc", "unix") or is_loopback_host(host_and_port(address).host)
