"""Commands that were admitted before take a short way: it does what the long way does, and is taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.core.spec import spec_of
from syft.dp.provenance import Provenance, names_of
from syft.exceptions import RemoteError, SendNotPermittedError
from syft.messaging.message import (
    ForceObjectDeleteMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
)
from syft.mpc.offers import LetUsers
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.tensors.private import PrivateTensor
from syft.workers import pipeline, repeated
from syft.workers.guards import RELEASED_ONLY, Guard

RULES = read_rules(
    '[limits]\nmax_bytes = "12 KB"\nmax_objects = 40\n[[data]]\ntags = ["secret"]\nmay_compute = ["ann"]\n'
)


class _Looks(Guard):
    """A guard that looks at every call, and does nothing: with it all commands take the long way."""

    def permit(self, call: Any) -> None:
        pass


def _worker(hook: Any) -> Any:
    worker = sy.VirtualWorker(hook, id="counted", auto_add=False, policy=OwnerPolicy(RULES))
    generator = torch.Generator().manual_seed(3)
    for obj_id, tag in ((1, "free"), (2, "secret")):
        data = torch.randn(4, 4, generator=generator).tag(tag)  # type: ignore[attr-defined]
        worker.register_obj(data, obj_id)
    return worker


#: Commands; R stands for an object, I for one of whole numbers, N for a new id.
_COMMANDS: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("aten.add.Tensor", ["R", "R"], {}, 1),
    ("aten.add.Tensor", ["R", "R"], {"alpha": -0.0}, 1),
    ("aten.mul.Tensor", ["R", 0.0], {}, 1),
    ("aten.mul.Tensor", ["R", -0.0], {}, 1),
    ("aten.mul.Tensor", ["R", float("nan")], {}, 1),
    ("aten.mul.Tensor", ["R", True], {}, 1),
    ("aten.mul.Tensor", ["R", 1], {}, 1),
    ("aten.t.default", ["R"], {}, 1),
    ("aten.view.default", ["R", [2, 8]], {}, 1),
    ("aten.mm.default", ["R", "R"], {}, 1),
    ("aten.sum.dim_IntList", ["R", [0], False], {}, 1),
    ("aten.sum.dim_IntList", ["R", [0], False], {"dtype": torch.float64}, 1),
    ("aten.ones_like.default", ["R"], {"memory_format": torch.preserve_format}, 1),
    ("aten.aminmax.default", ["R"], {}, 2),
    ("aten.split_with_sizes.default", ["R", [2, 2]], {}, 2),
    ("aten.index_select.default", ["R", 0, "I"], {}, 1),
    ("aten.add_.Tensor", ["R", "R"], {"alpha": 0.5}, 0),
    ("aten.mul_.Tensor", ["R", 0.5], {}, 0),
    ("aten.zero_.default", ["R"], {}, 0),
    ("aten.copy_.default", ["R", "R"], {}, 0),
    ("aten.clamp.default", ["R", 0, None], {}, 1),
    ("aten.resize_.default", ["R", [2]], {}, 0),
    ("aten.mm.default", ["R", 3], {}, 1),
    ("aten._cast_Float.default", ["R"], {}, 1),
]


class _Program:
    """What users of one worker say, and all that came of it."""

    def __init__(self, hook: Any, is_long: bool, seed: int, has_budgets: bool) -> None:
        self.worker = _worker(hook)
        self.provenance: Any = None
        if has_budgets:
            self.provenance = Provenance()
            self.provenance.declare(self.worker._entries[1].value, "records")
            self.worker.add_guard(self.provenance)
            self.worker._entries[2].is_released_only = True
            self.worker.add_guard(RELEASED_ONLY)
        if is_long:
            self.worker.add_guard(_Looks())
        self.rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.heard: list[Any] = []
        self._next = 100

    def say(self, message: Any, user: str) -> None:
        try:
            with speaking_for(user):
                answer = self.worker.recv_msg(message)
            self.heard.append(str(answer.tolist()) if isinstance(answer, torch.Tensor) else answer)
        except Exception as error:  # noqa: BLE001
            self.heard.append((type(error), str(error)))

    def new_id(self) -> int:
        self._next += 1
        return self._next if self.rng.random() < 0.95 else self.rng.choice(list(self.worker._entries))

    def bring(self, user: str) -> None:
        value: Any = torch.randn(4, 4, generator=self.generator)
        choice = self.rng.random()
        if choice < 0.1:
            value = torch.randint(0, 5, (3,), generator=self.generator)  # 4 is out of bounds
        allowed = None if choice < 0.8 else PrivateTensor(allowed_users=("ann", "bob")).on(value)
        self.say(ObjectMessage(value if allowed is None else allowed, self.new_id()), user)

    def run(self, commands: int) -> None:
        rng = self.rng
        for _ in range(commands):
            user = rng.choice(("ann",) * 8 + ("bob", "bob", None))
            held = list(self.worker._entries)
            whole = [i for i in held if self.worker._entries[i].value.dtype is torch.int64]
            choice = rng.random()
            if choice < 0.08 or (not whole and choice < 0.3):
                self.bring(user)
            elif choice < 0.2:
                for obj_id in rng.sample(held, 8 if len(held) > 20 else 1):
                    self.say(ForceObjectDeleteMessage((obj_id,)), user)
            elif choice < 0.25:
                self.say(ObjectRequestMessage((rng.choice(held), user, ""), True), user)
            elif choice < 0.27:
                self.worker._entries[rng.choice(held)].is_public = True
            elif choice < 0.29:
                self.worker._entries[rng.choice(held)].computers = frozenset({"ann", "bob"})
            else:
                name, args, kwargs, results = rng.choice(_COMMANDS)
                chosen = [
                    Ref(rng.choice(held)) if a == "R" else Ref(rng.choice(whole or held)) if a == "I" else a
                    for a in args
                ]
                ids = tuple(self.new_id() for _ in range(results))
                self.say(Operation(name, None, chosen, dict(kwargs), ids), user)

    def state(self) -> Any:
        """Everything that the worker knows of its objects, and what it notes about users."""
        worker = self.worker
        memories: dict[Any, int] = {}
        table = [
            (
                entry.id,
                entry.value.untyped_storage().tolist(),
                (entry.value.shape, entry.value.stride(), entry.value.storage_offset(), entry.value.dtype),
                memories.setdefault(entry.value.untyped_storage()._cdata, len(memories)),
                entry.allowed,
                entry.holder,
                (entry.is_private, entry.is_owners, entry.is_public, entry.is_released_only),
                entry.computers,
                entry.failure,
                entry.own_bytes,
                entry.references,
            )
            for entry in worker._entries.values()
        ]
        audit = [(r.action, r.obj_id, r.user, r.granted, r.reason) for r in worker.policy.audit_log]
        shared = [
            sorted(e.id for e in worker._holdings.behind([address])) for address in worker._holdings._blocks
        ]
        rows = []
        for entry in worker._entries.values() if self.provenance is not None else ():
            mark = self.provenance.rows_of(entry.value)
            rows.append(None if mark is None else (names_of(mark.sources), mark.cuts, mark.readers))
        return table, audit, sorted(shared), worker._holdings.quotas.users(), rows


@pytest.mark.parametrize("seed", range(5))
def test_the_short_way_does_what_the_long_way_does(
    hook: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = 0

    def counted(worker: Any, message: Any) -> Any:
        nonlocal again
        done = repeated.execute_again(worker, message)
        again += done is not repeated.MISSED
        return done

    monkeypatch.setattr(pipeline, "execute_again", counted)
    has_budgets = seed > 2
    short, long = _Program(hook, False, seed, has_budgets), _Program(hook, True, seed, has_budgets)
    for _ in range(8):
        short.run(40)
        taken = again
        long.run(40)
        assert again == taken
        assert short.heard == long.heard
        assert short.state() == long.state()
        marked = [rows for rows in short.state()[-1] if rows is not None]
        assert not has_budgets or marked
    assert again > 20


def _taken(hook: Any, prepare: Callable[[Any], None], *args: Any, **kwargs: Any) -> bool:
    """Whether `x * args` takes the short way after it was run once and the worker was changed."""
    worker = _worker(hook)
    with speaking_for("ann"):
        worker.recv_msg(ObjectMessage(torch.ones(4, 4), 5))
        command = Operation("aten.mul.Tensor", None, [Ref(5), *args], kwargs, (6,))
        worker.recv_msg(command)
        worker.recv_msg(ForceObjectDeleteMessage((6,)))
        prepare(worker)
        return repeated.execute_again(worker, command) is not repeated.MISSED


def test_it_is_taken_only_where_nothing_is_out_of_the_ordinary(hook: Any) -> None:
    def fail(worker: Any) -> None:
        worker._entries[5].failure = "no"

    def occupy(worker: Any) -> None:
        worker.recv_msg(ObjectMessage(torch.ones(1), 6))

    def track(worker: Any) -> None:
        worker._entries[5].spec = None
        worker._entries[5].value.requires_grad_()

    assert _taken(hook, lambda worker: None, 2)
    for prepare in (fail, occupy, track, lambda worker: worker.add_guard(_Looks())):
        assert not _taken(hook, prepare, 2)


def test_an_object_that_somebody_was_handed_is_looked_at_each_time(hook: Any) -> None:
    worker = _worker(hook)
    with speaking_for("ann"):
        worker.recv_msg(ObjectMessage(torch.arange(6.0).reshape(2, 3), 5))
        for new_id in (6, 7):
            worker.recv_msg(Operation("aten.mul.Tensor", None, [Ref(5), 2], {}, (new_id,)))
        worker.get_obj(5).t_()
        worker.recv_msg(Operation("aten.mul.Tensor", None, [Ref(5), 2], {}, (8,)))
        assert worker._entries[7].value.shape == (2, 3) and worker._entries[8].value.shape == (3, 2)


def test_values_that_are_equal_and_not_the_same_are_different_commands(hook: Any) -> None:
    """What was admitted for 1 is not what is admitted for True, 1.0, or a dtype that torch numbers so."""
    worker = _worker(hook)
    ids = iter(range(10, 99))
    with speaking_for("ann"):
        worker.recv_msg(ObjectMessage(torch.tensor([3]), 5))
        for value, kind in (
            (1, torch.int64),
            (1.0, torch.float32),
            (True, torch.int64),
            (1.0, torch.float32),
        ):
            obj_id = next(ids)
            worker.recv_msg(Operation("aten.mul.Tensor", None, [Ref(5), value], {}, (obj_id,)))
            assert worker._entries[obj_id].value.dtype is kind
        for value in (0.0, -0.0, 0.0, -0.0):
            obj_id = next(ids)
            worker.recv_msg(Operation("aten.mul.Tensor", None, [Ref(5), value], {}, (obj_id,)))
            assert str(worker._entries[obj_id].value.item()) == str(value * 3)
        for _ in range(2):
            worker.recv_msg(
                Operation("aten.sum.default", None, [Ref(5)], {"dtype": torch.float64}, (next(ids),))
            )
            with pytest.raises(TypeError, match="a number"):
                worker.recv_msg(Operation("aten.sum.default", None, [Ref(5)], {"dtype": 7}, (next(ids),)))


def test_a_number_for_a_dtype_is_admitted_nowhere(hook: Any) -> None:
    with pytest.raises(TypeError, match="dtype=7, a number"):
        sy.operations.admit("aten.sum.default", [spec_of(torch.ones(1))], {"dtype": 7})


def test_a_kernel_that_fails_is_told_to_those_who_may_fetch_and_to_nobody_else(hook: Any) -> None:
    worker = _worker(hook)
    with speaking_for("ann"):
        worker.recv_msg(ObjectMessage(torch.tensor([0, 1]), 5))
        worker.recv_msg(ObjectMessage(torch.tensor([0, 99]), 6))
        worker.recv_msg(ObjectMessage(torch.ones(4, 4), 7))
        for index, source, obj_id in ((5, 1, 10), (5, 7, 11), (6, 1, 12)):
            worker.recv_msg(
                Operation("aten.index_select.default", None, [Ref(source), 0, Ref(index)], {}, (obj_id,))
            )
        assert worker._entries[10].failure is None and "range" in worker._entries[12].failure
        with pytest.raises(RemoteError, match="failed on the worker"):
            worker.recv_msg(Operation("aten.index_select.default", None, [Ref(7), 0, Ref(6)], {}, (13,)))


@pytest.mark.parametrize("is_long", [False, True])
def test_whom_somebody_lets_compute_may_not_compute_with_what_is_written_into_it(
    hook: Any, is_long: bool
) -> None:
    worker = _worker(hook)
    if is_long:
        worker.add_guard(_Looks())
    with speaking_for("ann"):
        for obj_id in (5, 6, 7):
            worker.recv_msg(ObjectMessage(torch.ones(4, 4), obj_id))
        worker.recv_msg(Operation("aten.add_.Tensor", None, [Ref(6), Ref(7)], {}, ()))
        for _ in range(2):
            worker._entries[5].computers = frozenset({"bob"})
            worker.recv_msg(Operation("aten.mul_.Tensor", None, [Ref(5), 2], {}, ()))
            assert worker._entries[5].computers == {"bob"}
            worker.recv_msg(Operation("aten.add_.Tensor", None, [Ref(5), Ref(6)], {}, ()))
            assert worker._entries[5].computers is None


def test_what_one_may_only_compute_with_is_not_written_into(hook: Any) -> None:
    """Also if its holder computed it, by the long way and by the short one."""
    worker = _worker(hook)

    def say(user: str, message: Any) -> Any:
        with speaking_for(user):
            return worker.recv_msg(message)

    say("bob", ObjectMessage(torch.ones(3), 50))
    say("bob", Operation("aten.mul.Tensor", None, [Ref(50), 2.0], {}, (51,)))
    say("bob", LetUsers(51, None, frozenset({"eve"})))
    doubled = Operation("aten.mul_.Tensor", None, [Ref(51), 2.0], {}, ())
    for number in range(3):
        say("eve", Operation("aten.mul.Tensor", None, [Ref(51), 2.0], {}, (60 + number,)))
        say("eve", Operation("aten.mul_.Tensor", None, [Ref(60 + number), 2.0], {}, ()))  # her own result
        with pytest.raises(SendNotPermittedError, match="may not write into object 51"):
            say("eve", doubled)
    view = Operation("aten.alias.default", None, [Ref(51)], {}, (70,))
    say("eve", view)
    with pytest.raises(SendNotPermittedError, match="may not write into object 51"):
        say("eve", Operation("aten.zero_.default", None, [Ref(70)], {}, ()))
    assert worker._entries[51].value.tolist() == [2.0, 2.0, 2.0]
    say("bob", doubled)
    assert worker._entries[51].value.tolist() == [4.0, 4.0, 4.0]
