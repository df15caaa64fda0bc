"""`syft status` and `syft search`: what a worker tells about itself."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.cli.options import Json, print_json
from syft.core.plain_text import printable

_Address = Annotated[str, typer.Argument(help="Where the worker is, e.g. wss://hospital.example:8777")]
_Token = Annotated[str | None, typer.Option(help="Proves who you are; or set SYFT_TOKEN.")]
_TokenFile = Annotated[Path | None, typer.Option(help="The file in which your token is.")]
_Ca = Annotated[str | None, typer.Option(help="The certificate authority to trust (a file).")]
_Certificate = Annotated[
    str | None, typer.Option("--cert", help="Your certificate, where the worker wants one.")
]
_Key = Annotated[str | None, typer.Option(help="The key of your certificate.")]

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
    as_json: Json = False,
) -> None:
    """Ask a worker how it is. A quick way to see whether address, certificate and token are right."""
    with connect(address, token, token_file, ca, certificate, key) as worker:
        said = worker.status()
        sets = worker.datasets()
        if as_json:
            print_json({"user": worker.user, **said, "datasets": [one.name for one in sets]})
            return
        table = Table(show_header=False, box=None)
        table.add_row(cell("you are"), cell(worker.user))
        # A worker that tells of its sessions tells of everybody's objects, and any other of those of the one who asks.
        labels = _LABELS if "sessions" in said else _LABELS | _OWN_LABELS
        for name, value in said.items():
            table.add_row(cell(labels.get(name, name)), cell(duration(value) if name == "uptime" else value))
        if sets:
            table.add_row(cell("data sets"), cell(", ".join(one.name for one in sets)))
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
    as_json: Json = False,
) -> None:
    """Search a worker for data by tags and descriptions, or list what is there."""
    with connect(address, token, token_file, ca, certificate, key) as worker:
        found = worker.search(terms or None)
        sets = [one for one in worker.datasets() if all(_fits(one, term) for term in terms or ())]
        more = 0 if terms else max(0, len(found) - _MOST_LISTED)
        if as_json:
            offered = [{"kind": "dataset", **dataclasses.asdict(one)} for one in sets]
            print_json([*({"kind": "tensor", **_as_dict(pointer)} for pointer in found), *offered])
            return
        if not found and not sets:
            wanted = f"nothing for {' '.join(map(printable, terms))}" if terms else "nothing"
            print(f"{printable(worker.id)} has {wanted} that you may know of.{_likely(worker, terms or [])}")
            return
        if sets:
            _print_sets(sets)
        if not found:
            return
        table = Table("id", "tags", "shape", "dtype", "description", box=None)
        for pointer in found[: len(found) - more]:
            said = _as_dict(pointer)
            table.add_row(
                cell(said["id"]),
                cell(" ".join(said["tags"])),
                cell(tuple(said["shape"])),
                cell(said["dtype"]),
                cell(said["description"].split("\n")[0]),
            )
        Console(width=160).print(table)
        if more:
            print(f"and {more} more. Search for a tag, or for part of a description.")


def _fits(info: Any, term: str) -> bool:
    """Whether a data set has this tag, or this in its name or description."""
    return term in info.tags if term.startswith("#") else term in info.name or term in info.description


def _print_sets(sets: list[Any]) -> None:
    table = Table("data set", "rows", "inputs", "target", "for", "description", box=None)
    for one in sets:
        inputs = ", ".join(_part(part) for part in one.parts[:-1])
        target = _part(one.parts[-1]) if one.parts else ""
        table.add_row(
            *map(cell, (one.name, one.rows or "", inputs, target, _uses(one.uses), one.description))
        )
    Console(width=160).print(table)
    print()


def _uses(uses: tuple[str, ...]) -> str:
    words = {"rounds": "training in rounds", "noise": "releases"}
    return ", ".join(words.get(use, use) for use in uses)


def _part(part: Any) -> str:
    columns = f" {', '.join(map(str, part.columns))}" if part.columns else ""
    return f"{part.dtype} {part.shape}{columns}"


def _as_dict(pointer: Any) -> dict[str, Any]:
    return {
        "id": pointer.id_at_location,
        "tags": sorted(pointer.tags),
        "shape": list(getattr(pointer, "shape", ())),
        "dtype": str(getattr(pointer, "dtype", "")).removeprefix("torch."),
        "description": pointer.description or "",
    }


def _likely(worker: Any, terms: list[str]) -> str:
    """A hint for those who left out the # of a tag."""
    tags = [term if term.startswith("#") else f"#{term}" for term in terms]
    if tags == terms or not worker.search(tags):
        return ""
    typed = " ".join(f"'{printable(tag)}'" for tag in tags)
    return f" It has something for {typed}: tags are searched for with their #, in quotes."


def duration(seconds: Any) -> str:
    """A time as people say it, in the two largest units; what is no number of seconds as it stands."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e12:
        return str(seconds)
    left, parts = round(seconds), list[str]()
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def cell(value: object) -> Text:
    """What a worker said, as it stands: no markup, and nothing that commands a terminal."""
    return Text(printable(value))
