"""`WebsocketServerWorker` and `WebsocketClientWorker`, by their documented names, methods and options."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import syft as sy
from network.waiting import Running, wait_until
from syft.exceptions import (
    AuthenticationError,
    ConnectionRefusedByWorkerError,
    GetNotPermittedError,
    NetworkError,
    ObjectNotFoundError,
    WorkerUnreachableError,
)
from syft.identity.certificates import make_certificate, make_client_certificate
from syft.identity.tokens import TokenAuthority
from syft.messaging.message import ObjectMessage, ObjectRequestMessage
from syft.workers.network.server import ServerSettings

pytestmark = pytest.mark.network

Serve = Callable[..., sy.WebsocketServerWorker]
Connect = Callable[..., sy.WebsocketClientWorker]


@pytest.fixture(params=["ws", "wss"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(hook: Any, me: Any, scheme: str, certificates: Any) -> Iterator[Serve]:
    """`serve(id=...)`: a server that runs in threads, and ends with the test."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> sy.WebsocketServerWorker:
            files = {"cert_path": certificates.certificate, "key_path": certificates.key}
            options = {"id": "hospital", **(files if scheme == "wss" else {}), **options}
            server = sy.WebsocketServerWorker(hook, "localhost", 0, **options)
            stack.callback(server.stop)
            return server.start(block=False)  # type: ignore[return-value]

        yield make


@pytest.fixture
def connect(hook: Any, me: Any, scheme: str, certificates: Any) -> Iterator[Connect]:
    """`connect(server)`: a client that is closed with the test."""
    with contextlib.ExitStack() as stack:

        def make(server: Any, **options: Any) -> sy.WebsocketClientWorker:
            safe = {"secure": True, "ca": str(certificates.authority)} if scheme == "wss" else {}
            options = {"auto_add": False, **safe, **options}
            client = sy.WebsocketClientWorker(hook, "localhost", server.port, **options)
            stack.callback(client.close)
            return client

        yield make


# -- names and places --------------------------------------------------------------------------------------


def test_the_signatures_are_the_documented_ones() -> None:
    def options(kind: type) -> list[str]:
        return list(inspect.signature(kind).parameters)[:9]

    server = ["hook", "host", "port", "id", "log_msgs", "verbose", "data", "cert_path", "key_path"]
    assert options(sy.WebsocketServerWorker) == server
    assert options(sy.WebsocketClientWorker)[:5] == ["hook", "host", "port", "secure", "id"]


def test_host_port_and_url_say_where_the_worker_is(serve: Serve, connect: Connect, scheme: str) -> None:
    server = serve()
    assert server.host == "localhost" and server.port > 0
    client = connect(server)
    assert client.url == f"{scheme}://localhost:{server.port}"
    assert (client.host, client.port, client.secure) == ("localhost", server.port, scheme == "wss")
    assert client.id == "hospital" and repr(client) == f"<WebsocketClientWorker id:hospital at {client.url}>"


def test_positional_arguments_are_host_and_port(hook: Any, me: Any) -> None:
    with sy.WebsocketServerWorker(hook, "127.0.0.1", 0, "bob") as server:
        with sy.WebsocketClientWorker(hook, "127.0.0.1", server.port, False, "bob", auto_add=False) as client:
            assert client.id == "bob" and client.url == f"ws://127.0.0.1:{server.port}"


def test_an_address_of_version_six_is_put_in_brackets(hook: Any, me: Any) -> None:
    with sy.WebsocketServerWorker(hook, "::1", 0, "six") as server:
        with sy.WebsocketClientWorker(hook, "::1", server.port, auto_add=False) as client:
            assert client.url == f"ws://[::1]:{server.port}"
            assert torch.ones(1).send(client).get().item() == 1


def test_a_port_that_is_taken_is_told(hook: Any, me: Any, serve: Serve) -> None:
    taken = serve()
    other = sy.WebsocketServerWorker(hook, "localhost", taken.port, id="other")
    with pytest.raises(OSError, match="another port if that one is taken"):
        other.start(block=False)
    other.stop()


def test_the_id_is_checked(serve: Serve, connect: Connect) -> None:
    server = serve()
    assert connect(server, id="hospital").id == "hospital"
    with pytest.raises(ConnectionRefusedByWorkerError, match="is 'hospital', not 'bank'"):
        connect(server, id="bank")


