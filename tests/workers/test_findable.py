"""A search looks at the objects that may have a name, and finds what a look at all of them would."""

from __future__ import annotations

import gc
import random
import sys
import threading
from typing import Any

import pytest
import torch

import syft as sy
from call_counts import calls_of_python
from syft.core.identity import known_identity
from syft.workers.entry import Entry

TAGS = ("#a", "#b", "#c")


def found_by_looking(worker: Any, term: str) -> set[Any]:
    """The ids of all objects that have a tag or an id, found the long way."""
    found = set()
    for obj_id, entry in worker._entries.copy().items():
        value = entry.value
        named = known_identity(value) if type(value) is torch.Tensor else value
        tags = () if named is None else getattr(named, "tags", None) or ()
        if term in tags or term == str(obj_id):
            found.add(obj_id)
    return found


def found_by_search(worker: Any, term: str) -> set[Any]:
    return {getattr(found, "child", found).id_at_location for found in worker.search(term)}


@pytest.mark.parametrize("seed", range(8))
def test_a_search_finds_what_there_is(hook: Any, seed: int) -> None:
    worker = sy.VirtualWorker(hook, id="searched", auto_add=False)
    chance = random.Random(seed)
    held: list[Any] = []
    owned: list[Any] = []
    for number in range(120):
        tag = chance.choice(TAGS)
        step = chance.randrange(11)
        if step == 0:
            held.append(torch.ones(2).tag(tag).send(worker))  # type: ignore[attr-defined]
        elif step == 1:
            held.append(torch.ones(2).send(worker))  # type: ignore[attr-defined]
        elif step == 2 and held:
            held.append(chance.choice(held) + 1)
        elif step == 3 and held:
            held.extend(chance.choice(held).chunk(2))
        elif step == 4 and held:
            worker.get_obj(chance.choice(held).id_at_location).tag(tag)
        elif step == 5 and held:
            worker._objects[chance.choice(held).id_at_location].tag(tag)
        elif step == 6 and held:
            chance.choice(list(worker.current_objects().values())).tag(tag)
        elif step == 7 and held:
            held.pop(chance.randrange(len(held)))
        elif step == 8:
            owned.append(torch.ones(1))
            chance.choice([worker.set_obj, lambda i, t: worker.register_obj(t, i)])(number, owned[-1])
        elif step == 9 and owned:
            chance.choice(owned).tag(tag)  # its owner still has it
        elif step == 10 and chance.random() < 0.1:
            worker.clear_objects()
            for pointer in held:
                pointer.child.garbage_collect_data = False
            held, owned = [], []
        pair = chance.sample(TAGS, 2)
        assert {found.id_at_location for found in worker.search(pair)} == (
            found_by_looking(worker, pair[0]) & found_by_looking(worker, pair[1])
        )
        for term in (*TAGS, str(number), str(held[-1].id_at_location) if held else "?"):
            assert found_by_search(worker, term) == found_by_looking(worker, term)
    held.clear()
    gc.collect()
    worker.run_deletes()
    assert set(worker._findable.order) <= set(worker._entries)
    worker.clear_objects()
    assert not worker._findable.order and not worker._findable._by_tag


def test_a_search_does_not_look_at_results_that_nobody_named(bob: Any) -> None:
    x = torch.ones(2).tag("#x").send(bob)  # type: ignore[attr-defined]
    few = calls_of_python(lambda: bob.search("#x"), 3)
    results = [x + number for number in range(2000)]
    assert calls_of_python(lambda: bob.search("#x"), 3) == few
    assert len(bob._findable.order) < 10
    results[7].child.location.get_obj(results[7].id_at_location).tag("#seven")
    (found,) = bob.search("#seven")
    assert found.get().tolist() == [8, 8]


def test_what_is_deleted_is_not_remembered(bob: Any) -> None:
    for _ in range(50):
        torch.ones(2).tag("#gone").send(bob)  # type: ignore[attr-defined]
    assert not bob._findable.order and not bob._findable._by_tag and not bob.search("#gone")


def test_a_search_looks_only_at_those_that_have_the_tag(bob: Any) -> None:
    wanted = [torch.ones(2).tag("#wanted", f"#{n}").send(bob) for n in range(3)]  # type: ignore[attr-defined]
    few = calls_of_python(lambda: bob.search("#wanted"), 3)
    others = [torch.ones(2).tag("#other", f"#{n}").send(bob) for n in range(2000)]  # type: ignore[attr-defined]
    assert calls_of_python(lambda: bob.search("#wanted"), 3) == few
    assert found_by_search(bob, "#2") == {wanted[2].id_at_location, others[2].id_at_location}
    (both,) = bob.search(["#wanted", "#2"])
    assert both.id_at_location == wanted[2].id_at_location


def test_a_tag_is_found_after_another_value_took_the_place_of_what_had_one(bob: Any) -> None:
    torch.ones(2).tag("#old").send(bob, garbage_collect_data=False)  # type: ignore[attr-defined]
    (obj_id,) = bob._entries
    bob.store_entry(Entry(obj_id, torch.zeros(2).tag("#new")))  # type: ignore[attr-defined]
    assert not bob.search("#old")
    assert found_by_search(bob, "#new") == {obj_id}
    bob.rm_obj(obj_id)
    assert not bob._findable.order and not bob._findable._by_tag


def test_threads_that_store_and_delete_lose_no_tag(bob: Any) -> None:
    """One tag, of which there are some or none all the time."""
    missed = []

    def work() -> None:
        for _ in range(300):
            x = torch.ones(1).tag("#shared").send(bob)  # type: ignore[attr-defined]
            if x.id_at_location not in found_by_search(bob, "#shared"):
                missed.append(x.id_at_location)
            del x

    switching, before = 1e-5, sys.getswitchinterval()
    sys.setswitchinterval(switching)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not missed
    assert not bob._findable._by_tag


def test_a_search_without_a_query_finds_all_and_an_empty_list_nothing(hook: Any, me: Any) -> None:
    worker = sy.VirtualWorker(hook, id="searched", auto_add=False)
    kept = [torch.ones(2).tag("#a").send(worker), torch.ones(2).send(worker)]  # type: ignore[attr-defined]
    kept.append(kept[0] + kept[1])
    assert {found.id_at_location for found in worker.search()} == set(worker._objects)
    assert len(worker.search()) == 3
    for nothing in ([], (), "", [""]):
        assert worker.search(nothing) == []
