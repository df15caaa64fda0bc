"""What goes to a client in another process, and what comes back: bytes of `syft.serde` wherever it can be.

One duty: from a task to a parcel here, and from a parcel to a task there. It does not know who carries parcels: a
carrier puts things into a store, and hands those that a parcel names over with it (see `ray`). Imports `clients`,
`engines.base`, `records`, `serde`.

NOTE [What crosses, and how]
instructions, results    bytes of `syft.serde`. The state of a round is put into the store once, for all clients
tensors of a data set    bytes, of the rows a client has and no others (pickling a slice of a tensor takes all of it)
`Subset` of a data set   its row numbers as bytes; the data set behind it is put once, for all clients that share it
models, losses, other data sets, clients of your own    the carrier copies them, as it copies any object

NOTE [Every task starts from what was put]
Who trains where depends on who was done first. So that results do not, nothing that a task may change outlives it:
clients and their own data are made anew for each one. What is kept from task to task is read only: the state,
the model that `Work` copies, and the data sets behind subsets.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

from syft.exceptions import GetNotPermittedError
from syft.federated.clients import DatasetClient, Work, WorkerClient
from syft.federated.dataset import BaseDataset
from syft.federated.engines.base import Task, attempt, described, overdue
from syft.federated.records import ClientFailure
from syft.serde import deserialize, serialize
from syft.serde.errors import SerdeError

#: How many things of a kind one process keeps; what is of no such kind is handed over for every task.
SHELVES = {"state": 1, "work": 2, "data": 4}


@dataclass(frozen=True)
class Ref:
    """A thing in the carrier's store."""

    number: int
    is_bytes: bool
    shelf: str


@dataclass(frozen=True)
class Parcel:
    """One client's task: what it is made of, and what of that is handed over with it."""

    name: str
    instructions: bytes
    """Without the state."""
    deadline: float | None
    state: Ref
    work: Ref | None = None
    data: Ref | None = None
    """A data set: tensors as bytes, or an object."""
    rows: Ref | None = None
    """Which rows of it, if it is shared with other clients."""
    client: Ref | None = None
    """A client of the user's own; then there is no work and no data."""
    sent: tuple[Ref, ...] = ()
    dropped: tuple[Ref, ...] = ()
    """What the process need not keep any longer."""

    @property
    def refs(self) -> list[Ref]:
        return [r for r in (self.state, self.work, self.data, self.rows, self.client) if r is not None]


class Kept:
    """What one process keeps, as both sides know it: the latest of each kind."""

    def __init__(self) -> None:
        self._shelves: dict[str, OrderedDict[Ref, None]] = {name: OrderedDict() for name in SHELVES}

    def __contains__(self, ref: Ref) -> bool:
        return ref.shelf in self._shelves and ref in self._shelves[ref.shelf]

    def add(self, ref: Ref) -> list[Ref]:
        """What has to make room."""
        if ref.shelf not in self._shelves:
            return []
        shelf = self._shelves[ref.shelf]
        shelf[ref] = None
        shelf.move_to_end(ref)
        return [shelf.popitem(last=False)[0] for _ in range(len(shelf) - SHELVES[ref.shelf])]


# -- here ----------------------------------------------------------------------------------------------------


class _Stored:
    """A thing that was put. It is in the store for as long as somebody here has this record."""

    def __init__(self, ref: Ref, place: Any, held: tuple[Any, ...]) -> None:
        self.ref, self.place = ref, place
        self.held = held  # so that the ids that name it are not given to others


