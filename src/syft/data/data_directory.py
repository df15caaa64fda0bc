"""`DataDirectory`: the tagged data sets of a worker, over restarts and crashes.

    index.sqlite      one row per object: id, tags, who may fetch it, its file and checksum
    objects/          one file per object: safetensors for a tensor, a frame of `serde` for anything else
    pid               the process that has the directory

NOTE [What was acknowledged is there]
An object is written to a file of a new name, which is on the disk, name and all, before the index says so. The row is
the moment it counts: a crash before it leaves the old object (and a file that nobody names, swept at the next
start), a crash after it the new one. Files are never written twice. Removal is the same backwards: first the
row, then the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from syft import serde
from syft.core.chain import Wrapper
from syft.core.identity import tags_of
from syft.core.interfaces import Id, StoredEntry, Worker
from syft.exceptions import QuotaExceededError, SyftError
from syft.identity.files import make_private_directory, sync_directory, write_file
from syft.policy.caller import speaking_for
from syft.policy.permissions import Allowed
from syft.policy.quotas import OWNER
from syft.serde.errors import SerdeError, UnserializableError
from syft.tensors.private import PrivateTensor

logger = logging.getLogger("syft.workers")

_VERSION = 2
_COLUMNS = (
    "id, kind, tags, description, allowed, private, holder, file, checksum, bytes, created, released_only"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, tags TEXT NOT NULL, description TEXT, allowed TEXT,
    private INTEGER NOT NULL, holder TEXT, file TEXT NOT NULL UNIQUE, checksum TEXT NOT NULL,
    bytes INTEGER NOT NULL, created REAL NOT NULL, released_only INTEGER NOT NULL DEFAULT 0
) STRICT
"""
_FROM_VERSION_1 = "ALTER TABLE objects ADD COLUMN released_only INTEGER NOT NULL DEFAULT 0"
#: What we call our files, whole or half written. Anything else in the folder is somebody else's.
_OURS = re.compile(r"\.?[0-9a-f]{32}\.(safetensors|syft)(\.[0-9a-f]+)?")


class DataDirectoryError(SyftError, RuntimeError):
    """A data directory that cannot be used, or an object that cannot be kept in it."""


@dataclass(frozen=True)
class Kept:
    """A row of the index."""

    id: Any
    kind: str
    tags: tuple[str, ...]
    description: str | None
    allowed: Allowed
    private: bool
    holder: str | None
    file: str
    checksum: str
    bytes: int
    created: float
    released_only: bool = False


@dataclass(frozen=True)
class Problem:
    """An object that could not be read back, and why."""

    id: Any
    file: Path
    reason: str

    def __str__(self) -> str:
        return f"Object {self.id!r} could not be read from {self.file}: {self.reason}"


def is_durable(obj: Any) -> bool:
    """Whether a worker keeps an object over restarts: it is a tagged data set, not a result or a pointer."""
    head = obj.child if type(obj) is Wrapper else obj
    return bool(tags_of(obj)) and getattr(head, "id_at_location", None) is None


