"""The server of the desk: loopback only, one browser at a time gets in, and what it may ask for is a short list.

Python's own `http.server`: the desk answers a handful of paths to one person on their own machine. A framework would be
more code between the network and the button that says yes, and something more to install.

NOTE [Who gets in]
    account   has to be that of the desk, or the administrator's, where the system says whose a connection is (Linux).
              Cookies are sent to all ports of this machine and command lines are read by everybody, so that another
              account may come by either secret
    token     in the address that is printed; good once, and exchanged for a cookie (HttpOnly, SameSite=Strict)
    Host      has to be the address that was printed: a name that somebody points at 127.0.0.1 is refused (DNS rebinding)
    forms     need the cookie, a second secret from the page, and must come from a page of this address
    pages     have a policy for content: no inline scripts or styles, nothing from elsewhere, in no frame
Where the system does not say it, others with an account on this machine are refused for they have no token. A connection
that has shown no cookie gives way to newer ones.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from syft.cli.desk import pages
from syft.cli.desk.sources import Files, look
from syft.cli.requests import seconds_of, shown_value
from syft.exceptions import SyftError
from syft.requests.book import RequestBook

_COOKIE = "syft-desk"
_LONGEST_BODY = 8_192
#: Connections that have shown no cookie yet.
_MOST_WAITING = 16
_SECONDS = 15.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # NB: with "no-referrer" browsers say that a form comes from nowhere (Origin: null).
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ASSETS = {
    "/desk.css": "text/css; charset=utf-8",
    "/desk.js": "text/javascript; charset=utf-8",
    "/desk.svg": "image/svg+xml",
}
_HTML = "text/html; charset=utf-8"
_PATH = re.compile(r"/w/([0-9]{1,4})(?:/(live)|/requests/([a-z0-9]{1,20})(?:/(approve|deny))?)?")


class Refused(Exception):
    """What a browser is told instead of a page."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass
class Desk:
    """What is shown, and the secrets of one who looks."""

    workers: list[Files]
    may_approve: bool = False
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _entering: threading.Lock = field(default_factory=threading.Lock)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.workers]

    def enter(self, token: str) -> bool:
        """Exchange the token, once."""
        with self._entering:
            if self.token is None or not _same(token, self.token):
                return False
            self.token = None
            return True

    # -- what may be asked -------------------------------------------------------------------------

    def shown(self, path: str, query: dict[str, str]) -> str:
        """The page at a path. !! Refused"""
        number, is_live, request, action = self._place(path)
        files = self.workers[number]
        if action is not None:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Requests are decided with the buttons of the page.")
        if request is not None:
            return self._request(number, request)
        seen = look(files)
        if is_live:
            return pages.live_part(seen, number, self.may_approve, self.csrf)
        return pages.worker_page(seen, number, self.names, self.may_approve, query, self.csrf)

    def decide(self, path: str, form: dict[str, str]) -> str:
        """Approve or deny; the path to go on to. !! Refused"""
        if not self.may_approve:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This desk is read-only. Start it with `syft desk --approve` to decide here.",
            )
        if not _same(form.get("csrf", ""), self.csrf):
            raise Refused(
                HTTPStatus.FORBIDDEN, "The form is not of this page. Load the page again, and decide there."
            )
        number, _, request, action = self._place(path)
        if request is None or action is None:
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing to decide at this address.")
        book = self._book(number)
        try:
            if action == "deny":
                book.deny(request, form.get("reason", ""))
            else:
                times = form.get("times", "")
                if times and not times.isdigit():
                    raise ValueError(f"times: {times[:20]!r} is not a whole number.")
                book.approve(request, int(times) if times else None, seconds_of(form.get("for") or "7d"))
        except (SyftError, ValueError) as error:
            raise Refused(HTTPStatus.CONFLICT, str(error)) from error
        return f"/w/{number}"

    def _request(self, number: int, request_id: str) -> str:
        book = self._book(number)
        try:
            one = book.get(request_id)
            value = shown_value(book, one) if one.nbytes else None
        except SyftError as error:
            raise Refused(HTTPStatus.NOT_FOUND, str(error)) from error
        return pages.request_page(one, value, number, self.names, self.may_approve, self.csrf)

    def _book(self, number: int) -> RequestBook:
        path = self.workers[number].requests
        if path is None:
            raise Refused(HTTPStatus.NOT_FOUND, "This worker keeps no queue of requests.")
        try:
            return RequestBook.open(path)
        except (SyftError, OSError) as error:
            raise Refused(HTTPStatus.NOT_FOUND, str(error)) from error

    def _place(self, path: str) -> tuple[int, bool, str | None, str | None]:
        found = _PATH.fullmatch("/w/0" if path == "/" else path)
        if found is None or int(found[1]) >= len(self.workers):
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")
        return int(found[1]), found[2] is not None, found[3], found[4]


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def own_accounts() -> set[int]:
    return {0, os.getuid()}


