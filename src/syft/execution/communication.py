"""`CommunicationAction`: a tensor that a role hands to others."""

from __future__ import annotations

from typing import Any

from syft.execution.action import Action


class CommunicationAction(Action, frozen=True):
    """One tensor that goes from a role to others.

    obj_id        the id of the tensor
    source        the name of the role that has it
    destinations  the names of those that get it
    """

    obj_id: Any
    source: Any
    destinations: tuple[Any, ...]
    kwargs: dict[str, Any]
