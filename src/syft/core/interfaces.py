"""Protocols: what the rooms know of each other's objects, so that none has to ask for a class of an upper room.

    StoredEntry      one stored object and what is known about it
    Rules            what the owner of a worker lets users do
    Store            the table of what a worker holds
    Worker           a store that takes and sends messages
    Driver           runs the programs of the parties that hold shares
    TrainingOffers   the data sets that a worker's owner offers for training
    OwnerBudgets     what a worker's owner does about budgets

They are checked by mypy and by tests/core/test_interfaces.py. `IMPLEMENTATIONS` is how a lower room reaches the class of
an upper one: by the Protocol that it knows. Imports `rooms` only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

from syft.core.rooms import FilledLater

#: The id of an object, a worker, a plan.
Id = int | str
Allowed = frozenset[str] | None
_Kept = TypeVar("_Kept")

#: A Protocol -> what an upper room has for it.
IMPLEMENTATIONS: FilledLater[type, Any] = FilledLater()


class StoredEntry(Protocol):
    """See syft.workers.entry."""

    id: Any
    value: Any
    allowed: Any
    holder: Any
    is_private: bool
    is_trusted: bool
    is_owners: bool
    chosen: Any
    references: int
    failure: str | None
    is_released_only: bool


class Rules(Protocol):
    """See syft.policy.permissions."""

    allows_by_default: bool

    @property
    def is_guarded(self) -> bool: ...
    def record(self, record: Any) -> None: ...
    def may_get(self, user: str | None, allowed: Allowed) -> bool: ...
    def may_find(self, user: str | None, about: Any) -> bool: ...
    def on_arrival(self, allowed: Allowed, user: str | None) -> Allowed: ...
    def on_result(self, allowed: Allowed, user: str | None) -> Allowed: ...
    def check_compute(self, user: str | None, obj_id: Id, about: Any) -> None: ...
    def check_get(
        self,
        user: str | None,
        obj_id: Id,
        allowed: Allowed,
        reason: str = "",
        action: str = "get",
        has_budgets: bool = False,
    ) -> None: ...
    def check_send(self, user: str | None, obj_id: Id, allowed: Allowed, action: str = "replace") -> None: ...


@runtime_checkable
class Store(Protocol):
    """See syft.workers.store."""

    id: Any
    policy: Any
    guards: Any
    admits_only_table: bool
    device: Any
    elsewhere: Any
    _entries: Any
    _findable: Any
    _objects: Any
    _holdings: Any

    @property
    def has_budgets(self) -> bool:
        """Whether its owner set budgets, so that statistics may be released."""
        ...

    def get_obj(self, obj_id: Id) -> Any: ...
    def set_obj(self, obj_id: Id, obj: Any, allowed: Any = ..., is_private: bool = False) -> None: ...
    def register_obj(
        self, obj: Any, obj_id: Id | None = None, allowed: Iterable[str] | None = None
    ) -> None: ...
    def rm_obj(self, obj_id: Id, /) -> None: ...
    def force_rm_obj(self, obj_id: Id, /) -> None: ...
    def entry_of(self, obj_id: Id) -> Any: ...
    def store_entry(self, entry: Any) -> None: ...
    def allowed_users(self, obj_id: Id) -> Allowed: ...
    def is_held_by(self, user: str | None, obj_id: Id) -> bool: ...
    def queue_delete(self, obj_id: Id) -> None: ...
    def run_deletes(self) -> None: ...
    def restrict(self, obj_id: Id, allowed: Allowed) -> None: ...
    def changeable_by(self, obj_id: Id) -> Allowed: ...
    def about(self, obj_id: Id) -> Any: ...
    def add_reference(self, obj_id: Id) -> None: ...
    def add_guard(self, guard: Any) -> None: ...
    def sharing(self, tensors: Iterable[Any], spared: Collection[Any] = ()) -> list[Any]: ...
    def taint(self, tensors: Iterable[Any], allowed: Allowed, sources: Collection[Any]) -> None: ...
    def extension(self, kind: type[_Kept]) -> _Kept:
        """The object of this class that an upper room keeps with the worker; made when it is first asked for."""
        ...

    def known_extension(self, kind: type[_Kept]) -> _Kept | None: ...


@runtime_checkable
class Worker(Store, Protocol):
    """See syft.workers.base."""

    is_in_process: bool
    is_client_worker: bool
    keeps_graphs: bool
    auto_add: bool
    log_msgs: bool
    verbose: bool
    _known_workers: dict[Any, Any]

    def get_worker(self, id_or_worker: Any, fail_hard: bool = False) -> Any: ...
    def send_msg(self, message: Any, location: Any) -> Any: ...
    def recv_msg(self, bin_message: Any) -> Any: ...
    def run_command(
        self,
        name: str,
        args: Any,
        kwargs: dict[str, Any] | None = None,
        sender: Any = None,
        return_ids: Iterable[Any] = (),
    ) -> Any: ...


@runtime_checkable
class Driver(Protocol):
    """Runs a program among the parties that hold shares: in one process, or on a network. See syft.mpc.drivers."""

    @property
    def cost(self) -> Any: ...
    @property
    def provider(self) -> Any: ...
    def run(self, protocol: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
    def reset(self) -> None: ...


class TrainingOffers(Protocol):
    """See syft.federated.federated_client."""

    datasets: dict[str, Any]
    infos: dict[str, Any]

    def add_dataset(
        self,
        dataset: Any,
        key: str,
        allowed_users: Iterable[str] | None = None,
        least_in_sum: int | None = None,
        info: Any = None,
        on_request: bool = False,
        minimum_noise: float | None = None,
    ) -> None: ...
    def remove_dataset(self, key: str) -> None: ...


class ClientNoise(Protocol):
    """See syft.dp.client_noise."""

    def check(self, clip_norm: float, step: float, variance: int) -> None:
        """!! ValueError for what no private round asks for"""
        ...

    def clipped(self, update: Any, clip_norm: float, step: float) -> Any:
        """An update of an L2 norm of at most `clip_norm`, in multiples of `step`; zeros for what is not finite."""
        ...

    def drawn(self, count: int, variance: int) -> Any:
        """Discrete Gaussian noise, in steps."""
        ...


class OwnerBudgets(Protocol):
    """See syft.dp.release."""

    def keep_budgets(self, worker: Any, book: Any) -> None: ...
    def book_to_hand_over(self, worker: Any) -> Any: ...
    def set_budget(
        self,
        worker: Any,
        dataset: Any,
        epsilon: float,
        delta: float,
        user: str | None,
        together: bool,
        name: str | None,
        max_records_per_person: int | None,
        computed: bool,
        person_column: int | None = None,
    ) -> str: ...
