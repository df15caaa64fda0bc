"""`syft status` and `syft search`: what a worker tells about itself."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.core.plain_text import printable

_Address = Annotated[str, typer.Argument(help="Where the worker is, e.g. wss://hospital.example:8777")]
_Token = Annotated[str | None, typer.Option(help="Proves who you are; or set SYFT_TOKEN.")]
_Ca = Annotated[str | None, typer.Option(help="The certificate authority to trust (a file).")]
_Certificate = Annotated[
    str | None, typer.Option("--cert", help="Your certificate, where the worker wants one.")
]
_Key = Annotated[str | None, typer.Option(help="The key of your certificate.")]


def connect(address: str, token: str | None, ca: str | None, certificate: str | None, key: str | None) -> Any:
    import torch

    import syft as sy

    hook = sy.TorchHook(torch, verbose=False)
    token = token or os.environ.get("SYFT_TOKEN")
    return sy.connect(address, hook=hook, token=token, ca=ca, certificate=certificate, key=key)


def status(
    address: _Address,
    token: _Token = None,
    ca: _Ca = None,
    certificate: _Certificate = None,
    key: _Key = None,
) -> None:
    """Ask a worker how it is. A quick way to see whether address, certificate and token are right."""
    with connect(address, token, ca, certificate, key) as worker:
        table = Table(show_header=False, box=None)
        for name, value in {"you are": worker.user, **worker.status()}.items():
            table.add_row(_cell(name), _cell(f"{value:.1f}" if isinstance(value, float) else value))
        Console().print(table)


def search(
    address: _Address,
    terms: Annotated[
        list[str], typer.Argument(help="Tags, e.g. '#mnist', or parts of descriptions; all must match.")
    ],
    token: _Token = None,
    ca: _Ca = None,
    certificate: _Certificate = None,
    key: _Key = None,
) -> None:
    """Search a worker for data by tags and descriptions."""
    with connect(address, token, ca, certificate, key) as worker:
        found = worker.search(terms)
        if not found:
            print(f"{printable(worker.id)} has nothing for {' '.join(terms)} that you may know of.")
            return
        table = Table("id", "tags", "shape", "dtype", "description", box=None)
        for pointer in found:
            table.add_row(
                _cell(pointer.id_at_location),
                _cell(" ".join(sorted(pointer.tags))),
                _cell(tuple(getattr(pointer, "shape", ()))),
                _cell(str(getattr(pointer, "dtype", "")).removeprefix("torch.")),
                _cell((pointer.description or "").split("\n")[0]),
            )
        Console(width=160).print(table)


def _cell(value: object) -> Text:
    """What a worker said, as it stands: no markup, and nothing that commands a terminal."""
    return Text(printable(value))
