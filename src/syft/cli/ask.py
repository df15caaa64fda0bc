"""`syft status` and `syft search`: what a worker tells about itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.core.plain_text import printable

_Address = Annotated[str, typer.Argument(help="Where the worker is, e.g. wss://hospital.example:8777")]
_Token = Annotated[str | None, typer.Option(help="Proves who you are; or set SYFT_TOKEN.")]
_TokenFile = Annotated[Path | None, typer.Option(help="The file in which your token is.")]
_Ca = Annotated[str | None, typer.Option(help="The certificate authority to trust (a file).")]
_Certificate = Annotated[
    str | None, typer.Option("--cert", help="Your certificate, where the worker wants one.")
]
_Key = Annotated[str | None, typer.Option(help="The key of your certificate.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

#: Longest list that is printed when no term was given.
_MOST_LISTED = 200
_LABELS = {"id": "worker", "uptime": "up for"}
_OWN_LABELS = {"objects": "your objects", "bytes": "your bytes"}
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def connect(
    address: str,
    token: str | None,
    token_file: Path | None,
    ca: str | None,
    certificate: str | None,
    key: str | None,
) -> Any:
    import syft as sy

    if token_file is None:
        token = token or os.environ.get("SYFT_TOKEN") or None  # set to nothing, it is not set
    return sy.connect(
        address, token=token or None, token_file=token_file, ca=ca, certificate=certificate, key=key
    )


def status(
    address: _Address,
    token: _Token = None,
    token_file: _TokenFile = None,
    ca: _Ca = None,
    certificate: _Certificate = None,
    key: _Key = None,
    as_json: _Json = False,
) -> None:
    """Ask a worker how it is. A quick way to see whether address, certificate and token are right."""
    with connect(address, token, token_file, ca, certificate, key) as worker:
        said = worker.status()
        if as_json:
            print(_json({"user": worker.user, **said}))
            return
        table = Table(show_header=False, box=None)
        table.add_row(_cell("you are"), _cell(worker.user))
        # A worker that tells of its sessions tells of everybody's objects, and any other of those of the one who asks.
        labels = _LABELS if "sessions" in said else _LABELS | _OWN_LABELS
        for name, value in said.items():
            table.add_row(
                _cell(labels.get(name, name)), _cell(_duration(value) if name == "uptime" else value)
            )
        Console().print(table)


def search(
    address: _Address,
    terms: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tags, in quotes ('#mnist'), or parts of descriptions; all must match. Without any, all is listed."
        ),
    ] = None,
    token: _Token = None,
    token_file: _TokenFile = None,
    ca: _Ca = None,
    certificate: _Certificate = None,
    key: _Key = None,
    as_json: _Json = False,
) -> None:
    """Search a worker for data by tags and descriptions, or list what is there."""
    with connect(address, token, token_file, ca, certificate, key) as worker:
        found = worker.search(terms or None)
        more = 0 if terms else max(0, len(found) - _MOST_LISTED)
        if as_json:
            print(_json([_as_dict(pointer) for pointer in found]))
            return
        if not found:
            wanted = f"nothing for {' '.join(map(printable, terms))}" if terms else "nothing"
            print(f"{printable(worker.id)} has {wanted} that you may know of.{_likely(worker, terms or [])}")
            return
        table = Table("id", "tags", "shape", "dtype", "description", box=None)
        for pointer in found[: len(found) - more]:
            said = _as_dict(pointer)
            table.add_row(
                _cell(said["id"]),
                _cell(" ".join(said["tags"])),
                _cell(tuple(said["shape"])),
                _cell(said["dtype"]),
                _cell(said["description"].split("\n")[0]),
            )
        Console(width=160).print(table)
        if more:
            print(f"and {more} more. Search for a tag, or for part of a description.")


def _as_dict(pointer: Any) -> dict[str, Any]:
    return {
        "id": pointer.id_at_location,
        "tags": sorted(pointer.tags),
        "shape": list(getattr(pointer, "shape", ())),
        "dtype": str(getattr(pointer, "dtype", "")).removeprefix("torch."),
        "description": pointer.description or "",
    }


def _json(value: Any) -> str:
    """NB: in ASCII, so that nothing a worker said commands a terminal."""
    return json.dumps(value, ensure_ascii=True, default=str)


def _likely(worker: Any, terms: list[str]) -> str:
    """A hint for those who left out the # of a tag."""
    tags = [term if term.startswith("#") else f"#{term}" for term in terms]
    if tags == terms or not worker.search(tags):
        return ""
    typed = " ".join(f"'{printable(tag)}'" for tag in tags)
    return f" It has something for {typed}: tags are searched for with their #, in quotes."


def _duration(seconds: Any) -> str:
    """A time as people say it, in the two largest units; what is no number of seconds as it stands."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e12:
        return str(seconds)
    left, parts = round(seconds), list[str]()
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _cell(value: object) -> Text:
    """What a worker said, as it stands: no markup, and nothing that commands a terminal."""
    return Text(printable(value))
