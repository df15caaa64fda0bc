"""`syft requests`, `syft approve`, `syft deny`: the owner's side of the queue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from syft.requests.book import RequestBook
from syft.requests.records import Ask

Types = Callable[..., tuple[int, str, str]]
HOSTILE = "[red]x[/]\x1b[31m\u202e\n<script>"


def file(book: RequestBook, number: int = 1, **more: object) -> str:
    details = {"shape": "(2,)", "dtype": "float32", HOSTILE: HOSTILE}
    ask = Ask("get", f"{number:064x}", f"the value {HOSTILE}", HOSTILE, details, f"a plan\n{HOSTILE}")
    return book.file("ann", "10.0.0.9:1", ask, b"\0\0\x80?\0\0\0@").id


def test_an_owner_reads_requests_and_decides(types: Types, here: Path) -> None:
    status, _, said = types("requests")
    assert status == 1 and "syft worker --requests" in said
    book = RequestBook(here / "requests.db")
    assert "no open requests" in types("requests")[1]
    first, second = file(book), file(book, 2)
    _, listed, _ = types("requests")
    assert first in listed and "ann" in listed and "waiting" in listed
    assert "\x1b" not in listed and "\u202e" not in listed
    _, shown, _ = types("requests", first, "--value")
    assert "tensor([1., 2.])" in shown and "a plan" in shown and "\x1b" not in shown
    (one, _) = json.loads(types("requests", "--json")[1])[::-1]
    assert (one["id"], one["user"], one["nbytes"], one["reason"]) == (first, "ann", 8, HOSTILE)
    assert "binding" not in one
    _, said, _ = types("approve", first, "--times", "3", "--for", "2h")
    assert f"{first}: the value" in said and "approved, 3 times until" in said
    assert book.get(first).expires - book.get(first).decided == pytest.approx(7200)  # type: ignore[operator]
    _, said, _ = types("deny", second, "--reason", "not now", "--json")
    assert json.loads(said)["reply"] == "not now"
    assert second not in types("requests")[1] and second in types("requests", "--all")[1]
    assert "no value waits" in types("requests", second, "--value")[1]


def test_how_often_training_is_asked_for_is_shown(types: Types, here: Path) -> None:
    book = RequestBook(here / "requests.db")
    one = book.file("ann", "", Ask("train", "1" * 64, "training", uses=70_000)).id
    assert "for 70000 times" in types("requests")[1] and "for 70000 times" in types("requests", one)[1]


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["approve", "nowhere"], "`syft requests`"),
        (["deny", "nowhere"], "`syft requests`"),
        (["requests", "nowhere"], "`syft requests`"),
        (["requests", "--value"], "syft requests ID --value"),
        (["approve", "ID", "--for", "soon"], "such as 90s, 30m, 2h, 7d"),
        (["approve", "ID", "--for", "0s"], "more than 0 seconds"),
        (["approve", "ID", "--for", "4000d"], "a year at most"),
        (["approve", "ID", "--times", "0"], "1 to 100000 times"),
        (["deny", "ID", "--reason", "x" * 1001], "1000 characters at most"),
        (["approve", "ID", "--queue", "elsewhere.db"], "syft worker --requests"),
    ],
)
def test_mistakes_are_sentences(types: Types, here: Path, arguments: list[str], cure: str) -> None:
    known = file(RequestBook(here / "requests.db"))
    status, _, said = types(*(known if word == "ID" else word for word in arguments))
    assert status == 1 and cure in said
    assert RequestBook(here / "requests.db").get(known).status == "waiting"
