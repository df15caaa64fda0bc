"""`BaseWorker`: a store, a policy, an address book, and a handler per message.

It decides nothing about how messages travel: `_send_msg` and `_recv_msg` are the transport's.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from syft.core import first_use, html, registering
from syft.core.chain import Wrapper
from syft.core.identity import tags_of
from syft.core.interfaces import Id
from syft.core.placing import device_of_worker
from syft.core.session import session
from syft.data.worker_datasets import TrainingMixin
from syft.exceptions import WorkerNotFoundException
from syft.messaging.message import (
    ForceObjectDeleteMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCommandMessage,
    SearchMessage,
)
from syft.policy.caller import UNPROVED, is_proved, speaking_for, user_of, user_or_unproved
from syft.policy.permissions import Policy, intersect
from syft.policy.quotas import Quotas
from syft.requests.releasing import ReleasingWorker
from syft.requests.requesting import RequestingWorker
from syft.tensors.pointer import pointer_from_found, results_from_reply
from syft.tensors.private import is_released_only
from syft.tensors.references import as_refs
from syft.tensors.remote import Remote
from syft.tensors.run_there import run_there
from syft.workers import handlers
from syft.workers.abstract import AbstractWorker
from syft.workers.documented import DocumentedWorker, own
from syft.workers.documented_storage import ObjectStorage
from syft.workers.entry import Entry
from syft.workers.holdings import Holdings
from syft.workers.results import refuse_other_layouts
from syft.workers.store import named

logger = logging.getLogger(__name__)


class BaseWorker(
    ObjectStorage, DocumentedWorker, ReleasingWorker, RequestingWorker, TrainingMixin, AbstractWorker
):
    """A place where objects live and commands run."""

    #: Whether messages reach it as the very objects that were sent, and not as bytes.
    is_in_process = True
    #: Whether it knows us by a name that holds for one session with it, and nowhere else.
    is_nameless = False

    def __init__(
        self,
        hook: Any = None,
        id: Any = 0,
        data: Iterable[Any] | None = None,
        is_client_worker: bool = False,
        log_msgs: bool = False,
        verbose: bool = False,
        auto_add: bool = True,
        policy: Policy | None = None,
        device: Any = None,
    ) -> None:
        if isinstance(hook, (str, int)):
            raise TypeError(
                f"{type(self).__name__}({hook!r}) was called, and the first argument is the hook. Write "
                f"{type(self).__name__}(hook, id={hook!r})."
            )
        super().__init__()
        if not is_client_worker:
            first_use.prepare()
        self.hook = hook
        self.id = id
        self.device = device_of_worker(device, id)
        self._is_client_worker = is_client_worker
        self.log_msgs = log_msgs
        self.verbose = verbose
        self.auto_add = auto_add
        self.policy = policy or Policy()
        if self.policy.is_guarded:
            self.guard_with(Holdings(Quotas(self.policy.quota_of)))
        self.msg_history: list[Any] = []
        self._known_workers: dict[Any, Any] = {}
        if auto_add:
            self._introduce()
        self.load_data(data or ())

    # -- the address book --------------------------------------------------------------------------

    def _introduce(self) -> None:
        """Become known to the local worker and to everybody it knows."""
        me = session.local_worker
        if me is None or me is self:
            self._known_workers[self.id] = self
            return
        known = me._known_workers.get(self.id)
        if known is not None and known is not self:
            if type(known) is not type(self):
                raise RuntimeError(
                    f"A {type(known).__name__} with the id {self.id!r} exists already, so there cannot be a "
                    f"{type(self).__name__} of that id. Choose another id, or remove the first with "
                    "worker.remove_worker_from_local_worker_registry()."
                )
            self._share_state_of(known)
            return
        for worker in list(me._known_workers.values()):
            if isinstance(worker, BaseWorker):
                worker._known_workers[self.id] = self
            self._known_workers[worker.id] = worker
        me._known_workers[self.id] = self
        self._known_workers[self.id] = self

    def _share_state_of(self, other: BaseWorker) -> None:
        """Two workers of one id and type are one worker under two names."""
        for name in (
            "_entries",
            "_findable",
            "_view",
            "_extensions",
            "guards",
            "admits_only_table",
            "keeps_graphs",
            "_holdings",
            "_waiting_deletes",
            "_deleting",
            "_known_workers",
            "msg_history",
            "policy",
            "device",
        ):
            setattr(self, name, getattr(other, name))

    def add_worker(self, worker: Any) -> BaseWorker:
        """Know another worker; returns self."""
        self._known_workers[worker.id] = worker
        return self

    def add_workers(self, workers: Iterable[Any]) -> BaseWorker:
        for worker in workers:
            self.add_worker(worker)
        return self

    def get_worker(self, id_or_worker: Any, fail_hard: bool = False) -> Any:
        """The worker of that id. Unknown: the id itself, or !! WorkerNotFoundException if `fail_hard`."""
        if isinstance(id_or_worker, AbstractWorker):
            if id_or_worker.id not in self._known_workers:
                self.add_worker(id_or_worker)
            return id_or_worker
        found = self._known_workers.get(id_or_worker)
        if found is None and fail_hard:
            known = ", ".join(repr(name) for name in sorted(self._known_workers, key=str)) or "nobody"
            raise WorkerNotFoundException(
                f"Worker {self.id!r} knows no worker {id_or_worker!r} (it knows {known}). Create it, or "
                "introduce it with add_worker(worker)."
            )
        return id_or_worker if found is None else found

    def remove_worker_from_registry(self, worker_id: Any) -> None:
        """Forget a worker of that id."""
        self._known_workers.pop(worker_id, None)

    def remove_worker_from_local_worker_registry(self) -> None:
        """Make the local worker forget this one."""
        if session.local_worker is not None:
            session.local_worker.remove_worker_from_registry(self.id)

    # -- registration on clients -------------------------------------------------------------------

    def register_obj(self, obj: Any, obj_id: Id | None = None, allowed: Iterable[str] | None = None) -> None:
        """Keep an object. A client's worker keeps nothing unless inside `registration_enabled()`."""
        if self.is_client_worker:
            return
        refuse_other_layouts(obj)
        obj_id = obj.id if obj_id is None else obj_id
        released_only = is_released_only(getattr(obj, "child", None))
        obj, privacy = handlers.without_privacy(obj)
        if isinstance(obj, torch.Tensor) and obj.requires_grad and type(obj) is not Wrapper:
            obj = obj.detach()
        chosen = intersect(privacy, None if allowed is None else frozenset(allowed))
        entry = Entry(named(obj, obj_id), obj, is_trusted=not is_proved())
        entry.is_released_only = released_only
        entry.is_private = chosen is not None or self._holdings is not None
        if self._holdings is None or is_proved():
            entry.allowed = self.policy.on_arrival(chosen, user_of(None))
        else:
            entry.allowed = self.policy.on_registration(chosen, tags_of(obj))
            entry.is_owners, entry.chosen = True, chosen
        self.store_entry(entry)
        self._findable.may_be_named(entry)

    @property
    def is_client_worker(self) -> bool:
        """Whether it belongs to an end user, whose objects are not registered."""
        return self._is_client_worker

    @is_client_worker.setter
    def is_client_worker(self, value: bool) -> None:
        if value != self._is_client_worker:
            self._is_client_worker = value
            if self is session.local_worker:
                registering.follow(self)

    @contextlib.contextmanager
    def registration_enabled(self) -> Iterator[BaseWorker]:
        """Inside, a client's worker registers objects like any other; the local one also the tensors made here."""
        before, self.is_client_worker = self.is_client_worker, False
        try:
            yield self
        finally:
            self.is_client_worker = before

    def load_data(self, data: Iterable[Any]) -> None:
        """Put data of the owner's here; tensors keep their tags, PrivateTensors their allowed users."""
        for obj in data:
            own(self, obj)
            self.register_obj(obj, obj.id)

    # -- messages ----------------------------------------------------------------------------------

    def send_msg(self, message: Any, location: Any) -> Any:
        """Send a message to a worker and return its reply."""
        if self.verbose:
            print(f"worker {self.id} sending {_shown(message)} to {location.id}")
        return self._send_msg(message, location)

    def give_msg(self, message: Any, location: Any) -> Any:
        """`send_msg` of an object that nobody else has and the sender lets go of: within a process it is not copied."""
        return self.send_msg(message, location)

    def recv_msg(self, bin_message: Any) -> Any:
        """Handle a message and return the reply; to a message in bytes, the reply in bytes."""
        return self._handle(bin_message)

    def _handle(self, message: Any) -> Any:
        if self.log_msgs or self.verbose:
            self._keep_or_print(message)
        if self._waiting_deletes:
            self.run_deletes()
        handler = handlers.HANDLERS.get(type(message))
        if handler is None:
            if isinstance(message, (bytes, bytearray)):
                return self._recv_bytes(bytes(message))
            handler = handlers.HANDLERS.find(type(message))
        if handler is None:
            raise TypeError(
                f"Worker {self.id!r} got a {type(message).__name__}, for which it has no handler. The "
                "messages it understands are in syft.messaging.message."
            )
        if self._holdings is not None and user_or_unproved() is UNPROVED:
            # In one process a message is believed about who sent it.
            with speaking_for(user_of(message)):
                return handler(self, message)
        return handler(self, message)

    def _keep_or_print(self, message: Any) -> None:
        """Keep or print a message; one in bytes is noted when it has been read."""
        if isinstance(message, (bytes, bytearray)):
            return
        if self.log_msgs:
            self.msg_history.append(message)
        if self.verbose:
            print(f"worker {self.id} received {_shown(message)}")

    def _send_msg(self, message: Any, location: Any) -> Any:
        raise NotImplementedError(
            "A worker that sends needs a transport: use VirtualWorker or a network worker."
        )

    def _recv_msg(self, message: Any) -> Any:
        return self.recv_msg(message)

    # -- asking other workers ----------------------------------------------------------------------

    def send(
        self, obj: Any, workers: Any, ptr_id: Any = None, garbage_collect_data: bool = True, **kwargs: Any
    ) -> Any:
        """Send an object to a worker (or several); returns the pointer."""
        locations = workers if isinstance(workers, (list, tuple)) else [workers]
        if isinstance(obj, torch.Tensor):
            return obj.send(*locations, garbage_collect_data=garbage_collect_data, **kwargs)  # type: ignore[attr-defined]
        if len(locations) != 1:
            raise ValueError(
                f"A {type(obj).__name__} can be sent to one worker at a time; {len(locations)} were given."
            )
        return obj.send(locations[0], **kwargs)

    def send_obj(self, obj: Any, location: Any, obj_id: Id | None = None) -> None:
        """Send an object without making a pointer to it."""
        self.send_msg(
            ObjectMessage(obj, obj.id if obj_id is None else obj_id), self.get_worker(location, True)
        )

    def request_obj(self, obj_id: Id, location: Any, user: str | None = None, reason: str = "") -> Any:
        """Fetch an object from a worker and remove it there."""
        return self.send_msg(ObjectRequestMessage((obj_id, user, reason)), self.get_worker(location, True))

    def fetch_plan(self, plan_id: Id, location: Any, copy: bool = False, user: str | None = None) -> Any:
        """A plan that a worker holds, with the values its state has there; `copy` gives it an id of its own."""
        message = PlanCommandMessage("fetch_plan", (plan_id, copy), user)
        plan = self.send_msg(message, self.get_worker(location, True))
        plan.owner = self
        return plan

    def send_command(self, recipient: Any, message: Any, return_ids: Any = None, **_options: Any) -> Any:
        """Run `(name, self, args, kwargs)` on a worker; returns pointers to the results."""
        name, method_self, args, kwargs = message
        recipient = self.get_worker(recipient, True)
        return recipient.run_command(
            name, args if method_self is None else (method_self, *args), kwargs, self, return_ids or ()
        )

    def run_command(
        self,
        name: str,
        args: Any,
        kwargs: dict[str, Any] | None = None,
        sender: Any = None,
        return_ids: Iterable[Id] = (),
    ) -> Any:
        """Run a torch function here on pointers to here and numbers; returns pointers to the results.

        The results are stored under `return_ids`, taken from the end, or under ids of their own.
        """
        speaker = sender or session.require_local_worker()
        if self.admits_only_table and not name.startswith("aten."):
            if tuple(return_ids):
                raise ValueError(
                    f"run_command({name!r}) was given return_ids; worker {self.id!r} runs only operations of the table, "
                    "of which it is made. Leave them out, or name an operation such as 'aten.add.Tensor'."
                )
            return run_there(name, args, kwargs or {}, self, speaker)
        message = Operation(
            name,
            None,
            tuple(as_refs(a, self) for a in args),
            as_refs(dict(kwargs or {}), self),
            tuple(return_ids),
            wants_specs=True,
        )
        result = handlers.wrapped(results_from_reply(speaker.send_msg(message, self), self))
        return args[0] if result is None and args else result  # it wrote into its first argument

    @property
    def remote(self) -> Remote:
        """`worker.remote.torch.zeros(2, 3)` makes a tensor there."""
        return Remote(self)

    def request_is_remote_tensor_none(self, pointer: Any) -> bool:
        node = pointer.child if type(pointer) is Wrapper else pointer
        return bool(self.send_msg(IsNoneMessage(node.id_at_location), node.location))

    def delete_remote(self, obj_ids: Iterable[Id], location: Any) -> None:
        self.send_msg(ForceObjectDeleteMessage(tuple(obj_ids)), location)

    # -- search ------------------------------------------------------------------------------------

    def search(self, query: Any = None) -> list[Any]:
        """Pointers to the objects here that match all terms, or to all; they do not delete what they point to."""
        speaker = session.local_worker or self
        if not _may_match(query):
            return html.Found()
        return self._pointers_to_found(handlers.find(self, _terms(query)), self, speaker)

    def request_search(self, query: Any, location: Any) -> list[Any]:
        """Search on another worker. None finds all that one may know of."""
        location = self.get_worker(location, True)
        if not _may_match(query):
            return html.Found()
        return self._pointers_to_found(self.send_msg(SearchMessage(_terms(query)), location), location, self)

    def _pointers_to_found(self, found: list[Any], location: Any, owner: Any) -> list[Any]:
        return html.Found(self.pointer_from(f, location, owner) for f in found)

    def pointer_from(self, found: Any, location: Any, owner: Any = None) -> Any:
        """A pointer to what a worker described; of the kind that fits the object."""
        kind = handlers.POINTER_KINDS.find(found.kind)
        if kind is None:
            return pointer_from_found(found, location, owner)
        return kind(
            location,
            found.id,
            owner,
            garbage_collect_data=False,
            tags=found.tags,
            description=found.description,
        )

    def pointer_to(self, obj_id: Id) -> Any:
        """A wrapped pointer to a tensor held here, which does not delete it."""
        return self.pointer_from(handlers.found_of(self, obj_id), self)

    # ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<{type(self).__name__} id:{self.id} #objects:{len(self._objects)}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [("objects", len(self._objects)), ("knows", ", ".join(sorted(map(str, self._known_workers))))]
        return html.table(f"{type(self).__name__} {self.id}", (), rows)

    def __len__(self) -> int:
        return len(self._objects)

    def __bool__(self) -> bool:
        return True


def _may_match(query: Any) -> bool:
    """An empty list of terms, as a program may have made it, finds nothing. To list all, give no list."""
    return query is None or bool(_terms(query))


def _terms(query: Any) -> tuple[Any, ...]:
    if query is None:
        return ()
    return tuple(query) if isinstance(query, (list, tuple, set)) else (query,)


def _shown(message: Any) -> str:
    """A message without the content of objects."""
    shown = ", ".join(
        f"{name}={_shown_value(name, getattr(message, name))}" for name in message.__struct_fields__
    )
    return f"{type(message).__name__}({shown})"


def _shown_value(name: str, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"<tensor of shape {tuple(value.shape)}>"
    return "<object>" if name in ("object", "value") else repr(value)
