"""`syft cert`: certificates for TLS, without a trip to an authority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syft.cli.options import Json, print_json
from syft.cli.tls import SERVER
from syft.identity.certificates import LOOPBACK, CertificateFiles, make_certificate, make_client_certificate

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
    name: Annotated[str, typer.Option(help="The name of the files.")] = SERVER,
    days: _Days = 365,
    overwrite: _Overwrite = False,
    as_json: Json = False,
) -> None:
    """A certificate for a worker. Without --host it is good for this machine only.

    Give `ca.pem` to those who connect; keep the `.key` files to yourself.
    """
    hosts = host or LOOPBACK
    made = make_certificate(directory, hosts=hosts, name=name, days=days, overwrite=overwrite)
    if as_json:
        print_json({**_files(made), "hosts": list(hosts), "days": days})
        return
    _show(made)
    files = f"--tls {directory}" if name == SERVER else f"--cert {made.certificate} --key {made.key}"
    listen = "" if hosts[0] in LOOPBACK else " --listen wss://0.0.0.0:8777 --tokens tokens"
    print(f"Serve with:   syft worker {files}{listen}")
    print(f"Connect with: sy.connect('wss://{_in_address(hosts[0])}:8777', ca='{made.authority}')")


@app.command("client")
def client(
    user: Annotated[str, typer.Argument(help="The name under which the worker will know the holder.")],
    directory: _Directory = Path("certificates"),
    days: _Days = 365,
    overwrite: _Overwrite = False,
    as_json: Json = False,
) -> None:
    """A certificate that proves who a user is, for workers that are started with --client-ca."""
    made = make_client_certificate(directory, user, days=days, overwrite=overwrite)
    if as_json:
        print_json({**_files(made), "user": user, "days": days})
        return
    _show(made)
    if made.certificate.stem != user:
        print(
            f"{user!r} cannot be the name of a file, so the files have another; the certificate names {user!r}."
        )
    print(f"Serve with:   syft worker --tls {directory} --client-ca {made.authority}")
    print(
        f"Hand over to {user}, so that nobody else gets the key: {made.certificate}, {made.key}, {made.authority}"
    )
    print(
        f"Connect with: sy.connect('wss://...', ca='{made.authority.name}', certificate='{made.certificate.name}', "
        f"key='{made.key.name}')"
    )


def _files(made: CertificateFiles) -> dict[str, str]:
    return {
        "certificate": str(made.certificate),
        "key": str(made.key),
        "authority": str(made.authority),
    }


def _show(made: CertificateFiles) -> None:
    for name, path in _files(made).items():
        print(f"{name:11}  {path}")


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
