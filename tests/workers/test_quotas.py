"""How much users hold is counted exactly, and no more is kept than they may."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch

from syft.exceptions import PermissionDeniedError, QuotaExceededError
from syft.policy.quotas import OWNER, Quota, Quotas, Usage
from syft.workers.entry import Entry
from syft.workers.guards import Guards
from syft.workers.guards import Quota as QuotaGuard
from syft.workers.holdings import Holdings
from syft.workers.store import ObjectStorage


def limited(objects: int | None = None, nbytes: int | None = None) -> Quotas:
    return Quotas(lambda user: Quota() if user == OWNER else Quota(objects, nbytes))


# -- counts ------------------------------------------------------------------------------------------


def test_a_charge_within_the_quota_is_noted_and_one_beyond_it_is_not() -> None:
    quotas = limited(3, 100)
    quotas.charge("ana", 60)
    quotas.charge("ana", 40)
    with pytest.raises(QuotaExceededError, match=r"'ana' holds 100 bytes .* 1 more"):
        quotas.charge("ana", 1)
    quotas.charge("ana", 0)
    with pytest.raises(QuotaExceededError, match="holds 3 objects"):
        quotas.charge("ana", 0)
    assert quotas.usage("ana") == Usage(3, 100)
    quotas.charge("ben", 100)
    quotas.release("ana", 60)
    quotas.charge("ana", 60)
    assert issubclass(QuotaExceededError, PermissionDeniedError)


def test_only_what_was_charged_can_be_released() -> None:
    quotas = limited()
    quotas.charge("ana", 10)
    for nbytes, count in ((11, 1), (0, 2)):
        with pytest.raises(ValueError, match="who holds 1 and 10"):
            quotas.release("ana", nbytes, count)
    quotas.release("ana", 10)
    assert quotas.users() == {}


def test_threads_lose_nothing() -> None:
    quotas = limited(1000, 10**9)

    def work(user: str) -> None:
        for _ in range(2000):
            quotas.charge(user, 7)
            quotas.release(user, 7)
        quotas.charge(user, 5, 2)

    threads = [threading.Thread(target=work, args=(user,)) for user in ("ana", "ana", "ben", "ana")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert quotas.users() == {"ana": Usage(6, 15), "ben": Usage(2, 5)}


class Shelf(ObjectStorage):
    """A store with quotas and without a policy: anybody may replace anything."""

    def __init__(self, quotas: Quotas) -> None:
        super().__init__()
        self.quotas = quotas
        self._holdings: Any = Holdings(quotas)
        self.guards = Guards([QuotaGuard(self._holdings)])

    def hold(self, obj_id: Any, obj: Any, user: str) -> None:
        self.store_entry(Entry(obj_id, obj, holder=user))


# -- objects and memory ------------------------------------------------------------------------------


def test_memory_is_paid_for_once_and_by_whoever_holds_it() -> None:
    holdings = Shelf(limited())
    base = torch.zeros(1000)
    holdings.hold("base", base, "ana")
    holdings.hold("view", base[:1], "ana")
    holdings.hold("eves", base.view(10, 100), "eve")
    assert holdings.quotas.users() == {"ana": Usage(2, 4000), "eve": Usage(1, 0)}
    holdings.rm_obj("base")
    assert holdings.quotas.usage("ana") == Usage(1, 4000)  # the small view keeps all of it alive
    holdings.rm_obj("view")
    assert holdings.quotas.users() == {"eve": Usage(1, 4000)}
    holdings.rm_obj("eves")
    assert holdings.quotas.users() == {}


def test_views_of_the_owners_data_cost_nothing() -> None:
    holdings = Shelf(limited(nbytes=100))
    data = torch.zeros(1000)
    holdings.hold("data", data, OWNER)
    holdings.hold("rows", data[:500], "ana")
    with pytest.raises(QuotaExceededError):
        holdings.hold("copy", data[:500].clone(), "ana")
    assert holdings.entry_of("rows").holder == "ana" and "copy" not in holdings._entries


def test_replacing_an_object() -> None:
    holdings = Shelf(limited(1, 100))
    holdings.hold("x", torch.zeros(10), "ana")
    with pytest.raises(QuotaExceededError):
        holdings.hold("x", torch.zeros(26), "ana")
    assert holdings.quotas.usage("ana") == Usage(1, 40)
    holdings.hold("x", torch.zeros(15), "ana")
    assert holdings.quotas.usage("ana") == Usage(1, 60)
    holdings.hold("x", torch.zeros(5), "ben")
    assert holdings.quotas.users() == {"ben": Usage(1, 20)}


@pytest.mark.parametrize(
    ("obj", "least"),
    [
        ("x" * 1000, 1000),
        (b"x" * 1000, 1000),
        ({"a": [torch.zeros(250)], "b": {"c": (torch.zeros(250),)}}, 2000),
        ([[[[[[[[torch.zeros(250)]]]]]]]], 1000),
        (torch.zeros(250).numpy(), 1000),
        (torch.nn.Linear(100, 10), 4040),
    ],
)
def test_other_objects_cost_what_they_hold(obj: Any, least: int) -> None:
    holdings = Shelf(limited())
    holdings.hold("x", obj, "ana")
    assert least <= holdings.quotas.usage("ana").bytes <= least + 2000
    holdings.rm_obj("x")
    assert holdings.quotas.users() == {}


def test_an_object_that_holds_itself() -> None:
    knot: list[Any] = [torch.zeros(10)]
    knot.append(knot)
    Shelf(limited()).hold("x", knot, "ana")


class Recount:
    """The same, counted anew every time."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, torch.Tensor]] = {}
        self.payers: dict[int, str] = {}

    def usage(self) -> dict[str, tuple[int, int]]:
        counts: dict[str, tuple[int, int]] = {}
        memory: dict[int, tuple[int, set[str]]] = {}
        for user, tensor in self.held.values():
            objects, nbytes = counts.get(user, (0, 0))
            counts[user] = (objects + 1, nbytes)
            storage = tensor.untyped_storage()
            memory.setdefault(storage._cdata, (storage.nbytes(), set()))[1].add(user)
        self.memory = memory
        return counts


