"""`RayEngine`: thousands of simulated clients in a pool of Ray actors. Needs the extra `ray`.

One duty: actors, who is at work and for how long, and Ray's start and end. What travels is packed by `parcels`.
Imports `engines.base`, `engines.parcels`; ray itself only when an engine is made.

NOTE [One task at a time]
An actor has one task and no queue. When its process dies, the client that it was playing is the one that is lost,
and nobody has to guess which others had begun. A new actor takes its place; the round goes on meanwhile.

NOTE [Given up]
A client that is overdue is told to the round at once. Its actor has `GRACE` seconds to come back by itself, as training
on a data set does between two batches; then it is killed, which a thread cannot be, and replaced.

NOTE [Ray listens]
Who reaches Ray's processes can run code in them, and on Linux they listen on all interfaces, even if told the loopback
address. A Ray that is started here is told twice: by a switch that Ray reads while it is imported, made for systems
whose firewalls ask; then it listens on the loopback interface only. And it asks for a token, fresh from the OS and
known to its own processes, so that other users of this machine do not get in either.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syft.exceptions import DependencyError, SyftError
from syft.federated.engines.base import Outcome, Task, described, overdue, register_engine
from syft.federated.engines.parcels import Kept, Packer, Parcel, Settings, Simulator
from syft.federated.records import ClientFailure
from syft.serde import deserialize
from syft.serde.errors import SerdeError

GRACE = 1.0
START_TIMEOUT = 120.0
MAX_FAILED_STARTS = 3

logger = logging.getLogger(__name__)

#: See NOTE [Ray listens].
_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
#: No statistics for Ray's makers; no GPU for clients that have no share of one; and actors are not the last in the
#: queue for a processor, as the driver waits for nothing else.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_worker_niceness": "0",
}

#: Engines that use the Ray which the first of them started. The last one to close ends it.
_LEASES: set[int] = set()


class RayEngineError(SyftError, RuntimeError):
    """Ray did not give the engine what it needs to run clients."""


@register_engine("ray")
class RayEngine:
    """Clients in Ray actors, on this machine or a cluster; each actor plays many, one after the other.

    num_cpus, num_gpus        what a Ray that is started here may use; without: the processors of this machine
    client_cpus, client_gpus  what one client needs, fractions of 1 included: `client_gpus=0.25` lets four share a card.
                              With a share of a GPU, clients train on it; without, on processors
    actors                    how many processes; without: as many as fit
    address                   of a running cluster. Without one, the Ray that this process uses already, or a new one on
                              this machine, which ends with the engine
    threads                   of torch in each actor. The numbers are those of a driver with as many threads
    object_store_memory       bytes, of a Ray that is started here; what does not fit goes to disk

    The actors start with the first round and stay until `close()`. One engine can serve several trainers.
    """

    #: A client's object is made anew for every task, so it keeps nothing from round to round.
    copies_clients = True

    def __init__(
        self,
        num_cpus: int | None = None,
        num_gpus: int = 0,
        client_cpus: float = 1.0,
        client_gpus: float = 0.0,
        actors: int | None = None,
        address: str | None = None,
        *,
        threads: int = 1,
        object_store_memory: int = 512 << 20,
    ) -> None:
        for name, value in (("num_cpus", num_cpus), ("actors", actors), ("threads", threads)):
            if value is not None and (not _is_whole(value) or value < 1):
                raise ValueError(f"RayEngine was given {name}={value!r}: it is a whole number of 1 or more.")
        if not _is_whole(num_gpus) or num_gpus < 0:
            raise ValueError(f"RayEngine was given num_gpus={num_gpus!r}: it is a whole number of 0 or more.")
        if not client_cpus > 0 or not client_gpus >= 0:
            raise ValueError(
                f"RayEngine was given client_cpus={client_cpus!r} and client_gpus={client_gpus!r}: a client needs a "
                "processor, or a part of one, and may do without a GPU."
            )
        for name, share in (("client_cpus", client_cpus), ("client_gpus", client_gpus)):
            if share > 1 and share != int(share):
                raise ValueError(f"RayEngine was given {name}={share!r}: above 1 it is a whole number.")
        if object_store_memory < 100 << 20:
            raise ValueError(
                f"RayEngine was given object_store_memory={object_store_memory}: Ray needs 100 MiB or more."
            )
        if address is not None and (num_cpus is not None or num_gpus):
            raise ValueError(
                f"RayEngine was given address={address!r} and num_cpus or num_gpus: a running cluster has what it has. "
                "Leave them out, and say with client_cpus, client_gpus and actors what to use of it."
            )
        self._ray = _import_ray(is_local=address is None)
        self._num_cpus, self._num_gpus, self._address = num_cpus, num_gpus, address
        self._shares = (client_cpus, client_gpus)
        self._wanted, self._threads, self._memory = actors, threads, object_store_memory
        self._pool: _Pool | None = None
        self._packer: Packer | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    # -- running -----------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Task], deadline: float | None) -> Iterator[Outcome]:
        pool, packer = self._started()
        pool.check()
        waiting = deque(tasks)
        running: dict[Any, _Running] = {}
        known: deque[Outcome] = deque()
        try:
            while waiting or running or known:
                while waiting and pool.idle:
                    task, actor = waiting.popleft(), pool.idle.pop()
                    try:
                        parcel, places = packer.pack(task, deadline, actor.kept)
                    except Exception as error:  # noqa: BLE001  (what cannot be sent may object in any way)
                        known.append(Outcome(task.name, _unsent(task.name, error)))
                        pool.idle.append(actor)
                        continue
                    call = actor.handle.run.remote(parcel, *places)
                    running[call] = _Running(task.name, actor, time.monotonic())
                # NB: told only now, so that actors work while the round looks at what came.
                while known:
                    yield known.popleft()
                if not running and not waiting:
                    break
                for call in pool.wait(list(running), _next_deadline(running, deadline)):
                    done = running.pop(call)
                    known.append(Outcome(done.name, self._heard(done, call, pool)))
                if deadline is not None:
                    for call in self._late(running, deadline):
                        late = running.pop(call)
                        pool.give_up(call, late.actor, GRACE)
                        known.append(overdue(late.name, deadline))
        finally:
            # The round was broken off. Nobody waits for these.
            for call, left in running.items():
                pool.give_up(call, left.actor, 0.0)

    def _heard(self, done: _Running, call: Any, pool: _Pool) -> Any:
        """What an actor returned for a client; the actor goes back to the pool, or another one in its place."""
        is_alive = True
        try:
            value = deserialize(self._ray.get(call))
        except SerdeError as error:
            why = f"What came back cannot be read: {described(error)}"
            value = ClientFailure(done.name, "malformed", why)
        except self._ray.exceptions.RayTaskError as error:
            # It was not even called: something that was handed over could not be made there.
            value = ClientFailure(
                done.name, "error", f"It could not be unpacked in its process: {_cause(error)}"
            )
            done.actor.kept = Kept()
        except self._ray.exceptions.RayError:
            why = "The process that it ran in ended: it was killed, crashed, or had no memory left."
            value, is_alive = ClientFailure(done.name, "died", why), False
        pool.take_back(done.actor, is_alive)
        return value

    def _late(self, running: dict[Any, _Running], deadline: float) -> list[Any]:
        now = time.monotonic()
        over = [call for call, each in running.items() if now - each.began >= deadline]
        # One that is done was in time, however long the round took to ask.
        return self._ray.wait(over, num_returns=len(over), timeout=0)[1] if over else []

    # -- start and end -----------------------------------------------------------------------------------------

    def _started(self) -> tuple[_Pool, Packer]:
        if self._pool is not None and self._packer is not None and self._ray.is_initialized():
            return self._pool, self._packer
        self.close()
        actors: list[_Member] = []
        self._end = weakref.finalize(self, _end, self._ray, self._connect(), actors)
        try:
            device = "cuda" if self._shares[1] else "cpu"
            settings = Settings.of_this_process(self._threads, device, self._address is None)
            self._pool = _Pool(self._ray, settings, *self._shares, self._count_actors(), actors)
        except BaseException:
            self.close()
            raise
        self._packer = Packer(self._ray.put)
        return self._pool, self._packer

    def _connect(self) -> int | None:
        """Reach Ray, or start it; this engine's lease, unless Ray is somebody else's to end."""
        if self._ray.is_initialized():
            if not _LEASES:
                return None
            _LEASES.add(id(self))
            return id(self)
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if self._address is not None:
            options["address"] = self._address
        else:
            options |= {
                "address": "local",  # and not a cluster that happens to run
                "num_cpus": self._num_cpus or os.cpu_count() or 1,
                "num_gpus": self._num_gpus,
                "object_store_memory": self._memory,
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
            }
            if "RAY_AUTH_MODE" not in os.environ and "RAY_AUTH_TOKEN_PATH" not in os.environ:
                # It stays set: Ray remembers its token for as long as this process runs.
                os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        variables = _QUIET if self._address is not None else _LOOPBACK | _QUIET
        with _environment(variables), _silenced("ray._private.authentication"):
            self._ray.init(**options)
        if self._address is None and not self._ray.util.get_node_ip_address().startswith("127."):
            logger.warning(
                "Ray was imported before RayEngine was made, and listens on all interfaces of this machine. It asks for "
                "a token; to have it on the loopback interface only, make the engine first, or set %s=0.",
                *_LOOPBACK,
            )
        _LEASES.add(id(self))
        return id(self)

    def _count_actors(self) -> int:
        there = self._ray.cluster_resources()
        fit = math.inf
        for kind, share in zip(("CPU", "GPU"), self._shares, strict=True):
            if share:
                fit = min(fit, math.floor(there.get(kind, 0.0) / share + 1e-9))
        most = int(fit)
        if most < (self._wanted or 1):
            raise ValueError(
                f"RayEngine has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs, where {most} clients fit "
                f"that need {self._shares[0]:g} CPUs and {self._shares[1]:g} GPUs each, and not {self._wanted or 1}. "
                "Lower client_cpus, client_gpus or actors, or raise num_cpus or num_gpus."
            )
        return self._wanted or most

    def close(self) -> None:
        """End the actors, and Ray if it was started here. The next round would start them again."""
        if self._end is not None:
            self._end()
        self._end = self._pool = self._packer = None

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "not started" if self._pool is None else f"{len(self._pool.actors)} actors"
        return f"<RayEngine, {self._shares[0]:g} CPUs and {self._shares[1]:g} GPUs per client, {state}>"


# -- actors --------------------------------------------------------------------------------------------------


class Actor:
    """What runs in an actor's process."""

    def __init__(self, settings: Settings) -> None:
        self._simulator = Simulator(settings)

    def ready(self) -> None:
        """Answers when the process is up."""

    def run(self, parcel: Parcel, *things: Any) -> bytes:
        # NB: `things` are arguments of their own, which Ray fetches before it calls. To fetch them here would ask the
        # driver about each.
        return self._simulator.run(parcel, things)


