"""`syft requests`, `syft approve`, `syft deny`: what users ask the owner of a worker for, and the answers.

The queue is a file that the worker and these commands share (`syft worker --requests FILE`): what is decided here holds
at once. torch is not imported, unless a value is to be shown.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from syft.cli.options import Json, print_json
from syft.core.plain_text import printable
from syft.requests.book import RequestBook
from syft.requests.records import Request

_Queue = Annotated[
    Path,
    typer.Option("--queue", help="The file that the worker was started with: `syft worker --requests FILE`."),
]
_Id = Annotated[str, typer.Argument(help="The id of the request, as `syft requests` shows it.")]
_DEFAULT = Path("requests.db")
_DURATION = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhd])\s*")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_MOST_NUMBERS = 1_000


def requests(
    request_id: Annotated[
        str | None, typer.Argument(help="One request, with everything that is known of it.")
    ] = None,
    queue: _Queue = _DEFAULT,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that are denied, used, expired or withdrawn.")
    ] = False,
    value: Annotated[
        bool, typer.Option("--value", help="Show the value that would be handed out; with an id.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What users ask you for: to fetch a result, for a release, to train. With an id: the reason, the plan, the cost."""
    book = RequestBook.open(queue)
    if value and request_id is None:
        raise ValueError("--value shows the value of one request: name it, syft requests ID --value.")
    found = [book.get(request_id)] if request_id is not None else book.all(open_only=not everything)
    if as_json:
        print_json([as_dict(one) for one in found])
        return
    if request_id is not None:
        _show(book, found[0], value)
        return
    if not found:
        print("no requests" if everything else "no open requests (--all shows those that are over)")
        return
    table = Table("id", "when", "who", "asks for", "because", "status", box=None)
    for one in found:
        table.add_row(
            *map(_cell, (one.id, _when(one.time), one.user, one.ask.what, one.ask.reason, _status(one)))
        )
    Console(width=160).print(table)
    if any(one.status == "waiting" for one in found):
        print("syft requests ID shows one; syft approve ID, syft deny ID --reason '...' decide.")


def approve(
    request_id: _Id,
    queue: _Queue = _DEFAULT,
    times: Annotated[
        int | None, typer.Option(help="How often it may be used.", show_default="as often as was asked for")
    ] = None,
    within: Annotated[
        str, typer.Option("--for", help="For how long the approval holds: 30m, 2h, 7d.")
    ] = "7d",
    as_json: Json = False,
) -> None:
    """Say yes to a request. It covers exactly what was asked for, and holds at once, also over restarts."""
    book = RequestBook.open(queue)
    _tell(book.approve(request_id, times, seconds_of(within)), as_json)


def deny(
    request_id: _Id,
    reason: Annotated[str, typer.Option(help="Is told to the one who asked.")] = "",
    queue: _Queue = _DEFAULT,
    as_json: Json = False,
) -> None:
    """Say no to a request, or take back what was approved and not used yet."""
    _tell(RequestBook.open(queue).deny(request_id, reason), as_json)


def seconds_of(duration: str) -> float:
    """!! ValueError for what is no duration"""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(
            f"--for {duration[:60]!r}: write a number and s, m, h or d, such as 90s, 30m, 2h, 7d."
        )
    return float(found[1]) * _SECONDS[found[2]]


def as_dict(request: Request) -> dict[str, Any]:
    """A request for programs."""
    found: dict[str, Any] = msgspec.to_builtins(request)
    ask = found.pop("ask")
    del ask["binding"]
    return {**found, **ask}


def _tell(request: Request, as_json: bool) -> None:
    if as_json:
        print_json(as_dict(request))
    else:
        print(
            f"{request.id}: {printable(request.ask.what)} for {printable(request.user)}: {_status(request)}"
        )


def _show(book: RequestBook, request: Request, with_value: bool) -> None:
    ask, console = request.ask, Console(width=160)
    table = Table(show_header=False, box=None)
    rows: list[tuple[str, object]] = [
        ("request", request.id),
        ("who", request.user),
        ("from", request.peer or "here"),
        ("when", _when(request.time)),
        ("asks for", ask.what),
        ("because", ask.reason or "(no reason given)"),
        *ask.details.items(),
        ("status", _status(request)),
        ("your reply", request.reply),
    ]
    for name, text in rows:
        if text:
            table.add_row(_cell(name), _cell(text))
    console.print(table)
    if ask.code:
        print("the plan:")
        for line in ask.code.split("\n"):
            print(printable(line))
    if with_value:
        print(shown_value(book, request))
    elif request.nbytes:
        print(
            f"syft requests {request.id} --value shows the {request.nbytes} bytes that would be handed out."
        )


def shown_value(book: RequestBook, request: Request) -> str:
    """The value that would be handed out, as text."""
    content = book.value_of(request.id)
    if content is None:
        return "no value waits with this request"
    from syft.exceptions import RemoteError
    from syft.requests.values import value_from

    try:
        tensor = value_from(request.ask, content)
    except (RemoteError, KeyError, ValueError, RuntimeError) as error:
        return printable(f"no value: {error}")
    with_dots = tensor.numel() > _MOST_NUMBERS
    return str(tensor) if not with_dots else f"{tensor.flatten()[:_MOST_NUMBERS]} ... {tuple(tensor.shape)}"


def _status(request: Request) -> str:
    if request.status == "waiting" and request.ask.uses > 1:
        return f"waiting, for {request.ask.uses} times"
    if request.status != "approved":
        return request.status
    times = "once" if request.uses_left == 1 else f"{request.uses_left} times"
    return f"approved, {times} until {_when(request.expires)}"


def _when(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment).astimezone().isoformat(" ", "seconds")


def _cell(value: object) -> Text:
    """What somebody wrote, as it stands: no markup, and nothing that commands a terminal."""
    return Text(printable(value))
