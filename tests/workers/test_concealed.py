"""What happens inside a worker so that failures, refusals and costs do not tell of private data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.core import shapes
from syft.core.commands import command_named
from syft.core.spec import make_spec, spec_of
from syft.exceptions import QuotaExceededError, SendNotPermittedError
from syft.messaging.message import Operation, Ref
from syft.workers import restricted
from syft.workers.caller import speaking_for
from syft.workers.owner_policy import OwnerPolicy, read_rules
from syft.workers.pipeline import execute
from syft.workers.quotas import Holdings, Quotas
from syft.workers.restricted import Failure, run_concealed
from syft.workers.writes import count_writes, written_into


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


# -- results in the memory that was foretold ---------------------------------------------------------


def concealed(result: torch.Tensor, spec: Any, inputs: Any = ()) -> Any:
    (kept,), _ = run_concealed(lambda: result, shapes.Answer(spec=spec), None, inputs)
    return kept


BASE = torch.arange(24.0)


@pytest.mark.parametrize(
    ("result", "spec"),
    [
        (BASE[3:9].view(2, 3), shapes.contiguous_spec((2, 3), torch.float32)),
        (BASE.view(4, 6)[:, ::2], spec_of(BASE.view(4, 6)[:, ::2])),
        (BASE[:1].expand(5), spec_of(torch.ones(1).expand(5))),
        (BASE[:1].expand(5), shapes.contiguous_spec((5,), torch.float32)),
        (BASE.view(4, 6).t(), shapes.contiguous_spec((6, 4), torch.float32)),
        (BASE[2:5], make_spec(torch.Size((3,)), (1,), 7, torch.float32)),
        (BASE[:3].view(1, 3), make_spec(torch.Size((1, 3)), (1, 1), 0, torch.float32)),
        (BASE[:0], shapes.contiguous_spec((0,), torch.float32)),
        (torch.view_as_complex(BASE.view(12, 2)).conj(), shapes.contiguous_spec((12,), torch.complex64)),
    ],
)
def test_a_result_has_the_layout_and_the_size_that_were_foretold(result: torch.Tensor, spec: Any) -> None:
    kept = concealed(result, spec, [BASE])
    assert torch.equal(kept, result)
    assert (kept.shape, kept.stride(), kept.storage_offset()) == (spec.shape, spec.strides, spec.offset)
    assert kept.untyped_storage()._cdata != BASE.untyped_storage()._cdata
    assert kept.untyped_storage().nbytes() == Failure(spec, "").memory.nbytes()


def test_a_result_that_fits_is_not_copied() -> None:
    result = torch.ones(2, 3).t()
    assert concealed(result, spec_of(result)) is result


def test_a_copied_result_is_still_differentiable() -> None:
    leaf = torch.ones(4, requires_grad=True)
    kept = concealed((leaf * 3)[1:3], shapes.contiguous_spec((2,), torch.float32))
    kept.sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [0, 3, 3, 0]


def test_a_result_that_cannot_have_the_layout_fails() -> None:
    assert type(concealed(torch.arange(5.0), spec_of(torch.ones(1).expand(5)))) is Failure


def test_views_stay_views_also_of_failures() -> None:
    base = torch.arange(6.0)
    for name in ("aten.view.default", "torch.reshape"):
        command = command_named(name)
        answer = shapes.Answer(spec=spec_of(base.view(2, 3)))
        (view,), reason = run_concealed(lambda: base.view(2, 3), answer, None, ([base, [2, 3]], {}), command)
        assert reason is None and view.data_ptr() == base.data_ptr()
        failed = Failure(spec_of(base), "why")
        (view,), reason = run_concealed(lambda: None, answer, None, ([failed, [2, 3]], {}), command)
        assert reason == "why" and view.memory is failed.memory


def test_what_has_grown_is_measured_also_when_the_operation_is_refused(
    guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.register_obj(torch.ones(3), 1, allowed=())
    measured = []
    monkeypatch.setattr(restricted, "remeasure", lambda *_: measured.append(1))

    def refuse(*_: Any) -> Any:
        raise SendNotPermittedError("it would write into private data")

    monkeypatch.setattr(restricted, "run_concealed", refuse)
    with speaking_for("eve"), pytest.raises(SendNotPermittedError):
        execute(guarded, Operation("torch.relu", None, [Ref(1)], {}, (2,)))
    assert measured


# -- what is written ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.native_batch_norm.default", [None, None, None, "mean", "var", True, 0.1, 1e-5]),
        ("aten.batch_norm_update_stats.default", [None, "mean", "var", 0.1]),
        ("torch.nn.functional.batch_norm", [None, "mean", "var", None, None, True]),
        ("torch.batch_norm", [None, None, None, "mean", "var", True, 0.1, 1e-5, False]),
    ],
)
def test_running_statistics_are_written_and_counted(name: str, args: list[Any]) -> None:
    statistics = {"mean": torch.zeros(2), "var": torch.ones(2)}
    data = torch.ones(3, 2)
    given: list[Any] = [statistics[a] if isinstance(a, str) else a for a in args]
    given[0] = data
    command = command_named(name)
    written = {id(t) for t in written_into(command, given, {})}
    assert {id(t) for t in statistics.values()} <= written
    before = [t._version for t in statistics.values()], data._version
    count_writes(command, given, {})
    assert [t._version for t in statistics.values()] == [v + 1 for v in before[0]]
    assert data._version == before[1]
    in_training = [i for i, v in enumerate(given) if v is True]
    if in_training:  # in evaluation they are read
        given[in_training[0]] = False
        count_writes(command, given, {})
        assert [t._version for t in statistics.values()] == [v + 1 for v in before[0]]


def test_other_commands_count_by_themselves() -> None:
    x = torch.ones(2)
    count_writes(command_named("aten.add_.Tensor"), [x, 1], {})
    assert x._version == 0
