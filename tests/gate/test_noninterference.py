"""Non-interference of a whole worker: a user hears the same, whatever the values are that they may not fetch.

Programs of one to six commands are made of the table of operations and of `COMMANDS`, and are run in two worlds. The
tests at the end break the worker in sixteen ways; each leak has to be found, else the property would show nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from guarded_offers import OFFERS
from guarded_worlds import COMMANDS, ROWS, compare

from syft.dp import release
from syft.exceptions import RemoteError
from syft.federated import pointer_dataset, round_handlers
from syft.operations import running
from syft.requests.values import content_of
from syft.workers import admitted, composed, guards, handlers, holdings, pipeline, repeated, request_handlers
from syft.workers.failures import tell_failures

pytestmark = pytest.mark.filterwarnings("ignore")

_PARTS, _PROGRAMS = 4, 330
_ALL = (*COMMANDS, *OFFERS)


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(running, "new_seed", lambda: 7)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("part", range(_PARTS))
def test_a_user_hears_the_same_whatever_the_owners_values_are(hook: Any, me: Any, part: int) -> None:
    assert len(ROWS) < _PARTS * _PROGRAMS
    assert compare(hook, _PROGRAMS, part, _ALL) > 4000


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(100, 120))
def test_a_user_hears_the_same_in_a_million_messages(hook: Any, me: Any, part: int) -> None:
    assert compare(hook, 4000, part, _ALL) > 50_000


# -- leaks that have to be found ---------------------------------------------------------------------------


def _told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of a hidden operation is told."""
    run = admitted.run

    def loud(admission: Any, args: Any, kwargs: Any) -> Any:
        outcome = run(admission, args, kwargs)
        if outcome.failure is not None:
            raise RemoteError(outcome.failure)
        return outcome

    monkeypatch.setattr(admitted, "run", loud)
    monkeypatch.setattr(composed, "run", loud)


def _told_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of a hidden operation like one that was admitted before is told."""

    def loud(_admission: Any, error: Exception, _tensors: Any) -> Any:
        raise RemoteError(str(error))

    monkeypatch.setattr(repeated, "failed", loud)


def _charged_by_value_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota charges for what is not zero in results of commands like one that was admitted before."""
    charge = holdings.Holdings.charge_result

    def packed(self: Any, entry: Any, *rest: Any) -> None:
        entry.own_bytes += int(entry.value.count_nonzero())
        charge(self, entry, *rest)

    monkeypatch.setattr(holdings.Holdings, "charge_result", packed)


def _not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is not in the store."""
    keep = pipeline.Call.keep

    def forgetful(call: Any, obj_id: Any, value: Any, failure: str | None = None) -> None:
        if failure is None:
            keep(call, obj_id, value, failure)

    monkeypatch.setattr(pipeline.Call, "keep", forgetful)


def _charged_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota charges for what is not zero."""
    memory_of = holdings._memory_of

    def packed(obj: Any) -> Any:
        nbytes, blocks = memory_of(obj)
        return nbytes + (int(obj.count_nonzero()) if isinstance(obj, torch.Tensor) else 0), blocks

    monkeypatch.setattr(holdings, "_memory_of", packed)


def _draws_from_the_common_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many random numbers were drawn shows in the next one."""
    monkeypatch.setattr(running, "own_randomness", contextlib.nullcontext)


def _quotes_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota's error quotes a value, as it did once."""

    def admit(self: Any, call: Any, nbytes: float, count: int, transient: float) -> None:
        for entry in call.entries:
            if entry.value.dtype is torch.float32 and entry.value.flatten()[:1].tolist() > [9.0]:
                raise RemoteError("It is too large.")

    monkeypatch.setattr(guards.Quota, "admit", admit)


