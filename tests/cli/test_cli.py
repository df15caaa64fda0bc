"""The `syft` command, as people type it."""

from __future__ import annotations

import datetime
import json
import re
import signal
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.cli import main
from syft.dp.worker_budgets import BudgetBook
from syft.exceptions import BudgetExceededError, GetNotPermittedError, InvalidTokenError


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, " ".join(err.split())


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "worker", "--help")
    assert status == 0
    assert "syft cert make" in out and "syft token new" in out and "--policy" in out


def test_a_worker_keeps_freed_memory_before_it_has_threads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kept() -> bool:
        raise ValueError("the memory is kept")

    monkeypatch.setattr("syft.mpc.kernels.keep_freed_memory", kept)
    threads = threading.active_count()
    status, _, err = run(capsys, "worker", "--isolation", "none", "--listen", "tcp://127.0.0.1:0")
    assert status != 0 and "the memory is kept" in err
    assert threading.active_count() == threads


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "version") == (
        0,
        f"resyft {sy.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}\n",
        "",
    )
    assert run(capsys, "version", "--short")[1].strip() == sy.__version__


def test_certificates_are_made_and_not_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "cert", "make", "--host", "hospital.example")
    assert status == 0 and "certificates/server.pem" in out
    key = here / "certificates" / "server.key"
    assert key.stat().st_mode & 0o777 == 0o600
    before = key.read_bytes()
    status, _, err = run(capsys, "cert", "make")
    assert status == 1 and "server" in err and key.read_bytes() == before
    assert run(capsys, "cert", "client", "ana")[0] == 0


def test_tokens_are_made_and_taken_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from syft.exceptions import RevokedTokenError
    from syft.identity.tokens import TokenVerifier

    status, text, err = run(capsys, "token", "new", "ana", "--days", "2", "--worker", "hospital")
    assert status == 0 and "for ana" in err
    verifier = TokenVerifier.open(here / "tokens", "hospital")
    assert verifier.verify(text.strip()).user == "ana"
    assert run(capsys, "token", "revoke", text.strip())[0] == 0
    with pytest.raises(RevokedTokenError):
        verifier.verify(text.strip())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("worker", "--listen", "ws://0.0.0.0:0"), "TLS"),
        (("worker", "--listen", "wss://127.0.0.1:0"), "syft cert"),
        (("worker", "--listen", "pigeon://127.0.0.1:1"), "ws://"),
        (("worker", "--data", "nowhere"), "nowhere"),
        (("worker", "--policy", "nowhere.toml"), "nowhere.toml"),
        (("worker", "--log-level", "loud"), "warning"),
        (("worker", "--listen", "tcp://127.0.0.1:0", "--peer", "clinic"), "ID=ADDRESS"),
        (("status", "tcp://127.0.0.1:1"), "cannot be reached"),
        (("token", "revoke", "x"), "token.key"),
    ],
)
def test_a_mistake_is_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    status, _, err = run(capsys, *arguments)
    assert status == 1
    assert says in err and "Traceback" not in err


