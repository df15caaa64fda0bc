"""`syft budget`: how much each user may learn from a data set."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.cli.options import Json, print_json
from syft.core.plain_text import printable

if TYPE_CHECKING:
    from syft.dp.worker_budgets import BudgetBook

app = typer.Typer(
    help="Budgets: how much users may learn from your data sets, counted in epsilon and kept in a book.\n\n"
    "Nobody can fetch private data. With a budget, users may ask for statistics of it that have noise "
    "(`worker.release(pointer, 'mean', epsilon=0.5, bounds=(0, 120))`), until the budget is spent.\n\n"
    "A first book:\n\n"
    "    syft budget create budgets\n\n"
    "    syft budget set budgets --dataset '#patients' --epsilon 2 --delta 1e-6\n\n"
    "    syft worker --data ./data --tokens tokens --budgets budgets",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_SHOWN = ("data set", "who", "epsilon", "delta", "spent", "left", "releases")
_Book = Annotated[Path, typer.Argument(help="The file of the book.")]


@app.command("create")
def create(book: _Book, as_json: Json = False) -> None:
    """Make a new book, without any budget. An old one is not overwritten."""
    from syft.dp.worker_budgets import BudgetBook

    BudgetBook.create(book)
    if as_json:
        print_json({"book": str(book)})
        return
    print(f"{book} is a book of budgets. Set one: syft budget set {book} --dataset '#NAME' --epsilon 1")


@app.command("set")
def set_limit(
    book: _Book,
    dataset: Annotated[
        str,
        typer.Option(
            help="The tag of the data, in quotes: '#patients' is the file patients.csv of `syft worker --data`."
        ),
    ],
    epsilon: Annotated[
        float, typer.Option(help="The whole budget; 1 is careful, 10 protects hardly anybody.")
    ],
    delta: Annotated[
        float,
        typer.Option(
            help="The probability that the promise fails, well below one over the number of records, say 1e-6. "
            "`gaussian`, `gnmax` and training need one."
        ),
    ] = 0.0,
    user: Annotated[
        str | None,
        typer.Option(
            help="Whose budget it is; without, every user's who has none of their own. 'anonymous:' is everybody "
            "without a name, as one user."
        ),
    ] = None,
    together: Annotated[
        bool,
        typer.Option("--together", help="Of all users together, who may tell each other what they learn."),
    ] = False,
    records: Annotated[
        int | None,
        typer.Option(
            help="How many records one person may have in one file of the data; 1 unless you say so."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of `syft worker --data`: a tag that nothing in it has is refused."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="The folder of `syft token new`: a user who was given no token is refused."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Set or change a budget. What was spent stays spent.

    Set it before users ask, and not by what they were told. A worker that is serving the book goes by it at once.
    """
    from syft.dp.worker_budgets import NAMELESS, BudgetBook, Limit
    from syft.identity.names import is_user_name

    if not dataset:
        raise ValueError("--dataset is empty. Put the tag in quotes: --dataset '#patients'.")
    if user is not None and not is_user_name(user) and user != NAMELESS:
        raise ValueError(f"--user {user[:60]!r} cannot be the name of a user.")
    if data is not None:
        _check_tag(dataset, data)
    if tokens is not None and user is not None and user != NAMELESS:
        _check_user(user, tokens)
    BudgetBook(book).set_limit(
        dataset, Limit(epsilon, delta), user=user, together=together, max_records_per_person=records
    )
    if as_json:
        print_json(
            {
                "book": str(book),
                "data set": dataset,
                "who": "all together" if together else user or "each other user",
                "epsilon": epsilon,
                "delta": delta,
            }
        )
        return
    whose = (
        "all users together"
        if together
        else "each user"
        if user is None
        else "all anonymous users together"
        if user == NAMELESS
        else f"user {user}"
    )
    print(f"{dataset}: {whose} may spend epsilon {epsilon:g} at delta {delta:g}")
    if not dataset.startswith("#"):
        typer.echo(f"Tags of files begin with #. Did you mean --dataset '#{dataset}'?", err=True)