def _failed_plan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of several operations that failed is told."""
    from syft.execution import remote

    run = remote.run_composed

    def loud(*args: Any, **kwargs: Any) -> Any:
        results, failure = run(*args, **kwargs)
        if failure is not None:
            raise RemoteError(failure)
        return results, failure

    monkeypatch.setattr(remote, "run_composed", loud)


def _failed_inputs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of an attribute tells that the value could not be computed."""
    permit = pipeline.permit

    def loud(*args: Any, **kwargs: Any) -> Any:
        call = permit(*args, **kwargs)
        tell_failures(call.entries)
        return call

    monkeypatch.setattr(pipeline, "permit", loud)


def _callable_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable of the owner's is called and its result stored, whatever it is."""
    monkeypatch.setattr(
        handlers, "call_unseen", lambda call, function, args, kwargs: (function(*args, **kwargs), None)
    )


def _batch_runs_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that fails is told."""
    monkeypatch.setattr(
        pointer_dataset, "_batch_unseen", lambda call, sample, dataset, made, count: (made(), None)
    )


def _restricted_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may fetch a result depends on a value: a product with zeros is everybody's."""
    after = guards.Guard.after_run

    def lift(self: Any, call: Any, command: Any, args: Any, kwargs: Any, fresh: list[Any]) -> None:
        if fresh and all(not value.any() for value in fresh):
            call.allowed = frozenset({"eve"})
        after(self, call, command, args, kwargs, fresh)

    monkeypatch.setattr(guards.Guard, "after_run", lift)


def _approved_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval covers whatever has the value that was asked for, also after it was written into."""

    def version(_self: Any, entry: Any, is_asked: bool = False) -> str:
        return hashlib.sha256(content_of(entry.value)).hexdigest()

    monkeypatch.setattr(request_handlers.Tokens, "of", version)


def _not_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed in a pass that was learnt is not in the store."""
    _not_stored(monkeypatch)


def _described_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a data set has a value in it."""
    by_its_rows = round_handlers._by_its_rows

    def told(worker: Any, user: Any, key: str, client: Any) -> Any:
        info = by_its_rows(worker, user, key, client)
        return replace(info, description=f"up to {client.datasets[key].data.max()}")

    monkeypatch.setattr(round_handlers, "_by_its_rows", told)


def _refused_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statistic by group is refused because of a value."""
    answer = release.answer

    def refusing(values: Any, request: Any) -> Any:
        if bool((values > 1).any()):
            raise ValueError("a value is out of range")
        return answer(values, request)

    monkeypatch.setattr(release, "answer", refusing)


def _only(*names: str) -> Any:
    return tuple((command, weight) for command, weight in _ALL if command.__name__ in names)


_LEAKS: list[tuple[Callable[[pytest.MonkeyPatch], None], Any, str | None]] = [
    (_told, _only("operation"), "aten.index_select.default"),
    (_told_the_second_time, _only("operation"), "aten.index_select.default"),
    (_charged_by_value_the_second_time, _only("operation"), None),
    (_not_stored, _only("operation"), "aten.gather.default"),
    (_charged_by_value, _only("operation"), None),
    (_draws_from_the_common_generator, _only("operation"), "aten.poisson.default"),
    (_quotes_a_value, _only("plan", "operation"), None),
    (_failed_plan_is_told, _only("plan"), None),
    (_failed_inputs_are_told, _only("question", "recurrent"), "aten.index_select.default"),
    (_callable_runs_plainly, _only("owners_callable"), None),
    (_batch_runs_plainly, _only("batch"), None),
    (_restricted_by_value, _only("operation"), None),
    (_approved_by_value, _only("requests"), None),
    (_not_learnt, _only("learnt"), None),
    (_described_by_value, _only("datasets"), None),
    (_refused_by_value, _only("grouped"), None),
]


@pytest.mark.parametrize(
    ("leak", "commands", "first"), _LEAKS, ids=[leak.__name__[1:] for leak, *_ in _LEAKS]
)
def test_a_worker_that_leaks_is_found(
    hook: Any, me: Any, monkeypatch: pytest.MonkeyPatch, leak: Any, commands: Any, first: str | None
) -> None:
    compare(hook, 10, 3, commands, first)
    leak(monkeypatch)
    with pytest.raises(AssertionError, match="is answered by"):
        compare(hook, 300, 3, commands, first)
