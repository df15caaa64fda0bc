"""Guards: the rules that a worker applies at each step of its pipeline, one object per rule.

    Permission   who may fetch results, and whose objects may be replaced
    Ownership    who brought or computed what, and who may use it in computations
    Quota        how much each user may hold
    ReleasedOnly what may only be released, with noise, is used by nothing else
    Provenance   which rows of private data a value depends on: in `syft.dp.provenance`, for workers with budgets

A worker that denies by default has the first three. An open worker has none; commands on restricted objects of an open
worker meet `Permission` alone. `ReleasedOnly` comes with the first data that it is for. The steps are in
syft.workers.pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from syft.core.interfaces import Store
from syft.exceptions import ComputeNotPermittedError, QuotaExceededError
from syft.policy.caller import proved_user
from syft.policy.permissions import About, AuditRecord, about_own, intersect
from syft.policy.quota_of_names import bytes_of_allowed
from syft.policy.quotas import OWNER
from syft.workers.entry import Entry
from syft.workers.holdings import Holdings

if TYPE_CHECKING:
    from syft.workers.pipeline import Call


class Guard:
    """The hooks, each called where its step is; by default they do nothing."""

    #: Whether it follows rows of private data, for releases.
    follows_rows = False

    def minds(self, entry: Entry) -> bool:
        """Whether `permit`, `admit` and `after_run` have something to do for a command on this entry.

        Where a guard says so, commands on other entries may pass it by: see `syft.workers.repeated`.
        """
        return True

    def permit(self, call: Call) -> None:
        """!! if the user may not use these entries, or not put results where they are to go."""

    def admit(self, call: Call, nbytes: float, count: int, transient: float) -> None:
        """!! if the results, of so many bytes and objects, are more than the user may have, or take too much to make."""

    def after_run(
        self, call: Call, command: Any, args: list[Any], kwargs: dict[str, Any], fresh: list[Any]
    ) -> None:
        """An operation has run; these values are new."""

    def written(self, entry: Entry) -> None:
        """An operation is about to write into the memory of an object."""

    def may_be_written(self, entry: Entry) -> None:
        """Something unknown may write into the memory of an object."""

    def store(self, worker: Store, entry: Entry, before: Entry | None) -> None:
        """Prepare an entry that is to be stored in the place of another. !! if it is refused"""

    def drop(self, entry: Entry, heir: Entry | None) -> None:
        """An entry left the table, or did not come there; `heir` is in its place."""


#: What a guard has where it says nothing about a step.
_SAYS_NOTHING = {
    name: getattr(Guard, name)
    for name in ("minds", "permit", "admit", "after_run", "written", "may_be_written", "store", "drop")
}


class Guards(list[Guard]):
    """The guards of a worker in their order, and of each step the hooks that do something there.

    usual    the quota, if commands meet the three guards of a worker that denies by default and the others say which
             entries they mind: see `syft.workers.repeated`. `other_*` are the hooks of those.
    """

    minds: tuple[Callable[[Entry], bool], ...]
    permit: tuple[Callable[[Call], None], ...]
    admit: tuple[Callable[[Call, float, int, float], None], ...]
    after_run: tuple[Callable[..., None], ...]
    written: tuple[Callable[[Entry], None], ...]
    may_be_written: tuple[Callable[[Entry], None], ...]
    store: tuple[Callable[[Store, Entry, Entry | None], None], ...]
    drop: tuple[Callable[[Entry, Entry | None], None], ...]

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        super().__init__()
        self.set(guards)

    def set(self, guards: Iterable[Guard]) -> None:
        """Have these guards and no others."""
        self[:] = guards
        for step in _SAYS_NOTHING:
            setattr(self, step, _hooks(self, step))
        others = self[3:]
        #: Whether one of them follows rows of private data.
        self.follows_rows = any(guard.follows_rows for guard in self)
        self.usual = _usual_quota(self)
        self.other_minds: Any = _hooks(others, "minds")
        self.other_store: Any = _hooks(others, "store")
        self.other_written: Any = _hooks(others, "written") + _hooks(others, "may_be_written")

    def append(self, guard: Guard) -> None:
        self.set([*self, guard])


def _hooks(guards: Iterable[Guard], step: str) -> tuple[Any, ...]:
    return tuple(getattr(g, step) for g in guards if getattr(type(g), step) is not _SAYS_NOTHING[step])


def _usual_quota(guards: list[Guard]) -> Quota | None:
    if list(map(type, guards[:3])) != [Permission, Ownership, Quota]:
        return None
    for guard in guards[3:]:
        looks = any(_hooks([guard], step) for step in ("permit", "admit", "after_run"))
        if looks and not _hooks([guard], "minds"):
            return None
    return guards[2]  # type: ignore[return-value]


class Permission(Guard):
    """The result of an operation may be fetched only by those allowed on all its inputs."""

    def permit(self, call: Call) -> None:
        worker = call.worker
        for obj_id in call.return_ids:
            entry = worker._entries.get(obj_id)
            if entry is not None and (entry.allowed is not None or worker._holdings is not None):
                worker.policy.check_send(call.user, obj_id, worker.changeable_by(obj_id))
        allowed = call.allowed
        for entry in call.entries:
            restriction = entry.allowed
            if restriction is not None and restriction is not allowed and not entry.is_public:
                if allowed is None:
                    allowed = restriction
                elif restriction != allowed:
                    allowed = intersect(allowed, restriction)
        call.allowed = allowed


class Ownership(Guard):
    """See NOTE [Whose objects] in syft.policy.permissions."""

    def permit(self, call: Call) -> None:
        worker, user = call.worker, call.user
        policy = worker.policy
        others = [entry for entry in call.entries if entry.holder != user]
        for entry in others:
            policy.check_compute(user, entry.id, worker.about(entry.id))
        if len(others) < len(call.entries) or not call.entries:  # one question for all that is theirs
            policy.check_compute(user, None, about_own(user))
        call.allowed = policy.on_result(call.allowed, user)

    def store(self, worker: Store, entry: Entry, before: Entry | None) -> None:
        entry.holder = holder = proved_user(OWNER)
        if holder == OWNER:
            return
        # The last of several checks, and the one that none passes by:
        if before is not None:
            worker.policy.check_send(holder, entry.id, worker.changeable_by(entry.id))
        if entry.allowed is None:
            entry.allowed = worker.policy.on_result(None, holder)


class ReleasedOnly(Guard):
    """Data that its owner lets only be released: no other command uses it."""

    def minds(self, entry: Entry) -> bool:
        return entry.is_released_only

    def permit(self, call: Call) -> None:
        for entry in call.entries:
            if entry.is_released_only and not call.is_release:
                call.worker.policy.record(AuditRecord("compute", entry.id, call.user, False, "released only"))
                raise ComputeNotPermittedError(
                    f"Object {entry.id!r} cannot be used by {call.name or 'this command'}: its owner lets it only be "
                    'released, with noise. Ask for a statistic of it: worker.release(data, "mean", epsilon=..., '
                    "bounds=(low, high)); worker.budget(data) tells how much is left."
                )


#: What an operation may take while it runs, as a multiple of what its user may hold.
_MOST_TRANSIENT = 4
#: Objects and bytes from here on are said to be more than this.
_ENORMOUS = 1 << 62


class Quota(Guard):
    """See NOTE [Who pays for memory] in syft.workers.holdings."""

    def __init__(self, holdings: Holdings) -> None:
        self.holdings = holdings

    def admit(self, call: Call, nbytes: float, count: int, transient: float) -> None:
        self.check_fits(call.name, call.user, nbytes, count, transient)

    def check_fits(self, name: str, user: str | None, nbytes: float, count: int, transient: float) -> None:
        """!! QuotaExceededError if what a command makes, or takes to make it, is more than its user may have."""
        most, left, objects_left = self.holdings.quotas.left(user)
        if most is not None and transient > _MOST_TRANSIENT * most:
            raise QuotaExceededError(
                f"{name} was not run: it would take {_shown(transient)} bytes while it runs, and the user may have "
                f"{most} on this worker. Work on smaller batches, or ask the owner for more."
            )
        if left is not None and nbytes > left:
            raise QuotaExceededError(
                f"{name} was not run: its results would take {_shown(nbytes)} bytes, and the user may hold {left} "
                "more on this worker. Work on smaller batches, drop pointers that are not needed any more, or ask the "
                "owner for more."
            )
        if objects_left is not None and count > objects_left:
            raise QuotaExceededError(
                f"{name} was not run: its results would be {_shown(count)} objects, and the user may hold "
                f"{objects_left} more on this worker. Cut into fewer pieces, drop pointers that are not needed any more, "
                "or ask the owner for more."
            )

    def store(self, worker: Store, entry: Entry, before: Entry | None) -> None:
        if entry.holder != OWNER:
            entry.own_bytes = bytes_of_allowed(entry.allowed, entry.is_private)
        self.holdings.charge(entry, 1 if before is None else _count(entry, before))

    def drop(self, entry: Entry, heir: Entry | None) -> None:
        self.holdings.release(entry, 1 if heir is None else _count(entry, heir))


def _count(entry: Entry, other: Entry) -> int:
    """An entry in the place of one of the same holder is no further object."""
    return 0 if other.holder == entry.holder else 1


def _shown(number: float) -> str:
    return str(int(number)) if number < _ENORMOUS else "more than 2**62"


PERMISSION, RELEASED_ONLY = Permission(), ReleasedOnly()
__all__ = [
    "PERMISSION",
    "RELEASED_ONLY",
    "About",
    "Guard",
    "Guards",
    "Ownership",
    "Permission",
    "Quota",
    "ReleasedOnly",
]