@pytest.mark.parametrize("seed", range(8))
def test_random_histories_never_drift(seed: int) -> None:
    rng = random.Random(seed)
    holdings, truth = Shelf(limited(40, 20_000)), Recount()
    for _ in range(1500):
        obj_id = rng.randrange(60)
        if rng.random() < 0.35:
            holdings.rm_obj(obj_id)
            truth.held.pop(obj_id, None)
            continue
        user = rng.choice(["ana", "ben", "eve", OWNER])
        if truth.held and rng.random() < 0.5:
            tensor = rng.choice(list(truth.held.values()))[1][: rng.randrange(1, 5)]
        else:
            tensor = torch.zeros(rng.randrange(1, 800))
        try:
            holdings.hold(obj_id, tensor, user)
        except QuotaExceededError:
            continue
        truth.held[obj_id] = (user, tensor)
    counted = truth.usage()
    used = holdings.quotas.users()
    assert {user: usage.objects for user, usage in used.items()} == {u: n for u, (n, _) in counted.items()}
    # All memory that is held is paid for, once, by somebody who holds it.
    assert sum(usage.bytes for usage in used.values()) == sum(nbytes for nbytes, _ in truth.memory.values())
    for key, (nbytes, users) in truth.memory.items():
        block = holdings._holdings._blocks[key]
        if type(block) is Entry:  # of one object alone
            assert block.memory_bytes == nbytes and {block.holder} == users
        else:
            assert block.nbytes == nbytes and block.payer in users and set(block.holders) == users
        assert {e.id for e in holdings._holdings.behind([key])} == {
            i for i, (_, t) in truth.held.items() if t.untyped_storage()._cdata == key
        }
    assert len(holdings._holdings._blocks) == len(truth.memory)
    holdings.clear_objects()
    assert (
        holdings.quotas.users() == {} and holdings._holdings._blocks == {} and not holdings._holdings._opaque
    )


def test_many_threads_hold_and_drop() -> None:
    holdings = Shelf(limited())
    shared = torch.zeros(100)

    def work(user: str, seed: int) -> None:
        rng = random.Random(seed)
        for i in range(800):
            holdings.hold(f"{user} {rng.randrange(20)}", shared[i % 100 :] if i % 2 else torch.zeros(3), user)
            holdings.rm_obj(f"{user} {rng.randrange(20)}")

    threads = [threading.Thread(target=work, args=(f"u{i}", i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for user in [f"u{i}" for i in range(4)]:
        assert holdings.quotas.usage(user).objects == len(
            [e for e in holdings._entries.values() if e.holder == user]
        )
    holdings.clear_objects()
    assert holdings.quotas.users() == {}


def test_a_drop_in_the_middle_of_a_hold_happens_right_after() -> None:
    """As the finalizer of a pointer would do it, in the same thread."""
    holdings: Shelf

    def charge(*charged: Any) -> None:
        holdings.rm_obj("old")
        assert quotas.usage("ana") == Usage(1, 40)
        really_charge(*charged)

    quotas = Quotas(lambda user: Quota())
    holdings = Shelf(quotas)
    holdings.hold("old", torch.zeros(10), "ana")
    really_charge, quotas.charge = quotas.charge, charge  # type: ignore[method-assign]
    holdings.hold("new", torch.zeros(1), "ana")
    assert "old" not in holdings._entries and quotas.usage("ana") == Usage(1, 4)
