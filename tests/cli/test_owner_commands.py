"""What an owner types: tokens, budgets, the audit log, a file of options; and what is deployed."""

from __future__ import annotations

import configparser
import json
import logging
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml

import syft as sy
from forked_runs import ROOT
from syft.cli import app, logs
from syft.cli import audit as audit_command
from syft.cli.config import expanded, read_config
from syft.policy.activity import Activity
from syft.policy.audit import AuditLog, read_audit_log
from syft.policy.owner_policy import OwnerPolicy
from syft.policy.permissions import AuditRecord

# -- tokens ----------------------------------------------------------------------------------------------


def test_tokens_are_listed_shown_and_taken_back_by_user(types: Any, here: Path) -> None:
    anas = types("token", "new", "ana")[1].strip()
    types("token", "new", "ana", "--worker", "clinic", "--days", "1")
    bobs = types("token", "new", "bob")[1].strip()
    found = json.loads(types("token", "list", "--json")[1])
    assert [(one["user"], one["worker"], one["state"]) for one in found] == [
        ("ana", "any", "good"), ("ana", "clinic", "good"), ("bob", "any", "good"),
    ]  # fmt: skip
    assert anas not in (here / "tokens" / "issued.jsonl").read_text()
    (here / "ana.token").write_text(anas + "\n")
    for asked in (anas, "ana.token", found[0]["id"]):
        assert json.loads(types("token", "show", asked, "--json")[1]) == found[0]
    assert types("token", "revoke", "--user", "ana")[1].count("revoked ") == 2
    assert "revoked" in types("token", "show", anas)[1] and "good" in types("token", "list")[1]
    assert "signature" in types("token", "show", bobs[:-9] + "A" * 9)[1]
    for wrong, said in (
        (("show", "f" * 32), "No token of the id"),
        (("revoke",), "Name one token"),
        (("revoke", anas, "--user", "ana"), "Name one token"),
        (("revoke", "--user", "ana"), "no good token"),
        (("list", "--dir", "nowhere"), "nowhere"),
    ):
        status, _, err = types("token", *wrong)
        assert status == 1 and said in err


def test_commands_that_make_or_change_something_answer_programs_in_json(types: Any, here: Path) -> None:
    def asks(*arguments: str) -> Any:
        status, out, _ = types(*arguments, "--json")
        assert status == 0
        return json.loads(out)

    made = asks("cert", "make", "--host", "hospital.example", "--days", "7")
    assert made["hosts"] == ["hospital.example"] and made["days"] == 7 and Path(made["key"]).exists()
    anas = asks("cert", "client", "ana")
    assert (
        anas["user"] == "ana"
        and anas["authority"] == made["authority"]
        and Path(anas["certificate"]).exists()
    )
    token = asks("token", "new", "ana", "--worker", "clinic")
    assert json.loads(types("token", "show", token["token"], "--json")[1]) == {
        name: value for name, value in token.items() if name != "token"
    }
    assert asks("token", "revoke", token["id"]) == {"revoked": [token["id"]]}
    others = [asks("token", "new", "bob")["id"] for _ in range(2)]
    assert asks("token", "revoke", "--user", "bob") == {"revoked": others}
    assert asks("budget", "create", "book") == {"book": "book"}
    limit = asks("budget", "set", "book", "--dataset", "#x", "--epsilon", "2", "--user", "ana")
    assert limit == {"book": "book", "data set": "#x", "who": "ana", "epsilon": 2.0, "delta": 0.0}
    assert asks("budget", "copy", "book", "copy") == {"book": "book", "copy": "copy"}
    for book in ("book", "copy"):
        (shown,) = asks("budget", "show", book)
        assert {name: shown[name] for name in limit if name != "book"} | {"book": "book"} == limit
    assert asks("version")["resyft"] == sy.__version__ and set(asks("version")) == {
        "resyft",
        "torch",
        "python",
    }


# -- budgets ---------------------------------------------------------------------------------------------


def test_names_of_budgets_are_checked_where_it_is_said_against_what(types: Any, here: Path) -> None:
    (here / "data").mkdir()
    (here / "data" / "patients.csv").write_text("age\n1\n")
    types("token", "new", "ana")
    types("budget", "create", "book")
    good = ("budget", "set", "book", "--epsilon", "1", "--data", "data", "--tokens", "tokens")
    assert types(*good, "--dataset", "#patients", "--user", "ana")[0] == 0
    for more, said in (
        (("--dataset", "#patiens"), "The tags are #patients"),
        (("--dataset", "#patients", "--user", "anna"), "issued to ana"),
    ):
        status, _, err = types(*good, *more)
        assert status == 1 and said in err
    (row,) = json.loads(types("budget", "show", "book", "--json", "--user", "ana")[1])
    assert row["data set"] == "#patients" and row["who"] == "ana" and row["left"] == 1.0
    status, _, err = types("budget", "show", "book", "--user", "eve")
    assert status == 1 and "no line for user 'eve'" in err and "ana" in err


