"""Non-interference of every row: what a user hears does not depend on values; and a valid call is right bit for bit."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import pytest
import torch
from calls import WORLDS, emptied, recorded_calls, tensors_of
from worlds import admitted, heard, run_in, same

from syft.core.nested import found_in
from syft.operations import all_rows, running
from syft.operations.table import FAMILIES
from syft.operations.written_whole import WRITTEN_WHOLE

_CALLS_PER_ROW = 3


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(running, "new_seed", lambda: 7)
    yield
    torch.set_num_threads(threads)


def _calls(family: str, most: int) -> list[Any]:
    module = import_module(f"syft.operations.rows.{family}")
    names = [row.name for row in module.ROWS if row.name in all_rows() and not row.inner]
    found = []
    for name in names:
        calls = recorded_calls()[name]
        for call in calls[:: max(1, len(calls) // most)][:most]:
            found += [made for made in (call, emptied(call)) if made is not None]
    return found


def _compare_worlds(calls: list[Any], seeds: range) -> int:
    """Each call in all worlds; returns how many were run."""
    count = 0
    for call in calls:
        admission = admitted(call)
        if admission is None:
            continue
        first: Any = None
        for seed in seeds:
            for world in WORLDS:
                outcome, args, kwargs = run_in(admission, call, world, seed)
                seen = heard(admission, outcome, args, kwargs)
                first = first or seen
                assert seen == first, (call, world)
                if outcome.failure is not None:
                    assert all(not made.any() for r, made in zip(admission.results, outcome.results, strict=True)
                               if r.view_of is None), call  # fmt: skip
                count += 1
    return count


@pytest.mark.parametrize("family", FAMILIES)
def test_a_user_hears_the_same_whatever_the_values_are(family):
    assert _compare_worlds(_calls(family, _CALLS_PER_ROW), range(1, 2)) > 0


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_user_hears_the_same_in_a_million_runs(family):
    assert _compare_worlds(_calls(family, 10), range(1, 13)) > 0


#: What torch keeps for the backward pass of these is made whole, and differs from torch's.
_FIRST_RESULT_ONLY = {name for name in WRITTEN_WHOLE if "bag" in name or "ctc" in name}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_gives_what_torch_gives(family):
    compared = 0
    for call in _calls(family, 10):
        admission = admitted(call)
        if admission is None or "empty" in call[0]:
            continue
        outcome, args, kwargs = run_in(admission, call, "recorded")
        if admission.way == "checked" and (outcome.failure is not None or admission.makes_nothing):
            continue  # torch may write beside its memory
        plain_args, plain_kwargs = tensors_of(call, "recorded", 1)
        torch.default_generator.manual_seed(7)
        try:
            # NB: as a worker runs it: with gradients, torch's recurrent layers round otherwise on some processors.
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                plain = admission.row.function(*plain_args, **plain_kwargs)
        except Exception:  # noqa: BLE001  (whatever torch refuses)
            assert outcome.failure is not None or admission.makes_nothing, call
            continue
        assert outcome.failure is None, (call, outcome.failure)
        wanted = list(running._new_tensors(plain, admission.row.function._schema.returns))
        if call[0] in _FIRST_RESULT_ONLY:
            wanted = wanted[:1]
        for want, got in zip(wanted, outcome.results, strict=call[0] not in _FIRST_RESULT_ONLY):
            assert same(want, got), call
        for want, got in zip(
            found_in((plain_args, plain_kwargs), torch.Tensor),
            found_in((args, kwargs), torch.Tensor),
            strict=True,
        ):
            assert same(want, got), call
        compared += 1
    assert compared > 0
