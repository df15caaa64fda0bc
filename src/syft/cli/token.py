"""`syft token`: who may connect, and for how long."""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.cli.options import Json, print_json
from syft.core.plain_text import printable
from syft.exceptions import AuthenticationError
from syft.identity.issued import IssuedToken
from syft.identity.tokens import (
    MAX_LIFETIME,
    TokenAuthority,
    described_token,
    read_token_file,
    token_id_of,
)

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
    as_json: Json = False,
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
    if as_json:
        print_json({"token": text, **_said(described_token(text), ())})
        return
    print(text)
    # On the standard error, so that the output is the token and nothing else.
    typer.echo(
        f"id {token_id_of(text)}, for {user}, {days:g} days. Serve with: syft worker --tokens {directory}\n"
        f"{user} connects with: sy.connect('wss://...', token_file='{user}.token', ca='ca.pem')",
        err=True,
    )


@app.command("list")
def list_tokens(directory: _Directory = Path("tokens"), as_json: Json = False) -> None:
    """The tokens that were issued here: for whom, until when, and which were taken back. Not the tokens themselves."""
    authority = TokenAuthority.open(directory)
    found = [_said(token, authority.revoked.ids()) for token in _issued(authority)]
    if as_json:
        print_json(found)
        return
    if not found:
        print(f"No token was issued in {printable(directory)} since lists are kept.")
        return
    table = Table("id", "user", "worker", "issued", "expires", "state", box=None)
    for one in found:
        table.add_row(*(Text(printable(value)) for value in one.values()))
    Console(width=160).print(table)


@app.command("show")
def show(
    token: Annotated[str, typer.Argument(help="A token, a file with one, or an id.")],
    directory: _Directory = Path("tokens"),
    as_json: Json = False,
) -> None:
    """What a token says, and whether workers that use this directory accept it."""
    authority = TokenAuthority.open(directory)
    text = token.strip()
    if not text.startswith("syft1.") and Path(text).is_file():
        text = read_token_file(text)
    if text.startswith("syft1."):
        found = described_token(text)
        try:
            # NB: of which worker it is, is no question here.
            authority.verifier(found.worker or "").verify(text)
            state = None
        except AuthenticationError as error:
            state = str(error)
    else:
        known = {one.id: one for one in _issued(authority)}
        if text not in known:
            raise ValueError(
                f"No token of the id {text[:40]!r} was issued in {directory}; see `syft token list`."
            )
        found, state = known[text], None
    said = _said(found, authority.revoked.ids())
    if state is not None and said["state"] == "good":
        said["state"] = state
    if as_json:
        print_json(said)
        return
    table = Table(show_header=False, box=None)
    for name, value in said.items():
        table.add_row(Text(name), Text(printable(value)))
    Console(width=160).print(table)


def _issued(authority: TokenAuthority) -> list[IssuedToken]:
    return [] if authority.issued is None else authority.issued.all()


def _said(token: IssuedToken, revoked: Collection[str]) -> dict[str, str]:
    state = "revoked" if token.id in revoked else "expired" if token.expires < time.time() else "good"
    return {
        "id": token.id,
        "user": token.user,
        "worker": token.worker or "any",
        "issued": _moment(token.issued),
        "expires": _moment(token.expires),
        "state": state,
    }


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


@app.command("revoke")
def revoke(
    token: Annotated[str | None, typer.Argument(help="The token, or its id.")] = None,
    user: Annotated[str | None, typer.Option(help="Instead: every good token of this user.")] = None,
    directory: _Directory = Path("tokens"),
    as_json: Json = False,
) -> None:
    """Take a token back. Workers that use this directory refuse it from now on."""
    authority = TokenAuthority.open(directory)
    if (token is None) == (user is None):
        raise ValueError("Name one token, or the user of whom all are taken back: --user ana.")
    if token is not None:
        _tell_revoked([authority.revoke(token)], as_json)
        return
    good = [
        one
        for one in _issued(authority)
        if one.user == user and _said(one, authority.revoked.ids())["state"] == "good"
    ]
    if not good:
        names = sorted({one.user for one in _issued(authority)})
        raise ValueError(
            f"User {str(user)[:60]!r} has no good token that was issued in {directory}. Tokens were issued to "
            f"{', '.join(names) or 'nobody'}."
        )
    _tell_revoked([authority.revoke(one.id) for one in good], as_json)


def _tell_revoked(ids: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"revoked": ids})
        return
    for one in ids:
        print(f"revoked {one}")
