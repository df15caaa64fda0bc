"""`SharedNode`: what all nodes over shares have, whatever the ring; and how integers become shares at their holders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from syft.core.abstract import AbstractTensor
from syft.core.ids import ID_PROVIDER
from syft.core.session import session
from syft.messaging.message import ObjectMessage
from syft.mpc import ring
from syft.mpc.randomness import Stream, new_seed
from syft.tensors.pointer import PointerTensor, new_pointer
from syft.tensors.sending import spec_when_sent

if TYPE_CHECKING:
    from syft.mpc.group import Group


class SharedNode(AbstractTensor):
    """A node whose child maps each holder's id to a pointer to its share, whatever the ring."""

    passes_unknown_ops = False

    def __init__(
        self, shares: dict[Any, PointerTensor] | None = None, crypto_provider: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.child: dict[Any, PointerTensor] = dict(shares or {})
        self.crypto_provider = crypto_provider

    @property
    def pointers(self) -> list[PointerTensor]:
        """The shares, in the order of the holders."""
        return list(self.child.values())

    @property
    def locations(self) -> list[Any]:
        """The holders."""
        return [pointer.location for pointer in self.child.values()]

    @property
    def group(self) -> Group:
        return group_of(self.locations, self.crypto_provider)

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def location(self) -> Any:
        return None

    @property
    def id_at_location(self) -> Any:
        return None

    def get_garbage_collect_data(self) -> bool:
        """Whether the shares go with the last reference to the secret."""
        return all(pointer.garbage_collect_data for pointer in self.pointers)

    def set_garbage_collect_data(self, value: bool) -> None:
        """Choose whether the shares go with the last reference to the secret."""
        for pointer in self.pointers:
            pointer.set_garbage_collect_data(value)

    @property
    def spec(self) -> Any:
        return next(iter(self.child.values())).spec


def group_of(holders: Sequence[Any], provider: Any) -> Group:
    """The group of these workers. What runs programs is imported when the first secret is shared."""
    from syft.mpc.group import Group

    return Group.of(holders, provider)


def split_among(
    values: torch.Tensor, holders: list[Any], provider: Any, is_public: bool = False
) -> dict[Any, PointerTensor]:
    """Split int64 values here and send every holder its share; returns pointers to them by the holders' ids.

    `is_public`: everybody knows the values (zeros, say), so they restrict no result.
    """
    group = group_of(holders, provider)  # refuses impossible groups before anything is sent
    group.prepare()
    me = session.require_local_worker()
    pointers = {}
    with group.waiting():
        for holder, share in zip(holders, ring.share(values, len(holders), Stream(new_seed())), strict=True):
            new_id = ID_PROVIDER.pop()
            me.send_msg(ObjectMessage(share, new_id, is_public=is_public), holder)
            pointers[holder.id] = new_pointer(holder, new_id, spec_when_sent(share))
    return pointers
