"""`WebsocketClientWorker`: the documented way to reach a worker on another machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from syft.core.session import session
from syft.messaging.message import ObjectMessage
from syft.workers.network.client_worker import NetworkClientWorker

logger = logging.getLogger(__name__)

#: Seconds that a connection may take to be made, unless `timeout=` says otherwise.
TIMEOUT_INTERVAL = 10.0

#: What `_send_msg_and_deserialize` may ask of a worker, and the method that asks it.
_COMMANDS = {
    "list_objects": "list_objects_remote",
    "objects_count": "objects_count_remote",
    "clear_objects": "clear_objects_remote",
    "list_tensors": "list_tensors_remote",
    "tensors_count": "tensors_count_remote",
    "fit": "fit",
    "evaluate": "evaluate",
}


class WebsocketClientWorker(NetworkClientWorker):
    """A worker at `ws://host:port`, or `wss://host:port` with `secure=True`.

    Certificates are verified: name the authority that signed the worker's with `ca=...` if it is not one that this
    system trusts. All other options are those of `NetworkClientWorker`. `data` is sent to the worker.
    """

    def __init__(
        self,
        hook: Any = None,
        host: str = "localhost",
        port: int = 8777,
        secure: bool = False,
        id: Any = None,
        is_client_worker: bool = False,
        log_msgs: bool = False,
        verbose: bool = False,
        data: Iterable[Any] | None = None,
        **options: Any,
    ) -> None:
        given = [f"{name}=..." for name in ("ca", "certificate", "key") if options.get(name) is not None]
        if given and not secure:
            raise ValueError(
                f"WebsocketClientWorker was given {' and '.join(given)}, and the connection would not be encrypted. Add "
                "secure=True, or leave it out."
            )
        address = f"{'wss' if secure else 'ws'}://{_in_url(host)}:{port}"
        if options.get("auto_add", True):
            self._refuse_taken(id, address)
        options.setdefault("timeout", TIMEOUT_INTERVAL)
        self.host, self.port, self.secure = host, port, secure
        super().__init__(
            hook,
            address,
            id,
            is_client_worker=is_client_worker,
            log_msgs=log_msgs,
            verbose=verbose,
            **options,
        )
        for obj in data or ():
            self._send_msg(ObjectMessage(obj, obj.id))

    def _refuse_taken(self, id: Any, address: str) -> None:
        """Refuse an id that a worker of another kind, or at another address, has, before anything is connected."""
        me = session.local_worker
        known = None if me is None or id is None else me._known_workers.get(id)
        if known is None:
            return
        if type(known) is not type(self) or (known.is_connected and known.address != address):
            where = getattr(known, "address", "this process")
            raise RuntimeError(
                f"A {type(known).__name__} with the id {id!r} exists already (at {where}), so there cannot be a "
                f"{type(self).__name__} of that id at {address}. Choose another id, or remove the first with "
                "worker.remove_worker_from_local_worker_registry()."
            )

    def _send_msg(self, message: Any, location: Any = None) -> Any:
        """Carry a message to another worker; without one, to the worker at the other end."""
        return (self if location is None else location)._recv_msg(message)

    def _forward_to_websocket_server_worker(self, message: Any) -> Any:
        """Carry a message to the worker at the other end."""
        return self._recv_msg(message)

    def _send_msg_and_deserialize(self, command_name: str, *args: Any, **kwargs: Any) -> Any:
        """Ask the worker at the other end for one of a few things by name, e.g. "list_objects"."""
        method = _COMMANDS.get(command_name)
        if method is None:
            raise ValueError(
                f"{command_name!r} cannot be asked of a worker. These can: {', '.join(_COMMANDS)}."
            )
        return getattr(self, method)(*args, **kwargs)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
