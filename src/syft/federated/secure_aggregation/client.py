"""`SecureClient`: one client's part in one round of secure aggregation, without I/O.

One duty: to follow Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS
2017, figure 4), in a sparse graph Bell et al. (CCS 2020, algorithm 2), and to refuse everything that would open more
than the sum. Imports the files above it in the list
of this package.

NOTE [What a client never does]
Give out its share of a peer's mask key AND its share of that peer's self mask: the two together open the peer's
update. One list of survivors is answered per round, and each peer is on it or not. A round's keys are made for that
round, and forgotten with its last message.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from enum import IntEnum

import torch

from syft.federated.secure_aggregation.errors import ProtocolViolationError, TooFewClientsError
from syft.federated.secure_aggregation.keys import Identity, KeyPair, Part, digest, seal, unseal
from syft.federated.secure_aggregation.masks import pair_seed, pair_sign, self_seed
from syft.federated.secure_aggregation.messages import (
    AdvertisedKeys,
    Confirmation,
    Confirmations,
    Delivery,
    MaskedInput,
    Roster,
    SealedShares,
    Survivors,
    UnmaskingShares,
)
from syft.federated.secure_aggregation.setting import RoundSetting
from syft.federated.secure_aggregation.shamir import SECRET_BYTES, SHARE_BYTES, Entropy, split
from syft.federated.secure_aggregation.words import Words
from syft.serde import mark_incompressible

#: Noise for one client's words: called with how many, and with the units per 1.0; returns int64.
Noise = Callable[[int, int], torch.Tensor]

DIGEST_BYTES = 32
KEYS, SURVIVORS = "keys", "list of survivors"  # what is signed


class Step(IntEnum):
    """What the client has done last."""

    NOTHING = 0
    ADVERTISED = 1
    SHARED = 2
    SENT = 3
    CONFIRMED = 4
    DONE = 5


class SecureClient:
    """Call, in this order and once each: `advertise_keys`, `share_keys`, `masked_input`, [`confirm`,] `unmask`.

    identity         signs, in signed rounds; with one, a round without signatures is refused: who sets a round up is
                     the server, and it must not be able to do away with them
    least_threshold  rounds with a lower threshold are refused: the sum would be of too few
    entropy          where keys and seeds come from: the operating system, unless a test says otherwise
    """

    def __init__(
        self,
        name: str,
        setting: RoundSetting,
        *,
        identity: Identity | None = None,
        least_threshold: int = 2,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        if not name:
            raise ValueError("A client has a name, and an empty one was given.")
        if setting.signed and identity is None:
            raise ValueError(
                f"The round is signed, and client {name!r} was made without an identity to sign with."
            )
        if identity is not None and not setting.signed:
            raise ValueError(
                f"Client {name!r} was made with an identity, for signed rounds, and this round is not: make it with "
                "RoundSetting.new(signed=True), or leave the identity out if the server is trusted."
            )
        if setting.threshold < least_threshold:
            raise ValueError(
                f"The round opens sums of {setting.threshold} clients; client {name!r} wants {least_threshold} or more."
            )
        self.name, self.setting = name, setting
        self.clamped = 0
        """How many values of the update lay outside the declared range. Known here only."""
        self._identity, self._entropy = identity, entropy
        self._step = Step.NOTHING
        self._sealing: KeyPair | None = None
        self._masking: KeyPair | None = None
        self._seed = b""
        self._roster: dict[str, AdvertisedKeys] = {}
        self._transcript = b""
        self._held: dict[str, tuple[bytes, bytes]] = {}
        self._agreed: dict[str, bytes] = {}
        self._survivors: tuple[str, ...] = ()

    # -- the steps ---------------------------------------------------------------------------------------

    def advertise_keys(self) -> AdvertisedKeys:
        """Take part: two fresh key pairs, of which the public halves are told."""
        self._go(Step.NOTHING, Step.ADVERTISED)
        self._sealing, self._masking = KeyPair.new(self._entropy), KeyPair.new(self._entropy)
        keys = AdvertisedKeys(self.setting.round, self.name, self._sealing.public, self._masking.public, b"")
        if self._identity is None:
            return keys
        signature = self._identity.sign(KEYS, *signed_keys(self.setting, keys))
        return AdvertisedKeys(keys.round, keys.client, keys.sealing_key, keys.mask_key, signature)

    def share_keys(self, roster: Roster) -> SealedShares:
        """Split the mask key and a self mask's seed among everybody who takes part, sealed for each of them."""
        self._expect(Step.ADVERTISED)
        self._check_round(roster)
        sealing, masking = self._pairs()
        self._check_roster(roster)
        self._go(Step.ADVERTISED, Step.SHARED)
        self._roster = {keys.client: keys for keys in roster.keys}
        self._transcript = transcript(self.setting, roster)
        is_sparse = bool(self.setting.neighbours)
        # NB: the places of a sparse graph are those of the circle, so that all secrets have them in common.
        names = [keys.client for keys in roster.keys] if is_sparse else sorted(self._roster)
        threshold, places = self.setting.opening, range(1, len(names) + 1)
        self._seed = self._entropy(SECRET_BYTES)
        key_shares = split(masking.private_bytes(), threshold, places, self._entropy)
        seed_shares = split(self._seed, threshold, places, self._entropy)
        sealed: dict[str, bytes] = {}
        for name, key_share, seed_share in zip(names, key_shares, seed_shares, strict=True):
            if name == self.name:
                self._held[name] = (key_share, seed_share)
                continue
            agreed = self._agreed[name] = sealing.agree(self._roster[name].sealing_key, name)
            plain = key_share + seed_share
            sealed[name] = seal(agreed, self._transcript, self.name, name, plain, self._entropy)
        return SealedShares(self.setting.round, self.name, sealed)

    def masked_input(
        self, delivery: Delivery, update: torch.Tensor, weight: float = 1.0, *, noise: Noise | None = None
    ) -> MaskedInput:
        """The update, weighted and masked; `noise` is added to its words before the masks are."""
        self._expect(Step.SHARED)
        self._check_round(delivery)
        if delivery.recipient != self.name:
            raise ProtocolViolationError(f"{self.name!r} was handed the delivery of {delivery.recipient!r}.")
        unknown = sorted(set(delivery.sealed) - (set(self._roster) - {self.name}))
        if unknown:
            raise ProtocolViolationError(
                f"{self.name!r} was handed shares of {_names(unknown)}, not among the others of this round's roster."
            )
        self._check_enough("sent shares of their keys", len(delivery.sealed) + 1, self.setting.opening)
        words = self._words(update, weight, noise)
        _sealing, masking = self._pairs()
        held: dict[str, tuple[bytes, bytes]] = {}
        for sender, body in delivery.sealed.items():
            plain = unseal(self._agreed[sender], self._transcript, sender, self.name, body)
            if len(plain) != 2 * SHARE_BYTES:
                raise ProtocolViolationError(
                    f"{sender!r} sealed {len(plain)} bytes; two shares are {2 * SHARE_BYTES}."
                )
            held[sender] = (plain[:SHARE_BYTES], plain[SHARE_BYTES:])
        seeds = [(1, self_seed(self._seed, self._transcript, self.name))]
        for other in held:
            agreed = masking.agree(self._roster[other].mask_key, other)
            seeds.append((pair_sign(self.name, other), pair_seed(agreed, self._transcript, self.name, other)))
        self._go(Step.SHARED, Step.SENT)
        self._held.update(held)
        words.add_masks(seeds)
        return MaskedInput(self.setting.round, self.name, mark_incompressible(words.packed()))

    def confirm(self, survivors: Survivors) -> Confirmation:
        """Sign the list of survivors (signed rounds only), so that nobody is told another one."""
        if self._identity is None:
            raise ProtocolViolationError(
                f"{self.name!r} was asked to confirm survivors in a round without signatures."
            )
        self._expect(Step.SENT)
        self._check_survivors(survivors)
        self._go(Step.SENT, Step.CONFIRMED)
        self._survivors = tuple(sorted(survivors.clients))
        return Confirmation(
            self.setting.round,
            self.name,
            self._identity.sign(SURVIVORS, *signed_survivors(self._transcript, survivors)),
        )

    def unmask(self, survivors: Survivors, confirmations: Confirmations | None = None) -> UnmaskingShares:
        """For each peer one of two shares: of its self mask if it survived, of its mask key if not."""
        self._expect(Step.CONFIRMED if self.setting.signed else Step.SENT)
        self._check_survivors(survivors)
        if self.setting.signed:
            self._check_confirmed(survivors, confirmations)
        self._go(self._step, Step.DONE)
        alive = set(survivors.clients)
        answer = UnmaskingShares(
            self.setting.round,
            self.name,
            {name: key for name, (key, _seed) in self._held.items() if name not in alive},
            {name: seed for name, (_key, seed) in self._held.items() if name in alive},
        )
        self._forget()
        return answer

    # -- what is checked ---------------------------------------------------------------------------------

    def _expect(self, step: Step) -> None:
        if self._step is not step:
            raise ProtocolViolationError(
                f"{self.name!r} was asked for a step out of turn: it has {self._step.name.lower()}, and the step "
                f"needs a client that has {step.name.lower()}. Every step is taken once, and a round is not "
                "repeated: make a new SecureClient for a new round."
            )

    def _go(self, step: Step, next_step: Step) -> None:
        self._expect(step)
        self._step = next_step

    def _check_round(
        self, message: Roster | Delivery | Survivors | Confirmations | Confirmation | AdvertisedKeys
    ) -> None:
        if message.round != self.setting.round:
            raise ProtocolViolationError(
                f"{self.name!r} is in round {self.setting.round.hex()} and got a {type(message).__name__} of round "
                f"{message.round.hex()}."
            )

    def _check_enough(self, stage: str, found: int, needed: int | None = None) -> None:
        needed = self.setting.threshold if needed is None else needed
        if found < needed:
            raise TooFewClientsError(stage, found, needed)

    def _check_roster(self, roster: Roster) -> None:
        names = [keys.client for keys in roster.keys]
        _check_distinct(names, "roster")
        total = self._total(roster.total, len(names))
        if total > self.setting.clients:
            raise ProtocolViolationError(
                f"The roster has {total} clients, and the round was set for {self.setting.clients} at most."
            )
        self._check_enough("advertised keys", total)
        if self.setting.neighbours:
            self._check_neighbours(roster, names)
        public = [key for keys in roster.keys for key in (keys.sealing_key, keys.mask_key)]
        if len(set(public)) != len(public):
            raise ProtocolViolationError(
                "Two clients of the roster have the same key, and keys are made fresh."
            )
        sealing, masking = self._pairs()
        mine = [keys for keys in roster.keys if keys.client == self.name]
        if not mine or (mine[0].sealing_key, mine[0].mask_key) != (sealing.public, masking.public):
            raise ProtocolViolationError(f"The roster does not have the keys that {self.name!r} advertised.")
        for keys in roster.keys:
            self._check_round(keys)
            if self._identity is not None and keys.client != self.name:
                self._identity.check(keys.client, keys.signature, KEYS, *signed_keys(self.setting, keys))

    def _total(self, told: int, listed: int) -> int:
        """How many there are in all; in a sparse graph the server tells. !! ProtocolViolationError"""
        if not self.setting.neighbours:
            if told:
                raise ProtocolViolationError(
                    f"{self.name!r} was told of {told} clients beside a list, and all are on the list of this round."
                )
            return listed
        if told < listed:
            raise ProtocolViolationError(
                f"{self.name!r} was given {listed} clients of {told} in all, which is not possible."
            )
        return told

    def _check_neighbours(self, roster: Roster, names: list[str]) -> None:
        wanted = self.setting.neighbours + 1
        is_whole = roster.total <= wanted
        middle = names[wanted // 2] if len(names) == wanted else None
        if len(names) != min(wanted, roster.total) or not (is_whole or middle == self.name):
            raise ProtocolViolationError(
                f"{self.name!r} was given {len(names)} clients of {roster.total}: it is given itself in the middle of "
                f"its {self.setting.neighbours} neighbours."
            )
        if len(roster.transcript) != DIGEST_BYTES:
            raise ProtocolViolationError(
                f"{self.name!r} was given no digest of this round's keys beside its neighbours."
            )

    def _check_survivors(self, survivors: Survivors) -> None:
        self._check_round(survivors)
        _check_distinct(survivors.clients, "list of survivors")
        unknown = sorted(set(survivors.clients) - set(self._held))
        if unknown:
            raise ProtocolViolationError(
                f"The list of survivors has {_names(unknown)}, who shared no keys with {self.name!r} in this round."
            )
        if self.name not in survivors.clients:
            raise ProtocolViolationError(
                f"{self.name!r} sent its input, and is not on the list of survivors."
            )
        self._check_enough(
            "are on the list of survivors", self._total(survivors.total, len(survivors.clients))
        )

    def _check_confirmed(self, survivors: Survivors, confirmations: Confirmations | None) -> None:
        if tuple(sorted(survivors.clients)) != self._survivors:
            raise ProtocolViolationError(
                f"{self.name!r} was given another list of survivors than the one it confirmed."
            )
        if confirmations is None or self._identity is None:
            raise ProtocolViolationError(
                f"The round is signed: {self.name!r} opens nothing without the others' confirmations."
            )
        self._check_round(confirmations)
        confirmed = confirmations.confirmations
        _check_distinct([c.client for c in confirmed], "confirmations")
        unknown = sorted({c.client for c in confirmed} - set(survivors.clients))
        if unknown:
            raise ProtocolViolationError(
                f"{_names(unknown)} confirmed a list of survivors without being on it."
            )
        self._check_enough("confirmed the list of survivors", len(confirmed))
        for confirmation in confirmed:
            self._check_round(confirmation)
            if confirmation.client != self.name:
                parts = signed_survivors(self._transcript, survivors)
                self._identity.check(confirmation.client, confirmation.signature, SURVIVORS, *parts)

    # -- what is kept ------------------------------------------------------------------------------------

    def _words(self, update: torch.Tensor, weight: float, noise: Noise | None) -> Words:
        """The encoded update and its weight, in a vector of their own."""
        setting = self.setting
        if update.shape != (setting.length,) or not update.is_floating_point():
            raise ValueError(
                f"{self.name!r} was given an update of shape {tuple(update.shape)} and {update.dtype}; this round "
                f"sums flat floating-point updates of {setting.length} numbers."
            )
        if noise is not None and not setting.noise_reach:
            raise ValueError(
                f"{self.name!r} was given noise, and the round has no room for any: set its noise_reach."
            )
        encoding = setting.encoding
        encoded, self.clamped = encoding.encode(update, weight)
        if noise is not None:
            # NB: noise past its declared reach is cut off, as anything else would tell that it was.
            drawn = noise(setting.length, encoding.units)
            encoded += drawn.clamp(-setting.noise_reach, setting.noise_reach)
        words = Words(setting)
        words.set(encoded, encoding.encode_weight(weight))
        return words

    def _pairs(self) -> tuple[KeyPair, KeyPair]:
        if self._sealing is None or self._masking is None:
            raise ProtocolViolationError(
                f"{self.name!r} has no keys: it has not advertised any, or its round is over."
            )
        return self._sealing, self._masking

    def _forget(self) -> None:
        self._sealing = self._masking = None
        self._seed = b""
        self._held.clear()
        self._agreed.clear()


# -- what both sides compute -----------------------------------------------------------------------------


def transcript(setting: RoundSetting, roster: Roster) -> bytes:
    """Stands for the setting and all keys of the roster, in any order of its entries."""
    if roster.transcript:
        return digest("sparse roster", setting.digest, roster.transcript)
    parts: list[Part] = ["roster", setting.digest]
    for keys in sorted(roster.keys, key=lambda keys: keys.client):
        parts += [keys.client, keys.sealing_key, keys.mask_key]
    return digest(*parts)


def signed_keys(setting: RoundSetting, keys: AdvertisedKeys) -> tuple[Part, ...]:
    return setting.digest, keys.client, keys.sealing_key, keys.mask_key


def signed_survivors(roster: bytes, survivors: Survivors) -> tuple[Part, ...]:
    return roster, *sorted(survivors.clients)


def _check_distinct(names: Iterable[str], where: str) -> None:
    listed = list(names)
    if len(set(listed)) != len(listed):
        raise ProtocolViolationError(f"The {where} has a client twice.")


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
