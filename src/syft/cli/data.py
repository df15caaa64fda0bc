"""`syft data`: what a worker would serve of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.cli.options import Json, print_json
from syft.core.plain_text import printable

if TYPE_CHECKING:
    from syft.data.folder import FolderContents, ServedTensor

app = typer.Typer(help="Look at a folder of data before it is served.", no_args_is_help=True)


@app.command("check")
def check(
    directory: Annotated[Path, typer.Argument(help="The folder that `syft worker --data` would be given.")],
    data_limit: Annotated[
        str | None, typer.Option(help="How much memory the data may take, e.g. '8 GiB'.")
    ] = None,
    offer: Annotated[
        list[str] | None, typer.Option(help="As that of `syft worker`: NAME=INPUTS,TARGET.")
    ] = None,
    person_column: Annotated[
        list[str] | None, typer.Option(help="As that of `syft worker`: FILE=COLUMN.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a worker would serve of a folder, and what is wrong with each file that it would leave out.

    Of tables, each column is shown as it would be served: its kind, its dtype, how many values are missing, and what
    users see of its categories. The exit status is 1 if a file would be left out.
    """
    from syft.data.folder import read_folder
    from syft.data.offers import with_offers
    from syft.policy.owner_policy import as_bytes

    limit = None if data_limit is None else as_bytes(data_limit, "--data-limit")
    contents = read_folder(directory, limit, person_column or ())
    contents, offers = with_offers(contents, directory, offer or ())
    if as_json:
        print_json({**_as_json(contents), "offers": [asdict(one.info) for one in offers]})
    else:
        _show(directory, contents, [str(one.info) for one in offers])
    if contents.problems:
        raise typer.Exit(1)


def _show(directory: Path, contents: FolderContents, offers: list[str]) -> None:
    console = Console(width=160)
    if contents.served:
        table = Table("file", "tags", "shape", "dtype", "missing", "description", box=None)
        for one in contents.served:
            table.add_row(*(Text(printable(cell)) for cell in _cells(one)))
        console.print(table)
    else:
        print(f"Nothing in {printable(directory)} would be served.")
    rows = list(_columns(contents))
    if rows:
        print()
        table = Table("file", "column", "kind", "dtype", "missing", "users see", box=None)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row.values()))
        console.print(table)
    for offered in offers:
        print(f"offered: {printable(offered)}")
    for note in contents.notes:
        print(f"note: {printable(' '.join(note.split()))}")
    for problem in contents.problems:
        print(f"left out: {printable(' '.join(str(problem).split()))}")


def _as_json(contents: FolderContents) -> dict[str, Any]:
    names = ("file", "tags", "shape", "dtype", "missing", "description")
    return {
        "served": [dict(zip(names, _cells(one), strict=True)) for one in contents.served],
        "columns": list(_columns(contents)),
        "notes": [" ".join(note.split()) for note in contents.notes],
        "left_out": [" ".join(str(problem).split()) for problem in contents.problems],
    }


def _cells(one: ServedTensor) -> tuple[object, ...]:
    from syft.core.identity import identity_of

    identity = identity_of(one.tensor)
    return (
        one.file.name,
        " ".join(sorted(identity.tags)),
        tuple(one.values.shape),
        str(one.values.dtype).removeprefix("torch."),
        sum(one.missing),
        (identity.description or "").split("\n")[0],
    )


def _columns(contents: FolderContents) -> Iterator[dict[str, object]]:
    shown_before: set[tuple[str, str]] = set()  # an offer is made of columns of a file
    for one in contents.served:
        for info, missing in zip(one.columns, one.missing, strict=False):
            if (one.file.name, info.name) in shown_before:
                continue
            shown_before.add((one.file.name, info.name))
            shown = ""
            if info.kind == "category":
                shown = "no categories" if info.count is None else f"{info.count} categories"
                shown = ", ".join(info.categories) if info.categories is not None else shown
            yield {
                "file": one.file.name,
                "column": info.name,
                "kind": info.kind,
                "dtype": info.dtype,
                "missing": missing,
                "users see": shown,
            }
