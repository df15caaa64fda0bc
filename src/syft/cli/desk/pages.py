"""The pages of the desk: from what was read to HTML. No I/O; every text goes through `markup`."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import quote

from syft.cli.ask import duration
from syft.cli.desk.markup import Markup, el, join, lines
from syft.cli.desk.sources import Bar, Problem, Snapshot, chosen_lines, faults_of
from syft.requests.records import Request

#: Of a bar, in units of its drawing.
_WIDE, _HIGH = 240, 10
_COLUMN, _TALL = 6, 36

#: In the place of what only the worker itself can tell.
_NO_SOCKET = "The worker does not run, or was started without --control worker.sock."


def page(title: str, *body: Markup, workers: list[str], current: int | None, may_approve: bool) -> Markup:
    """A whole page."""
    mode = "you may approve here" if may_approve else "read-only; start with --approve to decide here"
    links = [
        el("a", name, href=f"/w/{number}", class_="here" if number == current else None)
        for number, name in enumerate(workers)
    ]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{title} - desk"),
        el("link", rel="stylesheet", href="/desk.css"),
        el("link", rel="icon", href="/desk.svg", type="image/svg+xml"),
        el("script", src="/desk.js", defer=True),
    )
    header = el("header", el("h1", "desk"), el("nav", *links), el("p", mode, class_="quiet"))
    return Markup("<!doctype html>\n" + el("html", head, el("body", header, el("main", *body)), lang="en"))


def sentence(title: str, said: str) -> Markup:
    """A page with one sentence, without anything about workers."""
    return page(
        title, el("section", el("h2", title), el("p", said)), workers=[], current=None, may_approve=False
    )


# -- a worker ------------------------------------------------------------------------------------------


def worker_page(
    seen: Snapshot, number: int, workers: list[str], may_approve: bool, query: dict[str, str], secret: str
) -> Markup:
    """Everything about one worker."""
    return page(
        workers[number],
        el("div", live_part(seen, number, may_approve, secret), id="live", data_from=f"/w/{number}/live"),
        _datasets(seen),
        _budgets(seen),
        _audit(seen, number, query),
        workers=workers,
        current=number,
        may_approve=may_approve,
    )


def live_part(seen: Snapshot, number: int, may_approve: bool, secret: str) -> Markup:
    """What changes while one looks: the script asks for it again."""
    return join(_health(seen), _requests(seen, number, may_approve, secret), _sessions(seen))


def _health(seen: Snapshot) -> Markup:
    status = seen.status
    if isinstance(status, dict):
        facts = [
            ("worker", str(status.get("id"))),
            ("up for", duration(status.get("uptime"))),
            ("sessions", f"{status.get('connections', 0)} of {status.get('sessions', 0)} connected"),
            ("commands", _count(status.get("commands"))),
            ("objects", f"{_count(status.get('objects'))}, {_bytes(status.get('bytes'))}"),
            ("granted / refused", f"{_count(status.get('granted'))} / {_count(status.get('refused'))}"),
        ]
        body = el(
            "dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="facts"
        )
        state = el("span", "running", class_="badge good")
    elif isinstance(status, Problem):
        body, state = el("p", status.sentence), el("span", "not running", class_="badge bad")
    else:
        body = el(
            "p",
            _NO_SOCKET,
            class_="quiet",
        )
        state = el("span", "unknown", class_="badge")
    faults = [el("p", fault, class_="fault") for fault in faults_of(seen.files)]
    return el("section", el("h2", "Health ", state), body, *faults)


def _requests(seen: Snapshot, number: int, may_approve: bool, secret: str) -> Markup:
    found = seen.requests
    title = el(
        "h2",
        "Requests ",
        el("span", f"{seen.waiting} waiting", class_="badge" + " warn" * bool(seen.waiting)),
    )
    if not isinstance(found, list):
        return _absent(title, found, "Start the worker with --requests requests.db to be asked.")
    waiting = [one for one in found if one.status == "waiting"]
    rest = [one for one in found if one.status != "waiting"][:20]
    cards = [_card(one, number, may_approve, secret) for one in waiting]
    over = _table(
        ("when", "who", "asked for", "status"),
        [
            (
                _when(one.time),
                one.user,
                el("a", one.ask.what, href=_link(number, one)),
                join(_badge(one), " ", one.reply),
            )
            for one in rest
        ],
    )
    more = el("details", el("summary", f"{len(rest)} decided"), over) if rest else None
    nothing = None if found else el("p", "Nobody has asked for anything.", class_="quiet")
    return el("section", title, nothing, *cards, more)


def _card(one: Request, number: int, may_approve: bool, secret: str) -> Markup:
    ask = one.ask
    cost = None if ask.epsilon is None else el("span", f"epsilon {ask.epsilon:g}", class_="badge warn")
    left = [f"{name}: {value}" for name, value in ask.details.items() if name.startswith("left of ")]
    return el(
        "article",
        el("p", el("strong", one.user), " asks for ", el("a", ask.what, href=_link(number, one)), " ", cost),
        el("blockquote", ask.reason) if ask.reason else el("p", "no reason given", class_="quiet"),
        el("p", "; ".join(left), class_="quiet") if left else None,
        el("p", f"{_when(one.time)}, from {one.peer or 'here'}", class_="quiet"),
        _decide(one, number, secret) if may_approve else None,
        class_="request",
    )


def _decide(one: Request, number: int, secret: str) -> Markup:
    """Two forms: yes, and no with a reason."""
    hidden = el("input", type="hidden", name="csrf", value=secret)
    yes = el(
        "form",
        hidden,
        el(
            "label",
            "times ",
            el("input", name="times", type="number", min=1, max=100_000, value=one.ask.uses, class_="few"),
        ),
        el("label", "for ", el("input", name="for", value="7d", class_="few", pattern="[0-9.]+[smhd]")),
        el("button", "Approve", type="submit", class_="yes"),
        method="post",
        action=f"{_link(number, one)}/approve",
    )
    no = el(
        "form",
        hidden,
        el("input", name="reason", maxlength=1_000, placeholder="reason", aria_label="reason"),
        el("button", "Deny", type="submit", class_="no"),
        method="post",
        action=f"{_link(number, one)}/deny",
    )
    return el("div", yes, no, class_="decide")


def request_page(
    one: Request,
    value: str | None,
    number: int,
    workers: list[str],
    may_approve: bool,
    secret: str,
    problem: str = "",
) -> Markup:
    """One request, with everything that is known of it."""
    ask = one.ask
    facts = [
        ("who", one.user),
        ("from", one.peer or "here"),
        ("when", _when(one.time)),
        ("because", ask.reason or "(no reason given)"),
        *ask.details.items(),
        (
            "status",
            join(
                _badge(one),
                f" {'once' if one.uses_left == 1 else f'{one.uses_left} times'} until {_when(one.expires)}"
                if one.is_open
                else "",
            ),
        ),
        *([("your reply", one.reply)] if one.reply else []),
    ]
    body = [
        el("p", el("a", "back", href=f"/w/{number}")),
        el("h2", ask.what),
        el("p", problem, class_="fault") if problem else None,
        el("dl", *(el("div", el("dt", name), el("dd", said)) for name, said in facts), class_="facts long"),
        _decide(one, number, secret) if may_approve and one.status == "waiting" else None,
    ]
    if value is not None:
        body += [el("h3", "What would leave"), el("pre", lines(value))]
    if ask.code:
        body += [el("h3", "The plan"), el("pre", lines(ask.code))]
    return page(
        f"request {one.id}",
        el("section", *body),
        workers=workers,
        current=number,
        may_approve=may_approve,
    )


def _sessions(seen: Snapshot) -> Markup:
    title, found = el("h2", "Sessions"), seen.sessions
    if not isinstance(found, list):
        return _absent(
            title,
            found,
            _NO_SOCKET,
        )
    rows = [
        (
            one.get("user"),
            one.get("peer") if one.get("connected") else "(away)",
            str(one.get("began")).replace("T", " ").replace("+00:00", " UTC"),
            duration(one.get("idle")),
            _count(one.get("commands")),
            join(el("code", str(one["running"])), f" for {duration(one.get('running_for'))}")
            if one.get("running")
            else el("span", "idle", class_="quiet"),
        )
        for one in found
    ]
    return el(
        "section",
        title,
        _table(("who", "from", "since", "idle", "commands", "now"), rows, "Nobody is connected."),
    )


def _datasets(seen: Snapshot) -> Markup:
    title, found = el("h2", "Data sets"), seen.datasets
    if not isinstance(found, list):
        return _absent(
            title,
            found,
            _NO_SOCKET,
        )
    rows = []
    for one in found:
        if one.get("kind") == "offer":
            told = one.get("told") or {}
            what = join(el("strong", str(one.get("name"))), " ", el("span", "offered", class_="badge good"))
            parts = told.get("parts") or ()
            said = told.get("rows") or "not how many"
            shape = f"{one.get('rows')} rows" + (
                "" if said == str(one.get("rows")) else f" (users are told: {said})"
            )
            dtype = " -> ".join(str(part.get("dtype")) for part in parts)
            description = str(told.get("description") or "") or " -> ".join(map(_columns_of, parts))
        else:
            description = str(one.get("description") or "")
            what = join(*(join(el("code", str(tag)), " ") for tag in one.get("tags", ())))
            shape, dtype = "x".join(map(str, one.get("shape", ()))), str(one.get("dtype", ""))
        allowed = one.get("allowed")
        who = "everybody" if allowed is None else ", ".join(map(str, allowed)) or "nobody"
        only = "released only" if one.get("released_only") else ""
        rows.append((what, description, shape, dtype, who, only))
    head = ("name", "description", "size", "type", "fetched or trained on by", "")
    return el("section", title, _table(head, rows, "It serves nothing."))


def _columns_of(part: dict[str, Any]) -> str:
    names = [str(column.get("name")) for column in part.get("columns") or ()]
    return ", ".join(names) or "x".join(map(str, part.get("shape") or ())) or str(part.get("role"))


# -- budgets -------------------------------------------------------------------------------------------


def _budgets(seen: Snapshot) -> Markup:
    title, found = el("h2", "Budgets"), seen.budgets
    if not isinstance(found, list):
        return _absent(title, found, "Start the worker with --budgets budgets to let users learn with noise.")
    rows = [
        (
            el("code", bar.dataset),
            bar.who,
            join(_bar(bar), el("span", f"{bar.spent:.4g} of {bar.limit:g}", class_="quiet")),
            _columns(bar),
        )
        for bar in found
    ]
    return el(
        "section",
        title,
        _table(("data set", "who", "epsilon spent", "over time"), rows, "No budgets are set."),
    )


def _bar(bar: Bar) -> Markup:
    share = min(1.0, bar.spent / bar.limit) if bar.limit > 0 else 1.0
    kind = "full" if share >= 0.9 else "some"
    return el(
        "svg",
        el("rect", x=0, y=0, width=_WIDE, height=_HIGH, rx=3, class_="track"),
        el("rect", x=0, y=0, width=round(_WIDE * share, 1), height=_HIGH, rx=3, class_=kind),
        viewBox=f"0 0 {_WIDE} {_HIGH}",
        class_="bar",
        role="img",
        aria_label=f"{bar.spent:.4g} of {bar.limit:g}",
    )


def _columns(bar: Bar) -> Markup:
    """What was spent after each release, one column each, from left to right in time."""
    spent, columns = 0.0, list[Markup]()
    most = max(bar.limit, sum(e for *_, e in bar.releases if e < float("inf")), 1e-12)
    for place, (moment, mechanism, epsilon) in enumerate(bar.releases):
        spent += epsilon if epsilon < float("inf") else 0.0
        tall = max(2.0, _TALL * min(1.0, spent / most))
        said = el("title", f"{_when(moment)}: {mechanism}, epsilon {epsilon:g}")
        columns.append(
            el(
                "g",
                said,
                el(
                    "rect",
                    x=place * (_COLUMN + 2),
                    y=round(_TALL - tall, 1),
                    width=_COLUMN,
                    height=round(tall, 1),
                ),
                class_="column",
            )
        )
    if not columns:
        return el("span", "no releases", class_="quiet")
    wide = max(60, len(columns) * (_COLUMN + 2))
    return el("svg", *columns, viewBox=f"0 0 {wide} {_TALL}", class_="columns", width=wide, height=_TALL)


# -- the audit log -------------------------------------------------------------------------------------


def _audit(seen: Snapshot, number: int, query: dict[str, str]) -> Markup:
    title, found = el("h2", "Audit log", id="audit"), seen.audit
    if not isinstance(found, list):
        return _absent(title, found, "Start the worker with --audit audit.jsonl to keep one.")
    user, action, granted, word = (query.get(name, "") for name in ("user", "action", "granted", "word"))
    users = sorted({line.user for line in found if line.user})
    actions = sorted({line.action for line in found})
    form = el(
        "form",
        _choice("user", users, user, "everybody"),
        _choice("action", actions, action, "everything"),
        _choice("granted", ["yes", "no"], granted, "granted or not"),
        el("input", name="word", value=word, placeholder="a word", aria_label="a word"),
        el("button", "Filter", type="submit"),
        method="get",
        action=f"/w/{number}#audit",
        class_="filter",
    )
    rows = [
        (
            line.time.partition(".")[0].replace("T", " "),
            line.user or "",
            line.action,
            line.object or "",
            el("span", "yes", class_="badge good") if line.granted else el("span", "no", class_="badge bad"),
            line.reason,
            line.peer,
        )
        for line in chosen_lines(found, user, action, granted, word)
    ]
    head = ("time", "who", "action", "of", "granted", "reason", "from")
    return el("section", title, form, _table(head, rows, "No line matches."))


def _choice(name: str, values: list[str], chosen: str, otherwise: str) -> Markup:
    options = [el("option", otherwise, value="")]
    options += [el("option", one, value=one, selected=one == chosen) for one in values]
    return el("select", *options, name=name, aria_label=name)


# -- parts ---------------------------------------------------------------------------------------------


def _absent(title: Markup, found: Any, cure: str) -> Markup:
    said = found.sentence if isinstance(found, Problem) else cure
    return el("section", title, el("p", said, class_="fault" if isinstance(found, Problem) else "quiet"))


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]], nothing: str = "") -> Markup:
    if not rows:
        return el("p", nothing, class_="quiet")
    body = [
        el("tr", *(el("td", el("div", cell), data_name=name) for name, cell in zip(head, row, strict=True)))
        for row in rows
    ]
    top = el("tr", *(el("th", name) for name in head))
    return el("div", el("table", el("thead", top), el("tbody", *body)), class_="wide")


def _badge(one: Request) -> Markup:
    kind = {"waiting": " warn", "approved": " good", "used": " good", "denied": " bad"}.get(one.status, "")
    return el("span", one.status, class_=f"badge{kind}")


def _link(number: int, one: Request) -> str:
    return f"/w/{number}/requests/{quote(one.id, safe='')}"


def _when(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment).isoformat(" ", "seconds")


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _bytes(value: Any) -> str:
    if not isinstance(value, int):
        return str(value)
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value} bytes"
