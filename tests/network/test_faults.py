"""Processes that are killed, frames that are damaged, peers that are slow, silent, many or gone."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import forked
from network.conftest import QUICK
from network.proxy import Pipe, Proxy
from network.served import Served, rss_of
from network.waiting import Running, wait_until
from stopwatch import Stopwatch
from syft import transport
from syft.exceptions import ProtocolError, WorkerRestartedError, WorkerUnreachableError
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ObjectRequestMessage, Operation, Ref
from syft.serde import SerdeError
from syft.transport import session_frames as frames
from syft.transport import session_records as handshake
from syft.transport.session_frames import Head, Kind
from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.network.server import ServerSettings

pytestmark = pytest.mark.network


def port_of(server: Any) -> int:
    return int(server.address.rsplit(":", 1)[1])


def refusals(server: Any) -> list[Any]:
    return [record for record in server.policy.audit_log if not record.granted]


def plain(address: str) -> tuple[transport.Connection, handshake.Welcome]:
    """A session by hand."""
    connection = transport.connect(address)
    hello = handshake.Hello(handshake.PROTOCOL, "by hand")
    connection.send(frames.encode(Head(Kind.HELLO), [handshake.encode(hello)]))
    _head, payload = frames.decode(connection.receive(timeout=10))
    return connection, handshake.decode(payload, handshake.Welcome)


# -- the server is killed ----------------------------------------------------------------------------------


def test_a_server_that_is_killed_and_restarted_says_so_once_and_has_what_was_acknowledged(
    connect: Any, tmp_path: Path
) -> None:
    authority = TokenAuthority.create(tmp_path / "tokens")
    with Served(id="bob", authority=str(tmp_path / "tokens"), directory=str(tmp_path / "data")) as served:
        client = connect(served, token=authority.issue("ann", 3600), patience=60.0)
        torch.arange(5).tag("#kept").send(client, garbage_collect_data=False)
        client.sync()
        counter = torch.zeros(1).send(client)

        def restart() -> None:
            time.sleep(0.3)
            served.kill()
            served.restart()

        restarting = Running(restart)
        told = 0
        until = time.monotonic() + 60
        while not told:
            assert time.monotonic() < until
            try:
                for _ in range(100):
                    counter.add_(1)
                client.sync()
            except WorkerRestartedError:
                told += 1
        restarting.result()
        for _ in range(3):
            client.sync()
            (found,) = client.search("#kept")
            assert found.copy().get().tolist() == [0, 1, 2, 3, 4]
        fresh = torch.ones(2).send(client)
        fresh.add_(1)
        assert fresh.get().tolist() == [2, 2]


def test_a_server_that_stays_away_is_told_of_and_commands_are_kept(connect: Any, serve: Any) -> None:
    server = serve()
    with Proxy(port_of(server)) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}", patience=0.4)
        counter = torch.zeros(1).send(client)
        client.sync()
        proxy._target, target = 1, proxy._target  # nobody listens there
        proxy.cut_all()
        counter.add_(1)
        with pytest.raises(WorkerUnreachableError, match=r"cannot be reached.*are kept"):
            client.sync()
        proxy._target = target
        assert counter.get().item() == 1


def test_whoever_waits_is_told_when_somebody_else_closes(connect: Any, serve: Any) -> None:
    server = serve()
    client = connect(server)
    with server._server._worker_lock:
        waiting = Running(client.sync)
        time.sleep(0.1)
        client._link._closed = False
        closing = Running(client.close)
        with pytest.raises(Exception, match="closed"):
            waiting.result()
    closing.result()


# -- damaged frames ----------------------------------------------------------------------------------------


def test_flipped_bits_never_change_data(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(heartbeat=0.3, grace=60.0))
    rng = random.Random(3)
    flips = 0

    def flip(pipe: Pipe, _to_server: bool, data: bytes) -> bytes:
        nonlocal flips
        if pipe.moved < 1_500 or rng.random() < 0.9:
            return data
        flips += 1
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    with Proxy(port_of(server), alter=flip) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}", patience=30.0)
        counter = torch.zeros(1, dtype=torch.int64).send(client)
        for step in range(1, 60):
            sent = torch.randint(0, 100, (rng.choice((10, 4_000)),))
            assert torch.equal(sent.send(client).get(), sent)
            counter.add_(1)
            assert (counter + 0).get().item() == step
            if flips >= 12:
                break
        assert flips >= 3


def test_large_frames_with_two_flips_are_found_out() -> None:
    rng = random.Random(0)
    payload = bytearray(rng.randbytes(100_003))
    frame = b"".join(frames.encode(Head(Kind.REPLY, number=1), [payload[:33_333], payload[33_333:]]))
    assert bytes(frames.decode(frame)[1]) == payload
    for _ in range(300):
        bad = bytearray(frame)
        column = rng.randrange(len(frame))
        bad[column] ^= 1
        bad[rng.randrange(len(frame))] ^= 1
        if bad != frame:
            with pytest.raises(ProtocolError):
                frames.decode(bad)
    swapped = frame[:64] + frame[64 + 8 : 64 + 16] + frame[64 : 64 + 8] + frame[64 + 16 :]
    with pytest.raises(ProtocolError, match="damaged"):
        frames.decode(swapped)


class Doubling(NetworkClientWorker):
    """Sends every frame twice."""

    def _open(self) -> transport.Connection:
        connection = super()._open()
        send, count = connection.send, 0

        def twice(parts: Any) -> None:
            nonlocal count
            count += 1
            send(parts)
            if count > 1:  # one greeting is enough
                send(parts)

        connection.send = twice  # type: ignore[method-assign]
        return connection


def test_frames_that_come_twice_run_once(connect: Any, serve: Any) -> None:
    client = connect(serve(), kind=Doubling)
    counter = torch.zeros(2, dtype=torch.int64).send(client)
    for step in range(1, 100):
        counter.add_(1)
        if step % 7 == 0:
            assert (counter + 0).get().tolist() == [step, step]


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_what_makes_no_sense_is_refused_and_noted_and_others_go_on(
    connect: Any, by_scheme: Any, scheme: str
) -> None:
    server, _ = by_scheme(scheme)
    good = connect(server)
    held = torch.ones(1).send(good)
    whole = b"".join(frames.encode(Head(Kind.COMMANDS, number=1, count=1), [b"x" * 100]))
    odd: list[tuple[list[Any], str]] = [
        ([whole[:-1]], "damaged"),
        ([whole[:20]], "head alone"),
        ([b"\x80\x04pickle" + bytes(90)], "begins with"),
        (frames.encode(Head(Kind.COMMANDS, number=7, count=1), [b"x"]), "was due"),
        (frames.encode(Head(Kind.COMMANDS, number=1, count=0)), "holds none"),
        (frames.encode(Head(Kind.COMMANDS, number=1, count=1 << 31), [b"x"]), "announced"),
        (frames.encode(Head(Kind.CHUNK, total=1 << 62, offset=0), [b"x"]), "allowed"),
        (frames.encode(Head(Kind.CHUNK, total=10, offset=5), [b"x"]), "was due"),
        (frames.encode(Head(Kind.WELCOME)), "kind 2"),
    ]
    for parts, words in odd:
        connection, _welcome = plain(server.address)
        before = len(refusals(server))
        connection.send(parts)
        with contextlib.suppress(ConnectionError):
            while frames.decode(connection.receive(timeout=10))[0].kind != Kind.REFUSAL:
                pass
        connection.close()
        wait_until(lambda before=before: len(refusals(server)) > before)  # type: ignore[misc]
        assert words in refusals(server)[-1].reason
    assert held.get().item() == 1


def test_an_announced_gigabyte_costs_nothing_before_it_comes(serve: Any) -> None:
    server = serve()
    before = rss_of()
    connections = []
    for _ in range(4):
        connection, _welcome = plain(server.address)
        connection.send(frames.encode(Head(Kind.CHUNK, total=1 << 31, offset=0), [b"x" * 100]))
        connections.append(connection)
    time.sleep(0.3)
    assert rss_of() - before < 50 << 20
    for connection in connections:
        connection.close()


def test_an_oversized_frame_is_refused_before_it_is_read(serve: Any) -> None:
    server = serve()
    connection, _welcome = plain(server.address)
    connection._stream._socket.send(struct.pack("<Q", 1 << 40))  # type: ignore[attr-defined]
    with pytest.raises(ConnectionError, match="longer than it takes"):
        connection.receive(timeout=10)
    wait_until(lambda: refusals(server))
    assert "announced a frame of" in refusals(server)[-1].reason


def test_a_message_that_is_too_large_is_an_error_and_not_a_loop(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(max_message=1 << 20))
    client = connect(server)
    with pytest.raises(SerdeError, match="at most 1048576 bytes"):
        torch.zeros(1 << 20).send(client)
    assert torch.ones(2).send(client).get().tolist() == [1, 1]
    # A client that does not know, or does not care, is told by the worker.
    client._link.welcome = type(client._link.welcome)(
        **{f: getattr(client._link.welcome, f) for f in client._link.welcome.__struct_fields__}
        | {"max_message": 1 << 40}
    )

    def send_anyway() -> None:
        torch.zeros(40 << 20).send(client)
        client.sync()

    with pytest.raises(ProtocolError, match="are allowed"):
        send_anyway()
    assert torch.ones(2).send(client).get().tolist() == [1, 1]


def test_a_session_that_counts_wrongly_ends_with_an_error_and_a_new_one_begins(
    connect: Any, serve: Any
) -> None:
    server = serve()
    client = connect(server)
    client.sync()
    next(iter(server._server._sessions.values())).executed = -5  # as if commands had been lost
    with pytest.raises(ProtocolError, match="was due"):
        client.sync()
    assert torch.ones(2).send(client).get().tolist() == [1, 1]


# -- slow and silent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_byte_by_byte_is_slow_and_not_silent(connect: Any, by_scheme: Any, scheme: str) -> None:
    server, _ = by_scheme(scheme, settings=ServerSettings(heartbeat=0.15, grace=60.0))
    with Proxy(port_of(server)) as proxy:
        client = connect(f"{scheme}://127.0.0.1:{proxy.port}")
        client.sync()
        connections = proxy.connections
        proxy.most, proxy.delay = 1, 0.0005
        sent = torch.arange(100)  # 1 kB in each direction, far more than three heartbeats
        assert torch.equal(sent.send(client).get(), sent)
        assert proxy.connections == connections
        proxy.most, proxy.delay = 1 << 16, 0.0


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_half_open_connection_is_replaced_after_three_heartbeats(
    connect: Any, serve: Any, is_waiting: bool
) -> None:
    """By the client itself: that the server ends the connection, too, does not reach it."""
    server = serve(settings=ServerSettings(heartbeat=0.2, grace=30.0))
    with Proxy(port_of(server)) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}")
        held = torch.ones(1).send(client)
        client.sync()
        proxy.is_silent = True
        began = time.monotonic()
        waiting = Running(client.sync) if is_waiting else None
        wait_until(lambda: proxy.connections > 1)
        assert time.monotonic() - began > 0.3
        proxy.is_silent = False
        proxy.cut_all()
        if waiting is not None:
            waiting.result()
        assert held.get().item() == 1


def test_a_server_ends_a_connection_that_says_nothing(serve: Any) -> None:
    """By itself: this client neither speaks nor closes."""
    server = serve(settings=ServerSettings(heartbeat=0.2, grace=30.0))
    connection, _welcome = plain(server.address)
    until = time.monotonic() + 20

    def listen() -> None:
        while time.monotonic() < until:
            frames.decode(connection.receive(timeout=20))

    with pytest.raises(ConnectionError):
        listen()
    connection.close()


def test_a_client_that_falls_silent_is_freed(connect: Any, serve: Any) -> None:
    server = serve(settings=QUICK)
    with Proxy(port_of(server)) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}", patience=0.5)
        held = torch.ones(1).send(client)
        client.sync()
        proxy.is_silent = True
        wait_until(lambda: not server._server._sessions)
        assert not server._objects
        proxy.is_silent = False
        proxy.cut_all()
        with pytest.raises(WorkerRestartedError):
            wait_until(lambda: client.sync())
        del held


def test_a_worker_that_is_busy_with_others_is_waited_for(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(heartbeat=0.15, grace=60.0))
    client = connect(server)
    client.sync()
    session = client._link.welcome.session
    with server._server._worker_lock:  # somebody else's operation takes ten heartbeats
        waiting = Running(client.sync)
        time.sleep(1.5)
        assert not waiting.is_done
    waiting.result()
    assert client._link.welcome.session == session
    assert client._link._attempts.vain <= 1


def test_a_client_comes_back_while_its_own_command_still_runs(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(heartbeat=0.2, grace=60.0))
    with Proxy(port_of(server)) as proxy:
        client = connect(f"tcp://127.0.0.1:{proxy.port}", patience=1.0)
        counter = torch.zeros(1).send(client)
        client.sync()
        with server._server._worker_lock:
            counter.add_(1)
            waiting = Running(lambda: (counter + 0).get())
            time.sleep(0.3)
            proxy.cut_all()
            time.sleep(6.0)  # longer than a greeting may take, and than patience
            assert not waiting.is_done
        assert waiting.result().item() == 1


def test_a_peer_that_does_not_read_holds_up_nobody(connect: Any, serve: Any) -> None:
    server = serve(settings=ServerSettings(heartbeat=0.2, grace=0.5))
    owner = connect(server)
    held = torch.zeros(1).send(owner)
    stuck = connect(server)
    big = torch.zeros(8 << 20).send(stuck)
    stuck.sync()
    message = Operation("aten.clone.default", None, (Ref(big.id_at_location),), {}, (1234,))
    stuck._link.post(message)
    connection = stuck._link._connection
    with stuck._link._reading:  # nobody reads
        outbox = stuck._link._outbox
        outbox.add(ObjectRequestMessage((1234, None, "")))
        sent = outbox.pack(frames.WAITS, 1 << 30)
        stuck._link._send_frame(connection, sent)
        clock = Stopwatch()
        for _ in range(20):
            held.add_(1)
            owner.sync()
        assert clock.seconds < 5
    assert held.get().item() == 20


# -- many, and gone ----------------------------------------------------------------------------------------


def test_sixty_four_clients_get_only_their_own_replies() -> None:
    """Four processes of sixteen threads each, all connected before the first begins."""
    here = Path(__file__)
    paths = os.pathsep.join((str(here.parents[1]), os.environ.get("PYTHONPATH", "")))
    with Served() as served:
        crowd = forked.start(
            str(here.with_name("crowd.py")),
            served.address,
            "4",
            "16",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
            start_new_session=True,
        )
        with crowd:
            try:
                assert crowd.stdout is not None
                assert crowd.stdout.readline() == b"ready\n"
                assert served.status()["sessions"] == 64
                assert json.loads(crowd.communicate(b"begin\n", timeout=800)[0]) == []
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(crowd.pid, signal.SIGKILL)  # with all its parts
        wait_until(lambda: served.status()["sessions"] == 0)
        assert served.status()["objects"] == 0


def test_what_a_killed_client_held_is_freed(connect: Any) -> None:
    count = 3_000
    with Served(settings={"heartbeat": 0.5, "grace": 0.5}) as served:
        watcher = connect(served)
        watcher.sync()
        before = served.rss
        child = forked.start(
            str(Path(__file__).with_name("vanishing.py")),
            served.address,
            str(count),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert child.stdout is not None and child.stdin is not None
            assert int(child.stdout.readline()) == count
            assert served.status()["objects"] == count
            full = served.rss
            assert full - before > 4_000 * count
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            wait_until(lambda: served.status()["objects"] == 0)
            wait_until(lambda: served.rss - before < (full - before) / 3)
        finally:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()


# -- flow control ------------------------------------------------------------------------------------------


def test_a_fast_client_cannot_run_ahead_of_a_slow_server(connect: Any) -> None:
    with Served() as served:
        client = connect(served)
        counter = torch.zeros(1).send(client)
        client.sync()
        posted = 0

        def stream() -> None:
            nonlocal posted
            for _ in range(12_000):
                counter.add_(1)
                posted += 1

        before = rss_of(), served.rss
        os.kill(served.process.pid, signal.SIGSTOP)
        try:
            streaming = Running(stream)
            wait_until(lambda: posted > 8_000)
            time.sleep(0.5)
            assert posted < 8_400
        finally:
            os.kill(served.process.pid, signal.SIGCONT)
        streaming.result()
        assert counter.get().item() == 12_000
        assert rss_of() - before[0] < 60 << 20
        assert served.rss - before[1] < 60 << 20


def test_data_that_is_sent_to_a_slow_server_is_bounded_too(connect: Any, serve: Any) -> None:
    server = serve()
    client = connect(server)
    client.sync()
    sent = 0

    def stream() -> None:
        nonlocal sent
        data = torch.zeros(25_000)  # 100 kB
        for _ in range(1_000):
            client._link.post(Operation("aten.neg.default", None, (data,), {}, (5,)))
            sent += 1

    with server._server._worker_lock:
        streaming = Running(stream)
        wait_until(lambda: sent > 10)
        time.sleep(0.5)
        before, memory = sent, rss_of()
        assert before < 400  # 32 MB, or as much as fits between the two ends
        time.sleep(0.5)
        assert sent == before
        assert rss_of() - memory < 5 << 20
    client._link.close()
    with pytest.raises(ConnectionError):
        streaming.result()


def test_a_worker_that_was_away_for_long_is_used_when_it_is_back(connect: Any) -> None:
    """Attempts while nobody answers are not taken for connections that something cuts."""
    with Served() as served:
        client = connect(served, patience=0.1)
        client.sync()
        served.kill()
        for _ in range(15):
            with pytest.raises(WorkerUnreachableError, match="cannot be reached"):
                client.sync()
        served.restart()
        client.patience = client._link.patience = 20.0

        def is_back() -> bool:
            try:
                return torch.ones(2).send(client).get().tolist() == [1, 1]
            except WorkerRestartedError:  # said once, as it should be
                return False

        wait_until(is_back)