class _Member:
    """An actor, and what it keeps."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.kept = handle, Kept()


@dataclass(frozen=True)
class _Running:
    name: str
    actor: _Member
    began: float


class _Pool:
    """Actors: idle, starting, or given up and perhaps still at work. Those that run a task are with `run`."""

    def __init__(
        self, ray: Any, settings: Settings, cpus: float, gpus: float, count: int, actors: list[_Member]
    ) -> None:
        self._ray = ray
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
        self._make = ray.remote(Actor).options(**options)
        self._settings = settings
        self.actors = actors
        self.idle: list[_Member] = []
        self._starting: dict[Any, tuple[_Member, bool]] = {}
        self._given_up: dict[Any, tuple[_Member, float]] = {}
        self._failed_starts = 0
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        actor = _Member(self._make.remote(self._settings))
        self.actors.append(actor)
        self._starting[actor.handle.ready.remote()] = (actor, True)

    def check(self) -> None:
        """Ask the idle ones whether they are still there, so that no client is lost to one that is not."""
        self._starting |= {actor.handle.ready.remote(): (actor, False) for actor in self.idle}
        self.idle.clear()

    def take_back(self, actor: _Member, is_alive: bool) -> None:
        if is_alive:
            self.idle.append(actor)
        else:
            self._replace(actor)

    def give_up(self, call: Any, actor: _Member, grace: float) -> None:
        """See NOTE [Given up]."""
        self._given_up[call] = (actor, time.monotonic() + grace)

    def _replace(self, actor: _Member) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle, no_restart=True)
        self.actors.remove(actor)
        self._start()

    def wait(self, calls: list[Any], until: float | None) -> list[Any]:
        """Until a call is done, an actor is free, or it is `until`; which calls are done. !! RayEngineError"""
        asked = time.monotonic()
        is_stuck = not calls
        limits = [
            end for end in (until, *(kill_at for _, kill_at in self._given_up.values())) if end is not None
        ]
        if is_stuck:
            limits.append(asked + START_TIMEOUT)
        patience = max(0.0, min(limits) - asked) if limits else None
        done, _ = self._ray.wait([*calls, *self._starting, *self._given_up], timeout=patience)
        for call in done:
            if call in self._starting:
                self._has_started(call)
            elif call in self._given_up:
                actor, _ = self._given_up.pop(call)
                self._starting[actor.handle.ready.remote()] = (actor, False)  # it may have died instead
        now = time.monotonic()
        for call in [call for call, (_, kill_at) in self._given_up.items() if kill_at <= now]:
            self._replace(self._given_up.pop(call)[0])
        if is_stuck and now - asked >= START_TIMEOUT:
            raise RayEngineError(
                f"No Ray actor was ready after {START_TIMEOUT:g} s. The cluster has {self._ray.available_resources()} "
                "left: free some, or lower client_cpus, client_gpus or actors."
            )
        return [call for call in done if call in calls]

    def _has_started(self, call: Any) -> None:
        actor, is_new = self._starting.pop(call)
        try:
            self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += is_new
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise RayEngineError(
                    f"{self._failed_starts} Ray actors in a row could not start, the last one with {described(error)}. "
                    "Is resyft installed on every node, in the same version?"
                ) from error
            self._replace(actor)
        else:
            self._failed_starts = 0
            self.idle.append(actor)


# -- parts ---------------------------------------------------------------------------------------------------


def _import_ray(is_local: bool) -> Any:
    try:
        with _environment(_LOOPBACK if is_local else {}):
            return importlib.import_module("ray")
    except ImportError as error:
        raise DependencyError("ray", "'resyft[ray]'") from error


def _end(ray: Any, lease: int | None, actors: list[_Member]) -> None:
    """Not a method: it also runs when the engine is forgotten, and when the program ends."""
    if lease is not None:
        _LEASES.discard(lease)
    if not ray.is_initialized():
        return
    for actor in actors:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor.handle, no_restart=True)
    if lease is not None and not _LEASES:
        ray.shutdown()


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """With these variables, where the user has not set them."""
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _silenced(name: str) -> Iterator[None]:
    """Without what a logger says that is not an error."""
    talker = logging.getLogger(name)
    level = talker.level
    talker.setLevel(logging.ERROR)
    try:
        yield
    finally:
        talker.setLevel(level)


def _next_deadline(running: dict[Any, _Running], deadline: float | None) -> float | None:
    if deadline is None or not running:
        return None
    return min(each.began for each in running.values()) + deadline


def _unsent(name: str, error: Exception) -> ClientFailure:
    return ClientFailure(name, "error", f"It could not be sent to a Ray actor: {described(error)}")


def _cause(error: Exception) -> str:
    """The last line of what Ray tells of an error elsewhere, which is the error itself."""
    return ([line for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1][:400]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