# -- the audit log ---------------------------------------------------------------------------------------


def test_the_audit_log_is_shown_by_user_action_time_and_outcome(types: Any, here: Path) -> None:
    with AuditLog("a.jsonl", "w", rotate_bytes=400) as log:
        for number, user in enumerate(["ana", "bob", "ana", "bob", "ana\x1b[2J"]):
            log(AuditRecord("get", number, user, number % 2 == 0, "why", time=1e9 + number))
    assert (here / "a.jsonl.1").exists()
    out = types("audit", "a.jsonl")[1]
    assert [line.split()[1] for line in out.splitlines()] == ["ana", "bob", "ana", "bob", "ana\\x1b[2J"]
    assert out.splitlines()[0] == "2001-09-09T01:46:40Z  ana  get 0  granted: why"
    assert len(types("audit", "a.jsonl", "--user", "ana")[1].splitlines()) == 2
    assert len(types("audit", "a.jsonl", "--refused", "--json")[1].splitlines()) == 2
    assert types("audit", "a.jsonl", "--action", "send")[1] == ""
    assert len(types("audit", "a.jsonl", "--since", "2001-09-09T01:46:43")[1].splitlines()) == 2
    assert types("audit", "a.jsonl", "--since", "2h")[1] == ""
    for more, said in ((("a.jsonl", "--since", "soon"), "is no time"), (("b.jsonl",), "no audit log")):
        status, _, err = types("audit", *more)
        assert status == 1 and said in err


def test_the_audit_log_is_followed_also_when_it_is_put_aside(here: Path) -> None:
    log = AuditLog("a.jsonl", "w", rotate_bytes=300)
    lines = audit_command._lines(Path("a.jsonl"), follow=True)
    for number in range(6):
        log(AuditRecord("get", number, "ana", True))
        assert next(lines).object == str(number)
    lines.close()
    log.close()


@pytest.mark.network
@pytest.mark.parametrize("isolated", [False, True])
def test_searches_and_commands_are_a_line_for_each_user_and_minute(
    hook: Any, me: Any, here: Path, isolated: bool
) -> None:
    from syft.isolation.broker import Broker

    if isolated:
        pytest.importorskip("pyseccomp")
    policy = OwnerPolicy.for_network()
    policy.audit_sink = AuditLog("a.jsonl", "w")
    worker = sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", "w", [torch.ones(2).tag("#x")], policy=policy)
    broker = Broker(worker) if isolated else None
    with worker:
        with sy.connect(worker.address, auto_add=False) as far:
            for _ in range(5):
                far.search("#x")
            (pointer,) = far.search("#x")
            _ = pointer + pointer
            far.sync()
            user = far.user
    if broker is not None:
        broker.close()
    lines = [line for line in read_audit_log("a.jsonl") if line.action in ("searches", "commands")]
    assert [line.action for line in lines].count("searches") == 1
    (searches,) = [line for line in lines if line.action == "searches"]
    assert searches.user == user and searches.reason.startswith("6 in ")
    (commands,) = [line for line in lines if line.action == "commands"]
    assert int(commands.reason.split()[0]) >= 7 and commands.granted


