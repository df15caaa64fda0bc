"""Loops whose backward passes a worker has learnt: same results to the bit, same objects there, same errors."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.core.chain import new_wrapper
from syft.exceptions import GetNotPermittedError, ProtocolError, QuotaExceededError, UnknownCommandError
from syft.messaging.message import LearntMessage, Ref
from syft.policy.permissions import Policy
from syft.policy.quotas import Quota
from syft.serde.errors import SerdeError
from syft.tensors import learnt_programs
from syft.workers.network import learnt

pytestmark = pytest.mark.network
STEPS = 5


@pytest.fixture(scope="module", params=[True, False], ids=["open", "denying"])
def client(request: Any, hook: Any) -> Iterator[Any]:
    policy = Policy(allows_by_default=request.param)
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="learner", policy=policy) as server:
        with sy.connect(server.address) as connected:
            yield connected


# -- programs: each yields what is compared -----------------------------------------------------------


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def _data(worker: Any, rows: int = 4) -> tuple[Any, Any]:
    return torch.randn(rows, 6).send(worker), torch.arange(rows).remainder(3).send(worker)  # type: ignore[attr-defined]


def _fetched(model: nn.Module) -> list[Any]:
    return [tensor.detach().clone() for tensor in model.get().state_dict().values()]  # type: ignore[operator]


def _with_optimizer(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(worker: Any) -> Any:
        model = _mlp().send(worker)  # type: ignore[operator]
        optimizer = make(model.parameters())
        x, y = _data(worker)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            yield loss.detach().get()
        yield _fetched(model)

    return run


def _branches(worker: Any) -> Any:
    """Another layer at every other step, and a smaller batch now and then."""
    layers = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)]).send(worker)  # type: ignore[operator]
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    batches = [_data(worker), _data(worker, 2)]
    for step in range(3 * STEPS):
        optimizer.zero_grad()
        x, y = batches[step % 3 == 2]
        F.cross_entropy(layers[step % 2](x), y).backward()
        yield [p.grad is None for p in layers.parameters()]
        optimizer.step()
    yield _fetched(layers)


def _accumulated(worker: Any) -> Any:
    """Two backward passes for each step, and gradients that are zeros instead of None."""
    model = _mlp().send(worker)  # type: ignore[operator]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = _data(worker)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        F.cross_entropy(model(x * 2), y).backward()
        optimizer.step()
    yield _fetched(model)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


def _own_functions(worker: Any) -> Any:
    model = _mlp().send(worker)  # type: ignore[operator]
    x, _y = _data(worker)
    for _ in range(STEPS):
        model.zero_grad()
        _Reversed.apply(model(x)).sum().backward()  # type: ignore[no-untyped-call]
    yield [p.grad.clone().get() for p in model.parameters()]


def _hooks(worker: Any) -> Any:
    model = _mlp().send(worker)  # type: ignore[operator]
    x, _y = _data(worker)
    for step in range(STEPS):
        model.zero_grad()
        hidden = model[0](x)
        if step == 3:
            hidden.register_hook(lambda gradient: gradient * 3)
        if step == 4:
            model[2].weight.register_hook(lambda gradient: gradient * 5)
        model[2](hidden.relu()).sum().backward()
        yield [p.grad.clone().get() for p in model.parameters()]


def _written_and_shared(worker: Any) -> Any:
    """Weights that are used twice, or not at all; zeros of both signs; a tensor that is written into on the way."""
    weight, idle = (
        torch.randn(6, 6).send(worker).requires_grad_(),
        torch.randn(6).send(worker).requires_grad_(),
    )  # type: ignore[attr-defined]
    x, _y = _data(worker)
    for sign in (0.0, 0.0, 0.0, -0.0, -0.0, -0.0):
        weight.grad = None
        h = (x @ weight).tanh() @ weight
        (h * sign + h.square() + (idle * 2).detach()).mean().backward()
        yield weight.grad.clone().get(), idle.grad is None
    for step in range(STEPS):
        weight.grad = None
        h = x @ weight
        if step % 2:
            h.mul_(2.0)
        h.square().sum().backward()
        yield weight.grad.clone().get()
    for _ in range(STEPS):
        weight.grad = None
        loss = (x @ weight).square().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    for _ in range(STEPS):
        loss = (x @ weight).square().sum()
        x.add_(1.0)  # what the graph needs is written over
        with pytest.raises(RuntimeError):
            loss.backward()


def _errors(worker: Any) -> Any:
    """A pass in the middle fails at the worker: the operation that it is about is told, and the loop goes on."""
    table = torch.randn(4, 3).send(worker).requires_grad_()  # type: ignore[attr-defined]
    for step in range(6):
        table.grad = None
        index = torch.tensor([0, 3 if step != 4 else 9]).send(worker)  # type: ignore[attr-defined]
        loss = (F.embedding(index, table) * table[:2]).sum()
        loss.backward()
        try:
            yield table.grad.clone().get()
        except Exception as error:  # noqa: BLE001
            yield type(error).__name__, str(error).split("\n")[0]
            table.grad = None


def _interrupted(worker: Any) -> Any:
    model = _mlp().send(worker)  # type: ignore[operator]
    x, y = _data(worker)
    send = worker._link.post
    for step in range(7):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if step in (1, 4):  # when it is learnt, and when it is known

            def stop(*_args: Any) -> None:
                raise KeyboardInterrupt

            worker._link.post = stop
            with pytest.raises(KeyboardInterrupt):
                loss.backward()
            worker._link.post = send
            continue
        loss.backward()
        yield [p.grad.clone().get() for p in model.parameters()]


def _attention(worker: Any) -> Any:
    torch.manual_seed(1)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).send(worker)  # type: ignore[operator]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x = torch.randn(2, 5, 8).send(worker)  # type: ignore[attr-defined]
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    yield _fetched(model)


PROGRAMS = {
    "SGD": _with_optimizer(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    "Adam": _with_optimizer(lambda p: torch.optim.Adam(p, lr=0.1)),
    "RMSprop": _with_optimizer(lambda p: torch.optim.RMSprop(p, lr=0.1)),
    **{
        f.__name__.strip("_"): f
        for f in (_branches, _accumulated, _own_functions, _hooks, _written_and_shared)
    },
    **{f.__name__.strip("_"): f for f in (_errors, _interrupted, _attention)},
}
#: Those in which every pass is one that torch has to do itself.
NEVER_LEARNT = {"own_functions"}


def _outcome(program: Callable[[Any], Any], client: Any, learns: bool) -> tuple[list[Any], int]:
    client.learns_graphs = learns
    before = client.objects_count_remote()
    torch.manual_seed(0)
    try:
        found = list(program(client))
    finally:
        client.learns_graphs = True
    gc.collect()
    client.flush()
    return found, client.objects_count_remote() - before


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.stride() == other.stride()
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_errors_and_objects_are_the_same(
    name: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    run = learnt.Programs.resolve
    monkeypatch.setattr(learnt.Programs, "resolve", lambda self, m: ran.append(m) or run(self, m))
    plain = _outcome(PROGRAMS[name], client, learns=False)
    assert not ran
    learning = _outcome(PROGRAMS[name], client, learns=True)
    assert bool(ran) is (name not in NEVER_LEARNT)
    assert _alike(plain[0], learning[0])
    assert plain[1] == learning[1]


def test_a_pass_that_is_known_is_one_message_and_a_thousand_leave_nothing(client: Any) -> None:
    weight = torch.ones(3).send(client).requires_grad_()
    x = torch.ones(3).send(client)

    def step() -> int:
        weight.grad = None
        loss = (weight * x).tanh().sum()
        before = client._link._outbox.numbered
        loss.backward()
        return int(client._link._outbox.numbered - before)

    # First shapes are worked out, then it is seen, and then learnt. (What has gone may be told in a message more.)
    told = [step() for _ in range(6)]
    assert told[0] > 3 and told[1] > 3 and max(told[3:]) <= 2
    count = client.objects_count_remote()
    passes = len(client._learnt.passes)
    for _ in range(1000):
        step()
    client.flush()
    assert client.objects_count_remote() == count
    assert len(client._learnt.passes) == passes


def test_what_is_kept_is_bounded_and_told_again(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More kinds of passes than are kept, in turns: each is told again when it comes back, and right."""
    weight = torch.ones(3).send(client).requires_grad_()
    for kind in itertools.chain(range(40), range(40), range(40)):
        for _ in range(3):
            weight.grad = None
            (weight * float(kind)).sum().backward()
        assert weight.grad.clone().get().tolist() == [float(kind)] * 3
    assert len(client._learnt.passes) <= 64 + learnt_programs.MOST_PROGRAMS
    assert len(client._learnt.known) <= learnt_programs.MOST_PROGRAMS


