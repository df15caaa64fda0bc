"""The audit log: every decision on a line of its own, whatever the names in it are."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import forked
from syft.exceptions import PermissionDeniedError
from syft.policy import audit
from syft.policy.audit import AuditLog, read_audit_log
from syft.policy.caller import speaking_for
from syft.policy.permissions import AuditRecord, Policy


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_is_a_line_of_json(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "audit.jsonl", "hospital") as log:
        log(AuditRecord("get", 5, "ana", True, "a paper", time=0.25, peer="127.0.0.1:9"))
        log(AuditRecord("connect", None, None, False, "no token", time=1e9))
    assert lines(tmp_path / "audit.jsonl") == [
        {
            "time": "1970-01-01T00:00:00.250000Z",
            "worker": "hospital",
            "user": "ana",
            "peer": "127.0.0.1:9",
            "action": "get",
            "object": "5",
            "granted": True,
            "reason": "a paper",
        },
        {
            "time": "2001-09-09T01:46:40.000000Z",
            "worker": "hospital",
            "user": None,
            "peer": "",
            "action": "connect",
            "object": None,
            "granted": False,
            "reason": "no token",
        },
    ]
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_a_workers_decisions_go_to_the_file_and_to_the_deque(tmp_path: Path, make_worker: Any) -> None:
    policy = Policy()
    policy.audit_sink = AuditLog(tmp_path / "audit.jsonl", "dan")
    dan = make_worker("dan", policy=policy)
    secret = torch.full((3,), 1234.5).private_tensor(allowed_users=("ann",)).send(dan, user="ann")
    with pytest.raises(PermissionDeniedError):
        secret.get(user="eve", reason="curiosity")
    secret.get(user="ann")
    policy.audit_sink.close()
    written = lines(tmp_path / "audit.jsonl")
    assert [(line["user"], line["granted"], line["reason"]) for line in written] == [
        ("eve", False, "curiosity"),
        ("ann", True, ""),
    ]
    assert len(policy.audit_log) == 2
    assert "1234.5" not in (tmp_path / "audit.jsonl").read_text()


def test_the_address_of_the_one_who_asked_is_written_down(tmp_path: Path) -> None:
    policy = Policy()
    with AuditLog(tmp_path / "a", "dan") as policy.audit_sink, speaking_for("eve", "10.0.0.9:4711"):
        with pytest.raises(PermissionDeniedError):
            policy.check_get("eve", 5, frozenset())
        policy.record(AuditRecord("connect", None, "eve", True, peer="elsewhere"))
    assert [line.peer for line in read_audit_log(tmp_path / "a")] == ["10.0.0.9:4711", "elsewhere"]
    assert policy.audit_log[0].peer == "10.0.0.9:4711"


FORGED = '"}\n{"time":"2000-01-01T00:00:00.000000Z","user":"ana","granted":true}\n'


@pytest.mark.parametrize(
    "text", [FORGED, "a\r\nb", "a\x00b", "\x1b[2J", "\u2028\u2029\x85\x0b", "\u202eana", "\ud800"]
)
def test_names_cannot_forge_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, text) as log:
        log(AuditRecord(text, text, text, False, text, peer=text))
    whole = path.read_bytes()
    assert whole.count(b"\n") == 1 and whole.isascii()
    (line,) = read_audit_log(path)
    assert line.granted is False and line.user == line.reason
    assert all(ord(c) >= 32 and c.isprintable() for c in whole.decode().rstrip("\n"))


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_breaks_a_line(text: str) -> None:
    line = audit._line_of(AuditRecord("get", text, text, False, text), "w")
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1
    json.loads(line)


def test_long_texts_are_cut(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a") as log:
        log(AuditRecord("get", "x" * 10_000_000, "y", False))
    assert (tmp_path / "a").stat().st_size < 2000


def test_files_are_put_aside_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, rotate_bytes=1000, keep=3) as log:
        for number in range(100):
            log(AuditRecord("get", number, "ana", True))
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3"]
    kept = [int(line.object or "") for name in reversed(names) for line in read_audit_log(tmp_path / name)]
    assert kept == list(range(kept[0], 100)) and kept[0] > 0
    assert all((tmp_path / name).stat().st_size <= 1000 for name in names)


def test_a_new_process_adds_to_the_file_and_heals_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path) as log:
        log(AuditRecord("get", 1, "ana", True))
    with path.open("ab") as file:
        file.write(b'{"time":"20')  # the machine stopped here
    with AuditLog(path) as log:
        log(AuditRecord("get", 2, "ana", True))
    first, cut, second = read_audit_log(path)
    assert (first.object, cut.action, second.object) == ("1", "unreadable", "2")


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with AuditLog(path, rotate_bytes=20_000, keep=100, syncs_refusals=False) as log:

        def work(user: str) -> None:
            for number in range(200):
                log(AuditRecord("get", number, user, number % 2 == 0))

        threads = [threading.Thread(target=work, args=(f"u{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [line for file in tmp_path.iterdir() for line in read_audit_log(file)]
    assert sorted((line.user, int(line.object or "")) for line in found) == sorted(
        (f"u{i}", number) for i in range(4) for number in range(200)
    )


def test_refusals_are_synced_before_they_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(audit.os, "fsync", synced.append)
    log = AuditLog(tmp_path / "a")
    log(AuditRecord("get", 1, "ana", True))
    assert not synced
    log(AuditRecord("get", 1, "eve", False))
    assert len(synced) == 1
    with AuditLog(tmp_path / "b", syncs_refusals=False) as other:
        other(AuditRecord("get", 1, "eve", False))
        assert len(synced) == 1


def test_what_cannot_be_written_down_is_not_done(tmp_path: Path) -> None:
    policy = Policy()
    log = policy.audit_sink = AuditLog(tmp_path / "a")
    log.close()
    with pytest.raises(ValueError, match="was closed"):
        policy.check_get("ana", 1, None)
    with pytest.raises(ValueError, match="keeps 1 file"):
        AuditLog(tmp_path / "b", keep=0)


def test_a_killed_process_leaves_its_lines(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from syft.policy.audit import AuditLog\n"
        "from syft.policy.permissions import AuditRecord\n"
        "log = AuditLog(sys.argv[1])\n"
        "for i in range(50): log(AuditRecord('get', i, 'ana', True))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = forked.run("-c", program, str(tmp_path / "a"), timeout=800, check=False)
    assert done.returncode == -9
    assert len(read_audit_log(tmp_path / "a")) == 50