@pytest.mark.network
def test_a_hospital_and_a_data_scientist(
    here: Path, hook: Any, me: Any, start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "data").mkdir()
    (here / "data" / "patients.csv").write_text("age,pressure\n50,120\n60,130\n70,140\n")
    (here / "policy.toml").write_text(
        '[[data]]\ntags = ["#patients"]\nmay_get = ["ana"]\nmay_compute = ["ana", "eve"]\n'
    )
    # For the name alone: the address that is printed has to be the one that the certificate is for.
    assert run(capsys, "cert", "make", "--host", "localhost")[0] == 0
    tokens = {user: run(capsys, "token", "new", user)[1].strip() for user in ("ana", "eve")}
    options = "--id hospital --data data --listen wss://localhost:0 --tokens tokens --policy policy.toml "
    options += "--cert certificates/server.pem --key certificates/server.key --audit audit.jsonl --keep state"
    process, address = start(*options.split(), "--isolation", "process")
    assert address.startswith("wss://localhost:")

    status, out, _ = run(capsys, "status", address, "--ca", "certificates/ca.pem", "--token", tokens["ana"])
    assert status == 0 and "hospital" in out and "ana" in out
    status, out, _ = run(
        capsys, "search", address, "#patients", "--ca", "certificates/ca.pem", "--token", tokens["ana"]
    )
    assert status == 0 and "#patients" in out and "(3, 2)" in out
    status, _, err = run(capsys, "status", address, "--ca", "certificates/ca.pem", "--token", "junk")
    assert status == 1 and "InvalidTokenError" in err
    status, _, err = run(capsys, "status", address, "--token", tokens["ana"])
    assert status == 1 and "certificate" in err

    ana = sy.connect(address, "hospital", ca="certificates/ca.pem", token=tokens["ana"], auto_add=False)
    (patients,) = ana.search("#patients")
    assert patients.mean(0).get().tolist() == [60.0, 130.0]
    torch.arange(3.0).tag("#mine").send(ana, garbage_collect_data=False)
    ana.sync()
    eve = sy.connect(address, ca="certificates/ca.pem", token=tokens["eve"], auto_add=False)
    (patients,) = eve.search("#patients")
    with pytest.raises(GetNotPermittedError, match="'eve'"):
        patients.mean(0).get()
    assert eve.search("#mine") == []
    eve.close()
    ana.close()

    process.kill()
    process.wait()
    _, address = start(*options.split())
    ana = sy.connect(address, "hospital", ca="certificates/ca.pem", token=tokens["ana"], auto_add=False)
    (mine,) = ana.search("#mine")
    assert mine.get().tolist() == [0.0, 1.0, 2.0]
    ana.close()
    refused = [json.loads(line) for line in (here / "audit.jsonl").read_text().splitlines()]
    assert any(not line["granted"] and line["user"] == "eve" and line["action"] == "get" for line in refused)
    assert any(not line["granted"] and line["action"] == "connect" for line in refused)


def _talk_to(address: str, token: str) -> None:
    """One who is let in, and one who is not."""
    sy.connect(address, token=token, auto_add=False).close()
    with pytest.raises(InvalidTokenError):
        sy.connect(address, token=f"{token[:-4]}AAAA", auto_add=False)


#: What the log says of that, and of the end, in this order.
_TOLD = [
    r"hospital: serves at tcp://127\.0\.0\.1:\d+, process \d+, 0 objects",
    r"hospital: ana connected from tcp://127\.0\.0\.1:\d+ \(.+\)",
    r"hospital: the session of ana said goodbye; 0 objects were freed",
    r"hospital: the connection of somebody at tcp://127\.0\.0\.1:\d+ was refused: The signature of the token .*",
    r"hospital: shutting down",
    r"hospital: has ended",
]


@pytest.mark.network
@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, "json"), (signal.SIGINT, "text")])
def test_a_signal_ends_it_in_good_order_and_the_log_tells_who_came(
    hook: Any, me: Any, start: Any, types: Any, number: signal.Signals, kind: str
) -> None:
    token = types("token", "new", "ana")[1].strip()
    process, address = start(
        "--id", "hospital", "--listen", "tcp://127.0.0.1:0", "--tokens", "tokens", "--log-format", kind,
        "--isolation", "process" if number == signal.SIGTERM else "none", "--metrics-port", "0",
    )  # fmt: skip
    metrics = re.fullmatch(r"metrics at (http://127\.0\.0\.1:[1-9]\d*/metrics)\n", process.stdout.readline())
    assert metrics and b"syft_objects 0.0" in urllib.request.urlopen(metrics.group(1), timeout=120).read()
    _talk_to(address, token)
    process.send_signal(number)
    _, err = process.communicate(timeout=800)
    assert process.returncode == 0
    if kind == "json":
        lines = [json.loads(line) for line in err.splitlines()]
        assert all(set(line) == {"time", "level", "logger", "message"} for line in lines)
        assert all(datetime.datetime.fromisoformat(line["time"]).tzinfo is not None for line in lines)
        assert {line["level"] for line in lines} == {"info"}
        said = [line["message"] for line in lines]
    else:
        found = [
            re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO    (.*)", line) for line in err.splitlines()
        ]
        said = [match.group(1) if match else "?" for match in found]
    assert len(said) == len(_TOLD), err
    for line, told in zip(said, _TOLD, strict=True):
        assert re.fullmatch(told, line), (line, told)
    assert not any(part in err for part in token.split(".")[1:])


