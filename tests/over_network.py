"""Workers for the tests of other rooms, reached over a transport: `pytest --transport tcp tests/workers`.

The server runs in threads of this process, so that a test can look into its store. What a test does with a worker
as its owner (`bob._objects`, `bob.register_obj`, `bob.policy`) is done on the server's worker; everything else goes
over the connection.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import syft as sy
from syft.messaging.message import SyncMessage
from syft.policy.authentication import Proof
from syft.workers.network import handlers as _handlers  # noqa: F401  (adds the handlers)
from syft.workers.network import sessions
from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.network.server import Server, ServerSettings

TRANSPORTS = ("inproc", "unix", "tcp", "tls", "ws", "wss")

#: What the owner of a worker does where it runs.
_OWNERS = """_entries _holdings _extensions policy msg_history log_msgs verbose
register_obj de_register_obj get_obj set_obj rm_obj force_rm_obj load_data current_objects allowed_users restrict
registration_enabled set_budget budget keep_budgets add_dataset remove_dataset extension""".split()


class TestedWorker(NetworkClientWorker):
    """A client worker that shows the server's store to the test."""

    __test__ = False
    served: Any = None

    @property
    def _objects(self) -> Any:
        self.sync()
        return self.served._objects

    def __getitem__(self, obj_id: Any) -> Any:
        return self._objects.get(obj_id)

    def clear_objects(self, return_self: bool = True) -> Any:
        with contextlib.suppress(Exception):
            self.sync()
        self.served.clear_objects()
        return self if return_self else None

    def objects_count(self) -> int:
        return len(self._objects)

    __len__ = objects_count

    def __repr__(self) -> str:
        return f"<VirtualWorker id:{self.id} #objects:{len(self._objects)}>"

    __str__ = __repr__


def _on_server(name: str) -> Any:
    def read(self: Any) -> Any:
        if self.served is None:
            return vars(self)[name] if name in vars(self) else getattr(super(TestedWorker, self), name)
        if self._link.is_connected and not name.startswith("__"):
            with contextlib.suppress(Exception):
                self.flush()
                if not self._link._reading.locked():
                    self.sync()
        if name == "msg_history":  # less the messages of this very method
            history = self.served.msg_history
            history[:] = [message for message in history if type(message) is not SyncMessage]
        return getattr(self.served, name)

    def write(self: Any, value: Any) -> None:
        if self.served is None:
            vars(self)[name] = value
        else:
            setattr(self.served, name, value)

    return property(read, write)


for _name in _OWNERS:
    setattr(TestedWorker, _name, _on_server(_name))


class Network:
    """Makes workers, and ends them."""

    def __init__(self, transport: str, directory: Path) -> None:
        self.transport, self.directory = transport, directory
        self.servers: list[Server] = []
        self.clients: list[TestedWorker] = []
        self._certificates: Any = None

    def make(self, hook: Any, id: Any, **options: Any) -> TestedWorker:
        served = sy.VirtualWorker(hook, id=id, auto_add=False, **options)
        served._known_workers[id] = served
        server = Server(
            served,
            authenticate=lambda _hello, _connection: Proof("tester"),
            audit=lambda *_: None,
            keeps=lambda _id, obj: bool(getattr(obj, "tags", None)),
            settings=ServerSettings(heartbeat=30.0),
        )
        self.servers.append(server)
        tls, ca = self._tls()
        address = server.listen(self._address(len(self.servers)), tls)
        client = TestedWorker(hook, address, ca=ca, debug=True)
        client.served = served
        self.clients.append(client)
        local = sy.local_worker
        for known in list(local._known_workers.values()):
            served._known_workers.setdefault(known.id, known)
        for other in self.clients:
            other.served._known_workers.setdefault(client.id, client)
        return client

    def _address(self, number: int) -> str:
        if self.transport == "inproc":
            return f"inproc://{self.directory.name}-{number}"
        if self.transport == "unix":
            return f"unix://{self.directory}/{number}"
        return f"{self.transport}://localhost:0"

    def _tls(self) -> tuple[Any, str | None]:
        if self.transport not in ("tls", "wss"):
            return None, None
        from syft.identity.certificates import make_certificate, server_context

        if self._certificates is None:
            self._certificates = make_certificate(self.directory / "certificates")
        made = self._certificates
        return server_context(made.certificate, made.key), str(made.authority)

    def close(self) -> None:
        for client in self.clients:
            client.remove_worker_from_local_worker_registry()
            client.close()
        for server in self.servers:
            server.stop()


@contextlib.contextmanager
def network(transport: str, monkeypatch: Any) -> Any:
    """A network whose servers believe the user that a message names, as workers in one process do."""
    monkeypatch.setattr(sessions, "speaking_for", lambda _user, _peer="": contextlib.nullcontext())
    with tempfile.TemporaryDirectory(prefix="syft") as directory:
        made = Network(transport, Path(directory))
        try:
            yield made
        finally:
            made.close()
