"""The desk by HTTP: who gets in, what is shown, what may be decided, and that nothing on it can be broken out of."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from chromium import COMMAND, Chromium
from syft.cli import owner_socket
from syft.cli.desk import markup, sources
from syft.cli.desk import server as desk_server
from syft.cli.desk.server import Desk, DeskServer, account_of
from syft.dp.composition import Charge, Limit
from syft.dp.worker_budgets import BudgetBook
from syft.policy.audit import AuditLog
from syft.policy.permissions import AuditRecord
from syft.requests.book import RequestBook
from syft.requests.records import Ask

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m&lt;javascript:alert(3)"
FACTS: dict[str, Any] = {
    "status": {
        "id": HOSTILE,
        "uptime": 5.0,
        "commands": 3,
        "objects": 2,
        "bytes": 4096,
        "granted": 1,
        "refused": 2,
    },
    "sessions": [
        {
            "user": HOSTILE,
            "peer": HOSTILE,
            "connected": True,
            "began": HOSTILE,
            "idle": 1.0,
            "commands": 1,
            "running": HOSTILE,
            "running_for": 2.0,
        }
    ],
    "datasets": [
        {
            "kind": "tensor",
            "tags": [HOSTILE],
            "description": HOSTILE,
            "shape": [2],
            "dtype": HOSTILE,
            "allowed": [HOSTILE],
        },
        {
            "kind": "offer",
            "name": HOSTILE,
            "rows": 3,
            "allowed": None,
            "told": {"rows": HOSTILE, "description": HOSTILE},
        },
    ],
}


class Answer(NamedTuple):
    status: int
    headers: Any
    text: str


class Browser:
    """Asks as a browser would, with a cookie once it has one."""

    def __init__(self, server: DeskServer) -> None:
        self.server, self.cookie = server, ""

    def ask(self, path: str, form: dict[str, str] | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=120)
        sent = {"Cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        body = None
        if form is not None:
            sent = {"Content-Type": "application/x-www-form-urlencoded", **sent}
            body = urlencode(form)
        connection.request("GET" if form is None else "POST", path, body, sent)
        reply = connection.getresponse()
        found = Answer(reply.status, reply.headers, reply.read().decode())
        connection.close()
        return found

    def enter(self) -> Answer:
        reply = self.ask(self.server.link.removeprefix(self.server.address))
        self.cookie = reply.headers.get("Set-Cookie", "").partition(";")[0]
        return reply


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of a worker, in which strangers wrote what they could."""
    place = tmp_path / "hospital"
    place.mkdir()
    book = RequestBook(place / "requests.db")
    details = {"shape": "(2,)", "dtype": "float32", "left of #ages": HOSTILE, HOSTILE: HOSTILE}
    book.file(HOSTILE, HOSTILE, Ask("get", "1" * 64, HOSTILE, HOSTILE, details, HOSTILE), b"\0\0\x80?\0\0\0@")
    book.deny(book.file("eve", "", Ask("get", "2" * 64, HOSTILE)).id, HOSTILE)
    budgets = BudgetBook.create(place / "budgets")
    for name in ("#ages", HOSTILE):
        budgets.set_limit(name, Limit(2.0, 0.0))
        budgets.charge([name], HOSTILE, Charge(HOSTILE, None, 0.5, 0.0, 1))
    budgets.set_limit("#ages", Limit(4.0, 0.0), together=True)
    with AuditLog(place / "audit.jsonl", HOSTILE) as log:
        log(AuditRecord("get", HOSTILE, HOSTILE, False, HOSTILE, peer=HOSTILE))
        log(AuditRecord("connect", None, "ann", True, "her laptop"))
    return place


