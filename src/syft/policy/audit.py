"""The audit log of a worker: one line of JSON per decision, in files that are only ever added to.

    {"time":"2026-01-31T12:00:00.000000Z","worker":"hospital","user":"eve","peer":"10.0.0.9:4711","action":"get",
     "object":"81729","granted":false,"reason":"..."}

Names, never data. What a stranger chose (a name, a reason) cannot end a line or hide in it: JSON escapes what
is not plain text. `AUDIT.jsonl.1` is the file before, `.2` the one before that.
"""

from __future__ import annotations

import datetime
import os
import threading
from pathlib import Path
from typing import Any

import msgspec

from syft.core.structs import prepared
from syft.policy.permissions import AuditRecord

#: Of a name or reason. Ids and names are short; a longer text is somebody's attempt to fill the disk.
_MAX_TEXT = 500


class AuditLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the file. `reported`: the process of the user said so; all other lines are the worker's own."""

    time: str
    worker: str
    user: str | None
    peer: str
    action: str
    object: str | None
    granted: bool
    reason: str
    reported: bool = False


class AuditLog:
    """Writes decisions to a file. `policy.audit_sink = AuditLog(path, worker.id)`

    rotate_bytes       a file that has grown to this is put aside
    keep               how many files are kept aside; older ones are deleted
    syncs_refusals     a refusal is on the disk before it is answered, so that a crash does not hide it
    """

    def __init__(
        self,
        path: str | Path,
        worker: Any = "",
        rotate_bytes: int = 64 << 20,
        keep: int = 10,
        syncs_refusals: bool = True,
    ) -> None:
        if rotate_bytes < 1 or keep < 1:
            raise ValueError(
                f"An audit log rotates at 1 byte at least and keeps 1 file at least; got rotate_bytes={rotate_bytes!r}, "
                f"keep={keep!r}."
            )
        self.path = Path(path)
        self.worker = str(worker)
        self.rotate_bytes, self.keep, self.syncs_refusals = rotate_bytes, keep, syncs_refusals
        self._lock = threading.Lock()
        self._descriptor = -1
        self._open()

    def __call__(self, record: AuditRecord) -> None:
        """Write one decision. !! OSError: what cannot be written down is not done"""
        line = _line_of(record, self.worker)
        with self._lock:
            if self._descriptor < 0:
                raise ValueError(
                    f"The audit log {self.path} was closed, and a decision was to be written to it."
                )
            if self._size and self._size + len(line) > self.rotate_bytes:
                self._rotate()
            # One call for the whole line, to a file opened for appending: two writers cannot mix their lines.
            written = os.write(self._descriptor, line)
            self._size += written
            if written != len(line):
                raise OSError(f"The audit log {self.path} could not be written to: the disk may be full.")
            if self.syncs_refusals and not record.granted:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Put everything on the disk and end."""
        with self._lock:
            if self._descriptor >= 0:
                os.fsync(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> AuditLog:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._descriptor).st_size
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            # A crash of the machine cut the last line: the next one begins on a line of its own.
            self._size += os.write(self._descriptor, b"\n")

    def _rotate(self) -> None:
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = -1
        for number in range(self.keep - 1, 0, -1):
            older = self._aside(number)
            if older.exists():
                older.replace(self._aside(number + 1))
        self.path.replace(self._aside(1))
        self._open()

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def read_audit_log(path: str | Path) -> list[AuditLine]:
    """The lines of one file. What cannot be read, because a crash cut it, is shown as an action "unreadable"."""
    return [read_audit_line(line) for line in Path(path).read_bytes().split(b"\n") if line]


def read_audit_tail(path: str | Path, most_bytes: int = 1 << 20) -> list[AuditLine]:
    """The last lines of a file, so many bytes of them at most, newest first."""
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most_bytes))
        lines = file.read(most_bytes).split(b"\n")
    whole = lines if size <= most_bytes else lines[1:]  # the first one is cut
    return [read_audit_line(line) for line in reversed(whole) if line]


def read_audit_line(line: bytes) -> AuditLine:
    """One line of a file, see `read_audit_log`."""
    try:
        return msgspec.json.decode(line, type=prepared(AuditLine))
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = _text(line.decode("utf-8", "replace"))
        return AuditLine("", "", None, "", "unreadable", None, False, text)


def _line_of(record: AuditRecord, worker: str) -> bytes:
    moment = datetime.datetime.fromtimestamp(record.time, datetime.UTC)
    line = AuditLine(
        moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        _text(worker),
        None if record.user is None else _text(record.user),
        _text(record.peer),
        _text(record.action),
        None if record.obj_id is None else _text(record.obj_id),
        record.granted,
        _text(record.reason),
        record.reported,
    )
    return msgspec.json.encode(line) + b"\n"


def _text(value: Any) -> str:
    """A value as text of one line: characters that a terminal or an editor might obey are written as escapes."""
    text = value if type(value) is str else str(value)
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_MAX_TEXT])
    return shown if len(text) <= _MAX_TEXT else f"{shown}..."
