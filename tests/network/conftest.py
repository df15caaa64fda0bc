"""Servers and clients for these tests: in threads of this process, or in processes of their own."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.network.server import ServerSettings
from syft.workers.network.server_worker import NetworkServerWorker

#: Fast enough for a test, slow enough for a busy machine.
QUICK = ServerSettings(heartbeat=0.4, grace=0.6)


@pytest.fixture
def serve(hook: Any, me: Any) -> Iterator[Callable[..., NetworkServerWorker]]:
    """`serve("tcp://127.0.0.1:0", id="bob", ...)`: a worker that serves in threads, and ends with the test."""
    with contextlib.ExitStack() as stack:

        def make(addresses: Any = "tcp://127.0.0.1:0", **options: Any) -> NetworkServerWorker:
            options.setdefault("id", "bob")
            return stack.enter_context(NetworkServerWorker(hook, addresses, **options))

        yield make


@pytest.fixture
def connect(hook: Any, me: Any) -> Iterator[Callable[..., NetworkClientWorker]]:
    """`connect(server_or_address)`: a client that is closed with the test."""
    made: list[NetworkClientWorker] = []

    def make(to: Any, **options: Any) -> NetworkClientWorker:
        address = to if isinstance(to, str) else to.address
        options.setdefault("auto_add", False)
        kind = options.pop("kind", NetworkClientWorker)
        client = kind(hook, address, **options)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def authority(tmp_path: Path) -> Any:
    """Issues tokens."""
    from syft.identity.tokens import TokenAuthority

    return TokenAuthority.create(tmp_path / "tokens")


@pytest.fixture
def eve(hospital: Any, authority: Any) -> Iterator[Any]:
    """A user of the worker that a file of tests calls `hospital`."""
    from network.hospital import user

    with user(hospital, authority, "eve") as client:
        yield client


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from syft.identity.certificates import make_certificate

    return make_certificate(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def by_scheme(serve: Any, certificates: Any, tmp_path: Path) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """`by_scheme("wss", ...)`: a server, and what a client needs to connect to it."""

    def make(scheme: str, **options: Any) -> tuple[Any, dict[str, Any]]:
        encrypted = scheme in ("tls", "wss")
        if encrypted:
            options |= {"certificate": certificates.certificate, "key": certificates.key}
        place = {"unix": f"unix://{tmp_path}/s", "inproc": f"inproc://{tmp_path.name}"}.get(
            scheme, f"{scheme}://localhost:0"
        )
        return serve(place, **options), {"ca": str(certificates.authority)} if encrypted else {}

    return make


def verified(certificates: Any) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.authority))
