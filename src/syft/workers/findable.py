"""`Findable`: which objects of a worker a search looks at.

NOTE [What can be found]
A search does not look at all there is: most are results that nobody named. A tensor can be found if it had a name (an id,
tags or a description of its own) when it was stored, if the owner of the worker stored it, who may still have it and name
it, or if somebody was handed it since (`get_obj`, `_objects`), and may have.

Tensors with tags that nobody was handed keep these, and are found in a table of tags, however many others there are. All
that may be named anew, that have a description, or that are no tensors are looked at one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any

import torch

from syft.core.identity import known_identity
from syft.workers.entry import Entry


class Findable:
    """Ids of objects, in the order in which they became findable."""

    __slots__ = ("_by_tag", "_looked_at", "_numbers", "order")

    def __init__(self) -> None:
        #: id -> when it became findable
        self.order: dict[Any, int] = {}
        self._looked_at: dict[Any, None] = {}
        self._by_tag: dict[Any, dict[Any, None]] = {}
        self._numbers = itertools.count()

    def note(self, entry: Entry, before: Entry | None) -> None:
        """An object was stored, in the place of another or of none."""
        if before is not None:
            self._leave_table(before)
        value = entry.value
        if type(value) is torch.Tensor:
            identity = known_identity(value)
            if identity is None:
                return
            if not identity.description and entry.id not in self._looked_at:
                self._place(entry.id)
                for tag in identity.tags:
                    self._enter_table(tag, entry.id)
                return
        self.may_be_named(entry)

    def may_be_named(self, entry: Entry) -> None:
        """Somebody has this object, and can name it at any time."""
        if entry.id not in self._looked_at:
            self._place(entry.id)
            self._looked_at[entry.id] = None
            self._leave_table(entry)

    def forget(self, entry: Entry) -> None:
        """An object went."""
        self.order.pop(entry.id, None)
        if self._looked_at.pop(entry.id, self) is self:
            self._leave_table(entry)

    def clear(self) -> None:
        self.order.clear()
        self._looked_at.clear()
        self._by_tag.clear()

    def among(self, terms: Collection[Any], ids: Iterable[Any]) -> list[Any]:
        """Whatever can match all terms, where `ids` are those that can by their id."""
        rarest = min((self._by_tag.get(term, {}) for term in terms), key=len)
        number = self.order.get
        found = {*self._looked_at.copy(), *rarest.copy(), *ids}
        return sorted(found, key=lambda obj_id: number(obj_id, -1))

    def _place(self, obj_id: Any) -> None:
        if obj_id not in self.order:
            self.order[obj_id] = next(self._numbers)

    # -- the table of tags: threads store, and finalizers remove, at any moment ----------------------------

    def _enter_table(self, tag: Any, obj_id: Any) -> None:
        while True:
            having = self._by_tag.setdefault(tag, {})
            having[obj_id] = None
            if self._by_tag.get(tag) is having:  # nobody threw it away as empty meanwhile
                return

    def _leave_table(self, entry: Entry) -> None:
        identity = known_identity(entry.value) if type(entry.value) is torch.Tensor else None
        for tag in () if identity is None else list(identity.tags):
            having = self._by_tag.get(tag)
            if having is None:
                continue
            having.pop(entry.id, None)
            if not having:
                for late in list(self._by_tag.pop(tag, ())):  # somebody entered meanwhile
                    self._enter_table(tag, late)