def account_of(client: Any, server: Any) -> int | None:
    """Whose the other end of a connection within this machine is; -1: nobody's who is still there. None: nobody says."""
    ends = [f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}" for host, port in (client, server)]
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return None
    found = [int(row[7]) for row in rows[1:] if row[1:4] == [*ends, _ESTABLISHED]]
    return found[0] if found else -1


_ESTABLISHED = "01"


class DeskServer(ThreadingHTTPServer):
    """Serves a desk at an address of the loopback interface."""

    daemon_threads = True
    request_queue_size = 128  # with Python's 5, whoever comes beside many others waits for seconds

    def __init__(self, desk: Desk, port: int = 0) -> None:
        self.desk = desk
        self._waiting: dict[socket.socket, None] = {}
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise ValueError(
                f"The port {port} cannot be used: {error}. Choose another --port, or 0."
            ) from error
        self.hosts = {f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def link(self) -> str:
        """The address that lets one browser in."""
        return f"{self.address}/enter?token={self.desk.token}"

    def verify_request(self, request: Any, client_address: Any) -> bool:
        account = account_of(client_address, self.server_address)
        return account is None or account in own_accounts()

    def process_request(self, request: Any, client_address: Any) -> None:
        # NB: one thread does this. Others only take connections out.
        self._waiting[request] = None
        for oldest in list(self._waiting)[:-_MOST_WAITING]:
            self.let_in(oldest)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def let_in(self, request: Any) -> None:
        """It waits no longer."""
        self._waiting.pop(request, None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.let_in(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that has gone is no trouble."""


class Handler(BaseHTTPRequestHandler):
    """One question of a browser."""

    server: DeskServer
    timeout = _SECONDS
    server_version, sys_version = "desk", ""
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            try:
                if self.headers.get("Host", "") not in self.server.hosts:
                    raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "The desk is not served under this name.")
                work()
            except Refused as refusal:
                self._send(pages.sentence("Not here", refusal.sentence), refusal.status)
            except Exception as error:  # noqa: BLE001  (a page that fails is a page)
                said = f"{type(error).__name__}: the desk could not make this page. Its terminal says more."
                self.log_error("%s: %s", type(error).__name__, error)
                self._send(pages.sentence("Trouble", said), HTTPStatus.INTERNAL_SERVER_ERROR)

    def _get(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, max_num_fields=20))
        if parts.path == "/enter":
            if not self.server.desk.enter(query.get("token", "")):
                raise Refused(
                    HTTPStatus.FORBIDDEN,
                    "This link was used before, or is of another desk. Start `syft desk` again for a new one.",
                )
            cookie = f"{_COOKIE}={self.server.desk.cookie}; HttpOnly; SameSite=Strict; Path=/"
            self._send("", HTTPStatus.SEE_OTHER, {"Location": "/", "Set-Cookie": cookie})
            return
        if parts.path in _ASSETS:
            content = resources.files("syft.cli.desk").joinpath(parts.path[1:]).read_text(encoding="utf-8")
            self._send(content, kind=_ASSETS[parts.path])
            return
        self._check_cookie()
        self._send(self.server.desk.shown(parts.path, query))

    def _post(self) -> None:
        self._check_cookie()
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site")
        known = {f"http://{host}" for host in self.server.hosts}
        if (origin is not None and origin not in known) or site not in (None, "same-origin"):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "The form was sent by another site. Use the buttons of the page that `syft desk` opened.",
            )
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        length = self.headers.get("Content-Length", "")
        if kind != "application/x-www-form-urlencoded" or not length.isdigit() or int(length) > _LONGEST_BODY:
            raise Refused(HTTPStatus.BAD_REQUEST, "The form cannot be read, or is too long.")
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        form = dict(parse_qsl(body, max_num_fields=20))
        where = self.server.desk.decide(urlsplit(self.path).path, form)
        self._send("", HTTPStatus.SEE_OTHER, {"Location": where})

    def _check_cookie(self) -> None:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            found = None
        if found is None or not _same(found.value, self.server.desk.cookie):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "Open the desk with the link that `syft desk` printed: it lets one browser in.",
            )
        self.server.let_in(self.connection)

    def _send(
        self,
        content: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: dict[str, str] | None = None,
        kind: str = _HTML,
    ) -> None:
        body = content.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, **_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """NB: the first address has the token in it."""


__all__ = ["Desk", "DeskServer"]
