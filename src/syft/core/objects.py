"""`AbstractObject`: what everything that has an identity in this library shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syft.core.ids import ID_PROVIDER
from syft.core.session import session


class AbstractObject:
    """Something with an id, an owner, tags and a description.

    The id and the owner are settled on first use: most objects of a computation are never asked.
    """

    def __init__(
        self,
        id: Any = None,
        owner: Any = None,
        tags: Iterable[str] | None = None,
        description: str | None = None,
        child: Any = None,
    ) -> None:
        self._id = id
        self._owner = owner
        self.tags: set[str] = set(tags) if tags else set()
        self.description = description
        self.child = child

    @property
    def id(self) -> Any:
        if self._id is None:
            self._id = ID_PROVIDER.pop()
        return self._id

    @id.setter
    def id(self, value: Any) -> None:
        self._id = value

    @property
    def owner(self) -> Any:
        return self._owner if self._owner is not None else session.local_worker

    @owner.setter
    def owner(self, value: Any) -> None:
        self._owner = value

    def tag(self, *tags: str) -> Any:
        """Add tags to search by; returns self."""
        self.tags.update(tags)
        return self

    def describe(self, description: str) -> Any:
        """Set the description; returns self."""
        self.description = description
        return self
