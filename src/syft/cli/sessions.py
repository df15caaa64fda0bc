"""`syft sessions`: who is connected to a worker of yours, and what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from syft.cli.ask import cell, duration
from syft.cli.options import Json, print_json
from syft.cli.owner_socket import ask


def sessions(
    control: Annotated[Path, typer.Argument(help="The socket that `syft worker --control FILE` made.")],
    as_json: Json = False,
) -> None:
    """Who is connected to a worker of yours, since when, and what runs for them. On the machine of the worker."""
    found = ask(control, "sessions")
    if as_json:
        print_json(found)
        return
    if not found:
        print("Nobody is connected.")
        return
    table = Table("user", "from", "since", "idle", "commands", "running", box=None)
    for one in found:
        table.add_row(*map(cell, _row(one)))
    Console(width=160).print(table)


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    running = "" if one["running"] is None else f"{one['running']}, for {duration(one['running_for'])}"
    where = one["peer"] if one["connected"] else "(away)"
    return one["user"], where, one["began"], duration(one["idle"]), one["commands"], running
