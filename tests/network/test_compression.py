"""Both ends agree on what is compressed, session by session; a worker is sent only what it can read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from compression_parts import uninstall
from network.served import Served
from network.waiting import wait_until
from syft.exceptions import CompressionNotFoundException, DependencyError, WorkerRestartedError
from syft.serde import wire

pytestmark = pytest.mark.network


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "syft.worker" and "zstd" in r.getMessage()]


def begin_anew(client: Any) -> None:
    """The worker was restarted: hear of it."""

    def is_told() -> bool:
        try:
            client.sync()
        except WorkerRestartedError:
            return True
        return False

    wait_until(is_told)


def test_a_worker_without_the_package_is_sent_what_it_can_read(
    connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    zeros = torch.zeros(100_000)
    with Served(id="bob", without=["zstandard"]) as served:
        client = connect(served, compression="zstd", patience=60.0)
        assert torch.equal(zeros.send(client).get(), zeros)  # type: ignore[attr-defined]
        (line,) = told(caplog)
        assert "the worker at" in line and "reads: lz4" in line and "not compressed" in line
        # Another worker takes its place, which can.
        served.kill()
        served.restart(without=[])
        begin_anew(client)
        assert client._link._outbox.compression == "zstd"
        assert torch.equal(zeros.send(client).get(), zeros)  # type: ignore[attr-defined]
        # And one that cannot, again: the log has said so.
        served.kill()
        served.restart(without=["zstandard", "lz4"])
        begin_anew(client)
        assert torch.equal(zeros.send(client).get(), zeros)  # type: ignore[attr-defined]
        assert told(caplog) == [line]


@pytest.mark.parametrize("scheme", ["zstd", "lz4"])
def test_the_scheme_that_was_asked_for_is_used_both_ways(
    connect: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    used: list[str] = []
    compress = wire.compress

    def noting(memory: memoryview, by: Any) -> bytes | None:
        used.append(by.name)
        return compress(memory, by)

    monkeypatch.setattr(wire, "compress", noting)
    client = connect(serve(), compression=scheme)
    zeros = torch.zeros(5_000)
    assert torch.equal(zeros.send(client).get(), zeros)  # type: ignore[attr-defined]
    assert used == [scheme, scheme]


@pytest.mark.parametrize("scheme", [None, "none"])
def test_nothing_is_compressed_unless_it_was_asked_for(
    connect: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, scheme: str | None
) -> None:
    monkeypatch.setattr(wire, "compress", lambda *_args: pytest.fail("something was compressed"))
    client = connect(serve(), compression=scheme)
    assert torch.equal(torch.zeros(5_000).send(client).get(), torch.zeros(5_000))  # type: ignore[attr-defined]


def test_a_scheme_that_does_not_work_here_is_refused_before_anything_is_sent(
    connect: Any, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    with pytest.raises(CompressionNotFoundException, match="lz4, zstd"):
        connect(server, compression="gzip")
    uninstall(monkeypatch, "zstandard")
    with pytest.raises(DependencyError, match="zstandard"):
        connect(server, compression="zstd")
    assert not server._server._sessions