def _check_tag(dataset: str, folder: Path) -> None:
    from syft.core.identity import identity_of
    from syft.data.folder import read_folder

    tags = {tag for one in read_folder(folder).served for tag in identity_of(one.tensor).tags}
    if dataset not in tags:
        raise ValueError(
            f"--dataset {dataset[:60]!r}: nothing in {folder} has that tag. The tags are "
            f"{', '.join(sorted(tags)) or 'none'}.{_hint(dataset, tags)}"
        )


def _hint(dataset: str, tags: Collection[str]) -> str:
    return f" Did you mean '#{dataset}'?" if f"#{dataset}" in tags else ""


def _check_user(user: str, directory: Path) -> None:
    from syft.identity.tokens import TokenAuthority

    issued = TokenAuthority.open(directory).issued
    names = sorted({one.user for one in issued.all()} if issued is not None else ())
    if user not in names:
        raise ValueError(
            f"--user {user!r}: no token was issued to them in {directory}. Tokens were issued to "
            f"{', '.join(names) or 'nobody'}."
        )


@app.command("show")
def show(
    book: _Book,
    dataset: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user, with a list of what they asked.")] = None,
    as_json: Json = False,
) -> None:
    """Budgets, and what was spent of them. It is for you: users ask with `worker.budget(...)`, about themselves."""
    from syft.dp.worker_budgets import BudgetBook, payer

    opened = BudgetBook(book)
    names = opened.datasets()
    if dataset is not None and dataset not in names:
        raise ValueError(
            f"{book} has no budget for {dataset[:60]!r}. It has some for: {', '.join(map(repr, names)) or 'nothing'}."
        )
    rows: list[dict[str, Any]] = []
    known: set[str] = set()
    for name in [dataset] if dataset is not None else names:
        lines = list(opened.lines(name))
        known |= {line.user for line in lines if line.user is not None}
        if user is not None:
            own = [line for line in lines if line.user == payer(user)]
            # Who has no line of their own has the budget of everybody who has none.
            lines = own or [line for line in lines if line.user is None and not line.together]
        for line in lines:
            who = "all together" if line.together else "each other user" if line.user is None else line.user
            left = max(0.0, line.limit.epsilon - line.spent)
            numbers = (line.limit.epsilon, line.limit.delta, line.spent, left)
            rows.append(dict(zip(_SHOWN, (name, who, *numbers, line.releases), strict=True)))
    if user is not None and not rows:
        raise ValueError(
            f"{book} has no line for user {user[:60]!r}: they have no budget. There are "
            f"lines for {', '.join(sorted(known)) or 'nobody by name'}."
        )
    if as_json:
        print_json(rows)
        return
    table = Table(*_SHOWN)
    for row in rows:
        table.add_row(*(_cell(f"{v:.6g}" if isinstance(v, float) else v) for v in row.values()))
    console = Console(width=160)
    console.print(table)
    if user is not None:
        _show_releases(console, opened, [dataset] if dataset is not None else names, user)


def _show_releases(console: Console, book: BudgetBook, names: list[str], user: str) -> None:
    from syft.exceptions import ReleaseNotPermittedError

    table = Table("time", "data set", "mechanism", "epsilon", "delta", "times")
    for name in names:
        try:
            releases = book.state(name, user).releases
        except ReleaseNotPermittedError:  # there is no budget for them
            continue
        for release in releases:
            when = datetime.datetime.fromtimestamp(release.time, datetime.UTC).isoformat(timespec="seconds")
            said = (
                when,
                name,
                release.mechanism,
                f"{release.epsilon:.6g}",
                f"{release.delta:.6g}",
                release.count,
            )
            table.add_row(*map(_cell, said))
    console.print(table)


@app.command("copy")
def copy(
    book: _Book,
    to: Annotated[Path, typer.Argument(help="Where to; nothing is overwritten.")],
    as_json: Json = False,
) -> None:
    """Copy a book, also while a worker charges to it.

    What is charged afterwards is not in the copy. If you go on with it, that is given out a second time.
    """
    from syft.dp.worker_budgets import BudgetBook

    BudgetBook(book).copy_to(to)
    if as_json:
        print_json({"book": str(book), "copy": str(to)})
        return
    print(f"copied to {to}")


def _cell(value: object) -> Text:
    """Names of users and data as they stand: no markup, and nothing that commands a terminal."""
    return Text(printable(value))