def test_the_worker_is_known_by_its_name(serve: Serve, connect: Connect, me: Any) -> None:
    client = connect(serve(), auto_add=True)
    assert me.get_worker("hospital") is client
    x = torch.tensor([1.0, 2.0]).send(client)
    assert (x + x).get().tolist() == [2.0, 4.0]


# -- encryption and names ----------------------------------------------------------------------------------


def test_secure_says_whether_it_is_encrypted(
    hook: Any, me: Any, serve: Serve, connect: Connect, scheme: str, certificates: Any
) -> None:
    server = serve()
    client = connect(server)
    assert client._link._connection.is_encrypted is (scheme == "wss")
    with pytest.raises(OSError, match="TLS"):  # and the other way round they do not go together
        connect(server, secure=scheme == "ws", ca=None if scheme == "wss" else str(certificates.authority))


def test_the_certificate_is_verified(hook: Any, me: Any, certificates: Any, tmp_path: Path) -> None:
    with sy.WebsocketServerWorker(
        hook, "localhost", 0, id="s", cert_path=certificates.certificate, key_path=certificates.key
    ) as server:
        other = make_certificate(tmp_path / "other").authority
        for ca in (None, str(other)):
            with pytest.raises(ConnectionError, match="could not be verified"):
                sy.WebsocketClientWorker(hook, "localhost", server.port, secure=True, ca=ca, auto_add=False)


def test_what_is_only_for_tls_is_not_ignored_without_it(hook: Any, certificates: Any, tmp_path: Path) -> None:
    cert, key = certificates.certificate, certificates.key
    for options, words in (
        ({"cert_path": cert}, "key_path is missing"),
        ({"key_path": key}, "cert_path is missing"),
        ({"client_ca": certificates.authority}, r"client_ca.*Add cert_path=\.\.\. and key_path"),
    ):
        with pytest.raises(ValueError, match=words):
            sy.WebsocketServerWorker(hook, "localhost", 0, id="s", **options)
    for option in ("ca", "certificate", "key"):
        with pytest.raises(ValueError, match=rf"{option}=\.\.\.,.*secure=True"):
            sy.WebsocketClientWorker(hook, "localhost", 1, **{option: str(cert)})


def test_a_public_host_needs_a_certificate_and_tokens(
    hook: Any, certificates: Any, authority: TokenAuthority
) -> None:
    files = {"cert_path": certificates.certificate, "key_path": certificates.key}
    with pytest.raises(ValueError, match=r"needs TLS .* and proof"):
        sy.WebsocketServerWorker(hook, "0.0.0.0", 0, id="s")
    with pytest.raises(ValueError, match="needs proof"):
        sy.WebsocketServerWorker(hook, "0.0.0.0", 0, id="s", **files)
    sy.WebsocketServerWorker(hook, "0.0.0.0", 0, id="s", tokens=authority.verifier("s"), **files)


def test_a_token_says_who_the_client_is(serve: Serve, connect: Connect, authority: TokenAuthority) -> None:
    server = serve(tokens=authority.verifier("hospital"))
    assert connect(server, token=authority.issue("ann", 60)).user == "ann"
    with pytest.raises(AuthenticationError, match="Ask its owner for a token"):
        connect(server)


