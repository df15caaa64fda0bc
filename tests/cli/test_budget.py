"""`syft budget` and `syft worker --budgets`, as a data owner types them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.dp.release import serve_book
from syft.dp.worker_budgets import BudgetBook, Limit
from syft.exceptions import BudgetExceededError, GetNotPermittedError, ReleaseNotPermittedError

Types = Callable[..., tuple[int, str, str]]
PEOPLE = np.random.default_rng(4).normal(50, 10, (1000, 2)).astype("float32")


@pytest.fixture
def owner(types: Types) -> Callable[..., str]:
    """Type a command of the owner's that works; what it says."""

    def run(*arguments: str) -> str:
        status, out, err = types(*arguments)
        assert status == 0, err
        return out

    return run


@pytest.fixture
def book(owner: Callable[..., str], here: Path) -> Iterator[BudgetBook]:
    owner("budget", "create", "budgets")
    opened = BudgetBook(here / "budgets")
    yield opened
    opened.close()


def test_a_book_is_made_and_limits_are_set(owner: Callable[..., str], book: BudgetBook) -> None:
    said = owner("budget", "set", "budgets", "--dataset", "#people", "--epsilon", "2", "--delta", "1e-6")
    assert "#people: each user may spend epsilon 2 at delta 1e-06" in said
    owner(
        "budget",
        "set",
        "budgets",
        "--dataset",
        "#people",
        "--epsilon",
        "5",
        "--user",
        "ann",
        "--records",
        "3",
    )
    owner("budget", "set", "budgets", "--dataset", "#people", "--epsilon", "8", "--together")
    assert (book.state("#people", "dan").epsilon, book.state("#people", "dan").delta) == (2.0, 1e-6)
    assert book.state("#people", "ann").epsilon == 5.0
    assert book.state("#people", "ann").together_epsilon == 8.0
    assert book.records_per_person(["#people"]) == 3
    shown = owner("budget", "show", "budgets")
    assert "#people" in shown and "ann" in shown and "each other user" in shown and "all together" in shown
    assert "ann" not in owner("budget", "show", "budgets", "--user", "dan")
    assert "copied" in owner("budget", "copy", "budgets", "copy")
    assert BudgetBook("copy").state("#people", "ann").epsilon == 5.0


def test_the_budget_of_those_without_a_name_is_called_theirs(
    owner: Callable[..., str], book: BudgetBook
) -> None:
    said = owner("budget", "set", "budgets", "--dataset", "#people", "--epsilon", "2", "--user", "anonymous:")
    assert "#people: all anonymous users together may spend epsilon 2" in said
    assert book.state("#people", "anonymous:1").epsilon == 2.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "budgets"), "already"),
        (("create", "no/folder/budgets"), "No book of budgets can be written"),
        (("set", "nowhere", "--dataset", "#x", "--epsilon", "1"), "syft budget create"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "-1"), "above 0"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "nan"), "finite"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "1", "--delta", "1"), "below 1"),
        (("set", "budgets", "--dataset", "", "--epsilon", "1"), "in quotes"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "1", "--user", "a b\n"), "name of a user"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "1", "--user", "anonymous:zz"), "is one user"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "1", "--user", "ann", "--together"), "not both"),
        (("set", "budgets", "--dataset", "#x", "--epsilon", "1", "--records", "0"), "1 at least"),
        (("show", "budgets", "--dataset", "#x"), "no budget for '#x'"),
        (("copy", "budgets", "budgets"), "already"),
    ],
)
def test_a_mistake_is_a_sentence(
    book: BudgetBook, types: Types, arguments: tuple[str, ...], says: str
) -> None:
    status, _, err = types("budget", *arguments)
    assert status == 1
    assert says in err and "Traceback" not in err
    assert book.datasets() == []


def test_help_teaches(types: Types) -> None:
    for arguments in ((), ("budget",), ("worker",)):
        _, out, _ = types(*arguments, "--help")
        assert "syft budget set" in out
    assert "--budgets" in out


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_worker_does_not_start_with_a_book_that_is_none(
    here: Path,
    types: Types,
    harm: str,
) -> None:
    if harm == "damaged":
        (here / "budgets").write_bytes(b"x" * 5000)
    status, _, err = types("worker", "--listen", "tcp://127.0.0.1:0", "--budgets", "budgets")
    assert status == 1 and "not taken for an empty one" in err and "Traceback" not in err


def test_a_worker_does_not_start_with_a_budget_for_what_is_no_data_set(
    owner: Callable[..., str],
    book: BudgetBook,
    here: Path,
    types: Types,
) -> None:
    (here / "data").mkdir()
    np.save(here / "data" / "people.npy", PEOPLE)
    (here / "policy.toml").write_text('[defaults]\nmay_get = "all"\n')
    owner("budget", "set", "budgets", "--dataset", "#people", "--epsilon", "2")
    options = "worker --listen tcp://127.0.0.1:0 --data data --policy policy.toml --budgets budgets"
    status, _, err = types(*options.split())
    assert status == 1 and "'#people', which cannot have one" in err and 'may_get be "own"' in err


