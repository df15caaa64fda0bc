"""What goes to a client in another process, and what comes back: bytes of `syft.serde` wherever it can be.

One duty: from a task to a parcel here, and from a parcel to a task there. It does not know who carries parcels:
`put` and `get` are the carrier's (see `ray`). Imports `clients`, `engines.base`, `records`, `serde`.

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
from collections.abc import Callable
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

#: How many models and shared data sets one process keeps.
KEPT = 4


@dataclass(frozen=True)
class Ref:
    """Something in the carrier's store. The number is for those who keep what they fetched."""

    number: int
    place: Any
    is_bytes: bool = True


@dataclass(frozen=True)
class DataParcel:
    """A data set: tensors as bytes, or an object; and which of its rows, if it is shared with other clients."""

    source: Ref
    rows: Ref | None = None


@dataclass(frozen=True)
class Parcel:
    """One client's task."""

    name: str
    instructions: bytes
    """Without the state."""
    state: Ref
    deadline: float | None
    work: Ref | None
    data: DataParcel | None
    client: Ref | None
    """A client of the user's own; then there is no work and no data."""


# -- here ----------------------------------------------------------------------------------------------------


class _Stored:
    """A thing that was put. It is in the store for as long as somebody here has this record."""

    def __init__(self, ref: Ref, held: tuple[Any, ...]) -> None:
        self.ref, self.held = ref, held  # `held` keeps the ids that name it from being given to others


class Packer:
    """Makes parcels. What several tasks or rounds have in common is put once."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        self._put = put
        self._count = 0
        self._stored: WeakValueDictionary[tuple[Any, ...], _Stored] = WeakValueDictionary()
        self._needed: dict[str, list[_Stored]] = {}
        self._state: _Stored | None = None

    def pack(self, task: Task, deadline: float | None) -> Parcel:
        """A task as it travels. !! whatever the data set's owner or the carrier objects to"""
        instructions = task.instructions
        state = instructions.state
        named = tuple((name, *_identity(tensor)) for name, tensor in state.items())
        # NB: only the latest is kept. A client that is not asked again must not keep an old model in the store.
        self._state = self._store(("state", *named), tuple(state.values()), lambda: serialize(state))
        needed: list[_Stored] = []
        work, data, own = self._parts(task, needed)
        self._needed[task.name] = needed
        rest = serialize(replace(instructions, state={}))
        return Parcel(task.name, rest, self._state.ref, deadline, work, data, own)

    def _parts(self, task: Task, needed: list[_Stored]) -> tuple[Ref | None, DataParcel | None, Ref | None]:
        def keep(stored: _Stored) -> Ref:
            needed.append(stored)
            return stored.ref

        client = task.client
        if type(client) is DatasetClient:
            dataset = client.dataset
        elif type(client) is WorkerClient:
            dataset = _open_data(client)
        else:
            return None, None, keep(self._object(client))
        return keep(self._work(client.work)), self._data(dataset, keep), None

    def _work(self, work: Work) -> _Stored:
        return self._store(("work", id(work)), (work,), lambda: _on(work, "cpu"), is_bytes=False)

    def _object(self, thing: Any) -> _Stored:
        return self._store(("object", id(thing)), (thing,), lambda: thing, is_bytes=False)

    def _data(self, dataset: Any, keep: Callable[[_Stored], Ref]) -> DataParcel:
        if type(dataset) is not Subset:
            return DataParcel(keep(self._source(dataset)))
        rows = torch.as_tensor(dataset.indices, dtype=torch.int64)
        inner = dataset.dataset
        while type(inner) is Subset:
            rows = torch.as_tensor(inner.indices, dtype=torch.int64)[rows]
            inner = inner.dataset
        source = keep(self._source(inner))
        kept_rows = self._store(("rows", id(dataset)), (dataset,), lambda: serialize(rows))
        return DataParcel(source, keep(kept_rows))

    def _source(self, dataset: Any) -> _Stored:
        tensors = _plain_tensors(dataset)
        if tensors is None:
            return self._object(dataset)
        named = tuple(part for tensor in tensors for part in _identity(tensor))
        return self._store(("tensors", *named), tensors, lambda: serialize(tensors))

    def _store(
        self, key: tuple[Any, ...], held: tuple[Any, ...], make: Callable[[], Any], is_bytes: bool = True
    ) -> _Stored:
        found = self._stored.get(key)
        if found is None:
            self._count += 1
            found = self._stored[key] = _Stored(Ref(self._count, self._put(make()), is_bytes), held)
        return found


def _identity(tensor: Tensor) -> tuple[int, int]:
    """Changes when a tensor is another one, or is written to."""
    return id(tensor), -1 if tensor.is_inference() else tensor._version


def _plain_tensors(dataset: Any) -> tuple[Tensor, ...] | None:
    # NB: exactly these. A class below them may do something else with an index.
    found: tuple[Any, ...] = ()
    if type(dataset) is TensorDataset:
        found = dataset.tensors
    elif type(dataset) is BaseDataset and dataset.transform is None:
        found = (dataset.data, dataset.targets)
    return found if found and all(type(t) is Tensor and t.device.type == "cpu" for t in found) else None


def _open_data(client: WorkerClient) -> Any:
    """What a worker of this process lets everybody train on. !! GetNotPermittedError"""
    found = client.find()
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

    def __init__(self, settings: Settings, get: Callable[[Any], Any]) -> None:
        settings.apply()
        self._device, self._get = settings.device, get
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._state: tuple[int, Any] | None = None

    def run(self, parcel: Parcel) -> bytes:
        """What the client returned, or a ClientFailure, as bytes."""
        try:
            task = self._unpack(parcel)
        except Exception as error:  # noqa: BLE001  (a data set's own code may raise anything while it is made)
            # What a carrier raises may have a traceback in it. Its first line says enough.
            first = (str(error).splitlines() or [""])[0]
            why = f"It could not be unpacked in its process: {type(error).__name__}: {first[:400]}"
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

    def _unpack(self, parcel: Parcel) -> Task:
        instructions = replace(deserialize(parcel.instructions), state=self._state_of(parcel.state))
        if parcel.client is not None:
            return Task(parcel.name, self._fetch(parcel.client), instructions)
        if parcel.work is None or parcel.data is None:
            raise ValueError("The parcel has neither a client nor its parts.")
        work = self._keep(parcel.work, lambda found: _on(found, self._device))
        return Task(parcel.name, DatasetClient(self._dataset(parcel.data), work), instructions)

    def _dataset(self, data: DataParcel) -> Any:
        def made(found: Any) -> Any:
            return TensorDataset(*found) if data.source.is_bytes else found

        if data.rows is None:
            return made(self._fetch(data.source))
        return Subset(self._keep(data.source, made), self._fetch(data.rows).tolist())

    def _state_of(self, ref: Ref) -> Any:
        if self._state is None or self._state[0] != ref.number:
            self._state = None  # before the next one: two models need not fit
            self._state = (ref.number, self._fetch(ref))
        return self._state[1]

    def _keep(self, ref: Ref, make: Callable[[Any], Any]) -> Any:
        if ref.number not in self._kept:
            self._kept[ref.number] = make(self._fetch(ref))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(ref.number)
        return self._kept[ref.number]

    def _fetch(self, ref: Ref) -> Any:
        found = self._get(ref.place)
        return deserialize(found) if ref.is_bytes else found