class DataDirectory:
    """One process at a time; any thread of it. !! DataDirectoryError"""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._objects = self.path / "objects"
        self._lock = threading.RLock()
        self._is_loading = False
        make_private_directory(self.path)
        make_private_directory(self._objects)
        self._index = self._open_index()
        try:
            # An id -> the file it is in; to answer at once for the many objects that are not kept.
            self._files: dict[Any, str] = {row.id: row.file for row in self.rows()}
            self._sweep()
            write_file(self.path / "pid", f"{os.getpid()}\n".encode(), private=True, overwrite=True)
        except BaseException:
            self._index.close()
            raise

    # -- keeping -------------------------------------------------------------------------------------

    def keep(self, worker: Worker, obj_id: Id) -> None:
        """Keep an object that a worker holds, with what the worker knows about it."""
        self.keep_entry(worker.entry_of(obj_id), worker._holdings is not None)

    def keep_entry(self, entry: StoredEntry, is_guarded: bool) -> None:
        """Keep an object with what is known about it, on a worker that notes who brought what or does not."""
        allowed = entry.chosen if entry.is_owners else entry.allowed
        holder = entry.holder if is_guarded and not entry.is_owners else OWNER
        self.put(entry.id, entry.value, allowed, entry.is_private, holder, entry.is_released_only)

    def put(
        self,
        obj_id: Id,
        obj: Any,
        allowed: Allowed = None,
        private: bool = False,
        holder: str | None = OWNER,
        released_only: bool = False,
    ) -> None:
        """Keep an object, in place of one of the same id. It is there after any crash once this has returned.

        allowed   who may fetch it; None: no restriction of its own
        private   whether it was brought as private
        holder    the user who brought it; without, the owner of the worker
        released_only   whether nobody computes with it
        """
        key = _key(obj_id)
        with self._lock:
            self._check_open()
            if self._is_loading:
                return  # it comes from here
            file, kind = self._write(obj)
            path = self._objects / file
            try:
                row = (
                    key,
                    kind,
                    json.dumps(sorted(str(tag) for tag in tags_of(obj))),
                    getattr(obj, "description", None) if tags_of(obj) else None,
                    None if allowed is None else json.dumps(sorted(map(str, allowed))),
                    int(private),
                    holder,
                    file,
                    _checksum(path),
                    path.stat().st_size,
                    time.time(),
                    int(released_only),
                )
                with self._told_plainly(), self._index:
                    self._index.execute(
                        f"INSERT OR REPLACE INTO objects ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", row
                    )
            except BaseException:
                _unlink(path)
                raise
            old, self._files[obj_id] = self._files.get(obj_id), file
            if old is not None:
                _unlink(self._objects / old)

    def _write(self, obj: Any) -> tuple[str, str]:
        """Write an object to a new file that is on the disk when this returns; (its name, the kind)."""
        name = secrets.token_hex(16)
        if type(obj) is torch.Tensor:
            try:
                serde.save(self._objects / f"{name}.safetensors", {"value": obj})
                sync_directory(self._objects)
                return f"{name}.safetensors", "tensor"
            except UnserializableError:
                pass  # a dtype that safetensors has no name for
        try:
            data = serde.serialize(obj)
        except SerdeError as error:
            raise DataDirectoryError(
                f"A {type(obj).__name__} cannot be kept in the data directory {self.path}: {error}"
            ) from error
        write_file(self._objects / f"{name}.syft", data, private=True)
        return f"{name}.syft", "object"

    def remove(self, obj_id: Id) -> None:
        """Forget an object, if it is kept here."""
        with self._lock:
            file = self._files.get(obj_id)
            if file is None:
                return
            self._check_open()
            with self._told_plainly(), self._index:
                self._index.execute("DELETE FROM objects WHERE id = ?", (_key(obj_id),))
            del self._files[obj_id]
            _unlink(self._objects / file)

    # -- reading -------------------------------------------------------------------------------------

    def ids(self) -> list[Any]:
        """The ids of what is kept."""
        with self._lock:
            return list(self._files)

    def rows(self) -> list[Kept]:
        """What the index says, in the order in which the objects came."""
        with self._lock, self._told_plainly():
            self._check_open()
            return [
                _row(row)
                for row in self._index.execute(f"SELECT {_COLUMNS} FROM objects ORDER BY created, id")
            ]

    def get(self, obj_id: Id, worker: Worker | None = None) -> Any:
        """The object of that id, read from its file. !! DataDirectoryError, KeyError"""
        for row in self.rows():
            if row.id == obj_id:
                return self._read(row, worker)
        raise KeyError(f"The data directory {self.path} keeps no object {obj_id!r}.")

    def load_into(self, worker: Worker) -> list[Problem]:
        """Give a worker everything that is kept here. What cannot be read is logged and returned; the rest is loaded."""
        problems = []
        for row in self.rows():
            try:
                obj = self._read(row, worker)
                with self._loading():
                    _register(worker, row, obj)
            except (DataDirectoryError, QuotaExceededError) as error:
                problems.append(Problem(row.id, self._objects / row.file, str(error)))
                logger.error("%s", problems[-1])
        return problems

    def verify(self) -> list[Problem]:
        """Read every file and compare it with its checksum; what is wrong with which."""
        problems = []
        for row in self.rows():
            try:
                self._check(row)
            except DataDirectoryError as error:
                problems.append(Problem(row.id, self._objects / row.file, str(error)))
        return problems

    def _read(self, row: Kept, worker: Worker | None) -> Any:
        self._check(row)
        path = self._objects / row.file
        try:
            if row.kind == "tensor":
                obj: Any = serde.load(path)[0]["value"]
            else:
                obj = serde.deserialize(bytearray(path.read_bytes()), worker)
        except (SerdeError, KeyError, OSError) as error:
            raise DataDirectoryError(f"it is whole, but cannot be read by this version: {error}") from error
        obj.id = row.id
        return obj

    def _check(self, row: Kept) -> None:
        path = self._objects / row.file
        try:
            found = path.stat().st_size
            if found != row.bytes:
                raise DataDirectoryError(
                    f"it has {found} bytes instead of {row.bytes}. Restore it from a backup."
                )
            if _checksum(path) != row.checksum:
                raise DataDirectoryError("it was changed since it was written. Restore it from a backup.")
        except OSError as error:
            raise DataDirectoryError(f"{error.strerror or error}. Restore it from a backup.") from error

    @contextlib.contextmanager
    def _loading(self) -> Iterator[None]:
        """Inside, a worker that keeps what it is given does not write what it was given from here."""
        with self._lock:
            self._is_loading = True
            try:
                yield
            finally:
                self._is_loading = False

    # -- life ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let another process have it."""
        with self._lock:
            self._index.close()

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _open_index(self) -> sqlite3.Connection:
        path = self.path / "index.sqlite"
        try:
            index = sqlite3.connect(path, timeout=0, check_same_thread=False)
        except sqlite3.Error as error:
            raise DataDirectoryError(f"The index {path} cannot be opened: {error}.") from error
        try:
            # NB: exclusive from the first read on, until the process ends in whatever way.
            index.execute("PRAGMA locking_mode = EXCLUSIVE")
            index.execute("PRAGMA journal_mode = WAL")
            index.execute("PRAGMA synchronous = FULL")
            index.execute("BEGIN EXCLUSIVE")
            version = index.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, 1, _VERSION):
                raise DataDirectoryError(
                    f"The data directory {self.path} is of version {version}; this library reads {_VERSION}. Update it."
                )
            index.execute(_FROM_VERSION_1 if version == 1 else _SCHEMA)
            index.execute(f"PRAGMA user_version = {_VERSION}")
            index.commit()
        except sqlite3.Error as error:
            index.close()
            raise self._index_error(error) from error
        except DataDirectoryError:
            index.close()
            raise
        return index

    @contextlib.contextmanager
    def _told_plainly(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._index_error(error) from error

    def _index_error(self, error: sqlite3.Error) -> DataDirectoryError:
        if "locked" in str(error):
            try:
                pid = (self.path / "pid").read_text().strip()
            except OSError:
                pid = "unknown"
            return DataDirectoryError(
                f"The data directory {self.path} is in use by another process (pid {pid}). Stop that one first, or give "
                "this worker a directory of its own."
            )
        return DataDirectoryError(
            f"The index {self.path / 'index.sqlite'} cannot be used: {error}. Restore the directory from a backup; the "
            f"data itself is in {self._objects}."
        )

    def _check_open(self) -> None:
        try:
            self._index.total_changes  # noqa: B018  (raises if it was closed)
        except sqlite3.ProgrammingError:
            raise DataDirectoryError(f"The data directory {self.path} was closed. Open it again.") from None

    def _sweep(self) -> None:
        """Remove what a crash left half done. Only files of our own naming are touched."""
        named = set(self._files.values())
        for path in self._objects.iterdir():
            if path.name not in named and _OURS.fullmatch(path.name):
                _unlink(path)


def _register(worker: Worker, row: Kept, obj: Any) -> None:
    """Give a worker an object as if it had just been put there by the one who did."""
    if row.released_only:
        obj = PrivateTensor(released_only=True, tags=obj.tags, description=obj.description).on(obj)
    if row.holder == OWNER or worker._holdings is None:
        worker.register_obj(obj, row.id, row.allowed)
    else:
        with speaking_for(row.holder):
            worker.register_obj(obj, row.id, row.allowed)
    entry = worker.entry_of(row.id)
    if row.private:
        entry.is_private = True
    if not isinstance(obj, torch.Tensor):
        entry.is_trusted = False  # who brought it is not known for certain


def _key(obj_id: Id) -> str:
    """An id as text: 5 and "5" are two."""
    if type(obj_id) not in (int, str):
        raise DataDirectoryError(
            f"An object is kept under an id that is a number or a text, got a {type(obj_id).__name__}."
        )
    return json.dumps(obj_id)


def _row(row: tuple[Any, ...]) -> Kept:
    obj_id, kind, tags, description, allowed, private, holder, file, checksum, nbytes, created, released = row
    return Kept(
        json.loads(obj_id),
        kind,
        tuple(json.loads(tags)),
        description,
        None if allowed is None else frozenset(json.loads(allowed)),
        bool(private),
        holder,
        file,
        checksum,
        nbytes,
        created,
        bool(released),
    )


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unlink(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
