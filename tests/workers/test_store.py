"""An object is stored with all that is known about it, or nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import QuotaExceededError, SendNotPermittedError
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.policy.quotas import Quotas
from syft.workers.holdings import Holdings


@pytest.fixture
def guarded(make_worker: Any) -> Any:
    """A worker that denies by default, with 100 bytes for everybody."""
    worker = make_worker("guarded")
    worker.policy = OwnerPolicy(read_rules('[limits]\nmax_bytes = "100 B"\n'))
    worker.guard_with(Holdings(Quotas(worker.policy.quota_of)))
    return worker


def standing(worker: Any, obj_id: Any) -> tuple[Any, ...]:
    """The entry with its facts as they are now, and what everybody holds."""
    entry = worker._entries.get(obj_id)
    facts = () if entry is None else tuple(getattr(entry, name) for name in entry.__struct_fields__)
    return entry, facts, worker._holdings.quotas.users()


# -- stored with its restriction ---------------------------------------------------------------------


def test_a_refused_object_changes_nothing(guarded: Any) -> None:
    with speaking_for("eve"):
        guarded.set_obj(5, torch.ones(3), frozenset({"ann"}))
        before = standing(guarded, 5)
        for allowed in (None, frozenset({"eve"})):
            with pytest.raises(QuotaExceededError):
                guarded.set_obj(5, torch.zeros(100), allowed, is_private=True)
            with pytest.raises(QuotaExceededError):
                guarded.register_obj(torch.zeros(100), 5, allowed)
            assert standing(guarded, 5) == before
        with pytest.raises(QuotaExceededError):
            guarded.set_obj(6, torch.zeros(100), frozenset({"eve"}), is_private=True)
        assert standing(guarded, 6) == (None, (), before[-1])
    with speaking_for("bob"), pytest.raises(SendNotPermittedError):
        guarded.set_obj(5, torch.ones(1), frozenset({"bob"}))
    assert standing(guarded, 5) == before


def test_what_takes_the_place_of_a_trusted_object_is_not_trusted(make_worker: Any) -> None:
    worker = make_worker("open")
    worker.register_obj(torch.ones(1), "callable")
    assert worker.entry_of("callable").is_trusted
    worker.set_obj("callable", torch.zeros(1), None)
    assert not worker.entry_of("callable").is_trusted


def test_an_owner_who_is_refused_leaves_no_trace(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(guarded, "_persist", refuse)
    with pytest.raises(OSError, match="no space"):
        guarded.register_obj(torch.ones(1), 5)
    assert 5 not in guarded._entries and not guarded._holdings.quotas.users()
