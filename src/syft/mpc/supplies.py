"""`SupplyDirectory`: correlations that a holder keeps on its disk for calls to come, each used once over restarts.

    DIR/lock                        held by the process that has the directory
    DIR/key, DIR/key.spent          unless the owner has them elsewhere (`syft worker --supplies-key`)
    DIR/parts/USER/NAME/about       what a supply is for
    DIR/parts/USER/NAME/LOT-CALL    a holder's part of what one call takes

NOTE [Used once]
A part is used when its mark, 16 random bytes at the head of its file, is in the list of spent marks, which is on the disk
before the part leaves this file. So whenever the process or the machine dies, a part was not handed out, or is never
handed out again; one that was marked and not used is lost. A file that comes back, from a backup say, has a mark that is
spent. Who restores the list of marks with it deceives this holder; the others have deleted their parts, and a program
runs only if all holders have the same part (`identity` in `network.execution`). So correlations would be used
twice only if all holders were set back together, each with its list.

NOTE [What a thief has]
Files are encrypted and authenticated (ChaCha20-Poly1305, RFC 8439) under a key of their own, derived from the key file
and the mark, and bound to user, supply, lot, call and position in the file. Without the key file they are of no use, and
no part can be put in the place of another. Who has the key file, too, has what this holder has, which is random without
the parts of the others. By default the key lies in the same directory: keep it elsewhere if disks are taken away.

Knows no program and no kind: parts are bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from syft.core.interfaces import Worker
from syft.core.structs import prepared
from syft.exceptions import SyftError
from syft.identity.files import make_private_directory, write_file
from syft.identity.names import ANONYMOUS
from syft.policy.quotas import UNLIMITED, Quotas

_MAGIC = b"syft supply 1\n\0\0"
_MARK, _KEY = 16, 32
#: Bytes that are encrypted at once, and what a cipher adds to them.
_CHUNK, _TAG = 1 << 24, 16
#: What a supply costs, beside what is in its files.
_FOLDER = 1 << 12
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST = 1_000_000

#: A supply: its name, what it is for, and the (lot, call) of the parts that are here.
Listed = tuple[str, bytes, list[tuple[int, int]]]


class SupplyError(SyftError, RuntimeError):
    """A supply of correlations on disk cannot be written, read or used."""


class SupplyUsedUpError(SupplyError):
    """No call is left in a supply, or the part that was asked for was used."""


class SupplyMismatchError(SupplyError):
    """A call takes other correlations than the supply was made for."""


class Keeper(Protocol):
    """Where a worker keeps parts: a directory, or the broker of an isolated worker."""

    def put(self, user: str | None, name: str, lot: int, call: int, about: bytes, content: bytes) -> None: ...
    def take(self, user: str | None, name: str, lot: int, call: int) -> bytes: ...
    def listing(self, user: str | None) -> list[Listed]: ...
    def drop(self, user: str | None, name: str) -> None: ...


class Supplies:
    """An extension of a worker: where it keeps supplies, if its owner lets it."""

    keeper: Keeper | None = None


def keeper_of(worker: Worker) -> Keeper:
    """!! SupplyError if the worker keeps none"""
    found = worker.extension(Supplies).keeper
    if found is None:
        raise SupplyError(
            f"Worker {worker.id!r} keeps no supplies on disk: its owner starts it with `syft worker --supplies DIR`, or "
            "calls sy.mpc.keep_supplies(server, DIR). Without store=... correlations are kept in memory."
        )
    return found


def keep_supplies(worker: Any, directory: str | Path, key: str | Path | None = None) -> SupplyDirectory:
    """Let a worker on a network keep correlations in a directory, for calls to come (`sy.mpc.provide(store=...)`).

    `key` is the file with the key of the parts, made if it is not there; beside it is the list of those that were used.
    """
    holdings = worker._holdings
    found = SupplyDirectory(directory, key, None if holdings is None else holdings.quotas)
    worker.extension(Supplies).keeper = found
    return found


class _About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who a supply is of, and what it is for."""

    user: str
    about: bytes


