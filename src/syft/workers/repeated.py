"""Commands like one that was admitted before, on a worker that denies by default: all of their steps in one function.

NOTE [The short way]
What `admit` says depends on specs and public values only, so it is said once: the specs of entries are kept in them, and
with the name and the values of the command they are the key of the admission. What depends on users is asked every
time: who may fetch the arguments, whether the user may compute with them, whether the result fits into the quota. The
steps and their errors are those of syft.workers.pipeline and syft.workers.guards, without an object per step and a call
per guard. Whatever is out of the ordinary takes the long way: other arguments than tensors and plain values, ids that
are taken, an argument that failed, entries that another guard minds.
tests/workers/test_repeated.py runs programs both ways.
"""

from __future__ import annotations

from typing import Any

from syft.core.interfaces import Worker
from syft.core.shapes import MISJUDGED
from syft.exceptions import RemoteError
from syft.messaging.message import Operation, Ref
from syft.operations.admission import EXACT, Admission, remembered
from syft.operations.running import NOT_STRAIGHT, Straight, failed, fitted, run, straight_of
from syft.policy.caller import UNPROVED, user_or_unproved
from syft.policy.permissions import Allowed, about_own
from syft.policy.quota_of_names import FEW_ALLOWED, LARGEST_ID, bytes_of_allowed
from syft.policy.quotas import OWNER
from syft.workers.admitted import TINY
from syft.workers.entry import SHOWN, Entry, spec_now
from syft.workers.failures import mark_failed
from syft.workers.guards import Quota
from syft.workers.store import restrict_written

#: The long way has to be taken; nothing has happened.
MISSED: Any = object()


