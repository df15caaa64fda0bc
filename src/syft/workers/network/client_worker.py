"""`NetworkClientWorker`: a worker that runs elsewhere, as the one who asks it sees it."""

from __future__ import annotations

import contextlib
import functools
import getpass
import math
import os
import socket
import ssl
from collections.abc import Iterable
from typing import Any

from syft import serde, transport
from syft.core.interfaces import Id
from syft.core.session import session
from syft.identity.certificates import client_context
from syft.identity.names import ANONYMOUS
from syft.identity.tokens import read_token_file
from syft.messaging.message import (
    ClearObjectsMessage,
    ListObjectsMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    StatusMessage,
    SyncMessage,
)
from syft.transport import session_frames as frames
from syft.transport import session_records as handshake
from syft.workers.base import BaseWorker, _shown
from syft.workers.network import presence
from syft.workers.network.link import Link


class NetworkClientWorker(BaseWorker):
    """Everything a worker can do, over a connection. Commands are sent and not waited for; see `sync`.

    address      `tcp://host:port`, `tls://`, `ws://`, `wss://`, `unix:///path`, `inproc://name`
    id           what the worker must be called; None takes the name that it has
    token        proves to the worker who you are
    ca           the certificate authority to trust (a file); None: those that this system trusts
    certificate, key   files that prove who you are, for a worker that wants a certificate
    patience     seconds to go on trying when the worker cannot be reached, before a call fails
    peer_patience   the same for computations on secrets, in which others wait for this worker, too
    debug        wait after every command, so that an error is raised by the very call that caused it
    log_msgs, verbose   keep what is sent there in `msg_history`, print it; from the beginning
    compression  "zstd" or "lz4": compress what is sent both ways, except shares, if the worker has that scheme, too
    """

    is_in_process = False
    #: False turns off that backward passes which repeat are one message; see syft.tensors.learnt_graphs.
    learns_graphs = True
    #: For those who keep something there beside objects (groups that compute on secrets).
    times_cleared = 0
    #: Who may have what is the worker's knowledge. (Others look for this method, and find that it is not known.)
    allowed_users = None  # type: ignore[assignment]

    def __init__(
        self,
        hook: Any = None,
        address: str = "",
        id: Any = None,
        token: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
        is_client_worker: bool = False,
        log_msgs: bool = False,
        verbose: bool = False,
        auto_add: bool = True,
        patience: float = 30.0,
        peer_patience: float = presence.PEER_PATIENCE,
        heartbeat: float = 10.0,
        timeout: float = 10.0,
        debug: bool = False,
        compression: str | None = None,
        limits: serde.Limits | None = None,
    ) -> None:
        if token is not None:
            _refuse_to_show_token(address)
            token = token.strip()  # what was read from a file or a command ends with a line break
        for name, seconds in (("patience", patience), ("peer_patience", peer_patience)):
            if not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
                raise ValueError(f"{name}={seconds!r}: write a number of seconds, 0 or more.")
        self.address = address
        # A context is compared by identity: nobody can tell what is in it.
        self._speaks_as = (address, token, *(p and str(p) for p in (ca, certificate, key)), tls)
        self._token, self._timeout = token, timeout
        self._tls = tls if tls is not None else _tls_for(address, ca, certificate, key)
        self._expected = id
        self._new_link = functools.partial(
            Link,
            self._open,
            self._hello,
            f"the worker at {address}" if id is None else f"worker {id!r}",
            session.require_local_worker,
            patience=patience,
            peer_patience=peer_patience,
            heartbeat=heartbeat,
            compression=compression,
            limits=limits,
            debug=debug,
        )
        self._link = self._new_link()
        welcome = self._connect_first(patience)
        #: The name under which the worker knows us.
        self.user = welcome.user
        self.admits_only_table = welcome.admits_only_table
        try:
            super().__init__(hook, welcome.worker, None, is_client_worker, log_msgs, verbose, auto_add)
        except BaseException:
            self._link.close()
            raise
        if log_msgs or verbose:
            # Chosen once: who wants neither does not pay for it with every command.
            self._recv_msg = self._recv_noted  # type: ignore[method-assign]

    # -- the connection ----------------------------------------------------------------------------

    def _connect_first(self, patience: float) -> handshake.Welcome:
        """A wrong address should be told soon, and not after a long time of trying."""
        self._link.patience = min(patience, 2.0)
        try:
            return self._link.connect()
        finally:
            self._link.patience = patience

    def _open(self) -> transport.Connection:
        limits = transport.FrameLimits(max_frame_bytes=frames.MAX_FRAME_BYTES)
        return transport.connect(self.address, tls=self._tls, timeout=self._timeout, limits=limits)

    def _hello(self, session_id: str | None, last_reply: int) -> handshake.Hello:
        return handshake.Hello(
            handshake.PROTOCOL,
            _who_am_i(),
            self._token,
            session_id,
            last_reply,
            self._expected,
            self._link.compression.offered,
        )

    @property
    def is_nameless(self) -> bool:  # type: ignore[override]
        return self.user.startswith(ANONYMOUS)

    @property
    def keeps_on(self) -> str:
        """The device on which the worker keeps tensors, as it said when we connected; empty for the CPU."""
        return "" if self._link.welcome is None else self._link.welcome.device

    @property
    def _learnt(self) -> Any:
        return self._link.learnt

    @property
    def session_key(self) -> Any:
        """Another one for every session: what the worker knows of one it has forgotten in the next."""
        return self._link.session_key

    @property
    def url(self) -> str:
        return self.address

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    @property
    def debug(self) -> bool:
        """Wait after every command, so that an error is raised by the very call that caused it."""
        return self._link.debug

    @debug.setter
    def debug(self, value: bool) -> None:
        self._link.debug = value

    def connect(self) -> None:
        """Connect, if there is no connection. After `close()` a new session begins: what the last one held is gone."""
        if not self._link.is_closed:
            self._link.connect()
            return
        debug, self._link = self._link.debug, self._new_link()
        self._link.debug, self._expected = debug, self.id
        try:
            welcome = self._connect_first(self._link.patience)
            self.user, self.admits_only_table = welcome.user, welcome.admits_only_table
            if self.auto_add:
                self._introduce()
        except BaseException:
            self._link.close()
            raise

    def close(self) -> None:
        """End the session: the worker frees what was computed in it. Tagged data that was sent stays there.

        Nobody here knows the worker by its name any more, until there is a new connection to it: `connect()` makes one.
        """
        self._link.close()
        self._leave()

    def _leave(self) -> None:
        me = session.local_worker
        for worker in (self, *(me._known_workers.values() if me is not None else ())):
            known = getattr(worker, "_known_workers", {})
            found = known.get(self.id)
            if isinstance(found, NetworkClientWorker) and found._link is self._link:
                del known[self.id]

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Inside, small objects that are sent wait for each other, and travel in one frame."""
        return self._link.together()

    def flush(self) -> None:
        """Send the commands that are waiting to be sent together; they go by themselves a moment later."""
        self._link.flush()

    def sync(self) -> None:
        """Wait until the worker has done everything so far. !! what went wrong"""
        self._link.ask(SyncMessage())

    def __enter__(self) -> NetworkClientWorker:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _share_state_of(self, other: BaseWorker) -> None:
        if isinstance(other, NetworkClientWorker) and not other._link.is_closed:
            if other._speaks_as != self._speaks_as:
                raise RuntimeError(
                    f"There is a connection to worker {self.id!r} as {other.user!r} already, at {other.address}, and "
                    "this one has another address, token or certificate. Pass auto_add=False for a second one, or remove "
                    "the first with remove_worker_from_local_worker_registry()."
                )
            if other._link.is_connected:
                self._link.close()
                self._link = other._link
        super()._share_state_of(other)

    # -- messages ----------------------------------------------------------------------------------

    def _recv_msg(self, message: Any) -> Any:
        """Carry a message there."""
        if type(message) is Operation and not message.wants_specs:  # as most are
            self._link.post(message)
            return None
        if type(message) is ObjectRequestMessage or message.is_asked():
            return self._link.ask(message)
        self._link.post(message)
        if type(message) is ObjectMessage:
            self._link.handed_over.note(message.object)
        return None

    def ask_all(self, messages: list[Any]) -> list[Any]:
        """The replies to several messages that are asked together. !! what the first that failed raised"""
        if self.log_msgs or self.verbose:
            return [self._recv_msg(message) for message in messages]
        return self._link.ask_all(messages)

    def _recv_noted(self, message: Any) -> Any:
        """Carry a message there, and keep or print it here."""
        if self.log_msgs:
            self.msg_history.append(message)
        if self.verbose:
            print(f"worker {self.id} is sent {_shown(message)}")
        return NetworkClientWorker._recv_msg(self, message)

    def _send_msg(self, message: Any, location: Any) -> Any:
        return location._recv_msg(message)

    def queue_delete(self, obj_id: Id) -> None:
        self._link._deletes.append(obj_id)  # `Link.queue_delete`, without a call

    # -- what is there -----------------------------------------------------------------------------

    def search(self, query: Any = None) -> list[Any]:
        """Pointers to the objects there that match all terms, or to all; as far as we may know of them."""
        return session.require_local_worker().request_search(query, self)  # type: ignore[no-any-return]

    def list_objects_remote(self) -> list[Any]:
        """The ids of the objects that we may know of."""
        return list(self._link.ask(ListObjectsMessage()))

    def objects_count_remote(self) -> int:
        """How many objects there are, as far as we may know of them."""
        return len(self.list_objects_remote())

    def clear_objects_remote(self) -> None:
        """Remove everything there that we brought or computed."""
        self.times_cleared += 1
        self._link.ask(ClearObjectsMessage())

    def status(self) -> dict[str, Any]:
        """Numbers about the worker."""
        return dict(self._link.ask(StatusMessage()))

    @property
    def _objects(self) -> Any:
        """Nothing is held here."""
        return {}

    @_objects.setter
    def _objects(self, objects: dict[Any, Any]) -> None:
        raise ValueError(
            f"_objects of worker {self.id!r} was assigned to, on a connection. Use clear_objects() and send(...)."
        )

    def clear_objects(self, return_self: bool = True) -> Any:
        self.clear_objects_remote()
        return self if return_self else None

    def objects_count(self) -> int:
        return self.objects_count_remote()

    def __len__(self) -> int:
        return self.objects_count_remote()

    def __repr__(self) -> str:
        state = "" if self.is_connected else " (not connected)"
        return f"<{type(self).__name__} id:{self.id} at {self.address}{state}>"

    __str__ = __repr__


def connect(
    address: str,
    id: Any = None,
    *,
    hook: Any = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    tls: ssl.SSLContext | None = None,
    is_client_worker: bool = False,
    log_msgs: bool = False,
    verbose: bool = False,
    auto_add: bool = True,
    patience: float = 30.0,
    peer_patience: float = presence.PEER_PATIENCE,
    heartbeat: float = 10.0,
    timeout: float = 10.0,
    debug: bool = False,
    compression: str | None = None,
    limits: serde.Limits | None = None,
) -> NetworkClientWorker:
    """The worker at an address: `sy.connect("wss://hospital.example:8777", token=...)`.

    address        ws://, wss://, tcp://, tls://, unix:// or inproc://
    id             the id that the worker must have; any if left out
    hook           the hook of torch; if left out and there is none, torch is hooked now
    token          proves who you are; only sent over TLS, or to this machine
    token_file     the file in which the token is, in place of `token`
    ca             the file of the authority that signed the worker's certificate; the system's if left out
    certificate    the file of your own certificate, with `key`, for workers that ask for one
    tls            an SSLContext of your own, in place of the three above
    auto_add       make the worker known to the local worker and those that it knows
    patience       seconds that a call waits for a worker that cannot be reached
    peer_patience  the same for the parties of a program on shares
    heartbeat      seconds without a message after which one is sent
    timeout        seconds for making the connection
    debug          wait after every command, so that an error is raised by the line that caused it
    compression    "lz4" or "zstd"
    limits         what is accepted from the worker
    log_msgs       keep the messages in `msg_history`; `verbose` prints them
    """
    if token_file is not None:
        if token is not None:
            raise ValueError(
                "connect() was given token=... and token_file=..., which say the same. Leave one out."
            )
        token = read_token_file(token_file)
    return NetworkClientWorker(
        hook if hook is not None else session.require_hook(),
        address,
        id,
        token=token,
        ca=ca,
        certificate=certificate,
        key=key,
        tls=tls,
        is_client_worker=is_client_worker,
        log_msgs=log_msgs,
        verbose=verbose,
        auto_add=auto_add,
        patience=patience,
        peer_patience=peer_patience,
        heartbeat=heartbeat,
        timeout=timeout,
        debug=debug,
        compression=compression,
        limits=limits,
    )


def _tls_for(address: str, ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    if not address.startswith(("tls://", "wss://")):
        given: Iterable[str] = [name for name, value in (("ca", ca), ("certificate", certificate)) if value]
        if given:
            raise ValueError(
                f"{' and '.join(given)} was given for {address!r}, which is not encrypted. Use tls:// or wss://."
            )
        return None
    return client_context(ca, certificate, key)


def _refuse_to_show_token(address: str) -> None:
    """!! ValueError if whoever listens on the way could read a token and use it."""
    if not address.startswith(("tls://", "wss://")) and not transport.is_loopback(address):
        raise ValueError(
            f"token=... was given for {address!r}, which is not encrypted: whoever listens on the way could use it. "
            "Connect to a tls:// or wss:// address."
        )


def _who_am_i() -> str:
    """For the logs of the worker's owner; nobody relies on it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "?"
    return f"{name}@{socket.gethostname()}"[:200]
