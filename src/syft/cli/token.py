"""`syft token`: who may connect, and for how long."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from syft.identity.tokens import MAX_LIFETIME, TokenAuthority, token_id_of

app = typer.Typer(
    help="Tokens prove to a worker who connects. They are signed, expire, and can be taken back.",
    no_args_is_help=True,
)
_SHORTEST_DAYS = 1 / (24 * 3600)
_Directory = Annotated[
    Path, typer.Option("--dir", help="Where the signing key and the list of revoked tokens are.")
]


@app.command("new")
def new(
    user: Annotated[str, typer.Argument(help="The name under which the worker will know the holder.")],
    directory: _Directory = Path("tokens"),
    days: Annotated[float, typer.Option(help="How long it is good.")] = 30.0,
    worker: Annotated[
        str | None, typer.Option(help="The id of the one worker it is for; else any of yours.")
    ] = None,
) -> None:
    """Print a token for a user. The signing key is made on first use.

    Whoever has the token is that user: hand it over on a safe way.
    """
    # NB: written so that nan is refused, too.
    if not _SHORTEST_DAYS <= days <= MAX_LIFETIME.days:
        raise ValueError(
            f"--days {days:g}: a token is good for one second at least, and for {MAX_LIFETIME.days} days at most."
        )
    known = (directory / "token.key").exists()
    authority = TokenAuthority.open(directory) if known else TokenAuthority.create(directory)
    text = authority.issue(user, datetime.timedelta(days=days), worker)
    print(text)
    # On the standard error, so that the output is the token and nothing else.
    typer.echo(
        f"id {token_id_of(text)}, for {user}, {days:g} days. Serve with: syft worker --tokens {directory}\n"
        f"{user} connects with: sy.connect('wss://...', token_file='{user}.token', ca='ca.pem')",
        err=True,
    )


@app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(help="The token, or its id.")],
    directory: _Directory = Path("tokens"),
) -> None:
    """Take a token back. Workers that use this directory refuse it from now on."""
    print(f"revoked {TokenAuthority.open(directory).revoke(token)}")