@pytest.mark.network
def test_what_strangers_choose_stays_one_line_of_the_log(
    hook: Any, me: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from syft.cli.logs import LogFormat, set_up
    from syft.workers.network import client_worker

    set_up(LogFormat.text, "info")
    monkeypatch.setattr(client_worker, "_who_am_i", lambda: "x\n12:00:00 INFO    all is well\x1b[2J")
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="w") as worker:
        sy.connect(worker.address, auto_add=False).close()
    err = capsys.readouterr().err
    assert "connected from" in err and "\x1b" not in err
    assert all(" w: " in line for line in err.splitlines())


@pytest.mark.network
def test_numbers_for_prometheus(hook: Any, me: Any) -> None:
    from syft.cli.metrics import serve_metrics

    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="m", data=[torch.ones(4).tag("#x")]) as worker:
        server = serve_metrics(worker, 0)
        try:
            with sy.connect(worker.address, auto_add=False) as client:
                client.sync()
                port = server.server_address[1]
                said = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120).read().decode()
        finally:
            server.shutdown()
            server.server_close()
    assert "syft_objects 1.0" in said and "syft_bytes 16.0" in said and "syft_sessions 1.0" in said
    assert re.search(r'syft_decisions_total\{granted="true"\} [1-9]', said)


@pytest.mark.network
def test_what_a_worker_says_is_neither_markup_nor_a_command_to_the_terminal(
    hook: Any, me: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rude = (
        torch.ones(2)
        .tag("#x", "#[/x]", "#\x1b[31mred")
        .describe("[bold]loud[/] [/y] \x1b]0;title\x07 \x9b2J")
    )
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="rude[/z]\x1b[2J", data=[rude]) as worker:
        status, out, err = run(capsys, "search", worker.address, "#x")
        assert (status, err) == (0, "")
        assert "#[/x]" in out and "[bold]loud[/] [/y]" in out
        status, more, err = run(capsys, "status", worker.address)
        assert (status, err) == (0, "") and "rude[/z]" in more
        status, none, err = run(capsys, "search", worker.address, "#nothing")
        assert status == 0 and "has nothing" in none
        status, _, refusal = run(capsys, "search", worker.address, "#\x1b[31m", "--token", "x" * 9000)
        assert status == 1 and refusal
        with sy.connect(worker.address, auto_add=False) as client:
            shown = [repr(pointer) + str(pointer) for pointer in client.search("#x")]
    assert shown
    for text in (out, more, none, refusal, *shown):
        assert not set(text) & {"\x1b", "\x07", "\x9b"}


@pytest.mark.network
def test_a_worker_in_a_process_of_its_own_takes_its_data_and_budgets_along(
    hook: Any, me: Any, tmp_path: Path
) -> None:
    name = "far at sea, process 9"
    worker = sy.WebsocketServerWorker(hook, "127.0.0.1", 0, id=name, data=[torch.arange(100.0).tag("#x")])
    worker.keep_budgets(BudgetBook.create(tmp_path / "budgets"))
    worker.set_budget(dataset="#x", epsilon=1.0, together=True)
    worker.set_budget(dataset="#x", epsilon=1.0)
    worker.start(process=True)
    try:
        client = sy.WebsocketClientWorker(hook, "127.0.0.1", worker.port, id=name, auto_add=False)
        (found,) = client.search("#x")
        assert found.shape == (100,) and client.url == worker.address
        y = torch.ones(2).send(client)
        assert (y + y).get().tolist() == [2.0, 2.0]
        del y
        assert isinstance(client.release(found, "count", epsilon=0.6, between=(10, 20)), int | float)
        with pytest.raises(BudgetExceededError):
            client.release(found, "count", epsilon=0.6, between=(10, 20))
        client.close()
    finally:
        worker.stop()
