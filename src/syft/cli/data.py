"""`syft data`: what a worker would serve of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.core.plain_text import printable

if TYPE_CHECKING:
    from syft.serde.data_files import ServedTensor

app = typer.Typer(help="Look at a folder of data before it is served.", no_args_is_help=True)


@app.command("check")
def check(
    directory: Annotated[Path, typer.Argument(help="The folder that `syft worker --data` would be given.")],
) -> None:
    """Show what a worker would serve of a folder, and what is wrong with each file that it would leave out.

    The exit status is 1 if a file would be left out.
    """
    from syft.serde.data_files import read_folder

    contents = read_folder(directory)
    if contents.served:
        table = Table("file", "tags", "shape", "dtype", "missing", "description", box=None)
        for one in contents.served:
            table.add_row(*(Text(printable(cell)) for cell in _cells(one)))
        Console(width=160).print(table)
    else:
        print(f"Nothing in {printable(directory)} would be served.")
    for problem in contents.problems:
        print(f"left out: {printable(' '.join(str(problem).split()))}")
    if contents.problems:
        raise typer.Exit(1)


def _cells(one: ServedTensor) -> tuple[object, ...]:
    from syft.core.identity import identity_of

    identity = identity_of(one.tensor)
    return (
        one.file.name,
        " ".join(sorted(identity.tags)),
        tuple(one.values.shape),
        str(one.values.dtype).removeprefix("torch."),
        int(one.values.float().isnan().sum()) if one.values.is_floating_point() else 0,
        (identity.description or "").split("\n")[0],
    )
