"""`syft cert`: certificates for TLS, without a trip to an authority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syft.identity.certificates import make_certificate, make_client_certificate

app = typer.Typer(
    help="Make certificates for TLS: yours for a worker, or one for each user.", no_args_is_help=True
)

_Directory = Annotated[
    Path, typer.Argument(help="Where the files go; the authority (ca.pem) is made on first use.")
]
_Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a certificate of that name.")]
_Days = Annotated[int, typer.Option(help="How long it is good.")]


@app.command("make")
def make(
    directory: _Directory = Path("certificates"),
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address at which clients reach the worker; may be given several times."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the files.")] = "server",
    days: _Days = 365,
    overwrite: _Overwrite = False,
) -> None:
    """A certificate for a worker. Without --host it is good for this machine only.

    Give `ca.pem` to those who connect; keep the `.key` files to yourself.
    """
    hosts = {"hosts": host} if host else {}
    made = make_certificate(directory, name=name, days=days, overwrite=overwrite, **hosts)  # type: ignore[arg-type]
    print(f"certificate  {made.certificate}\nkey          {made.key}\nauthority    {made.authority}")
    print(f"Serve with:   syft worker --listen wss://... --cert {made.certificate} --key {made.key}")
    print(f"Connect with: sy.connect('wss://...', ca='{made.authority}')")


@app.command("client")
def client(
    user: Annotated[str, typer.Argument(help="The name under which the worker will know the holder.")],
    directory: _Directory = Path("certificates"),
    days: _Days = 365,
    overwrite: _Overwrite = False,
) -> None:
    """A certificate that proves who a user is, for workers that are started with --client-ca."""
    made = make_client_certificate(directory, user, days=days, overwrite=overwrite)
    print(f"certificate  {made.certificate}\nkey          {made.key}\nauthority    {made.authority}")
