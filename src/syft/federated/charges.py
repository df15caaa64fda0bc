"""What a private training was charged for, on disk beside its checkpoints.

One duty: `Charges`, which a Trainer with `privacy` has. File, locks and crash safety are the `ledger`'s. Imports that,
`aggregation`, and `serde` for its error.

NOTE [Charged before it leaves]
A model that was given out cannot be taken back, so its round must never be forgotten. Before a round's updates are
summed, the record on disk says that they were. Only then is there a sum. After the round the record is made exact. A
process that is killed at any point leaves a record that counts every sum there was, and at most one that there was
not.

A checkpoint may be older than its record: rounds in between were seen and are spent, though the model goes back. Every
file from which a training could be taken up has a record, and all of them are kept up to date: the trainer's own
checkpoint, those that `save(path)` wrote as long as they are there, and the one that was resumed. What cannot be seen
from here are copies in other places.

NOTE [One training at a time]
An entry is added to a record only if its last entry is the one that this training wrote or read last, which is one
transaction. So of two trainings with one checkpoint the one that comes second to a record makes no sum, and is told:
nothing that either was charged for is lost. Who resumes takes the record over, and with it the charges.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from syft.core.structs import prepared
from syft.exceptions import BudgetFileError
from syft.federated.aggregation import KeptPrivacy, Privacy
from syft.ledger import Account, journal_path
from syft.serde import SerdeError

logger = logging.getLogger(__name__)

_VERSION = 1


class ChargeRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is on disk."""

    version: int
    rounds: int
    """How many sums there were, or may have been."""
    charges: dict[str, Any] | None
    """What the privacy says they cost; None from one that does not say, and is told of each round instead."""


def record_path(checkpoint: Path) -> Path:
    """Where the record of a checkpoint is."""
    return checkpoint.with_name(f"{checkpoint.name}.privacy")


