"""`syft desk`: a page on this machine for the owner of workers: what they serve, who is there, who asks for what."""

from __future__ import annotations

import contextlib
import dataclasses
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

_FILE = "Instead of the one in the folder, where there is one folder."


def desk(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The folder of each worker, in which it keeps worker.sock, requests.db, budgets and audit.jsonl; "
            "what is there is shown.",
            show_default="the current folder",
        ),
    ] = None,
    approve: Annotated[
        bool,
        typer.Option(
            "--approve", help="Let requests be approved and denied on the page; else it only shows."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Of the loopback interface; 0 takes a free one.")
    ] = 0,
    control: Annotated[Path | None, typer.Option(help=f"`syft worker --control`. {_FILE}")] = None,
    requests: Annotated[Path | None, typer.Option(help=f"`syft worker --requests`. {_FILE}")] = None,
    budgets: Annotated[Path | None, typer.Option(help=f"`syft worker --budgets`. {_FILE}")] = None,
    audit: Annotated[Path | None, typer.Option(help=f"`syft worker --audit`. {_FILE}")] = None,
    browse: Annotated[bool, typer.Option("--browse", help="Open the page in your browser.")] = False,
) -> None:
    """Show your workers on a page of this machine, until Ctrl-C: data sets, sessions, requests, budgets, audit log.

    The link that is printed works once, in one browser. Nobody else can read the page.
    """
    from syft.cli.desk.server import Desk, DeskServer
    from syft.cli.desk.sources import Files, files_in

    named = {"control": control, "requests": requests, "budgets": budgets, "audit": audit}
    given: dict[str, Any] = {name: path for name, path in named.items() if path is not None}
    for name, path in given.items():
        if not path.exists():
            raise ValueError(f"--{name} {path} is not there. Name a file that `syft worker --{name}` uses.")
    if given and folders and len(folders) > 1:
        raise ValueError(
            "Files were named with options, and there are several folders. Name folders alone, or one."
        )
    if given and not folders:
        workers = [Files(Path.cwd().name, **given)]
    else:
        workers = [dataclasses.replace(files_in(folder), **given) for folder in folders or [Path()]]
    server = DeskServer(Desk(workers, approve), port)
    mode = "requests can be decided there" if approve else "read-only"
    print(f"desk at {server.link}\n({mode}; the link works once, in one browser; Ctrl-C ends it)", flush=True)
    if browse:
        webbrowser.open(server.link)
    with contextlib.suppress(KeyboardInterrupt), server:
        server.serve_forever(0.2)
