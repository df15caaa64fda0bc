"""The messages of a round, in the order they are sent. Frozen, typed, no behaviour.

    client                       server
    AdvertisedKeys     -->
                       <--       Roster                all keys
    SealedShares       -->
                       <--       Delivery              the shares that others sealed for this client
    MaskedInput        -->
                       <--       Survivors             whose inputs arrived
    Confirmation       -->                             (signed rounds only)
                       <--       Confirmations         (signed rounds only)
    UnmaskingShares    -->

All of them travel through `syft.serde`. Imports `serde`.
"""

from __future__ import annotations

import msgspec
import torch

from syft.serde import register_record


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    round: bytes


class AdvertisedKeys(_Message, frozen=True):
    """A client takes part, with two fresh public keys: one to seal shares for it, one to agree on masks with it."""

    client: str
    sealing_key: bytes
    mask_key: bytes
    signature: bytes


class Roster(_Message, frozen=True):
    """Everybody who takes part; in a sparse graph, one client in the middle of its neighbours."""

    keys: tuple[AdvertisedKeys, ...]
    total: int = 0
    """In a sparse graph: how many take part in all."""
    transcript: bytes = b""
    """In a sparse graph: stands for the keys of all of them."""


class SealedShares(_Message, frozen=True):
    """For each other client of the roster: a share of the sender's mask key and one of its self mask, sealed."""

    client: str
    sealed: dict[str, bytes]


class Delivery(_Message, frozen=True):
    """What the others sealed for one client, by sender."""

    recipient: str
    sealed: dict[str, bytes]


class MaskedInput(_Message, frozen=True):
    """A client's weighted update, its weight behind it, under its own mask and one with each neighbour. See `words`."""

    client: str
    vector: torch.Tensor


class Survivors(_Message, frozen=True):
    """Whose inputs are in the sum; in a sparse graph, of one client's neighbours and itself."""

    clients: tuple[str, ...]
    total: int = 0
    """In a sparse graph: how many there are in all."""


class Confirmation(_Message, frozen=True):
    """A client's signature on the survivors that it was told."""

    client: str
    signature: bytes


class Confirmations(_Message, frozen=True):
    """What the survivors confirmed."""

    confirmations: tuple[Confirmation, ...]


class UnmaskingShares(_Message, frozen=True):
    """Shares of the mask keys of those who dropped out, and of the self masks of those who did not."""

    client: str
    mask_keys: dict[str, bytes]
    self_masks: dict[str, bytes]


for _message in (
    AdvertisedKeys,
    Roster,
    SealedShares,
    Delivery,
    MaskedInput,
    Survivors,
    Confirmation,
    Confirmations,
    UnmaskingShares,
):
    register_record(_message, f"SecureAggregation{_message.__name__}")
