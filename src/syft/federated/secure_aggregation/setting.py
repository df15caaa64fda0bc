"""`RoundSetting`: what server and clients agree on before a round, and bind every key to.

One duty: the public parameters, checked. Imports `encoding`, `graph`, `serde`.

NOTE [Thresholds]
With fewer than `threshold` answers nothing can be opened. It is more than half of the clients, so that a server
cannot get the self masks from one half and the mask keys from the other (Bonawitz et al. 2017, section 6). With
signatures (`signed`), which are there against servers and clients that deviate together, it is more than two thirds.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Literal

import msgspec

from syft.federated.secure_aggregation.encoding import Encoding
from syft.federated.secure_aggregation.graph import SparseGraph
from syft.serde import register_record

ROUND_BYTES = 16
#: What all clients weigh their updates with: 1, or their numbers of examples; "" where each one chooses for itself.
Weighing = Literal["", "alike", "examples"]

_Count = Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]


class RoundSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round: its name, its threshold, and how updates are encoded. Made by `RoundSetting.new`."""

    round: bytes
    clients: _Count
    threshold: _Count
    length: _Count
    clip: float
    max_weight: float
    fraction_bits: int
    noise_reach: int
    signed: bool
    context: bytes = b""
    """Stands for what all clients were told to train, where that is to be the same; see `over_network`."""
    weighing: Weighing = ""
    """How all clients weigh, where that is to be the same; see `kept_updates`."""
    word_bits: int = 64
    """Bits of a number that travels, and of the sum."""
    neighbours: int = 0
    """With how many others each client shares its keys; 0: with all. See `graph`."""
    share_threshold: int = 0
    """How many of a client's shares open its secret, where that is not the `threshold`."""

    def __post_init__(self) -> None:
        if len(self.round) != ROUND_BYTES:
            raise ValueError(f"A round is named by {ROUND_BYTES} random bytes, got {len(self.round)}.")
        least = least_threshold(self.clients, self.signed)
        if not least <= self.threshold <= self.clients:
            kind = "more than two thirds with signatures" if self.signed else "more than half"
            raise ValueError(
                f"A threshold of {self.threshold} was asked for {self.clients} clients; it is from {least} ({kind}) "
                f"to {self.clients}."
            )
        if self.neighbours and not (
            self.neighbours % 2 == 0
            and self.neighbours < self.clients - 1
            and (self.neighbours + 1) // 2 < self.share_threshold <= self.neighbours
        ):
            raise ValueError(
                f"A round of {self.clients} clients was set with {self.neighbours} neighbours each and a share threshold "
                f"of {self.share_threshold}. Neighbours are an even number of the other clients; the threshold is more "
                "than half of those who hold shares."
            )
        if self.neighbours and self.signed:
            raise ValueError(
                "Signatures are there against a server that deviates, and a sparse graph against one that follows the "
                "protocol: a signed round has everybody as neighbours."
            )
        if not self.neighbours and self.share_threshold:
            raise ValueError("A round in which all are neighbours has one threshold, and was given two.")
        self.encoding  # noqa: B018  (refuses what does not fit)

    @classmethod
    def new(
        cls,
        clients: int,
        length: int,
        *,
        threshold: int | None = None,
        clip: float = 1024.0,
        max_weight: float = 2.0**20,
        fraction_bits: int | None = None,
        noise_reach: int = 0,
        signed: bool = False,
        context: bytes = b"",
        weighing: Weighing = "",
        word_bits: int | Literal["fit"] = 64,
        sparse: SparseGraph | None = None,
    ) -> RoundSetting:
        """A fresh round for up to `clients` clients and updates of `length` numbers.

        threshold      clients without whom nothing is opened; more than two thirds if not given
        clip           values are clamped to [-clip, clip]
        max_weight     the largest weight of a client (a number of examples, say)
        fraction_bits  precision; the finest for which the sum has room if not given
        noise_reach    the most that a client's noise adds to a word, in units of 2^-fraction_bits
        signed         clients sign keys and the list of survivors, against a server that deviates
        context        bytes that all clients of the round have to be told alike
        weighing       how all clients have to weigh: "alike", by their "examples", or "" for as they like
        word_bits      of a number that travels: 2 to 32, or 64; "fit" for as few as `fraction_bits` and the sum need
        sparse         clients share keys with some others only, where there are enough for it
        """
        if clients < 2:
            raise ValueError(f"A sum hides an update among others: 2 clients or more, got {clients}.")
        if word_bits == "fit":
            if fraction_bits is None:
                raise ValueError("word_bits='fit' needs the precision. Give fraction_bits, too.")
            word_bits = Encoding.narrowest(clip, max_weight, clients, fraction_bits, noise_reach).word_bits
        if fraction_bits is None:
            fraction_bits = Encoding.fitting(clip, max_weight, clients, word_bits).fraction_bits
        if sparse is not None and signed:
            raise ValueError(
                "A sparse graph is for servers that follow the protocol, and signatures for those that do not: leave "
                "one of the two out."
            )
        neighbours, share_threshold = (None if sparse is None else sparse.degree_for(clients)) or (0, 0)
        return cls(
            round=secrets.token_bytes(ROUND_BYTES),
            clients=clients,
            threshold=2 * clients // 3 + 1 if threshold is None else threshold,
            length=length,
            clip=float(clip),
            max_weight=float(max_weight),
            fraction_bits=fraction_bits,
            noise_reach=noise_reach,
            signed=signed,
            context=context,
            weighing=weighing,
            word_bits=word_bits,
            neighbours=neighbours,
            share_threshold=share_threshold,
        )

    @property
    def encoding(self) -> Encoding:
        return Encoding(
            self.clip, self.max_weight, self.clients, self.fraction_bits, self.noise_reach, self.word_bits
        )

    @property
    def opening(self) -> int:
        """How many shares open a secret."""
        return self.share_threshold or self.threshold

    @property
    def digest(self) -> bytes:
        """Stands for all of it in the derivation of keys: parties with another setting have other keys."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).digest()


def least_threshold(clients: int, signed: bool) -> int:
    """See NOTE [Thresholds]."""
    return 2 * clients // 3 + 1 if signed else clients // 2 + 1


register_record(RoundSetting, "SecureRoundSetting")
