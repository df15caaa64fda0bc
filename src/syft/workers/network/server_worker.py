"""`NetworkServerWorker`: a worker that others reach over a network."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from syft import transport
from syft.core import first_use, rooms
from syft.core.interfaces import Id
from syft.data.data_directory import DataDirectory, is_durable
from syft.exceptions import AuthenticationError, ConnectNotPermittedError
from syft.identity.certificates import server_context
from syft.identity.names import ANONYMOUS
from syft.identity.tokens import TokenVerifier
from syft.operations.table import all_rows
from syft.policy.authentication import Authenticator
from syft.policy.log_lines import log_decision
from syft.policy.owner_policy import OwnerPolicy, PolicyFileError
from syft.policy.permissions import AuditRecord, Policy
from syft.requests.keeper import write_down
from syft.workers.entry import Entry
from syft.workers.network import handlers as _handlers  # noqa: F401  (adds the handlers)
from syft.workers.network.process import ServerProcess
from syft.workers.network.server import Server, ServerSettings
from syft.workers.network.sessions import ServerSession
from syft.workers.virtual import VirtualWorker

logger = logging.getLogger("syft.worker")


class NetworkServerWorker(VirtualWorker):
    """A worker with addresses. It denies by default: see `policy`.

    addresses   where to listen, e.g. "tls://0.0.0.0:8777"; port 0 takes a free one (see `address` after `start`)
    data        tensors of the owner's; private unless the policy says otherwise
    certificate, key   files, for tls:// and wss://
    client_ca   clients have to show a certificate of this authority, which names their user
    tokens      verifies the tokens that clients show; they name their user
    policy      who may do what; without one, everybody has what they bring and what they compute from it
    directory   where tagged data is kept over restarts
    settings    heartbeats, limits
    device      where tensors are kept and computed, e.g. "cuda:0"; the CPU if it is left out
    anonymous   serve those who prove no name: the default where nobody else can connect, on this machine alone
    """

    def __init__(
        self,
        hook: Any = None,
        addresses: str | Sequence[str] = "tcp://127.0.0.1:0",
        id: Any = 0,
        data: Iterable[Any] | None = None,
        *,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        client_ca: str | Path | None = None,
        tokens: TokenVerifier | None = None,
        policy: Policy | None = None,
        directory: str | Path | None = None,
        settings: ServerSettings | None = None,
        anonymous: bool | None = None,
        log_msgs: bool = False,
        verbose: bool = False,
        auto_add: bool = False,
        device: Any = None,
    ) -> None:
        self._child: ServerProcess | None = None
        #: Objects and bytes in other processes of this worker (`syft.isolation`).
        self.held_elsewhere: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._files = {"--cert": certificate, "--key": key, "--client-ca": client_ca, "--keep": directory}
        self._wanted = [addresses] if isinstance(addresses, str) else list(addresses)
        self._tokens = tokens
        self._tls = _server_tls(self._wanted, certificate, key, client_ca)
        proves = tokens is not None or client_ca is not None
        self._serves_anonymous = not proves if anonymous is None else anonymous
        for address in self._wanted:
            _check_exposure(address, proves and not self._serves_anonymous)
        self.directory: DataDirectory | None = None
        self._keeps_what_comes = True
        super().__init__(
            hook,
            id,
            None,
            log_msgs=log_msgs,
            verbose=verbose,
            auto_add=auto_add,
            policy=policy or OwnerPolicy.for_network(),
            device=device,
        )
        self._known_workers[self.id] = self
        if directory is not None:
            self._removes_at_once = False  # a file may go with the object
            self.directory = DataDirectory(directory)
            self.directory.load_into(self)
        self._keeps_what_comes = False  # what the owner gives at every start is the owner's to keep
        self.load_data(data or ())
        self._keeps_what_comes = True
        self._authenticator = Authenticator(
            lambda: self.id, tokens, client_ca is not None, self._serves_anonymous
        )
        self._server = Server(
            self,
            self._authenticator.authenticate,
            self._note,
            self._outlives_its_session,
            settings,
            self._rules,
            self.policy.check_connect,
            self._keep_house,
        )

    # NB: a queue that nobody could look into would only keep users waiting.
    asks_in_memory = False

    # -- life --------------------------------------------------------------------------------------

    def start(self, block: bool = True, process: bool = False) -> NetworkServerWorker:
        """Listen, and serve until `stop()` or a signal.

        With `block=False` it serves in threads of this process, with `process=True` in a process of its own, which
        takes the data along, and the book of their budgets; both return at once.
        """
        if process:
            self._child = ServerProcess(self._command(), list(self._objects.values()))
            self.clear_objects()
            return self
        if not self._server.addresses:
            # Now, and not while the first user of a plan, or of anything at all, waits.
            rooms.load_rest()
            all_rows()
            first_use.prepare_training()
            for address in self._wanted:
                self._server.listen(address, self._tls if _is_encrypted(address) else None)
        if block:
            with stopped_by_signals(self):
                self.wait()
            self.stop()
        return self

    def wait(self) -> None:
        """Until somebody asks it to stop, with a signal or `ask_to_stop()`."""
        self._server.wait()

    def ask_to_stop(self) -> None:
        """End what waits in `wait()` or `start()`; may be called by a signal handler."""
        self._server.ask_to_stop()

    def stop(self) -> None:
        """Finish what is running, say goodbye to everybody, and end."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        self._server.stop()
        try:
            self.policy.write_activity(all_of_it=True)
        except (OSError, ValueError) as error:  # a disk that is full, a log that its owner has closed
            logger.warning("What users did last is not in the audit log: %s", error)
        if self.directory is not None:
            self.directory.close()

    def __enter__(self) -> NetworkServerWorker:
        return self.start(block=False)

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the ports that were chosen."""
        if self._child is not None:
            return self._child.addresses
        return self._server.addresses or list(self._wanted)

    @property
    def address(self) -> str:
        return self.addresses[0]

    def status(self) -> dict[str, Any]:
        """Numbers, for whoever asks; nothing about the data."""
        objects, nbytes = self.held_elsewhere()
        return {
            "id": self.id,
            "objects": len(self._entries) + objects,
            "bytes": nbytes + sum(t.nbytes for t in self._objects.copy().values() if type(t) is torch.Tensor),
            **self._server.status(),
        }

    def server_sessions(self) -> list[ServerSession]:
        """Who is served now, for the owner of the worker."""
        return self._server.sessions()

    def decisions(self) -> dict[bool, int]:
        """How many requests the policy granted and refused."""
        return dict(self.policy.decisions)

    def _command(self) -> list[str]:
        """The command that serves this worker in another process."""
        options: dict[str, Any] = {"--id": self.id, **self._files}
        if self._tokens is not None:
            raise ValueError(
                "start(process=True) cannot hand over a TokenVerifier. Start such a worker with `syft worker --tokens`."
            )
        policy = self.policy
        if isinstance(policy, OwnerPolicy) and policy.path is not None:
            options["--policy"] = policy.path
        elif type(policy) is not OwnerPolicy or policy.rules != OwnerPolicy.for_network().rules:
            raise ValueError(
                "start(process=True) cannot hand over a policy that is not in a file. Write it to one and use "
                "policy=OwnerPolicy.load(path)."
            )
        options["--budgets"] = self._book_to_hand_over()
        if self.device is not None:
            options |= {"--device": self.device, "--isolation": "none"}
        settings = self._server.settings
        options |= {"--heartbeat": settings.heartbeat, "--grace": settings.grace}
        given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
        return given + [part for address in self._wanted for part in ("--listen", address)]

    def list_objects(self) -> list[Any]:
        return list(self._objects)

    # -- who speaks --------------------------------------------------------------------------------

    def _keep_house(self) -> None:
        """See to it that those who are here may still be here: by their proofs, and the policy file as it is now.

        What the owner has decided about requests is written to the audit log.
        """
        write_down(self)
        self.policy.write_activity()
        if isinstance(self.policy, OwnerPolicy):
            self._reload(self.policy)
        for session in self._server.sessions():
            proof = session.proof
            if proof is None:
                continue
            try:
                self.policy.check_connect(proof.user)
                self._authenticator.check(proof)
            except (ConnectNotPermittedError, AuthenticationError) as error:
                self._server.dismiss(session, error)

    def _reload(self, policy: OwnerPolicy) -> None:
        try:
            if not policy.reload_if_changed():
                return
        except PolicyFileError as error:
            logger.error("%s: the policy file was changed and is not obeyed: %s", self.id, error)
            return
        logger.info("%s: the policy file was changed and is obeyed from now on", self.id)
        policy.apply_to(self)

    def _rules(self, user: str, settings: ServerSettings) -> ServerSettings:
        """What the owner's policy says about one user."""
        rules = self.policy.user(user) if isinstance(self.policy, OwnerPolicy) else None
        if rules is None:
            return settings
        limits = rules.limits
        return replace(
            settings,
            max_message=min(settings.max_message, limits.max_frame),
            max_sessions_per_user=limits.connections,
            seconds_per_operation=min(
                limits.seconds_per_operation, settings.seconds_per_operation or math.inf
            ),
        )

    def _note(self, action: str, user: str | None, peer: str, granted: bool, reason: str) -> None:
        self.policy.record(AuditRecord(action, None, user, granted, reason, peer=peer))
        log_decision(self.id, action, user, peer, granted, reason)

    # -- what stays --------------------------------------------------------------------------------

    def _outlives_its_session(self, obj_id: Id, obj: Any) -> bool:
        """What has tags does. Those without a name are new users each time: what they leave is held by one of them all,
        as far as it fits into the quota of one."""
        if not getattr(obj, "tags", None):
            return False
        holder = self.entry_of(obj_id).holder
        if self._holdings is None or not (holder or "").startswith(ANONYMOUS):
            return True
        return self.hand_over(obj_id, ANONYMOUS)

    def _persist(self, entry: Entry) -> None:
        if self.directory is not None and self._keeps_what_comes and is_durable(entry.value):
            self.directory.keep_entry(entry, is_guarded=self._holdings is not None)

    def rm_obj(self, remote_key: Any) -> None:
        super().rm_obj(remote_key)
        if self.directory is not None and remote_key not in self._entries:
            self.directory.remove(remote_key)