@pytest.mark.network
def test_a_user_with_a_token_releases_until_the_budget_is_spent_also_after_a_restart(
    owner: Callable[..., str],
    book: BudgetBook,
    here: Path,
    hook: Any,
    me: Any,
    start: Any,
) -> None:
    (here / "data").mkdir()
    for name in ("people", "others"):
        np.save(here / "data" / f"{name}.npy", PEOPLE)
    owner("budget", "set", "budgets", "--dataset", "#people", "--epsilon", "2", "--delta", "1e-6")
    owner("budget", "set", "budgets", "--dataset", "#typo", "--epsilon", "2")
    tokens = {user: owner("token", "new", user).strip() for user in ("ann", "dan")}
    options = (
        "--id hospital --data data --listen tcp://127.0.0.1:0 --tokens tokens --budgets budgets --audit log"
    )
    process, address = start(*options.split())

    ann = sy.connect(address, token=tokens["ann"], auto_add=False)
    (people,) = ann.search("#people")
    with pytest.raises(GetNotPermittedError):
        people.copy().get()
    means = ann.release(people, "mean", 1.0, user="dan", bounds=(0, 100))
    assert torch.allclose(means, torch.from_numpy(PEOPLE).double().mean(0), atol=5)
    assert ann.release(people[:, 0] > 50, "count", 0.5) == pytest.approx(
        int((PEOPLE[:, 0] > 50).sum()), abs=60
    )
    assert ann.budget(None, "#people").left == 0.5
    (others,) = ann.search("#others")
    with pytest.raises(ReleaseNotPermittedError):
        ann.release(others, "mean", 0.1, bounds=(0, 100))
    people.tag("#others")  # tags that come later make no data set
    owner("budget", "set", "budgets", "--dataset", "#others", "--user", "ann", "--epsilon", "1")
    ann.release(others, "mean", 1.0, bounds=(0, 100))  # the worker goes by it at once
    with pytest.raises(BudgetExceededError, match="#others"):
        ann.release(others, "mean", 0.1, bounds=(0, 100))
    assert ann.budget(None, "#people").left == 0.5

    process.kill()  # -9
    process.wait()
    assert sorted(p.name for p in here.iterdir() if p.name.startswith("budgets")) == ["budgets"]
    process, address = start(*options.split(), "--isolation", "process")
    ann = sy.connect(address, token=tokens["ann"], auto_add=False)
    (people,) = ann.search("#people")
    with pytest.raises(BudgetExceededError, match=r"epsilon 0\.5 of 2 left on '#people'"):
        ann.release(people, "mean", 1.0, bounds=(0, 100))
    ann.release(people, "mean", 0.5, bounds=(0, 100))
    with pytest.raises(BudgetExceededError, match="epsilon 0 of 2 left"):
        ann.release(people, "mean", 0.1, bounds=(0, 100))
    ann.close()
    dan = sy.connect(address, token=tokens["dan"], auto_add=False)
    dan.release(dan.search("#people")[0], "gaussian", 1.0, 1e-7, bounds=(0, 100))
    with pytest.raises(ReleaseNotPermittedError, match="for the owner"):
        dan.set_budget(dataset="#people", epsilon=1.0)
    dan.close()
    shown = owner("budget", "show", "budgets", "--user", "ann", "--dataset", "#people")
    assert shown.count("mean") == 2 and "count" in shown and "dan" not in shown
    assert [(line.user, line.releases) for line in book.lines("#people")] == [
        ("ann", 3),
        ("dan", 1),
        (None, 0),
    ]
    process.terminate()
    _, err = process.communicate(timeout=800)
    assert "'#typo', and no data here has that tag" in err and "#people" in err


def test_data_that_went_away_or_was_brought_by_users_is_no_data_set(
    hook: Any, me: Any, tmp_path: Path
) -> None:
    opened = BudgetBook.create(tmp_path / "book")
    opened.set_limit("#x", Limit(1.0, 0.0))
    with sy.NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="far", data=[torch.ones(4).tag("#y")]
    ) as worker:
        assert serve_book(worker, opened) == ["#x"]
        with sy.connect(worker.address, auto_add=False) as client:
            mine = torch.ones(4).tag("#x", "#y").send(client)
            for pointer in (mine, *client.search("#y")):
                with pytest.raises(ReleaseNotPermittedError):
                    client.release(pointer, "mean", 0.1, bounds=(0, 1))
            opened.set_limit("#y", Limit(1.0, 0.0))
            with pytest.raises(ReleaseNotPermittedError):
                client.release(mine, "mean", 0.1, bounds=(0, 1))
            (owners,) = [
                p for p in client.search("#y") if p.child.id_at_location != mine.child.id_at_location
            ]
            client.release(owners, "mean", 0.1, bounds=(0, 1))


def test_budgets_that_another_process_could_not_find_are_not_left_behind(
    hook: Any, me: Any, tmp_path: Path
) -> None:
    def make() -> Any:
        x = torch.arange(100.0).tag("#x")  # type: ignore[attr-defined]
        return sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="far", data=[x])

    worker = make()
    worker.set_budget(dataset="#x", epsilon=1.0)
    with pytest.raises(ValueError, match=r"in memory only: keep them in a book, with keep_budgets\(path\)"):
        worker.start(process=True)
    worker = make()
    worker.keep_budgets(BudgetBook.create(tmp_path / "budgets"))
    worker.set_budget(dataset="#x", epsilon=1.0, name="ages")
    with pytest.raises(ValueError, match="the budget 'ages' is for data without that tag"):
        worker.start(process=True)