def test_a_certificate_says_who_the_client_is(hook: Any, me: Any, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    ann = make_client_certificate(tmp_path, "ann")
    files = {"cert_path": made.certificate, "key_path": made.key, "client_ca": made.authority}
    with sy.WebsocketServerWorker(hook, "localhost", 0, id="s", **files) as server:
        own = {"ca": str(made.authority), "certificate": str(ann.certificate), "key": str(ann.key)}
        with sy.WebsocketClientWorker(
            hook, "localhost", server.port, secure=True, auto_add=False, **own
        ) as client:
            assert client.user == "ann"


# -- objects -----------------------------------------------------------------------------------------------


def test_data_is_there_from_the_start_found_and_not_given_away(serve: Serve, connect: Connect) -> None:
    ages = torch.tensor([51.0, 62.0]).tag("#ages").describe("of patients")
    heights = torch.tensor([1.8, 1.7]).tag("#heights")
    client = connect(serve(data=[ages, heights]))
    (found,) = client.search("#ages")
    assert found.shape == (2,) and found.location is client
    assert len(client.search(["#ages", "patients"])) == 1
    assert client.search(["#ages", "#heights"]) == [] and client.search("#nothing") == []
    with pytest.raises(GetNotPermittedError):
        (found * 2).get()


def test_objects_are_listed_and_counted_on_both_sides(serve: Serve, connect: Connect) -> None:
    data = [torch.zeros(1).tag("#a"), torch.zeros(1).tag("#b")]
    server = serve(data=data)
    assert server.objects_count() == len(server.list_objects()) == 2
    one, two = connect(server), connect(server)
    assert one.objects_count_remote() == one.objects_count() == 2
    x = torch.ones(3).send(one)
    one.sync()
    assert server.objects_count() == 3 and x.id_at_location in server.list_objects()
    assert set(one.list_objects_remote()) == set(server.list_objects())
    assert one.objects_count_remote() == 3
    assert two.objects_count_remote() == 2, "what others brought is not shown"
    y = x + 1
    assert one.objects_count_remote() == 4
    del x, y
    wait_until(lambda: one.objects_count_remote() == 2)


def test_clear_objects_remote_clears_ones_own(serve: Serve, connect: Connect) -> None:
    server = serve(data=[torch.zeros(1).tag("#a")])
    one, two = connect(server), connect(server)
    x, y = torch.ones(3).send(one), torch.ones(4).send(two)
    z = x * 2
    two.sync()
    assert one.objects_count_remote() == 3
    one.clear_objects_remote()
    assert one.objects_count_remote() == 1 and len(server.search("#a")) == 1
    assert server.objects_count() == 2
    with pytest.raises(ObjectNotFoundError):
        x.get()
    assert y.get().tolist() == [1, 1, 1, 1]
    del z


def test_messages_are_kept_and_shown_where_that_is_asked_for(
    serve: Serve, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(log_msgs=True)
    client = connect(server, log_msgs=True)
    torch.ones(2).send(client).get()
    for history in (server.msg_history, client.msg_history):
        assert [type(message) for message in history] == [ObjectMessage, ObjectRequestMessage]
    assert capsys.readouterr().out == ""
    talkative = connect(serve(id="talkative", verbose=True), verbose=True)
    torch.tensor([7.5, 7.5]).send(talkative).get()
    said = capsys.readouterr().out
    for words in ("is sent", "received"):
        for kind in ("ObjectMessage", "ObjectRequestMessage"):
            assert f"worker talkative {words} {kind}(" in said
    assert "7.5" not in said, "names, not values"
    assert talkative.msg_history == []
    quiet = connect(serve(id="quiet"))
    torch.ones(2).send(quiet).get()
    assert capsys.readouterr().out == "" and quiet.msg_history == []


# -- connect, close, start, stop ---------------------------------------------------------------------------


def test_connect_does_nothing_while_there_is_a_connection(serve: Serve, connect: Connect) -> None:
    server = serve()
    client = connect(server)
    x = torch.ones(2).send(client)
    client.connect()
    assert x.get().tolist() == [1, 1] and server.status()["sessions"] == 1


def test_after_close_the_worker_is_used_again_with_connect(serve: Serve, connect: Connect, me: Any) -> None:
    server = serve()
    client = connect(server, auto_add=True, debug=True)
    kept = torch.tensor([7.0]).tag("#kept").send(client, garbage_collect_data=False)
    gone = torch.ones(2).send(client)
    client.close()
    client.close()  # as often as one likes
    assert not client.is_connected and "not connected" in repr(client)
    wait_until(lambda: server.status()["sessions"] == 0)
    assert server.objects_count() == 1, "what was tagged"
    assert me.get_worker("hospital") == "hospital"
    with pytest.raises(NetworkError, match=r"was closed\. .*call connect\(\)"):
        client.sync()

    client.connect()
    assert client.is_connected and client.debug and me.get_worker("hospital") is client
    assert (torch.ones(2).send(client) + 1).get().tolist() == [2, 2]
    with pytest.raises(ObjectNotFoundError):
        gone.get()
    del kept
    client.close()
    assert me.get_worker("hospital") == "hospital"


def test_connect_after_close_finds_the_same_worker_or_nobody(
    hook: Any, me: Any, serve: Serve, connect: Connect, scheme: str, certificates: Any
) -> None:
    server = serve(id="first")
    client = connect(server, patience=0.3)
    client.close()
    server.stop()
    with pytest.raises(WorkerUnreachableError, match="cannot be reached"):
        client.connect()
    assert not client.is_connected
    files = {"cert_path": certificates.certificate, "key_path": certificates.key}
    with sy.WebsocketServerWorker(
        hook, "localhost", server.port, id="second", **(files if scheme == "wss" else {})
    ):
        with pytest.raises(ConnectionRefusedByWorkerError, match="is 'second', not 'first'"):
            client.connect()
    with sy.WebsocketServerWorker(
        hook, "localhost", server.port, id="first", **(files if scheme == "wss" else {})
    ):
        client.connect()
        assert torch.ones(1).send(client).get().item() == 1
        client.close()


def test_a_lost_connection_is_made_again(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    x = torch.ones(2).send(client)
    client.sync()
    for _ in range(3):
        client._link._connection.close()
        x.add_(1)
    assert x.get().tolist() == [4, 4]


def test_start_blocks_until_it_is_stopped(hook: Any, me: Any, serve: Serve, connect: Connect) -> None:
    server = sy.WebsocketServerWorker(hook, "127.0.0.1", 0, id="blocking")
    running = Running(server.start)
    wait_until(lambda: server.port != 0)
    with sy.WebsocketClientWorker(hook, "127.0.0.1", server.port, auto_add=False) as client:
        assert torch.ones(1).send(client).get().item() == 1
    assert not running.is_done
    server.ask_to_stop()
    assert running.result() is server


def test_errors_come_back_as_themselves(serve: Serve, connect: Connect) -> None:
    client = connect(serve())
    x = torch.ones(2).send(client)
    with pytest.raises(RuntimeError, match="size"):
        (x @ torch.ones(3).send(client)).get()
    assert x.get().tolist() == [1, 1]


def test_the_options_of_network_workers_are_taken(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    server = serve(directory=tmp_path / "kept", settings=ServerSettings(heartbeat=3.0))
    client = connect(server, patience=5.0, heartbeat=9.0, timeout=20.0)
    assert client._link.heartbeat == 3.0 and client._link.patience == 5.0
    torch.ones(2).tag("#kept").send(client, garbage_collect_data=False)
    client.sync()
    assert list((tmp_path / "kept").rglob("*.safetensors"))


# -- training ----------------------------------------------------------------------------------------------


def rows() -> TensorDataset:
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    return TensorDataset(x, (x[:, 0] > 0).long())


def config(client: Any) -> Any:
    torch.manual_seed(1)
    return sy.TrainConfig(
        model=nn.Linear(3, 2),
        loss_fn=F.cross_entropy,
        batch_size=10,
        epochs=2,
        shuffle=False,
        optimizer="SGD",
        optimizer_args={"lr": 0.5},
    ).send(client)


def test_fit_async_fit_and_evaluate_train_where_the_data_is(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.add_dataset(rows(), "rows")
    client = connect(server)
    sent = config(client)
    before = client.evaluate("rows")
    assert set(before) >= {"loss", "nr_correct_predictions", "nr_predictions"}
    first = float(client.fit("rows"))
    second = float(asyncio.run(client.async_fit("rows")))
    assert second < first
    after = client.evaluate("rows", return_histograms=True, nr_bins=2)
    assert after["loss"] < before["loss"]
    assert after["nr_correct_predictions"] > 30 and after["nr_predictions"] == 40
    assert sum(after["histogram_target"]) == 40
    assert set(client.evaluate("rows", return_loss=False, return_raw_accuracy=False)) < set(before)
    assert isinstance(sent.get().model, nn.Linear)


def test_several_workers_train_at_the_same_time(serve: Serve, connect: Connect) -> None:
    clients = []
    for name in ("one", "two"):
        server = serve(id=name)
        server.add_dataset(rows(), "rows")
        clients.append(connect(server))
    sent = [config(client) for client in clients]

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*[client.async_fit("rows") for client in clients])

    one, two = asyncio.run(all_of_them())
    assert torch.equal(torch.as_tensor(one), torch.as_tensor(two))
    del sent


def test_what_is_not_offered_is_told(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.add_dataset(rows(), "rows")
    client = connect(server)
    sent = config(client)
    with pytest.raises(ValueError, match="others"):
        client.fit("others")
    with pytest.raises(sy.exceptions.PermissionDeniedError, match="for its owner to say"):
        client.add_dataset(rows(), "mine")
    del sent
