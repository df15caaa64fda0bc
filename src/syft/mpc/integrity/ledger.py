"""What a holder has opened and not checked yet, and the check of all of it at once.

`Ledger` belongs to a holder's place in a group and outlives runs; `Seal` is its part in one run. What a run opened
counts when the run has ended well at this holder (`Seal.commit`). A check that fails marks the ledger as broken, for
good: from then on nothing authenticated is computed or opened in this group. May import `shares`, `sealed`, `wide`,
`party`, `randomness`.

NOTE [The check]
After SPDZ2k (Cramer et al. 2018), the batch check of section 3: for openings y_j, mod 2^110, of authenticated x_j, all
fixed before,
 1. each holder commits to a seed and sends a digest of all that it saw opened; the digests must be equal (which
 replaces a
    broadcast);
 2. the seeds are revealed, and make the coins chi_j below 2^46;
 3. each holder commits to sigma_i = sum_j chi_j m_j,i - alpha_i sum_j chi_j y_j, with its MAC shares m_j,i, and
 4. reveals it; they must add up to 0 mod 2^110.
The whole number is opened, with the 46 bits above the word: an error of 2^63 in a word is caught because its product with
alpha has 47 bits there that nobody can guess. Bits: sigma_i = tag shares ^ (beta_i & opened), for all opened words,
must XOR to 0. It is folded by GHASH (NIST SP 800-38D, section 6.4) under keys of the coins, one per opening, which is
linear over XOR, and committed to and revealed with the rest.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from syft.mpc.correlations import Correlation
from syft.mpc.integrity import wide, words
from syft.mpc.integrity.errors import IntegrityError
from syft.mpc.integrity.sealed import TAGS, Key, Sealed
from syft.mpc.integrity.shares import Auth, AuthBits, fields_of
from syft.mpc.party import Expected, Party, Program, Round
from syft.mpc.randomness import SEED_BYTES, Stream

_CHUNK = 1 << 17  # elements whose limb products are added up without a carry
_HASH_BYTES = 1 << 28  # of tags per call of GHASH
_WORDS = 4  # of a digest


@dataclass(eq=False)
class Opening:
    """Numbers that were opened, and this holder's part of their MACs: both `lo, hi`, (2, *shape)."""

    mac: torch.Tensor
    opened: torch.Tensor


@dataclass(eq=False)
class BitOpening:
    """Words that were opened, and this holder's part of their tags."""

    tags: torch.Tensor
    opened: torch.Tensor


Entry = Opening | BitOpening


class Ledger:
    """All that is opened and not checked, by the holders of a group that are in this process: a page for each."""

    def __init__(self, holders: int = 1) -> None:
        self._pages: tuple[tuple[Entry, ...], ...] = ((),) * holders
        self._writing = threading.Lock()
        self.broken: str | None = None
        #: The pages whose holders found that a check failed.
        self.noticed: list[int] = []

    def pages(self) -> list[Page]:
        """What is to be checked now, for each holder: the same for all, whatever other threads do."""
        return [Page(self, index, entries) for index, entries in enumerate(self._pages)]

    def commit(self, seals: Sequence[Seal]) -> None:
        """A run has ended well: what it opened is to be checked, and what it has checked is not any more."""
        with self._writing:
            pages = list(self._pages)
            for seal in seals:
                index, done = seal.page.index, {id(e) for e in seal.page.entries} if seal.checked else set()
                pages[index] = (*(e for e in pages[index] if id(e) not in done), *seal.entries)
            self._pages = tuple(pages)  # NB: in one step, so that an interrupt leaves no page behind

    def fail(self, index: int, why: str) -> None:
        """A check failed: there is nothing that could be trusted any more."""
        self.broken = why
        self.noticed.append(index)
        self._pages = ((),) * len(self._pages)

    def require_whole(self) -> None:
        """!! IntegrityError after a check that failed"""
        if self.broken is not None:
            raise IntegrityError(
                f"These holders ended an earlier computation on authenticated shares: {self.broken} Nothing that they "
                "hold under protocol='spdz2k' is computed on or opened any more. Share the values again, among workers "
                "in a new session."
            )


@dataclass(frozen=True, eq=False)
class Page:
    """One holder's part of a ledger, as it was when a run began."""

    ledger: Ledger
    index: int
    entries: tuple[Entry, ...]

    @property
    def nbytes(self) -> int:
        return sum(e.mac.nbytes if isinstance(e, Opening) else e.tags.nbytes for e in self.entries)


