"""What a worker does with the messages that only clients on a network send; adds itself to the table of handlers."""

from __future__ import annotations

from typing import Any

from syft.core.interfaces import Worker
from syft.messaging.message import (
    ClearObjectsMessage,
    ListObjectsMessage,
    PointersGoneMessage,
    StatusMessage,
    SyncMessage,
)
from syft.policy.caller import user_of
from syft.workers import handlers


def sync(_worker: Worker, _message: SyncMessage) -> None:
    """Messages are handled in order: there is nothing else to wait for."""


def pointers_gone(worker: Worker, message: PointersGoneMessage) -> None:
    user, policy, entries = user_of(message), worker.policy, worker._entries
    for obj_id in message.ids:
        entry = entries.get(obj_id)
        # What somebody holds they may let go of: `changeable_by` says so, too.
        is_held = entry is not None and user is not None and entry.holder == user and not entry.is_owners
        if is_held or policy.allows_by_default or policy.may_change(user, worker.changeable_by(obj_id)):
            worker.queue_delete(obj_id)


def status(worker: Any, message: StatusMessage) -> dict[str, Any]:
    """All numbers, or of a worker that denies by default the user's own: those of others would tell about them."""
    said = dict(worker.status())
    if worker._holdings is None:
        return said
    used = worker._holdings.quotas.usage(user_of(message))
    return {"id": said["id"], "uptime": said["uptime"], "objects": used.objects, "bytes": used.bytes}


def list_objects(worker: Worker, message: ListObjectsMessage) -> tuple[Any, ...]:
    user = user_of(message)
    return tuple(i for i in worker._objects.copy() if worker.policy.may_find(user, worker.about(i)))


def clear_objects(worker: Worker, message: ClearObjectsMessage) -> None:
    user = user_of(message)
    for obj_id in list(worker._objects):
        about = worker.about(obj_id)
        if worker.policy.allows_by_default or (about.holder == user and not about.is_owners):
            worker.force_rm_obj(obj_id)


handlers.HANDLERS |= {
    SyncMessage: sync,
    PointersGoneMessage: pointers_gone,
    StatusMessage: status,
    ListObjectsMessage: list_objects,
    ClearObjectsMessage: clear_objects,
}
