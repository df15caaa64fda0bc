"""Connections that are cut at random positions: nothing is lost, nothing runs twice, nothing hangs."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import torch

from network.proxy import Proxy, random_budgets
from network.served import Served
from network.waiting import Running, wait_until
from syft.exceptions import ProtocolError, WorkerRestartedError
from syft.messaging.message import Operation, Ref
from syft.mpc.network.messages import Frame
from syft.workers.network.server import ServerSettings

pytestmark = pytest.mark.network


def count_through_cuts(
    connect: Any, certificates: Any, scheme: str, cuts: int, seed: int, most_seconds: float = 100.0
) -> None:
    """Count on a remote tensor, and compare with the count here, while connections are cut."""
    rng = random.Random(seed)
    is_encrypted = scheme in ("tls", "wss")
    files = {"certificate": str(certificates.certificate), "key": str(certificates.key)}
    ca = str(certificates.authority) if is_encrypted else None
    with (
        Served(f"{scheme}://127.0.0.1:0", **(files if is_encrypted else {})) as served,
        Proxy(served.port, random_budgets(seed), seed=seed) as proxy,
    ):
        client = connect(f"{scheme}://127.0.0.1:{proxy.port}", patience=60.0, ca=ca)
        counter = torch.zeros(3, dtype=torch.int64).send(client)
        expected = 0
        until = time.monotonic() + most_seconds
        while proxy.cuts < cuts:
            assert time.monotonic() < until, f"only {proxy.cuts} cuts after {most_seconds} s"
            for _ in range(rng.randrange(1, 60)):
                counter.add_(1)
                expected += 1
            if rng.random() < 0.2:  # a frame that is longer than many connections live
                noise = torch.arange(rng.randrange(500, 5_000))
                assert torch.equal((noise.send(client) + 1).get(), noise + 1)
            assert (counter + 0).get().tolist() == [expected] * 3


@pytest.mark.parametrize(("scheme", "cuts"), [("tcp", 40), ("ws", 25), ("tls", 15), ("wss", 15)])
def test_a_count_is_exact_whatever_is_cut(connect: Any, certificates: Any, scheme: str, cuts: int) -> None:
    count_through_cuts(connect, certificates, scheme, cuts, seed=cuts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_many_more_cuts(connect: Any, certificates: Any, scheme: str, seed: int) -> None:
    count_through_cuts(connect, certificates, scheme, 1_000, seed)


def test_threads_on_one_client_count_exactly_through_cuts(connect: Any) -> None:
    with Served() as served, Proxy(served.port, random_budgets(5)) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}", patience=60.0)

        def count(name: int) -> None:
            counter = torch.full((2,), name * 1_000).send(client)
            for step in range(1, 40):
                counter.add_(1)
                assert (counter + 0).get().tolist() == [name * 1_000 + step] * 2

        for running in [Running(lambda name=name: count(name)) for name in range(6)]:  # type: ignore[misc]
            running.result()
        assert proxy.cuts > 5


def test_an_idle_client_comes_back_by_itself_before_what_it_holds_is_freed(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(heartbeat=0.2, grace=2.0))
    with Proxy(int(server.address.rsplit(":", 1)[1])) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}")
        held = torch.ones(3).send(client)
        client.sync()
        for _ in range(3):
            proxy.cut_all()
            time.sleep(1.0)
        assert proxy.connections >= 4
        assert held.get().tolist() == [1, 1, 1]


def test_a_cut_tells_where_a_command_was_issued_that_failed_before(connect: Any, serve: Any) -> None:
    server = serve()
    with Proxy(int(server.address.rsplit(":", 1)[1])) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}")
        a, b = torch.ones(2).send(client), torch.ones(3).send(client)
        client.sync()
        client._link.post(
            Operation("aten.add.Tensor", None, (Ref(a.id_at_location), Ref(b.id_at_location)), {}, (77,))
        )
        client.flush()
        wait_until(lambda: server._server.commands_executed >= 4)
        proxy.cut_all()
        with pytest.raises(RuntimeError) as caught:
            client.sync()
        assert "test_cuts.py" in caught.value.__notes__[-1]
        client.sync()


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_lent_message_goes_again_unless_its_tensor_was_written_to(
    connect: Any, serve: Any, is_changed: bool
) -> None:
    client = connect(serve().address)
    held = torch.ones(3).send(client)
    client.sync()
    link, tensor = client._link, torch.arange(1 << 17)
    with link._sending:  # as if the connection had been cut before it arrived
        link._outbox.add(Frame(b"of nobody", 1, (tensor,)))
        assert link._outbox.pack(0, 1 << 30, is_lent=True).sums is not None
        tensor[0] += is_changed
        link._connection.close()
    if is_changed:
        with pytest.raises(WorkerRestartedError):
            client.sync()
        assert torch.ones(3).send(client).get().tolist() == [1.0] * 3  # in a new session
    else:
        with pytest.raises(ProtocolError, match="no such ticket"):  # so it arrived, as it was
            client.sync()
        assert held.get().tolist() == [1.0] * 3