@dataclass(eq=False)
class Seal:
    """The part of a ledger in one run of a party."""

    party: Party
    page: Page
    key: Key
    entries: list[Entry] = field(default_factory=list)
    checked: bool = False

    @classmethod
    def begin(cls, party: Party) -> Seal:
        """Put a seal on a party for the run at hand. !! IntegrityError where the ledger is broken"""
        page = party.page
        if page is None:
            raise TypeError("This driver keeps no ledger, which authenticated shares need.")
        page.ledger.require_whole()
        made = cls(party, page, party.source.key())
        party.seal = made
        return made

    def take(self, kind: Correlation) -> list[Any]:
        """The fields of a fresh correlation, authenticated."""
        sealed = Sealed(kind)
        return fields_of(self.key, self.party.first, sealed, self.party.take(sealed))

    def part(self, kept: torch.Tensor) -> Auth:
        """A share as the holder keeps it."""
        if kept.ndim < 1 or kept.shape[0] != 4 or kept.dtype != torch.int64:
            raise TypeError(
                "A program on authenticated shares met a share without MAC. Share the value with "
                "protocol='spdz2k', too."
            )
        if kept.device.type != "cpu":
            raise NotImplementedError(
                f"Shares under protocol='spdz2k' are computed on the CPU, and these lie on {kept.device}. Share without "
                "protocol=, or do not move the secret."
            )
        return Auth.unpacked(self.key, self.party.first, kept)

    def public(self, value: torch.Tensor) -> Auth:
        return Auth.of_public(self.key, self.party.first, value)

    def public_bits(self, words: torch.Tensor) -> AuthBits:
        return AuthBits.of_public(self.key, self.party.first, words)

    def constant_bits(self, words: torch.Tensor) -> torch.Tensor:
        """Public words as planes of a word and its tags."""
        return self.public_bits(words).planes

    def bits(self, planes: torch.Tensor) -> AuthBits:
        return AuthBits(self.key, self.party.first, planes)

    # -- opening -----------------------------------------------------------------------------------------

    def open(self, *shares: Auth) -> Round:
        """Reveal numbers to all holders, to be checked later: gives their words, mod 2^64.

        All 110 bits go out, so each number must be under a mask of 110 bits, or have its upper ones hidden.
        """
        sent = tuple(words.masked(share.value) for share in shares)
        peers = self.party.peers
        expected = tuple(Expected(tuple(t.shape), t.dtype) for t in sent)

        def finish(received: Mapping[int, tuple[torch.Tensor, ...]]) -> Any:
            found = []
            for index, share in enumerate(shares):
                total = sent[index]
                for peer in peers:
                    total = words.added(total, received[peer][index])
                opened = words.masked(total)
                self.entries.append(Opening(share.mac.clone(), opened))
                found.append(opened[0].clone())
            return found[0] if len(found) == 1 else tuple(found)

        return Round(dict.fromkeys(peers, sent), dict.fromkeys(peers, expected), finish, opened=True)

    def open_bits(self, *words: AuthBits) -> Round:
        """Reveal words of bits to all holders, to be checked later."""
        one = self.party.open_bits(*(word.planes[0] for word in words))

        def finish(received: Mapping[int, tuple[torch.Tensor, ...]]) -> Any:
            opened = one.finish(received)
            each = (opened,) if isinstance(opened, torch.Tensor) else opened
            self.entries += [BitOpening(w.planes[1:], o.clone()) for w, o in zip(words, each, strict=True)]
            return opened

        return Round(one.outgoing, one.incoming, finish, opened=True)

    # -- NOTE [The check] --------------------------------------------------------------------------------

    def check(self) -> Program[None]:
        """Check everything that was opened so far, in this run too. Four rounds. !! IntegrityError"""
        entries = [*([] if self.checked else self.page.entries), *self.entries]
        if not entries:
            return
        party = self.party
        seed = secrets.token_bytes(SEED_BYTES)
        transcript = _transcript(entries)
        committed = yield from self._tell(_words(_digest(seed, b"coin %d" % party.rank)), transcript)
        if any(not torch.equal(seen, transcript) for _, seen in committed.values()):
            self._fail("they did not all see the same openings.")
        seeds = yield from self._tell(_words(seed))
        for rank, (told,) in seeds.items():
            if not torch.equal(committed[rank][0], _words(_digest(_raw(told), b"coin %d" % rank))):
                self._fail("coins were not what their commitment said.")
        every = {rank: _raw(told) for rank, (told,) in seeds.items()} | {party.rank: seed}
        coins = Stream(_digest(b"".join(every[rank] for rank in sorted(every)), b"coins")[:SEED_BYTES])
        sigma = self._folded([e for e in entries if isinstance(e, Opening)], coins)
        hashed, constant = self._hashed([e for e in entries if isinstance(e, BitOpening)], coins)
        mine = torch.cat([wide.packed(sigma), hashed])
        nonce = _words(secrets.token_bytes(SEED_BYTES))
        said = yield from self._tell(_words(_digest(_raw(nonce) + _raw(mine), b"sigma %d" % party.rank)))
        shown = yield from self._tell(nonce, mine)
        rest, folded = sigma.clone(), hashed.clone()
        for rank, (salt, told) in shown.items():
            if not torch.equal(said[rank][0], _words(_digest(_raw(salt) + _raw(told), b"sigma %d" % rank))):
                self._fail("a part of the check was not what its commitment said.")
            rest += wide.unpacked(told[0], told[1])
            folded ^= told[2:]
        if party.holders % 2:
            folded ^= constant
        if wide.as_integer(rest) or bool(folded.any()):
            self._fail("the MACs of what was opened do not add up.")
        self.checked = True
        self.entries = []

    def _tell(self, *tensors: torch.Tensor) -> Program[dict[int, tuple[torch.Tensor, ...]]]:
        """Send the same to all other holders, and hear theirs."""
        peers = self.party.peers
        expected = tuple(Expected(tuple(t.shape), t.dtype) for t in tensors)
        return (yield self.party.exchange(dict.fromkeys(peers, tensors), dict.fromkeys(peers, expected)))

    def _fail(self, why: str) -> None:
        self.page.ledger.fail(self.page.index, f"a check failed: {why}")
        raise IntegrityError(
            f"The check of authenticated shares failed: {why} At least one of the holders did not follow the program, "
            "and nothing says which. Nothing was opened to you, and these holders compute on nothing under "
            "protocol='spdz2k' any more."
        )

    def _folded(self, entries: Sequence[Opening], coins: Stream) -> torch.Tensor:
        """sigma_i of the numbers."""
        total = torch.zeros((wide.COUNT, 2), dtype=torch.int64)  # of MACs, and of what was opened
        for entry in entries:
            limbs = (wide.unpacked(*entry.mac), wide.unpacked(*entry.opened))
            both = torch.stack(limbs).reshape(2, wide.COUNT, -1)
            for start in range(0, both.shape[2], _CHUNK):
                rows = both[:, :, start : start + _CHUNK].flatten(0, 1)
                chi = coins.words(rows.shape[1]).bitwise_and_((1 << wide.EXTRA) - 1)
                # NB: torch.mm of integers takes six times as long.
                columns = [torch.mv(rows, limb) for limb in wide.of_public(chi)]
                sums = torch.stack(columns, 1).view(2, wide.COUNT, wide.PUBLIC)
                for k in range(wide.PUBLIC):
                    total[k:] += sums[:, : wide.COUNT - k, k].t()
                wide.normal_(total)
        mac, public = total.unbind(1)
        return wide.normal_(mac - wide.scaled(self.key.limbs, public))

    def _hashed(self, entries: Sequence[BitOpening], coins: Stream) -> tuple[torch.Tensor, torch.Tensor]:
        """GHASH of sigma_i of the bits; and of zeros, for GMAC is linear but for that constant."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        total, constant = (torch.zeros(2, dtype=torch.int64) for _ in range(2))
        for entry in entries:
            beta = self.key.beta.view(TAGS, *[1] * entry.opened.ndim)
            sigma = entry.tags ^ (beta & entry.opened)
            raw = sigma.contiguous().view(-1).view(torch.uint8).numpy()
            for start in range(0, raw.size, _HASH_BYTES):
                part = raw[start : start + _HASH_BYTES]
                cipher = AESGCM(coins.raw(16))
                total ^= _words(cipher.encrypt(bytes(12), b"", part.tobytes()))
                constant ^= _words(cipher.encrypt(bytes(12), b"", bytes(part.size)))
        return total, constant


def _digest(data: bytes, person: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8 * _WORDS, person=person[:16]).digest()


def _transcript(entries: Sequence[Entry]) -> torch.Tensor:
    """A digest of all that was opened."""
    found = hashlib.blake2b(digest_size=8 * _WORDS, person=b"opened")
    for entry in entries:
        found.update(b"%d;" % entry.opened.numel())
        found.update(_raw(entry.opened))
    return _words(found.digest())


def _words(raw: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(raw), dtype=torch.int64)


def _raw(words: torch.Tensor) -> bytes:
    return bytes(words.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