class SupplyDirectory:
    """One process at a time; any thread of it. `quotas`: whose users are charged for what lies here. !! SupplyError"""

    def __init__(self, path: str | Path, key: str | Path | None = None, quotas: Quotas | None = None) -> None:
        self.path = Path(path)
        self._quotas = quotas
        self._using = threading.RLock()
        #: Lots of which the first call was taken since this process began; others that were begun are of no use.
        self._begun: set[tuple[str, str, int]] = set()
        self._lock: int | None = None
        try:
            self._open(self.path / "key" if key is None else Path(key))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, SyftError):
                raise SupplyError(
                    f"Supplies cannot be kept in {self.path}: {error.strerror or error}."
                ) from error
            raise

    def _open(self, key: Path) -> None:
        make_private_directory(self.path)
        self._lock = _locked(self.path / "lock")
        self._spent_file = key.with_name(key.name + ".spent")
        self._key = self._open_key(key)
        self._spent = self._open_spent()
        for supply in self._supplies():
            for half in supply.glob(".*"):  # written when a process died
                half.unlink()
            user = self._about(supply).user
            nbytes = _cost_of(supply) + sum(part.stat().st_size for part in _parts(supply))
            self._charge(user, nbytes, enforced=False)

    def close(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- parts ---------------------------------------------------------------------------------------------

    def put(self, user: str | None, name: str, lot: int, call: int, about: bytes, content: bytes) -> None:
        """Keep a part; it is on the disk when this returns. !! QuotaExceededError"""
        user = _owner(user)
        path = self._path(user, name, lot, call)
        with self._using, self._told(path):
            self._describe(user, path.parent, about)
            size = _written_size(len(content))
            try:
                self._charge(user, size)
                try:
                    write_file(path, self._sealed(path, content), private=True)
                except BaseException:
                    self._charge(user, -size)
                    raise
            except BaseException:
                if not _parts(path.parent):
                    self.drop(user, name)
                raise

    def _describe(self, user: str, folder: Path, about: bytes) -> None:
        """Make the folder of a supply, unless it is there for the same calls. !! QuotaExceededError, SupplyError"""
        described = folder / "about"
        if described.exists():
            if self._about(folder).about != about:
                raise SupplyError(
                    f"There is a supply {folder.name!r} already, for other calls. Choose another name, or remove it "
                    "first: sy.mpc.supplied(name, call).drop()."
                )
            return
        written = self._sealed(described, msgspec.json.encode(_About(user, about)))
        self._charge(user, _FOLDER + len(written))
        try:
            for part in (folder.parents[1], folder.parent, folder):
                make_private_directory(part)
            write_file(described, written, private=True)
        except BaseException:
            self._charge(user, -_FOLDER - len(written))
            raise

    def take(self, user: str | None, name: str, lot: int, call: int) -> bytes:
        """A part, for the only time. NOTE [Used once]"""
        user = _owner(user)
        path = self._path(user, name, lot, call)
        with self._using, self._told(path):
            try:
                raw = path.read_bytes()
            except FileNotFoundError:
                raise SupplyUsedUpError(
                    f"Call {call} of lot {lot} of the supply {name!r} is not here: it was used, or never kept."
                ) from None
            mark = raw[len(_MAGIC) : len(_MAGIC) + _MARK]
            is_spent = mark in self._spent
            if not is_spent and len(mark) == _MARK:
                self._spend(mark)
            path.unlink()
            self._charge(user, -len(raw))
            if is_spent:
                raise SupplyUsedUpError(
                    f"Call {call} of lot {lot} of the supply {name!r} was used before: an older copy of {self.path} was "
                    "restored. Used correlations would show secrets, so the file was removed."
                )
            if call == 0:
                self._begin(user, name, lot)
            return self._opened(path, raw)

    def _begin(self, user: str, name: str, lot: int) -> None:
        """Remove what is left of lots that were begun before this process: their masks are gone with it."""
        self._begun.add((user, name, lot))
        folder = self._path(user, name, lot, 0).parent
        for part in _parts(folder):
            of, _ = _place(part)
            if (user, name, of) not in self._begun and not (folder / f"{of}-0").exists():
                self._charge(user, -part.stat().st_size)
                part.unlink()

    def listing(self, user: str | None) -> list[Listed]:
        """The supplies of a user."""
        with self._using:
            folder = self._folder(_owner(user))
            names = sorted(one.name for one in folder.iterdir()) if folder.exists() else []
            return [
                (name, self._about(folder / name).about, sorted(map(_place, _parts(folder / name))))
                for name in names
            ]

    def drop(self, user: str | None, name: str) -> None:
        """Remove a supply."""
        user = _owner(user)
        folder = self._path(user, name, 0, 0).parent
        with self._using:
            for part in _parts(folder):
                self._charge(user, -part.stat().st_size)
                part.unlink()
            if folder.exists():
                self._charge(user, -_cost_of(folder))
                (folder / "about").unlink(missing_ok=True)
                folder.rmdir()

    # -- places --------------------------------------------------------------------------------------------

    def _folder(self, user: str) -> Path:
        named = hashlib.blake2b(user.encode(), digest_size=16).hexdigest()
        return self.path / "parts" / named

    def _path(self, user: str, name: Any, lot: Any, call: Any) -> Path:
        if type(name) is not str or not _NAME.fullmatch(name):
            raise ValueError(
                f"A supply cannot be called {str(name)[:70]!r}: names have up to 64 letters, digits, dots, dashes and "
                "underscores, and begin with a letter or digit."
            )
        if any(type(one) is not int or not 0 <= one < _MOST for one in (lot, call)):
            raise ValueError(f"Lots and calls of a supply are numbers from 0 to {_MOST - 1}.")
        return self._folder(user) / name / f"{lot}-{call}"

    def _supplies(self) -> Iterator[Path]:
        for user in sorted((self.path / "parts").glob("*")):
            yield from (one for one in sorted(user.iterdir()) if (one / "about").exists())

    def _about(self, folder: Path) -> _About:
        path = folder / "about"
        try:
            return msgspec.json.decode(self._opened(path, path.read_bytes()), type=prepared(_About))
        except (FileNotFoundError, msgspec.DecodeError) as error:
            raise SupplyError(f"{path} is missing or damaged: remove {folder} and provide again.") from error

    def _charge(self, user: str, nbytes: int, enforced: bool = True) -> None:
        if self._quotas is None:
            return
        if nbytes >= 0:
            self._quotas.charge(user, nbytes, 0, None if enforced else UNLIMITED)
        else:
            self._quotas.release(user, -nbytes, 0)

    @contextlib.contextmanager
    def _told(self, path: Path) -> Iterator[None]:
        """Errors of the file system in words."""
        try:
            yield
        except SyftError:
            raise
        except FileExistsError as error:
            raise SupplyError(
                f"Call {path.name} of the supply {path.parent.name!r} is there already."
            ) from error
        except OSError as error:
            advice = "Its disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
            raise SupplyError(
                f"A part of the supply {path.parent.name!r} could not be written or read in {self.path}: {advice}."
            ) from error

    # -- keys ----------------------------------------------------------------------------------------------

    def _open_key(self, key: Path) -> bytes:
        if not key.exists():
            make_private_directory(key.parent)
            if self._spent_file.exists() or any(self._supplies()):
                raise SupplyError(
                    f"The key {key} of the supplies in {self.path} is missing: bring it back, or remove {self.path} and "
                    f"{self._spent_file} and provide again."
                )
            write_file(self._spent_file, b"", private=True)
            write_file(key, secrets.token_bytes(_KEY), private=True)
        found = key.read_bytes()
        if len(found) != _KEY:
            raise SupplyError(f"{key} is no key of supplies: it has {len(found)} bytes instead of {_KEY}.")
        return found

    def _open_spent(self) -> set[bytes]:
        try:
            raw = self._spent_file.read_bytes()
        except FileNotFoundError:
            raise SupplyError(
                f"{self._spent_file}, the list of what was used of the supplies in {self.path}, is missing. Without it "
                "correlations could be used twice, which shows secrets. Bring it back, or remove all of it and provide "
                "again."
            ) from None
        whole = len(raw) - len(raw) % _MARK
        if whole < len(raw):  # the machine died while it was written: that part was not handed out
            os.truncate(self._spent_file, whole)
        return {raw[at : at + _MARK] for at in range(0, whole, _MARK)}

    def _spend(self, mark: bytes) -> None:
        descriptor = os.open(self._spent_file, os.O_WRONLY | os.O_APPEND)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, mark) != _MARK:
                os.ftruncate(descriptor, before)
                raise OSError(errno.ENOSPC, "the list of spent marks could not be written")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._spent.add(mark)

    def _cipher(self, mark: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(hashlib.blake2b(mark, key=self._key, digest_size=_KEY).digest())

    def _bound_to(self, path: Path, chunk: int, is_last: bool) -> bytes:
        place = path.relative_to(self.path).as_posix()
        return f"{place},{chunk},{int(is_last)}".encode()

    def _sealed(self, path: Path, content: bytes) -> bytes:
        mark = secrets.token_bytes(_MARK)
        cipher, whole = self._cipher(mark), memoryview(content)
        pieces = [_MAGIC, mark]
        starts = range(0, max(len(whole), 1), _CHUNK)
        for number, start in enumerate(starts):
            bound = self._bound_to(path, number, number == len(starts) - 1)
            pieces.append(cipher.encrypt(number.to_bytes(12, "big"), whole[start : start + _CHUNK], bound))
        return b"".join(pieces)

    def _opened(self, path: Path, raw: bytes) -> bytes:
        start = len(_MAGIC) + _MARK
        cipher, pieces = self._cipher(raw[len(_MAGIC) : start]), []
        starts = range(start, len(raw), _CHUNK + _TAG)
        whole = memoryview(raw)
        try:
            if raw[: len(_MAGIC)] != _MAGIC or not starts:
                raise InvalidTag
            for number, at in enumerate(starts):
                bound = self._bound_to(path, number, number == len(starts) - 1)
                pieces.append(
                    cipher.decrypt(number.to_bytes(12, "big"), whole[at : at + _CHUNK + _TAG], bound)
                )
        except InvalidTag:
            raise SupplyError(
                f"{path} is damaged, of another place, or was written under another key. It is not used."
            ) from None
        return b"".join(pieces)


def _owner(user: str | None) -> str:
    """Whose supply it is: those who prove no name have theirs in common, or nobody would find it again."""
    return ANONYMOUS if user is None or user.startswith(ANONYMOUS) else user


def _written_size(length: int) -> int:
    chunks = max(1, -(-length // _CHUNK))
    return len(_MAGIC) + _MARK + length + chunks * _TAG


def _cost_of(folder: Path) -> int:
    """What is charged for a supply beside its parts."""
    described = folder / "about"
    return _FOLDER + described.stat().st_size if described.exists() else 0


def _parts(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    return [one for one in folder.iterdir() if re.fullmatch(r"\d+-\d+", one.name)]


def _place(part: Path) -> tuple[int, int]:
    lot, _, call = part.name.partition("-")
    return int(lot), int(call)


def _locked(path: Path) -> int | None:
    """Hold a file for as long as this process lives. !! SupplyError if another one does"""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # a system without such locks
        pass
    except OSError:
        os.close(descriptor)
        raise SupplyError(
            f"Another process keeps its supplies in {path.parent}: give each worker a directory of its own."
        ) from None
    return descriptor