@pytest.fixture
def serve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Browser]]:
    monkeypatch.setattr(sources, "ask", lambda _path, what: FACTS[what])
    running: list[DeskServer] = []

    def begin(approve: bool = False) -> Browser:
        files = sources.Files(**{**vars(sources.files_in(folder)), "name": HOSTILE, "control": folder / "x"})
        running.append(DeskServer(Desk([files, sources.Files("empty")], approve)))
        threading.Thread(target=running[-1].serve_forever, args=(0.05,), daemon=True).start()
        return Browser(running[-1])

    yield begin
    for server in running:
        server.shutdown()
        server.server_close()


class Seen(HTMLParser):
    """What a browser makes of a page: its elements and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def a_request(folder: Path) -> Any:
    return RequestBook.open(folder / "requests.db").all(open_only=True)[0]


def csrf_of(page: str) -> str:
    return re.findall(r'name="csrf" value="([^"]+)"', page)[0]


def test_one_browser_gets_in_with_the_link(serve: Callable[..., Browser]) -> None:
    browser = serve()
    assert browser.server.server_address[0] == "127.0.0.1"
    for path in ("/", "/w/0", "/w/0/live", "/w/0/requests/abc"):
        refused = browser.ask(path)
        assert refused.status == 403 and "the link that" in refused.text and "ages" not in refused.text
    assert browser.ask("/enter?token=guess").status == 403
    entered = browser.enter()
    assert entered.status == 303 and entered.headers["Location"] == "/"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(entered.headers["Set-Cookie"].split("; "))
    assert browser.ask("/").status == 200
    assert "was used before" in Browser(browser.server).enter().text  # the link is good once
    assert browser.ask("/", Cookie="syft-desk=other").status == 403
    assert browser.ask("/", Cookie="a=\x7f;;=,").status == 403


def test_silent_connections_give_way(serve: Callable[..., Browser]) -> None:
    """Any account of the machine could open a few connections, say nothing, and nobody would get in."""
    browser = serve()
    address = "127.0.0.1", browser.server.server_port
    with contextlib.ExitStack() as silent:
        for _ in range(60):
            silent.enter_context(socket.create_connection(address))
        assert browser.enter().status == 303
        for _ in range(60):
            silent.enter_context(socket.create_connection(address)).sendall(b"GET / HTTP/1.0\r\nHost: ")
        assert browser.ask("/").status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say whose a connection is")
def test_another_account_of_the_machine_is_not_even_heard(
    serve: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may know the link from a list of processes, or the cookie, which browsers send to all ports."""
    browser = serve()
    assert account_of(("127.0.0.1", 1), browser.server.server_address) == -1
    with monkeypatch.context() as others:
        others.setattr(desk_server, "own_accounts", lambda: {os.getuid() + 1})
        with pytest.raises((OSError, http.client.HTTPException)):
            browser.enter()
    if os.getuid() == 0:
        ask = (
            "import os, sys, urllib.request as u\n'x'.encode('idna')\nos.setuid(65534)\n"
            "try: u.urlopen(sys.argv[1])\nexcept OSError: sys.exit(7)"
        )
        command = [sys.executable, "-I", "-c", ask, browser.server.link]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 7
    assert browser.enter().status == 303  # the link was not used


