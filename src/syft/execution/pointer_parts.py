"""What pointers to plans and to protocols are made of, when they travel."""

from __future__ import annotations

from typing import Any

from syft.serde import resolve_worker
from syft.tensors.object_pointer import ObjectPointer


def pointer_parts(pointer: ObjectPointer) -> tuple[Any, ...]:
    """What a pointer to a plan or a protocol is made of."""
    location = pointer._location
    return (
        getattr(location, "id", location),
        pointer._id_at_location,
        pointer._id,
        frozenset(pointer.tags),
        pointer.description,
    )


def pointer_options(worker: Any, parts: tuple[Any, ...]) -> dict[str, Any]:
    """What to make a pointer with from its parts.

    A pointer that came in a frame deletes nothing; see NOTE [Who deletes, on the wire] in syft.serde.chain_types.
    """
    location, id_at_location, id, tags, description = parts
    return {
        "location": resolve_worker(worker, location),
        "id_at_location": id_at_location,
        "owner": worker,
        "id": id,
        "garbage_collect_data": False,
        "tags": tags,
        "description": description,
    }
