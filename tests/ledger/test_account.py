"""An account says what was spent in all; who read an older entry cannot write over a newer one."""

from __future__ import annotations

from pathlib import Path

import pytest

from syft.dp.accounting import Pure
from syft.dp.worker_budgets import BudgetBook, Charge, Limit
from syft.exceptions import BudgetFileError
from syft.ledger import Account, journal_path


def test_the_last_entry_counts_and_equal_ones_are_not_written_twice(tmp_path: Path) -> None:
    account = Account.create(tmp_path / "account")
    assert account.state() == (None, (0, ""))
    first = account.change(lambda before: {"spent": 1, "was": before})
    assert account.change(lambda before: dict(before or {})) == first
    second = account.change(lambda before: {"spent": 2}, after=first)
    assert Account(tmp_path / "account").state() == ({"spent": 2}, second) and second[0] == 2
    before = (tmp_path / "account").read_bytes()
    assert account.change(lambda before: {"spent": 0}, after=first) is None
    with pytest.raises(ZeroDivisionError):
        account.change(lambda before: {"spent": 1 // 0})
    assert (tmp_path / "account").read_bytes() == before


def test_a_book_is_no_account_and_an_account_is_no_book(tmp_path: Path) -> None:
    book = BudgetBook.create(tmp_path / "book")
    book.set_limit("ages", Limit(1.0, 0.0))
    book.charge(["ages"], "ann", Charge("mean", Pure(0.25), 0.25))
    with pytest.raises(BudgetFileError, match="a book of budgets, not a record"):
        Account(tmp_path / "book").state()
    Account.create(tmp_path / "account", {"spent": 1})
    taken = BudgetBook(tmp_path / "account")
    taken.set_limit("(account)", Limit(1e9, 0.5))
    with pytest.raises(BudgetFileError, match="unknown kind"):
        taken.state("(account)", "(account)")


def test_nothing_is_created_over_a_file_nor_beside_the_journal_of_a_lost_one(tmp_path: Path) -> None:
    path = tmp_path / "account"
    Account.create(path, {"spent": 1})
    with pytest.raises(FileExistsError, match=r"open it with Account\(path\)"):
        Account.create(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="missing one is not taken for an empty one"):
        Account(path)
    journal_path(path).write_bytes(b"pages")
    with pytest.raises(BudgetFileError, match="move the journal away"):
        Account.create(path)
    assert [file.name for file in tmp_path.iterdir()] == ["account-journal"]