class Packer:
    """Makes parcels. What several tasks or rounds have in common is put once."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        self._put = put
        self._count = 0
        self._stored: WeakValueDictionary[tuple[Any, ...], _Stored] = WeakValueDictionary()
        self._needed: dict[str, dict[str, _Stored]] = {}
        self._state: _Stored | None = None

    def pack(self, task: Task, deadline: float | None, kept: Kept) -> tuple[Parcel, list[Any]]:
        """A task as it travels to a process that has `kept`, and the places of what is handed over with it.

        !! whatever the data set's owner or the carrier objects to
        """
        instructions = task.instructions
        state = instructions.state
        named = tuple((name, *_identity(tensor)) for name, tensor in state.items())
        # NB: only the latest is held. A client that is not asked again must not hold an old model in the store.
        held = tuple(state.values())
        self._state = self._store(("state", *named), held, lambda: serialize(state), shelf="state")
        parts = self._needed[task.name] = self._parts(task.client)
        there = [self._state, *parts.values()]
        rest = serialize(replace(instructions, state={}))
        missing = [each for each in there if each.ref not in kept]
        dropped = tuple(old for each in there for old in kept.add(each.ref))
        parcel = Parcel(
            task.name,
            rest,
            deadline,
            self._state.ref,
            _ref(parts, "work"),
            _ref(parts, "data"),
            _ref(parts, "rows"),
            _ref(parts, "client"),
            tuple(each.ref for each in missing),
            dropped,
        )
        return parcel, [each.place for each in missing]

    def _parts(self, client: Any) -> dict[str, _Stored]:
        if type(client) is DatasetClient:
            dataset = client.dataset
        elif type(client) is WorkerClient:
            dataset = _open_data(client)
        else:
            return {"client": self._object(client)}
        return {"work": self._work(client.work), **self._data(dataset)}

    def _work(self, work: Work) -> _Stored:
        return self._store(("work", id(work)), (work,), lambda: _on(work, "cpu"), False, "work")

    def _object(self, thing: Any, shelf: str = "") -> _Stored:
        return self._store(("object", shelf, id(thing)), (thing,), lambda: thing, False, shelf)

    def _data(self, dataset: Any) -> dict[str, _Stored]:
        if type(dataset) is not Subset:
            return {"data": self._source(dataset, "")}
        rows = torch.as_tensor(dataset.indices, dtype=torch.int64)
        inner = dataset.dataset
        while type(inner) is Subset:
            rows = torch.as_tensor(inner.indices, dtype=torch.int64)[rows]
            inner = inner.dataset
        numbers = self._store(("rows", id(dataset)), (dataset,), lambda: serialize(rows))
        return {"data": self._source(inner, "data"), "rows": numbers}

    def _source(self, dataset: Any, shelf: str) -> _Stored:
        tensors = _plain_tensors(dataset)
        if tensors is None:
            return self._object(dataset, shelf)
        named = tuple(part for tensor in tensors for part in _identity(tensor))
        return self._store(("tensors", shelf, *named), tensors, lambda: serialize(tensors), shelf=shelf)

    def _store(
        self,
        key: tuple[Any, ...],
        held: tuple[Any, ...],
        make: Callable[[], Any],
        is_bytes: bool = True,
        shelf: str = "",
    ) -> _Stored:
        found = self._stored.get(key)
        if found is None:
            self._count += 1
            ref = Ref(self._count, is_bytes, shelf)
            found = self._stored[key] = _Stored(ref, self._put(make()), held)
        return found


def _ref(parts: dict[str, _Stored], role: str) -> Ref | None:
    return parts[role].ref if role in parts else None


def _identity(tensor: Tensor) -> tuple[int, int]:
    """Changes when a tensor is another one, or is written to."""
    return id(tensor), -1 if tensor.is_inference() else tensor._version


def _plain_tensors(dataset: Any) -> tuple[Tensor, ...] | None:
    # NB: exactly these. A class below them may do something else with an index.
    found: tuple[Any, ...] = ()
    if type(dataset) is TensorDataset:
        found = dataset.tensors
    elif type(dataset) is BaseDataset and dataset.transform_ is None:
        found = (dataset.data, dataset.targets)
    return found if found and all(type(t) is Tensor and t.device.type == "cpu" for t in found) else None


def _open_data(client: WorkerClient) -> Any:
    """What a worker of this process lets everybody train on. !! GetNotPermittedError"""
    found = client.find(None)
    if not found.is_open:
        raise GetNotPermittedError(
            f"The data at worker {client.worker.id!r} is private to some users, and training in other processes would "
            "copy it out of the worker. Train on it with engine='threads' or 'serial', where it stays."
        )
    return found.dataset


def _on(work: Work, device: str) -> Work:
    """A copy that computes on a device, whatever the driver's model is on."""
    loss = copy.deepcopy(work.loss).to(device) if isinstance(work.loss, nn.Module) else work.loss
    return replace(work, model=copy.deepcopy(work.model).to(device), loss=loss)


# -- there ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What a task finds in its process: as it is in the driver's, but for the threads and the device."""

    threads: int
    default_dtype: torch.dtype
    is_deterministic: bool
    matmul_precision: str
    device: str
    path: tuple[str, ...] = ()
    """Where else to look for modules, on the machine of the driver."""

    @classmethod
    def of_this_process(cls, threads: int, device: str, is_same_machine: bool) -> Settings:
        return cls(
            threads,
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            device,
            tuple(map(os.path.abspath, sys.path)) if is_same_machine else (),
        )

    def apply(self) -> None:
        sys.path.extend(place for place in self.path if place not in sys.path)
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(self.default_dtype)
        torch.use_deterministic_algorithms(self.is_deterministic)
        torch.set_float32_matmul_precision(self.matmul_precision)


class Simulator:
    """One process that plays many clients, one after the other."""

    def __init__(self, settings: Settings) -> None:
        settings.apply()
        self._device = settings.device
        self._kept: dict[Ref, Any] = {}

    def run(self, parcel: Parcel, things: Sequence[Any]) -> bytes:
        """What the client returned, or a ClientFailure, as bytes. `things` are those that the parcel says are sent."""
        try:
            task = self._unpack(parcel, dict(zip(parcel.sent, things, strict=True)))
        except Exception as error:  # noqa: BLE001  (a data set's own code may raise anything while it is made)
            why = f"It could not be unpacked in its process: {described(error)}"
            return serialize(ClientFailure(parcel.name, "error", why))
        started = time.monotonic()
        value = attempt(task).value
        if parcel.deadline is not None and time.monotonic() - started > parcel.deadline:
            value = overdue(parcel.name, parcel.deadline).value
        try:
            return serialize(value)
        except SerdeError as error:
            why = f"It returned a {type(value).__name__}, which cannot be sent: {described(error)}"
            return serialize(ClientFailure(parcel.name, "malformed", why))

    def _unpack(self, parcel: Parcel, things: dict[Ref, Any]) -> Task:
        for ref in parcel.dropped:
            self._kept.pop(ref, None)
        made = {ref: self._made(ref, thing) for ref, thing in things.items()}
        self._kept |= {ref: thing for ref, thing in made.items() if ref.shelf}
        found = {ref: made[ref] if ref in made else self._kept[ref] for ref in parcel.refs}
        instructions = replace(deserialize(parcel.instructions), state=found[parcel.state])
        if parcel.client is not None:
            return Task(parcel.name, found[parcel.client], instructions)
        if parcel.work is None or parcel.data is None:
            raise ValueError("The parcel has neither a client nor its parts.")
        dataset = found[parcel.data]
        if parcel.data.is_bytes:
            dataset = TensorDataset(*dataset)
        if parcel.rows is not None:
            dataset = Subset(dataset, found[parcel.rows].tolist())
        return Task(parcel.name, DatasetClient(dataset, found[parcel.work]), instructions)

    def _made(self, ref: Ref, thing: Any) -> Any:
        thing = deserialize(thing) if ref.is_bytes else thing
        return _on(thing, self._device) if isinstance(thing, Work) else thing
