"""The `syft` command: one file per group of commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from syft.cli import ask, audit, budget, cert, data, desk, new, requests, sessions, token, worker
from syft.cli.config import expanded
from syft.cli.cures import in_options
from syft.cli.options import Json, print_json
from syft.core.plain_text import printable
from syft.exceptions import SyftError
from syft.version import __version__

app = typer.Typer(
    name="syft",
    help="Private machine learning in ordinary PyTorch.\n\n"
    "A data owner: [bold]syft cert make[/], [bold]syft token new[/], [bold]syft budget set[/], [bold]syft worker[/]. "
    "A data scientist: [bold]syft status[/], [bold]syft search[/], and `sy.connect(...)` in Python.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("worker", help=worker.HELP)(worker.serve)
app.add_typer(cert.app, name="cert")
app.add_typer(data.app, name="data")
app.add_typer(token.app, name="token")
app.add_typer(budget.app, name="budget")
app.command("requests")(requests.requests)
app.command("approve")(requests.approve)
app.command("deny")(requests.deny)
app.command("desk")(desk.desk)
app.command("new")(new.new)
app.command("status")(ask.status)
app.command("search")(ask.search)
app.command("audit")(audit.audit)
app.command("sessions")(sessions.sessions)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"resyft {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """Options of `syft` itself; `_print_version` does the work."""


@app.command()
def demo() -> None:
    """A tour of what works, in under a minute."""
    from syft.demo import main as run_demo

    run_demo()


@app.command()
def version(
    short: Annotated[bool, typer.Option("--short", help="Only the version of resyft.")] = False,
    as_json: Json = False,
) -> None:
    """Print the versions of resyft, torch and Python."""
    # NB: torch is not imported for its version: that takes a second.
    of_torch = "" if short else metadata.version("torch")
    if as_json:
        print_json(
            {"resyft": __version__} | ({} if short else {"torch": of_torch, "python": sys.version.split()[0]})
        )
        return
    print(
        __version__ if short else f"resyft {__version__}, torch {of_torch}, Python {sys.version.split()[0]}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `syft` command; returns the exit status. A mistake is a sentence, not a traceback."""
    try:
        app(args=expanded(app, sys.argv[1:] if arguments is None else arguments), standalone_mode=True)
    except (SyftError, ValueError, OSError) as error:
        Console(stderr=True).print(
            f"[bold red]{type(error).__name__}[/]: {_plain(in_options(str(error)))}", highlight=False
        )
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _plain(text: str) -> str:
    """Part of it may be a worker's words: no markup, and nothing that commands a terminal."""
    return escape("\n".join(map(printable, text.split("\n"))))
