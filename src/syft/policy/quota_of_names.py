"""The names that users choose: how long ids may be, how many users may be named, and what that costs."""

from __future__ import annotations

from typing import Any

from syft.core.interfaces import Id
from syft.exceptions import QuotaExceededError

#: Nobody is charged for ids, so they are short.
LONGEST_NAME = 128
LARGEST_ID = 1 << 64
_MOST_ALLOWED = 1000
FEW_ALLOWED = 16


def check_id(obj_id: Id) -> None:
    """!! QuotaExceededError if an object cannot be kept under this id by a user."""
    if type(obj_id) is str:
        if len(obj_id) <= LONGEST_NAME:
            return
        found = f"a text of {len(obj_id)} characters"
    else:
        found = "a larger number" if type(obj_id) is int else f"a {type(obj_id).__name__}"
    raise QuotaExceededError(
        f"An object was to be kept under an id that is {found}. An id is a whole number below 2**64, or a text of "
        f"{LONGEST_NAME} characters at most. Choose a shorter one."
    )


def bytes_of_allowed(allowed: Any, is_chosen: bool) -> int:
    """What it costs to name the users who may fetch an object; a few are free.

    `is_chosen`: by the one who brings it. !! QuotaExceededError if they are too many
    """
    if type(allowed) is not frozenset or not allowed:
        return 0
    count = len(allowed)
    if is_chosen and (count > _MOST_ALLOWED or max(map(len, allowed)) > LONGEST_NAME):
        raise QuotaExceededError(
            f"An object was to be allowed to {count} users. At most {_MOST_ALLOWED} can be named, with {LONGEST_NAME} "
            "characters each. Name fewer, or ask the owner of the worker to open the data to all."
        )
    return count * LONGEST_NAME if count > FEW_ALLOWED else 0