class Charges:
    """See NOTE [Charged before it leaves]."""

    def __init__(self, privacy: Privacy, checkpoint: Path | None) -> None:
        self._privacy = privacy
        self._own = None if checkpoint is None else _place(checkpoint)
        self._rounds = 0
        self._places: set[Path] = set()
        """Checkpoints whose records are this training's, and say what this object knows."""
        self._lasting = {self._own} - {None}
        """Those that have a record also while there is no checkpoint."""
        self._seen: dict[Path, tuple[Account, tuple[int, str]]] = {}
        """Their records, and the last entry of each that this training knows of."""

    def begin(self) -> None:
        """!! ValueError where an earlier run left charges that this one has not taken over"""
        if self._own is None or self._own in self._places:
            return
        record = record_path(self._own)
        if record.exists():
            raise ValueError(
                f"{str(record)!r} has the charges of an earlier training with privacy, which this trainer would forget: "
                "call resume() first, which counts them. For a training of its own give the Trainer another "
                "checkpoint, or a new folder."
            )
        self._places.add(self._own)

    @contextlib.contextmanager
    def of_one_sum(self) -> Iterator[None]:
        """Around what makes a sum of updates and lets it out."""
        self._rounds += 1
        self._write(coming=1)
        try:
            yield
        finally:
            self._write(coming=0)

    def keep_beside(self, checkpoint: str | os.PathLike[str]) -> None:
        """See to it that a checkpoint has a record, from now on. Call it before the checkpoint is written."""
        place = _place(checkpoint)
        if place == self._own:
            self.begin()
        elif place not in self._places and (old := record_path(place)).exists():
            aside = _move_aside(old)
            logger.warning("%s has the charges of an earlier training, and was moved to %s.", old, aside.name)
        self._places.add(place)
        self._keep(place, self._record(coming=0))

    def read(
        self, checkpoint: Path, saved_rounds: int | None, rounds_given_out: int | None
    ) -> ChargeRecord | None:
        """The record of a checkpoint that has so many rounds (None: there is no checkpoint yet); None if nothing is new.

        !! ValueError when it is missing or does not fit, SerdeError when it cannot be read
        """
        record = record_path(checkpoint)
        if _place(checkpoint) in self._places:
            return None
        if not record.exists():
            if saved_rounds and rounds_given_out is None:
                raise ValueError(
                    f"The checkpoint {str(checkpoint)!r} has {saved_rounds} rounds, and what they cost is not beside it: "
                    f"bring {record.name!r} from where they were trained. If there is none, say how many rounds' models "
                    "were ever given out, those after the checkpoint included: resume(path, rounds_given_out=...)."
                )
            rounds = rounds_given_out or 0
            if rounds < (saved_rounds or 0):
                raise ValueError(
                    f"resume() was given rounds_given_out={rounds}, and the checkpoint has {saved_rounds} rounds."
                )
            return ChargeRecord(_VERSION, rounds, None)
        if rounds_given_out is not None:
            raise ValueError(
                f"resume() was given rounds_given_out={rounds_given_out}, and there is a record of them, "
                f"{str(record)!r}: leave it out."
            )
        account = Account.open(record, lambda data: _file_of_before(record, data))
        state, last = account.state()
        # NB: a record without an entry is of a training that was ended before its first sum.
        found = _read_record(
            record, {"version": _VERSION, "rounds": 0, "charges": None} if state is None else state
        )
        self._seen[_place(checkpoint)] = account, last
        if found.rounds < (saved_rounds or 0):
            raise ValueError(
                f"The checkpoint {str(checkpoint)!r} has {saved_rounds} rounds, and {record.name!r} the charges of "
                f"{found.rounds}: the others were trained without privacy, and no epsilon holds for the model."
            )
        return found

    def take_over(self, checkpoint: Path, found: ChargeRecord | None) -> None:
        """Count what `read` found. !! ValueError for charges that are none"""
        if found is not None:
            if found.charges is not None and isinstance(self._privacy, KeptPrivacy):
                self._privacy.take_over(found.charges)
            else:
                for _ in range(found.rounds):
                    self._privacy.round_done()
            self._rounds += found.rounds
        place = _place(checkpoint)
        if self._rounds or place == self._own:
            self._places.add(place)
            self._lasting.add(place)

    def _write(self, coming: int) -> None:
        state = self._record(coming)
        for place in sorted(self._places):
            # NB: a checkpoint that was saved and removed needs no record any more.
            if place in self._lasting or place.exists():
                self._keep(place, state)

    def _keep(self, place: Path, state: dict[str, Any]) -> None:
        """See NOTE [One training at a time]. !! OSError with a sentence, ValueError if another training wrote there"""
        record = record_path(place)
        written: tuple[int, str] | None
        try:
            if (known := self._seen.get(place)) is None:
                account = Account.create(record, state)
                written = account.state()[1]
            else:
                account, seen = known
                written = account.change(lambda _: state, after=seen)
        except FileExistsError:
            written = None
        except BudgetFileError as error:
            raise BudgetFileError(f"{error} Until then this training makes no sum.") from error
        except OSError as error:
            raise OSError(
                error.errno,
                f"What this training costs cannot be written to {str(record)!r} ({error}), so no sum is made. Make room "
                "there, or save and resume in a folder that can be written to",
            ) from error
        if written is None:
            raise ValueError(
                f"Another training has written its charges to {str(record)!r} since this one did, so this one makes no "
                "sum. Give each training a checkpoint of its own; resume() in a new Trainer counts what is there."
            )
        self._seen[place] = account, written

    def _record(self, coming: int) -> dict[str, Any]:
        privacy = self._privacy
        charges = privacy.charges(coming) if isinstance(privacy, KeptPrivacy) else None
        # NB: as it will be read, so that equal ones are equal (tuples are lists there).
        plain = json.loads(json.dumps(msgspec.to_builtins(ChargeRecord(_VERSION, self._rounds, charges))))
        return dict(plain)


def _file_of_before(record: Path, data: bytes) -> dict[str, Any]:
    """The state in a record that is no ledger yet, but JSON. !! SerdeError"""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:  # json's errors are ValueErrors
        raise _unreadable(record, error) from error
    _read_record(record, state)
    return dict(state)


def _read_record(record: Path, state: Any) -> ChargeRecord:
    """!! SerdeError"""
    try:
        found = msgspec.convert(state, prepared(ChargeRecord))
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise _unreadable(record, error) from error
    if found.version != _VERSION:
        raise SerdeError(
            f"The charges in {str(record)!r} are of version {found.version}; this library reads {_VERSION}. Update it."
        )
    return found


def _unreadable(record: Path, error: Exception) -> SerdeError:
    return SerdeError(
        f"The charges in {str(record)!r} cannot be read: {error}. They are not taken for none: restore the file."
    )


def _place(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))


def _move_aside(path: Path) -> Path:
    """Give a record that is not this training's another name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    # NB: its journal first. Without its own it is found out; another's would be written into the next record.
    with contextlib.suppress(FileNotFoundError):
        journal_path(path).rename(journal_path(aside))
    path.rename(aside)
    return aside
