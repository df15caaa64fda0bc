"""`syft status` and `syft search`: what they say, and what they leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import forked
import syft as sy
from syft.cli import ask
from syft.identity.tokens import TokenAuthority
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.policy.permissions import Policy

pytestmark = pytest.mark.network


@pytest.fixture
def hospital(here: Any, hook: Any, me: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A worker with two data sets, of which bob may find one."""
    authority = TokenAuthority.create(here / "keys")
    for user in ("ana", "bob"):
        monkeypatch.setenv(f"TOKEN_OF_{user}", authority.issue(user, 600))
    policy = OwnerPolicy(read_rules('[[data]]\ntags = ["#patients"]\nmay_find = ["ana"]\n'))
    data = [torch.ones(3, 2).tag("#patients").describe("age, pressure"), torch.ones(4).tag("#public")]
    tokens = authority.verifier("hospital")
    with sy.NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", "hospital", data, tokens=tokens, policy=policy
    ) as worker:
        yield worker


@pytest.fixture
def says(hospital: Any, types: Any) -> Any:
    """`says("ana", "search", "#x")`: what the command prints for a user."""

    def ask_as(user: str, command: str, *terms: str) -> str:
        status, out, err = types(command, hospital.address, *terms, "--token", os.environ[f"TOKEN_OF_{user}"])
        assert status == 0, err
        return str(out)

    return ask_as


def test_without_a_term_everything_is_listed_that_the_user_may_find(says: Any) -> None:
    for_ana, for_bob = says("ana", "search"), says("bob", "search")
    assert "#patients" in for_ana and "(3, 2)" in for_ana and "#public" in for_ana
    assert "#public" in for_bob and "#patients" not in for_bob and "pressure" not in for_bob


def test_a_long_list_is_cut_and_says_so(says: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "_MOST_LISTED", 1)
    out = says("ana", "search")
    assert "and 1 more" in out and ("#patients" in out) != ("#public" in out)


def test_who_forgets_the_mark_of_a_tag_is_told_if_there_is_such_a_tag(says: Any) -> None:
    assert "has something for '#patients'" in says("ana", "search", "patients")
    assert "has something" not in says("bob", "search", "patients")  # who may not know
    assert "has something" not in says("ana", "search", "nonsense")
    assert "has something" not in says("ana", "search", "#nonsense")


def test_a_worker_without_data_says_so(hook: Any, me: Any, types: Any) -> None:
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", "empty") as worker:
        assert types("search", worker.address)[1] == "empty has nothing that you may know of.\n"


def test_numbers_of_a_status_say_whose_they_are_and_in_what(
    says: Any, hook: Any, me: Any, types: Any
) -> None:
    out = says("ana", "status")
    assert "your objects  0" in out and "up for" in out and out.split("up for")[1].split()[1] == "s"
    with sy.NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", "open", [torch.ones(2)], policy=Policy()
    ) as worker:
        out = types("status", worker.address)[1]
    assert "your objects" not in out and "objects" in out and "sessions" in out


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "0 s"),
        (46.2, "46 s"),
        (60, "1 min"),
        (3_725.0, "1 h 2 min"),
        (200_000.0, "2 d 7 h"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("a lie", "a lie"),
    ],
)
def test_a_time_is_said_as_people_say_it(seconds: Any, said: str) -> None:
    assert ask.duration(seconds) == said


def test_an_empty_variable_is_no_token(
    hook: Any, me: Any, types: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYFT_TOKEN", "")
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", "free") as worker:
        status, out, err = types("status", worker.address)
    assert status == 0 and "anonymous" in out, err


def test_nobody_there_is_said_once_and_without_commands_that_were_never_given(types: Any) -> None:
    status, _, err = types("status", "tcp://127.0.0.1:1")
    assert status == 1 and err.count("running") == 1 and "Commands" not in err
    assert "The worker at tcp://127.0.0.1:1 cannot be reached" in err


def test_a_token_is_read_from_a_file_with_its_line_break(hospital: Any, here: Any, types: Any) -> None:
    user = "bob"
    token = os.environ[f"TOKEN_OF_{user}"]
    (here / "bob.token").write_text(f"{token}\n")
    status, out, err = types("status", hospital.address, "--token-file", "bob.token")
    assert status == 0 and "bob" in out, err
    status, out, err = types("status", hospital.address, "--token", f"{token}\n")
    assert status == 0 and "bob" in out, err
    status, _, err = types("status", hospital.address, "--token-file", "bob.token", "--token", token)
    assert status == 1 and "--token-file FILE" in err and "Leave one out" in err
    status, _, err = types("status", hospital.address, "--token-file", "nobody.token")
    assert status == 1 and "InvalidTokenError" in err and "nobody.token" in err


PROGRAM = """
import sys
import syft as sy

with sy.connect(sys.argv[1], token_file=sys.argv[2]) as worker:
    assert sy.hook is not None and sy.local_worker is sy.hook.local_worker
    print(worker.user, sorted(tag for found in worker.search() for tag in found.tags), len(worker.search([])))
    import torch
    (torch.ones(2).send(worker) + 1).get()
"""


def test_a_program_without_a_hook_connects_and_lists_what_it_may_find(hospital: Any, here: Any) -> None:
    said = []
    for user in ("ana", "bob"):
        (here / f"{user}.token").write_text(os.environ[f"TOKEN_OF_{user}"] + "\n")
        arguments = (hospital.address, f"{user}.token")
        done = forked.run("-c", PROGRAM, *arguments, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.strip())
    assert said == ["ana ['#patients', '#public'] 0", "bob ['#public'] 0"]


def test_programs_are_answered_in_json(says: Any) -> None:
    said = json.loads(says("ana", "status", "--json"))
    assert said["user"] == "ana" and said["id"] == "hospital" and said["objects"] == 0
    found = {one["tags"][0]: one for one in json.loads(says("ana", "search", "--json"))}
    assert set(found) == {"#patients", "#public"} and type(found["#public"]["id"]) is int
    assert found["#patients"]["shape"] == [3, 2] and found["#patients"]["dtype"] == "float32"
    assert found["#patients"]["description"] == "age, pressure"
    assert json.loads(says("bob", "search", "#patients", "--json")) == []


def test_the_version_is_an_option_too(types: Any) -> None:
    assert types("--version") == (0, f"resyft {sy.__version__}\n", "")
    status, out, _ = types("--help")
    assert (
        status == 0
        and "Private machine learning" in out
        and "--version" in out
        and "does the work" not in out
    )