def test_results_of_a_private_pass_are_private(hook: Any) -> None:
    policy = Policy(allows_by_default=False)
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="owner", policy=policy) as server:
        with sy.connect(server.address, auto_add=False) as client:
            mine = torch.randn(4, 3).send(client)  # type: ignore[attr-defined]
            weight = torch.ones(3).send(client).requires_grad_()  # type: ignore[attr-defined]
            for step in range(8):
                if step == 6:  # the pass is known; from now on one of its inputs is somebody else's to fetch
                    client.sync()
                    server.restrict(mine.id_at_location, frozenset({"boss"}))
                weight.grad = None
                (mine @ weight).sum().backward()
                if step < 6:
                    assert weight.grad.clone().get() is not None
                    continue
                with pytest.raises(GetNotPermittedError):
                    weight.grad.get()
            assert client._learnt.known


@pytest.mark.parametrize(
    "operations",
    [
        (),
        [("aten.neg.default", (Ref(0),), {}, 1)],
        (("aten.neg.default", (Ref(7),), {}, 1),),
        (("aten.neg.default", (Ref(-1),), {}, 1),),
        (("aten.neg.default", ([Ref(0)],), {}, 1),),
        (("aten.neg_.default", (Ref(0),), {}, 1),),
        (("torch.save", (Ref(0),), {}, 1),),
        (("torch.neg", (Ref(0),), {}, 1),),
        (("aten.neg.default", (Ref(0),), {"out": Ref(0)}, 1),),
        (("aten.neg.default", (Ref(0),), {}, 0),),
        (("aten.sum.dim_IntList", (Ref(0), [0] * 40_000), {}, 1),),
        (("aten.neg.default", (torch.device("cpu"),), {}, 1),),
        (("aten.neg.default", (Ref(0),), {}, 1),) * (learnt_programs.MOST_OPERATIONS + 1),
    ],
)
def test_anything_else_than_operations_is_refused(operations: Any, client: Any) -> None:
    x = torch.ones(3).send(client)
    client._link.post(LearntMessage(7, (x.id_at_location,), (12345,), operations, (1,)))
    with pytest.raises((ProtocolError, UnknownCommandError, SerdeError)):
        client.sync()
    client._link.post(LearntMessage(7, (x.id_at_location,), (12345,)))
    with pytest.raises(ProtocolError, match="not told"):
        client.sync()
    assert x.clone().get().tolist() == [1.0] * 3