def execute_again(worker: Worker, message: Operation) -> Any:
    """Run a command whose like was admitted before and store its results; `MISSED` if it is to go the long way."""
    quota_guard: Quota | None = worker.guards.usual
    user = user_or_unproved()
    if quota_guard is None or user is UNPROVED or user == OWNER or message.wants_specs:
        return MISSED
    stored = worker._entries
    key: list[Any] = [message.cmd_name]
    entries: list[Entry] = []
    others: list[Entry] = []
    args: list[Any] = []
    allowed: Allowed = None
    for value in message.cmd_args:
        kind = type(value)
        if kind is Ref:
            entry = stored.get(value.id)
            if entry is None or entry.failure is not None:
                return MISSED
            spec = entry.spec
            if spec is None or spec is SHOWN:
                spec = spec_now(entry)
                if spec is None:
                    return MISSED
            key.append(spec)
            entries.append(entry)
            if entry.holder != user:
                others.append(entry)
            restriction = entry.allowed
            if restriction is not None and restriction is not allowed and not entry.is_public:
                if allowed is None:
                    allowed = restriction
                elif restriction != allowed:
                    allowed &= restriction
            value = entry.value
        elif kind in EXACT:
            key.append(kind)
            key.append(value)
        elif kind is float:
            key.append(kind)
            key.append(repr(value))
        elif kind is list:
            key.append((list, len(value)))
            for item in value:
                if type(item) is not int:
                    return MISSED
                key.append(int)
                key.append(item)
        else:
            return MISSED
        args.append(value)
    kwargs = message.cmd_kwargs
    if kwargs:
        for name, value in kwargs.items():
            kind = type(value)
            key.append(name)
            key.append(kind)
            if kind in EXACT:
                key.append(value)
            elif kind is float:
                key.append(repr(value))
            else:
                return MISSED
    admission = remembered(tuple(key))
    if admission is None or message.cmd_owner is not None or worker.device is not None:
        return MISSED
    if not worker.admits_only_table and message.cmd_name in MISJUDGED:
        return MISSED
    # NB: what stands for `device` in an admitted command is ignored, on the long way.
    return_ids = message.return_ids
    if len(return_ids) != len(admission.results) or "device" in kwargs:
        return MISSED
    for obj_id in return_ids:
        if type(obj_id) is not int or not -LARGEST_ID <= obj_id < LARGEST_ID:
            return MISSED
        if obj_id in stored or obj_id in worker.elsewhere:
            return MISSED
    for minds in worker.guards.other_minds:
        for entry in entries:
            if minds(entry):
                return MISSED
    straight = admission.straight
    if straight is None:
        straight = admission.straight = straight_of(admission, key)
    # -- permit
    policy = worker.policy
    if straight is NOT_STRAIGHT:
        if admission.writes or len(set(return_ids)) != len(return_ids):
            return MISSED
    elif straight.writes is not None and not _is_alone(quota_guard, straight.writes, entries):
        return MISSED
    for entry in others:
        policy.check_compute(user, entry.id, worker.about(entry.id))
    if len(others) < len(entries) or not entries:
        policy.check_compute(user, None, about_own(user))
    allowed = policy.on_result(allowed, user)
    # -- admit
    quota = quota_guard.holdings.quotas.quota_of(user)
    if (admission.memory > TINY or len(admission.results) > 1) and (
        quota.max_bytes is not None or quota.max_objects is not None
    ):
        quota_guard.check_fits(
            admission.operation, user, admission.result_bytes, len(admission.results), admission.memory
        )
    # -- run and store
    if straight is NOT_STRAIGHT:
        outcome = run(admission, args, kwargs)
        if outcome.failure is not None and policy.may_get(user, allowed):
            raise RemoteError(f"{admission.operation} failed on the worker: {outcome.failure}")
        own_bytes = bytes_of_allowed(allowed, is_chosen=False)
        for obj_id, made, result in zip(
            reversed(return_ids), outcome.results, admission.results, strict=True
        ):
            entry = Entry(obj_id, made, allowed, user, own_bytes=own_bytes, failure=outcome.failure)
            quota_guard.holdings.charge_result(entry, made.untyped_storage(), quota)
            entry.spec = result.spec
            for store in worker.guards.other_store:
                store(worker, entry, None)
            stored[obj_id] = entry
        return None
    if straight.writes is not None:
        return _write(worker, admission, straight, entries, args, kwargs, allowed, user)
    failure: str | None = None
    spec = straight.spec
    try:
        made = straight.kernel(*args, **kwargs)
        storage = made.untyped_storage()
        # NB: this is `straight.is_made`, without a call.
        if (
            made.shape != straight.shape
            or made.dtype is not straight.dtype
            or (
                not made.is_contiguous()
                if straight.is_contiguous
                else made.stride() != spec.strides or made.storage_offset() != spec.offset
            )
            or (
                storage.nbytes() != straight.nbytes
                if straight.view_of is None
                else storage._cdata != entries[straight.view_of].blocks[0]
            )
        ):
            made = fitted(made, admission.results[0], [entry.value for entry in entries], admission.row)
            storage = made.untyped_storage()
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
        outcome = failed(admission, error, [entry.value for entry in entries])
        failure = outcome.failure
        if policy.may_get(user, allowed):
            raise RemoteError(f"{admission.operation} failed on the worker: {failure}") from None
        made = outcome.results[0]
        storage = made.untyped_storage()
    obj_id = return_ids[0]
    entry = Entry(obj_id, made, allowed, user, failure=failure, spec=spec)
    if allowed is not None and len(allowed) > FEW_ALLOWED:
        entry.own_bytes = bytes_of_allowed(allowed, is_chosen=False)
    quota_guard.holdings.charge_result(entry, storage, quota)
    for store in worker.guards.other_store:
        store(worker, entry, None)
    stored[obj_id] = entry
    return None


# -- in place --------------------------------------------------------------------------------------


def _is_alone(quota_guard: Quota, place: int, entries: list[Entry]) -> bool:
    """Whether nothing that is here, nor another argument, shares memory with the entry that is written into."""
    written = entries[place]
    if not quota_guard.holdings.is_alone(written):
        return False
    for index, entry in enumerate(entries):
        if index != place and (entry is written or len(entry.blocks) != 1):
            return False
    return True


def _write(
    worker: Worker,
    admission: Admission,
    straight: Straight,
    entries: list[Entry],
    args: list[Any],
    kwargs: dict[str, Any],
    allowed: Allowed,
    user: str | None,
) -> None:
    """Write into an object that shares its memory with no other: `prepare_writing`, and the kernel."""
    policy = worker.policy
    written = entries[straight.writes]  # type: ignore[index]
    if written.is_private or written.is_owners or written.holder != user:
        policy.check_send(user, written.id, worker.changeable_by(written.id), action="write into")
    for note in worker.guards.other_written:
        note(written)
    restrict_written(written, allowed, entries)
    try:
        straight.kernel(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not show)
        outcome = failed(admission, error, [entry.value for entry in entries])
        if policy.may_get(user, allowed):
            raise RemoteError(f"{admission.operation} failed on the worker: {outcome.failure}") from None
        mark_failed(worker, [written.value], outcome.failure or "")