def test_counts_are_due_after_their_stretch_of_time_and_none_is_lost() -> None:
    now = [0.0]
    activity = Activity(60, lambda: now[0])
    threads = [
        threading.Thread(target=lambda: [activity.count("x", "ana") for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert activity.due() == []
    now[0] = 61.0
    assert activity.due() == [("ana", "x", 2000, 61.0)] and activity.due(all_of_it=True) == []
    activity.count("x", None)
    assert activity.due(all_of_it=True) == [(None, "x", 1, 0.0)]


# -- logs ------------------------------------------------------------------------------------------------


def test_an_event_is_one_dated_line_in_both_forms(capsys: Any) -> None:
    for form in logs.LogFormat:
        logs.set_up(form, "info")
        try:
            raise ValueError("first\nsecond")
        except ValueError:
            logging.getLogger("syft.worker").exception("it\nfailed")
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and "ValueError" in line and "second" in line
    logs.set_up(logs.LogFormat.text, "info")
    logging.getLogger("syft.worker").info("hello")
    import re

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO    hello\n", capsys.readouterr().err)


# -- a file of options -----------------------------------------------------------------------------------


def worker_options() -> Any:
    return typer.main.get_command(app).commands["worker"].params  # type: ignore[attr-defined]


def test_a_file_of_options_is_read_as_the_command_line_is(here: Path) -> None:
    Path("w.toml").write_text(
        'id = "h"\nlisten = ["tcp://127.0.0.1:0"]\nmetrics_port = 0\nlog-format = "json"\n'
    )
    made = expanded(app, ["worker", "--id", "other", "--config", "w.toml", "--grace", "1"])
    assert (
        made
        == "worker --id=h --listen=tcp://127.0.0.1:0 --metrics-port=0 --log-format=json --id other --grace 1".split()
    )
    assert expanded(app, ["worker", "--config=w.toml"])[1] == "--id=h"
    assert expanded(app, ["status", "--config", "w.toml"]) == ["status", "--config", "w.toml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listn = ['x']", "Did you mean 'listen'?"),
        ("config = 'x'", "no option 'config'"),
        ("data-on-stdin = true", "no option"),
        ("listen = 'tcp://127.0.0.1:0'", "takes a list"),
        ("id = ['a', 'b']", "takes one value"),
        ("metrics-port = 99999", "--metrics-port"),
        ("metrics-port = 'x'", "metrics-port"),
        ("isolation = 'jail'", "--isolation"),
        ("id = {a = 1}", "texts and numbers"),
        ("id =", "cannot be read"),
    ],
)
def test_a_wrong_file_of_options_is_a_sentence(types: Any, text: str, said: str) -> None:
    Path("w.toml").write_text(text)
    status, _, err = types("worker", "--config", "w.toml")
    assert status != 0 and said in err


# -- what is deployed ------------------------------------------------------------------------------------


def test_every_option_of_the_example_is_one_and_its_paths_are_those_that_are_mounted() -> None:
    assert "--metrics-port=9100" in read_config(ROOT / "deploy" / "worker.toml", worker_options())
    options = tomllib.loads((ROOT / "deploy" / "worker.toml").read_text())
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    service = compose["services"]["worker"]
    mounted = [volume.split(":")[1] for volume in service["volumes"]]
    paths = [value for value in options.values() if isinstance(value, str) and value.startswith("/")]
    assert paths and all(any(path.startswith(place) for place in mounted) for path in paths)
    assert set(compose["volumes"]) == {"state"} and service["cap_drop"] == ["ALL"] and service["read_only"]
    assert (ROOT / "deploy" / service["build"]["dockerfile"].removeprefix("deploy/")).is_file()
    assert service["ports"] == ["8777:8777"] and options["listen"][0].endswith(":8777")


def test_the_unit_and_the_image_start_the_worker_with_that_file() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "syft-worker.service")
    assert unit["Service"]["ExecStart"].endswith("syft worker --config /srv/syft/worker.toml")
    assert unit["Service"]["NoNewPrivileges"] == "yes" and unit["Install"]["WantedBy"] == "multi-user.target"
    lines = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    known = set("FROM RUN COPY USER WORKDIR EXPOSE STOPSIGNAL ENTRYPOINT CMD".split())
    assert {name for name, _ in steps} <= known and steps[0][0] == "FROM"
    assert [json.loads(rest) for name, rest in steps if name in ("ENTRYPOINT", "CMD")] == [
        ["syft"], ["worker", "--config", "/srv/syft/worker.toml"],
    ]  # fmt: skip
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (installed,) = [rest for name, rest in steps if "pip install" in rest]
    assert all(name in extras for name in installed.split("[")[1].split("]")[0].split(","))


def test_help_and_completion_are_there_before_torch_is() -> None:
    program = (
        "import sys, os\n"
        "os.environ.update(_SYFT_COMPLETE='complete_bash', COMP_WORDS='syft ', COMP_CWORD='1')\n"
        "from syft.cli import app\n"
        "try:\n    app(prog_name='syft')\nexcept SystemExit:\n    pass\n"
        "from syft.cli import main\n"
        "del os.environ['_SYFT_COMPLETE']\n"
        "main(['worker', '--help'])\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "sessions" in done.stdout and "audit" in done.stdout and "--config" in done.stdout