def test_only_under_its_own_name_and_with_headers_that_keep_others_out(serve: Callable[..., Browser]) -> None:
    browser = serve()
    browser.enter()
    port = browser.server.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "", f"127.0.0.1:{port}.evil.example"):
        assert browser.ask("/", Host=host).status == 421
    assert browser.ask("/", Host=f"localhost:{port}").status == 200
    for path in ("/", "/w/0/live", "/desk.css", "/desk.js", "/desk.svg", "/nowhere"):
        headers = browser.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert (
            "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        )
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")
    for path in (
        "/nowhere",
        "/w/7",
        "/w/0/requests/../x",
        "/../desk.js",
        "/w/0/requests/abc",
        "/w/1/requests/abc",
    ):
        assert browser.ask(path).status == 404


def test_everything_is_shown_and_nothing_can_be_broken_out_of(
    serve: Callable[..., Browser], folder: Path
) -> None:
    browser = serve(approve=True)
    browser.enter()
    one = a_request(folder)
    whole, detail = browser.ask("/").text, browser.ask(f"/w/0/requests/{one.id}").text
    assert all(
        title in whole for title in ("Health", "Requests", "Sessions", "Data sets", "Budgets", "Audit log")
    )
    assert (
        "0.5 of 2" in whole and "0.5 of 4" in whole and "her laptop" in whole and "tensor([1., 2.])" in detail
    )
    plain = html_of(HOSTILE)
    assert whole.count(plain) > 10 and detail.count(plain) > 3
    for page in (whole, detail, browser.ask("/w/0/live").text, browser.ask("/w/1").text):
        assert "\x1b" not in page and "\u202e" not in page
        for tag, attributes in Seen(page).tags:
            assert tag not in ("img", "iframe", "object", "style", "base")
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            assert tag != "script" or attributes == {"src": "/desk.js", "defer": None}
            for name in ("href", "src", "action"):
                assert (attributes.get(name) or "/").startswith("/")
                assert not (attributes.get(name) or "/").startswith("//")
    assert "Start the worker with --requests" in browser.ask("/w/1").text


def html_of(said: str) -> str:
    return str(markup.text(said))


def test_a_request_that_waits_is_not_pushed_off_the_page(folder: Path) -> None:
    """By one who asks a hundred times an hour, and withdraws."""
    book = RequestBook.open(folder / "requests.db")
    for number in range(100):
        book.withdraw("mallory", book.file("mallory", "", Ask("get", f"{number + 9:064x}", "x")).id)
    seen = sources.look(sources.Files("x", requests=folder / "requests.db"))
    assert seen.waiting == 1 and isinstance(seen.requests, list) and len(seen.requests) == 101


def test_markup_refuses_what_could_run() -> None:
    for bad in ("onclick", "style", "on_load", "x y", "a>"):
        with pytest.raises(ValueError, match="no attribute"):
            markup.el("p", **{bad: "x"})
    assert markup.el("p", "<b>", markup.el("i", '"'), class_='"x') == (
        '<p class="&quot;x">&lt;b&gt;<i>&quot;</i></p>'
    )


def test_requests_are_decided_behind_the_option_and_a_second_secret(
    serve: Callable[..., Browser], folder: Path
) -> None:
    one = a_request(folder)
    path = f"/w/0/requests/{one.id}"
    reader = serve()
    reader.enter()
    page = reader.ask("/").text
    assert "read-only" in page and "csrf" not in page and "<button class" not in page
    refused = reader.ask(f"{path}/approve", {"csrf": reader.server.desk.csrf})
    assert refused.status == 403 and "syft desk --approve" in refused.text
    decider = serve(approve=True)
    outsider = decider.ask(f"{path}/approve", {"csrf": decider.server.desk.csrf})
    assert outsider.status == 403 and a_request(folder).status == "waiting"
    decider.enter()
    secret = csrf_of(decider.ask("/").text)
    good = {"csrf": secret, "times": "2", "for": "2h"}
    bad: list[tuple[dict[str, str], dict[str, str], int]] = [
        ({**good, "csrf": "guess"}, {}, 403),
        ({"times": "2"}, {}, 403),
        (good, {"Origin": "http://evil.example"}, 403),
        (good, {"Origin": "null"}, 403),
        (good, {"Sec_Fetch_Site": "cross-site"}, 403),
        (good, {"Content_Type": "text/plain"}, 400),
        ({**good, "x": "y" * 9000}, {}, 400),
        ({**good, "times": "-1"}, {}, 409),
        ({**good, "for": "soon"}, {}, 409),
        ({**good, "times": "0"}, {}, 409),
    ]
    for form, headers, status in bad:
        assert decider.ask(f"{path}/approve", form, **headers).status == status
    assert decider.ask(f"{path}/approve").status == 405
    assert decider.ask("/w/0", good).status == 404
    assert decider.ask("/w/0/requests/nowhere/deny", good).status == 409
    assert a_request(folder).status == "waiting"
    origin = decider.server.address
    done = decider.ask(f"{path}/approve", good, Origin=origin, Sec_Fetch_Site="same-origin")
    assert (done.status, done.headers["Location"]) == (303, "/w/0")
    found = a_request(folder)
    assert (found.status, found.uses_left) == ("approved", 2)
    assert found.expires - found.decided == pytest.approx(7200)
    assert decider.ask(f"{path}/deny", {"csrf": secret, "reason": "no more"}).status == 303
    assert RequestBook.open(folder / "requests.db").get(one.id).reply == "no more"
    assert "cannot be approved" in decider.ask(f"{path}/approve", good).text


def test_the_audit_log_is_filtered(serve: Callable[..., Browser]) -> None:
    browser = serve()
    browser.enter()

    def rows(**query: str) -> int:
        page = browser.ask(f"/w/0?{urlencode(query)}").text
        return page.partition('id="audit"')[2].count('<tr><td data-name="time">')

    assert rows() == 2
    assert rows(user="ann") == rows(action="get") == rows(granted="yes") == rows(word="LAPTOP") == 1
    assert rows(user=HOSTILE, granted="yes") == rows(word="nowhere") == 0


def test_what_cannot_be_read_is_a_sentence_and_the_rest_is_shown(
    serve: Callable[..., Browser], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = serve()
    browser.enter()
    monkeypatch.setattr(sources, "ask", owner_socket.ask)
    (folder / "requests.db").write_bytes(b"x" * 4000)
    (folder / "budgets").unlink()
    (folder / "audit.jsonl").chmod(0o644)
    page = browser.ask("/").text
    assert "No worker can be asked" in page and "cannot be read" in page and "no book of budgets" in page
    assert "her laptop" in page and "chmod 600" in page
    assert browser.ask("/w/0/requests/abc").status == 404


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["desk"], "syft worker --control worker.sock"),
        (["desk", "nowhere"], "is no folder"),
        (["desk", "--audit", "nowhere.jsonl"], "is not there"),
    ],
)
def test_a_desk_without_a_worker_says_what_to_do(types: Any, arguments: list[str], cure: str) -> None:
    status, _, said = types(*arguments)
    assert status == 1 and cure in said


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="there is no chromium on this machine")
def test_a_real_browser_decides_and_runs_nothing_that_strangers_wrote(
    serve: Callable[..., Browser], folder: Path
) -> None:
    server = serve(approve=True).server
    with Chromium() as browser:
        browser.do(
            "Page.addScriptToEvaluateOnNewDocument", source="window.alert = () => { window.ran = 1; };"
        )
        browser.go(server.link)
        assert browser.run("location.pathname") == "/" and browser.run("document.cookie") == ""
        assert browser.run("getComputedStyle(document.querySelector('section')).borderRadius") == "8px"
        for width in (390, 1200):
            browser.size(width, 900)
            assert browser.run("document.documentElement.scrollWidth") <= width
        second = Ask("get", "7" * 64, "another value", "a second one")
        RequestBook.open(folder / "requests.db").file("bob", "", second)
        browser.until("document.querySelectorAll('article').length === 2")  # the script asked again
        browser.run("document.querySelectorAll('.decide input[name=reason]')[0].value = 'not this one'")
        browser.run("document.querySelectorAll('button.no')[0].click()")
        browser.until(
            "document.querySelectorAll('article').length === 1 && document.readyState === 'complete'"
        )
        browser.run("document.querySelector('button.yes').click()")
        browser.until(
            "document.querySelectorAll('article').length === 0 && document.readyState === 'complete'"
        )
        assert browser.run("window.ran") is None and browser.messages == []
    found = {one.ask.what: (one.status, one.reply) for one in RequestBook.open(folder / "requests.db").all()}
    assert found["another value"] == ("denied", "not this one")
    assert ("approved", "") in found.values()
