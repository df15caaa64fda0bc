"""`Action`: what a role does, one record per step. The two kinds are `ComputationAction` and `CommunicationAction`."""

from __future__ import annotations

from msgspec import Struct


class Action(Struct, frozen=True):
    """Base of the steps of a role."""
