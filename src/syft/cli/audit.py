"""`syft audit`: what was asked of a worker, by whom, and what was answered."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syft.core.plain_text import printable

if TYPE_CHECKING:
    from syft.policy.audit import AuditLine

_AGO = re.compile(r"([0-9]{1,6})\s*(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_LOOK_AGAIN = 0.3


def audit(
    file: Annotated[Path, typer.Argument(help="The file that `syft worker --audit FILE` writes.")],
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    action: Annotated[str | None, typer.Option(help="Only of this kind: connect, get, release, ...")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only from then on: '2h', '30 min', '7d', or a date such as 2026-01-31T12:00."),
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the lines as they stand in the file.")
    ] = False,
) -> None:
    """Show the audit log: one line for each decision, and one for each minute in which a user searched or computed.

    Files that were put aside (FILE.1, FILE.2, ...) are read first, oldest first.
    """
    begin = None if since is None else moment(since)
    if not file.is_file():
        raise ValueError(f"There is no audit log {file}. Pass the file of `syft worker --audit FILE`.")
    for line in _lines(file, follow):
        if begin is not None and line.time < begin:
            continue
        if (user is None or line.user == user) and (action is None or line.action == action):
            if not (refused and line.granted):
                print(_as_json(line) if as_json else _as_text(line), flush=follow)


def moment(text: str) -> str:
    """A time as the audit log writes it. !! ValueError"""
    ago = _AGO.fullmatch(text.strip())
    now = datetime.datetime.now(datetime.UTC)
    try:
        found = (
            now - datetime.timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
            if ago
            else datetime.datetime.fromisoformat(text.strip())
        )
        found = found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"--since {text[:40]!r} is no time. Write how long ago ('30 min', '2h', '7d') or a date (2026-01-31T12:00)."
        ) from None
    return found.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _lines(file: Path, follow: bool) -> Iterator[AuditLine]:
    from syft.policy.audit import read_audit_line, read_audit_log

    aside: list[Path] = []
    while (older := file.with_name(f"{file.name}.{len(aside) + 1}")).is_file():
        aside.append(older)
    for older in reversed(aside):
        yield from read_audit_log(older)
    stream = file.open("rb")
    try:
        rest = b""
        while True:
            content = stream.read()
            *whole, rest = (rest + content).split(b"\n")
            yield from (read_audit_line(line) for line in whole if line)
            if not follow:
                if rest:
                    yield read_audit_line(rest)
                return
            if not content:
                if file.is_file() and file.stat().st_ino != _inode(stream.fileno()):
                    stream.close()  # it was put aside, and a new one begun
                    stream, rest = file.open("rb"), b""
                else:
                    time.sleep(_LOOK_AGAIN)
    except KeyboardInterrupt:
        return
    finally:
        stream.close()


def _inode(descriptor: int) -> int:
    import os

    return os.fstat(descriptor).st_ino


def _as_text(line: AuditLine) -> str:
    what = line.action if line.object is None else f"{line.action} {line.object}"
    said = "granted" if line.granted else "REFUSED"
    where = f" from {line.peer}" if line.peer else ""
    reason = f": {line.reason}" if line.reason else ""
    reported = " (as their process reported)" if line.reported else ""
    return printable(f"{line.time[:19]}Z  {line.user or '-'}  {what}  {said}{reason}{where}{reported}")


def _as_json(line: AuditLine) -> str:
    import msgspec

    return msgspec.json.encode(line).decode()
