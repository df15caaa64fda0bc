"""`plan(x).get()` in one frame: the result is handed out without being stored, and all else is as if it were."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import ComputeNotPermittedError
from syft.execution import fetched
from syft.messaging.internal import STORED
from syft.messaging.message import Operation, Ref
from syft.policy.permissions import Policy
from syft.policy.quotas import Quota
from syft.workers import handlers
from syft.workers.network.sessions import ServerSession

pytestmark = pytest.mark.network
#: What differs from one run to the next.
_NAMES = re.compile(r"anonymous:\w+|\d{3,}")


class _Changing(Policy):
    """What users may do can change at any time."""

    def __init__(self, denies: bool = True) -> None:
        super().__init__(allows_by_default=not denies)
        self.quota, self.computes, self.gives = Quota(), True, True

    def quota_of(self, user: str | None) -> Quota:
        return self.quota

    def may_get(self, user: str | None, allowed: Any) -> bool:
        return self.gives and super().may_get(user, allowed)

    def check_compute(self, user: str | None, obj_id: Any, about: Any) -> None:
        if not self.computes:
            raise ComputeNotPermittedError("not now")


class _World:
    """A worker, a client, and what was seen."""

    def __init__(self, server: Any, client: Any) -> None:
        self.server, self.client, self.policy = server, client, server.policy
        self.seen: list[Any] = []
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 40), torch.nn.ReLU(), torch.nn.Linear(40, 20))
        self.x = torch.randn(5, 8)
        self.plan = sy.func2plan(args_shape=[(-1, 8)])(self.model).send(client)
        self.data = self.x.send(client)

    def note(self, run: Callable[[], Any]) -> None:
        """What comes of a call, and how the worker is after it."""
        try:
            found = run()
            said: Any = [found.dtype, found.stride(), found.tolist(), found.requires_grad]
        except Exception as error:  # noqa: BLE001  (whatever it is, it is compared)
            said = type(error).__name__, _NAMES.sub("N", str(error))
        self.client.sync()
        worker = self.server
        users = [] if worker._holdings is None else list(worker._holdings.quotas.users().values())
        records = [(r.action, r.granted, r.reason, bool(r.peer)) for r in self.policy.audit_log]
        self.seen.append((said, len(worker._entries), users, records, dict(self.policy.decisions)))

    def settle(self, times: int = 3) -> None:
        """Call the plan until it is remembered."""
        for _ in range(times):
            self.note(lambda: self.plan(self.data).get())


def _plain(world: _World) -> None:
    world.settle(6)


def _other_inputs(world: _World) -> None:
    world.settle()
    for rows in (5, 7, 5):
        world.note(lambda n=rows: world.plan(torch.ones(n, 8).send(world.client)).get())  # type: ignore[misc]


def _written_inputs(world: _World) -> None:
    world.settle()
    for _ in range(3):
        world.data.add_(1)
        world.note(lambda: world.plan(world.data).get())


def _no_objects_left(world: _World) -> None:
    world.settle()
    (used,) = world.server._holdings.quotas.users().values()
    for more in (0, 1):
        world.policy.quota = Quota(used.objects + more, None)
        world.note(lambda: world.plan(world.data).get())
    world.policy.quota = Quota()
    world.settle(1)


def _no_bytes_left(world: _World) -> None:
    world.settle()
    (used,) = world.server._holdings.quotas.users().values()
    for more in (0, 399, 400, 5_000):
        world.policy.quota = Quota(None, used.bytes + more)
        world.note(lambda: world.plan(world.data).get())


def _may_not_compute(world: _World) -> None:
    world.settle()
    world.policy.computes = False
    world.note(lambda: world.plan(world.data).get())
    world.policy.computes = True
    world.settle(1)


def _may_not_fetch(world: _World) -> None:
    world.settle()
    world.policy.gives = False
    result = world.plan(world.data)
    world.note(lambda: result.get())
    world.policy.gives = True
    world.note(lambda: result.get())


def _earlier_failure(world: _World) -> None:
    world.settle()
    missing = Operation("aten.neg.default", None, (Ref(5),), {}, (6,))
    world.client._link.post(missing)
    result = world.plan(world.data)
    world.note(lambda: result.get())
    world.note(lambda: result.get())


def _kept(world: _World) -> None:
    world.settle()
    for _ in range(2):
        result = world.plan(world.data)
        other = result.child  # somebody else's reference
        world.note(result.get)
        del other
    world.note(lambda: world.plan(world.data).copy().get())


def _gone_arguments(world: _World) -> None:
    world.settle()
    data = world.x.send(world.client)
    world.note(lambda: world.plan(data).get())
    world.server.force_rm_obj(data.id_at_location)
    world.note(lambda: world.plan(data).get())


def _several(world: _World) -> None:
    for function in (
        lambda x: (x + 1, x * 2),
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[:2],
        lambda x: x.expand(3, 5, 8),
        lambda x: (x > 0).sum(),
        lambda x: (x * 2).t(),
    ):
        plan = sy.func2plan(args_shape=[(5, 8)])(function).send(world.client)
        for _ in range(3):
            made = plan(world.data)
            for each in made if isinstance(made, tuple) else (made,):
                world.note(lambda part=each: part.get())  # type: ignore[misc]
            del made, each
        del plan
        gc.collect()  # a plan is in a cycle
    world.note(lambda: world.data.get())


def _failing_values(world: _World) -> None:
    table = torch.randn(4, 3).send(world.client)  # type: ignore[attr-defined]
    plan = sy.func2plan(args_shape=[(4, 3), (2,)], args_dtype=[torch.float32, torch.int64])
    rows = plan(lambda t, i: t.index_select(0, i) + 1).send(world.client)
    right, wrong = (torch.tensor(v).send(world.client) for v in ([1, 2], [1, 9]))  # type: ignore[attr-defined]
    for index in (right, right, right, wrong, right):
        world.note(lambda i=index: rows(table, i).get())  # type: ignore[misc]


PROGRAMS = {
    name.strip("_"): program
    for name, program in list(globals().items())
    if getattr(program, "__annotations__", {}).get("world") == "_World"
}
GUARDED_ALONE = {"no_objects_left", "no_bytes_left"}


@pytest.mark.parametrize("denies", [True, False], ids=["denying", "open"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_same_with_and_without(
    connect: Any, serve: Any, monkeypatch: pytest.MonkeyPatch, name: str, denies: bool
) -> None:
    if not denies and name in GUARDED_ALONE:
        pytest.skip("an open worker has no quotas")

    def run() -> list[Any]:
        server = serve(policy=_Changing(denies))
        client = connect(server)
        world = _World(server, client)
        with torch.no_grad():
            PROGRAMS[name](world)
        client.close()
        server.stop()
        return world.seen

    given: list[bool] = []
    handler = handlers.HANDLERS[fetched.FetchedCall]

    def noted(worker: Any, message: Any) -> Any:
        answer = handler(worker, message)
        given.append(answer is not STORED)
        return answer

    monkeypatch.setitem(handlers.HANDLERS, fetched.FetchedCall, noted)
    short = run()
    assert any(given) or name == "several"
    with monkeypatch.context() as patch:
        patch.setattr(ServerSession, "_answer_both", lambda self, number, call, _: self._obey(number, call))
        count = len(given)
        long = run()
        assert len(given) == count
    for one, other in zip(short, long, strict=True):
        assert one == other