def test_a_pass_that_was_run_with_one_tensor_twice_is_no_other_with_two(hook: Any) -> None:
    """What was noted for two inputs that are one tensor took one of them for both, later and for other users, too."""
    plan = sy.func2plan(args_shape=[(3,), (3,)])(lambda a, b: a - b)
    with sy.NetworkServerWorker(
        hook, "tcp://127.0.0.1:0", id="denying", policy=Policy(allows_by_default=False)
    ) as server:
        with sy.connect(server.address, auto_add=False) as client:
            x, y = torch.tensor([5.0, 5, 5]).send(client), torch.tensor([1.0, 2, 3]).send(client)
            sent = plan.send(client)
            operations = (("aten.sub.Tensor", (Ref(0), Ref(1)), {}, 1),)
            for number, other in enumerate((x, x, y, y, x)):
                wanted = [0.0, 0, 0] if other is x else [4.0, 3, 2]
                assert sent(x, other).get().tolist() == wanted
                told = (operations, (2,)) if not number else ()
                ids = x.id_at_location, other.id_at_location
                client._link.post(LearntMessage(7, ids, (900 + number,), *told))
                assert (
                    y * 0 + new_wrapper(y.child.beside(900 + number, y.child._spec))
                ).get().tolist() == wanted


def test_quotas_hold_for_passes_that_are_known(hook: Any) -> None:
    policy = Policy(allows_by_default=False)
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="small", policy=policy) as server:
        server._holdings.quotas.quota_of = lambda _user: Quota(100, 40_000)  # type: ignore[union-attr]
        with sy.connect(server.address, auto_add=False) as client:
            weight = torch.ones(1000).send(client).requires_grad_()  # type: ignore[attr-defined]
            kept = []

            def go_on() -> None:
                for _ in range(20):
                    weight.grad = None
                    (weight * 2.0).sum().backward()
                    kept.append(weight.grad)
                    client.sync()

            with pytest.raises(QuotaExceededError):
                go_on()
            assert len(kept) > 5 and client._learnt.known
