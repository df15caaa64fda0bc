"""Errors of the command advise what can be typed, never what can be written in Python."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

#: `name=...`, `name=True`, `Name.call(`, `some_call(`, datetime.timedelta
PYTHON = re.compile(r"\w=\.\.\.|=True|\w\(\w*\)|\w+\.\w+\(|_\w+\(|timedelta|`issue`|`cert`")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("cert make", "--overwrite"),
        ("cert make", "--name"),
        ("cert client ana", "--overwrite"),
        ("cert make --name other --days 0", "--days is a whole number from 1 to 3650"),
        ("token new ana --days 1e-6", "--days 1e-06: a token is good for one second at least"),
        ("token new ana --days nan", "3650 days at most"),
        ("token new ana --days inf", "3650 days at most"),
        ("token revoke junk", "what `syft token new` printed"),
        ("token revoke junk --dir nowhere", "`syft token new USER --dir DIR`"),
        ("worker --listen wss://127.0.0.1:0", "--tls DIR (or --cert FILE and --key FILE)"),
        ("worker --listen ws://0.0.0.0:0", "--tls DIR (or --cert FILE and --key FILE)"),
        ("worker --listen ws://0.0.0.0:0", "--tokens DIR or --client-ca FILE"),
        ("worker --tokens nowhere", "`syft token new USER --dir DIR`"),
        ("worker --tls nowhere", "`syft cert make nowhere`"),
        ("worker --tls certificates --key certificates/server.key", "leave out --cert and --key"),
        ("worker --cert certificates/server.pem", "both --cert FILE and --key FILE"),
        ("worker --listen wss://127.0.0.1:0 --cert nowhere.pem --key nowhere.key", "`syft cert make DIR`"),
        ("status wss://127.0.0.1:1 --ca nowhere.pem", "`syft cert make DIR`"),
        ("status wss://127.0.0.1:1 --cert certificates/ana.pem", "both --cert and --key"),
        ("status 127.0.0.1:8777", "'ws://127.0.0.1:8777'"),
        ("status hospital", "'ws://127.0.0.1:8777'"),
    ],
)
def test_a_cure_can_be_typed(types: Any, here: Path, arguments: str, says: str) -> None:
    for made in ("cert make", "cert client ana", "token new eve"):
        assert types(*made.split())[0] == 0
    status, _, err = types(*arguments.split())
    assert status == 1 and says in err and "Traceback" not in err
    assert not PYTHON.search(err), err


def test_a_port_for_metrics_that_is_taken(types: Any, here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, out, err = types("worker", "--listen", "tcp://127.0.0.1:0", "--metrics-port", port)
    assert status == 1 and out == "" and f"The port {port} cannot be used" in err
    assert types("worker", "--metrics-port", "99999")[0] == 2


def test_the_library_goes_on_speaking_python(tmp_path: Path) -> None:
    from syft.identity.certificates import make_certificate

    make_certificate(tmp_path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        make_certificate(tmp_path)


@pytest.mark.network
def test_a_worker_that_wants_a_token_is_told_of_with_the_option(hook: Any, me: Any, types: Any) -> None:
    import syft as sy
    from syft.identity.tokens import TokenAuthority

    tokens = TokenAuthority.create(Path("keys")).verifier("w")
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="w", tokens=tokens) as worker:
        status, _, err = types("status", worker.address)
    assert status == 1 and "--token-file FILE (or set SYFT_TOKEN)" in err and not PYTHON.search(err)


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], "ws://127.0.0.1:8777"), (["--tls", "certificates"], "wss://localhost:8777")],
)
def test_where_a_worker_listens_that_was_not_told_where(
    types: Any, here: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: str
) -> None:
    from syft.workers.network import server_worker

    asked: list[Any] = []

    def note(
        _hook: Any, addresses: list[str], *_rest: Any, certificate: Any, key: Any, **_options: Any
    ) -> Any:
        asked.append((addresses, certificate, key))
        raise ValueError("enough was seen")

    monkeypatch.setattr(server_worker, "NetworkServerWorker", note)
    assert types("cert", "make")[0] == 0
    status, _, err = types("worker", "--id", "hospital", *options)
    assert status == 1 and "enough was seen" in err
    folder = Path("certificates")
    files = (folder / "server.pem", folder / "server.key") if options else (None, None)
    assert asked == [([expected], *files)]


def test_certificates_of_users_say_what_comes_next(types: Any, here: Path) -> None:
    status, out, _ = types("cert", "client", "ana")
    assert status == 0 and "certificates/ana.pem" in out and "cannot be the name of a file" not in out
    assert "syft worker --tls certificates --client-ca certificates/ca.pem" in out
    assert "certificate='ana.pem', key='ana.key'" in out
    status, out, _ = types("cert", "client", "a/b")
    (made,) = (here / "certificates").glob("client-*.pem")
    assert status == 0 and "'a/b' cannot be the name of a file" in out and f"certificate='{made.name}'" in out


def test_another_certificate_of_the_same_authority(types: Any, here: Path) -> None:
    assert types("cert", "make")[0] == 0
    authority = (here / "certificates" / "ca.pem").read_bytes()
    status, out, _ = types("cert", "make", "--name", "second", "--host", "hospital.example")
    assert status == 0 and "--cert certificates/second.pem --key certificates/second.key" in out
    assert "wss://hospital.example:8777" in out
    assert (here / "certificates" / "ca.pem").read_bytes() == authority


def test_the_examples_of_the_help_can_be_pasted(types: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in types("worker", "--help")[1].splitlines()]
    start = lines.index("syft worker --id hospital --data ./data --listen wss://0.0.0.0:8777 \\")
    assert lines[start + 1] == "--tls certificates --tokens tokens --audit audit.jsonl"
    assert not any(line.endswith("learn with") for line in lines)