def _is_encrypted(address: str) -> bool:
    return address.startswith(("tls://", "wss://"))


def _server_tls(addresses: list[str], certificate: Any, key: Any, client_ca: Any) -> ssl.SSLContext | None:
    if not any(map(_is_encrypted, addresses)):
        given = [
            name
            for name, value in (("certificate", certificate), ("key", key), ("client_ca", client_ca))
            if value is not None
        ]
        if given:
            raise ValueError(
                f"{' and '.join(f'{name}=...' for name in given)} was given, and nothing at {', '.join(addresses)} is "
                "encrypted, so it would be of no use. Listen at a tls:// or wss:// address (with certificate=... and "
                "key=...), or leave it out."
            )
        return None
    if certificate is None or key is None:
        raise ValueError(
            f"{addresses} asks for TLS, which needs certificate=... and key=... . Make them with `syft cert`."
        )
    return server_context(certificate, key, client_ca)


def _check_exposure(address: str, proves: bool) -> None:
    """Others than this machine are served over TLS, and only if they prove who they are."""
    if transport.is_loopback(address):
        return
    missing = [
        what
        for is_missing, what in (
            (
                not _is_encrypted(address),
                "TLS (a tls:// or wss:// address, with certificate=... and key=...)",
            ),
            (not proves, "proof of who connects (tokens=... or client_ca=..., and not anonymous=True)"),
        )
        if is_missing
    ]
    if missing:
        raise ValueError(
            f"{address!r} can be reached from other machines, so it needs {' and '.join(missing)}. To serve this "
            "machine alone, listen at 127.0.0.1."
        )


@contextlib.contextmanager
def stopped_by_signals(worker: NetworkServerWorker) -> Iterator[None]:
    """SIGTERM and Ctrl-C end the worker in good order. (Only the main thread can be told of them.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: worker.ask_to_stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
