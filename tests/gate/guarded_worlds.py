"""What one user of a denying worker hears, byte by byte, in worlds that differ in the owner's values.

A `GuardedWorld` is a worker that denies by default. Its owner's tensors have the values of one world, the user's own
tensors have the same values in all. `say` sends a message for the user and notes everything that they can learn by it:
the reply as bytes, or the error; what they are charged for; the ids, kinds and specs of what they hold; the state of
torch's generator. The commands of `COMMANDS` make up random programs; they choose by specs and public values only.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from calls import WORLDS, Call, decoded, recorded_calls, spec_of_record, tensor_of
from mutations import mutated

import syft as sy
from syft.core.chain import new_wrapper
from syft.core.ids import ID_PROVIDER
from syft.core.spec import TensorSpec, spec_of
from syft.exceptions import RemoteError
from syft.federated.dataset import BaseDataset
from syft.messaging.message import (
    AskMessage,
    AttributeMessage,
    BatchMessage,
    BudgetMessage,
    CallBackwardMessage,
    CallMessage,
    CallMethodMessage,
    CallObjectMessage,
    ForceObjectDeleteMessage,
    ForwardMessage,
    GetShapeMessage,
    IsNoneMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    PlanCallMessage,
    PlanCommandMessage,
    Ref,
    ReleaseMessage,
    RequestMessage,
    SearchMessage,
)
from syft.mpc.sharing import AdditiveSharingTensor
from syft.operations import all_rows
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.requests import book as request_book
from syft.serde import serialize
from syft.tensors.object_wrapper import ObjectWrapper
from syft.tensors.pointer import new_pointer
from syft.tensors.private import PrivateTensor
from syft.tensors.string import String

RULES = read_rules('[limits]\nmax_bytes = "16 MB"\nmax_objects = 60\n')


@contextlib.contextmanager
def counted_ids() -> Iterator[None]:
    """Inside, ids are counted, so that those which a worker chooses are equal in both worlds."""
    numbers = iter(range(10**12, 2 * 10**12))
    new_request_id = request_book.new_request_id
    request_book.new_request_id = lambda: f"request{next(numbers)}"
    drawn = ID_PROVIDER._fresh[:]
    ID_PROVIDER._fresh.clear()
    ID_PROVIDER._draw = lambda: next(numbers)  # type: ignore[method-assign]
    try:
        yield
    finally:
        request_book.new_request_id = new_request_id
        del ID_PROVIDER._draw
        ID_PROVIDER._fresh.extend(drawn)


class GuardedWorld:
    """A worker of one world, and what its user `eve` has heard."""

    def __init__(self, hook: Any, kind: str, seed: int) -> None:
        self.hook, self.kind = hook, kind
        self.rng = random.Random(seed)
        self.hidden, self.public = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        self.worker = sy.VirtualWorker(hook, id="hospital", policy=OwnerPolicy(RULES), auto_add=False)
        self.workers = [self.worker]
        self.log: list[Any] = []
        self.commands: list[Any] = []
        self.kept: list[Any] = []  # pointers, which would delete what they point to
        self._ids = 0

    # -- objects -----------------------------------------------------------------------------------------

    def new_id(self) -> int:
        self._ids += 1
        return self._ids

    def tensor(self, record: dict[str, Any]) -> Ref:
        """A reference to a tensor of this shape: the owner's, one of the user's own, or one that was computed."""
        choice = self.rng.random()
        if choice < 0.5:
            wanted = spec_of_record(record)
            like = [i for i, s in self.specs().items() if s.shape == wanted.shape and s.dtype is wanted.dtype]
            if like:
                return Ref(self.rng.choice(like))
        return self.own(record) if choice > 0.85 else self.private(record)

    def private(self, record: dict[str, Any]) -> Ref:
        """A tensor of the owner's, with the values of this world."""
        ref = Ref(self.new_id())
        self.worker.register_obj(tensor_of(record, self.kind, self.hidden), ref.id)
        if self.rng.random() < 0.5:
            return ref
        copied = Ref(self.new_id())  # the user's, who may write into it and not fetch it
        self.say(Operation("aten.clone.default", None, [ref], {}, (copied.id,)))
        return copied

    def own(self, record: dict[str, Any]) -> Ref:
        """A tensor that the user brings."""
        ref = Ref(self.new_id())
        self.say(ObjectMessage(tensor_of(record, "recorded", self.public), ref.id))
        return ref

    def put(self, obj: Any) -> Any:
        """The owner puts an object here."""
        obj_id = self.new_id()
        self.worker.register_obj(obj, obj_id)
        return obj_id

    def specs(self) -> dict[Any, TensorSpec]:
        found = {}
        for obj_id, entry in self.worker._entries.items():
            if type(entry.value) is torch.Tensor:
                found[obj_id] = spec_of(entry.value)
        return found

    def some_id(self) -> Any:
        return self.rng.choice(sorted(self.worker._entries, key=str)) if self.worker._entries else 0

    def parties(self) -> list[Any]:
        """Two holders of shares and a provider."""
        if len(self.workers) == 1:
            self.workers += [
                sy.VirtualWorker(self.hook, id=name, policy=OwnerPolicy(RULES), auto_add=False)
                for name in ("holder1", "holder2", "dealer")
            ]
        return self.workers[1:]

    # -- messages ----------------------------------------------------------------------------------------

    def say(self, message: Any, told: Callable[[Any], Any] = lambda reply: reply) -> Any:
        """Send a message for the user. `told` takes from a reply what the owner agreed to give away."""
        self.commands.append(message)
        reply = None
        with speaking_for("eve"):
            try:
                reply = self.worker.recv_msg(message)
                heard: Any = _bytes_of(told(reply))
            except Exception as error:  # noqa: BLE001  (whatever it is, it is what the user hears)
                heard = f"{type(error).__name__}: {error}"
        self.note(heard)
        return reply

    def note(self, heard: Any) -> None:
        """Write down what was heard, and all that can be asked about what there is."""
        state = hashlib.sha256(torch.default_generator.get_state().numpy().tobytes()).hexdigest()[:12]
        self.log.append((heard, state, *map(_listing, self.workers)))


def _listing(worker: Any) -> Any:
    """What the user holds and pays for, and who may fetch what."""
    entries = worker._entries.items()
    held = [(str(i), type(e.value).__name__, _kind_of(e.value)) for i, e in entries if e.holder == "eve"]
    allowed = [(str(i), e.allowed and sorted(e.allowed)) for i, e in entries]
    return worker._holdings.quotas.usage("eve"), held, allowed


def _bytes_of(reply: Any) -> Any:
    if isinstance(reply, torch.Tensor) and type(reply) is torch.Tensor:
        # NB: the values and what lies between them; a NaN is a NaN.
        return str(spec_of(reply)), serialize(
            torch.nan_to_num(reply, 12345.0) if reply.is_floating_point() else reply
        )
    return serialize(reply)


# -- commands of random programs -----------------------------------------------------------------------------

ROWS = [name for name, row in all_rows().items() if not row.inner]


def operation(world: GuardedWorld) -> None:
    """An operation of the table; one in four with something wrong."""
    rng = world.rng
    call: Call = rng.choice(recorded_calls()[rng.choice(ROWS)])
    if rng.random() < 0.25:
        call = mutated(call, rng, 1)
    run_operation(world, call)


def run_operation(
    world: GuardedWorld, call: Call, tensor: Callable[[dict[str, Any]], Ref] | None = None
) -> None:
    rng, make = world.rng, tensor or world.tensor
    name, args, kwargs = call
    try:
        given = decoded(args, make)
        named = {k: decoded(v, make) for k, v in kwargs.items()}
    except (RuntimeError, TypeError, ValueError) as error:
        if "argument type" in str(error) or "same number of elements" in str(error) or "shape" in str(error):
            return  # a mutation for which there are no values
        raise
    wants = rng.random() < 0.7
    ids = () if wants else (world.new_id(),)
    world.say(Operation(name, None, given, named, ids, wants_specs=wants))


def question(world: GuardedWorld, obj_id: Any = None) -> None:
    """What can be asked about an object."""
    obj_id = world.some_id() if obj_id is None else obj_id
    message = world.rng.choice(
        [
            GetShapeMessage(obj_id),
            IsNoneMessage(obj_id),
            SearchMessage((obj_id,)),
            AttributeMessage(
                obj_id, world.rng.choice(["data", "T", "real", "imag", "H", "grad"]), world.new_id()
            ),
            AttributeMessage(obj_id, "data", obj_id, torch.zeros(1), True),
            ObjectRequestMessage((obj_id, "eve", ""), keep=True),
            ObjectRequestMessage((obj_id, "eve", "")),
            ForwardMessage(obj_id, "nobody", 1),
            ForceObjectDeleteMessage((obj_id,)),
            PlanCommandMessage("fetch_plan", (obj_id, True)),
            CallBackwardMessage(obj_id, (None,), (world.new_id(),)),
            CallMethodMessage(obj_id, "upper", (), {}, world.new_id()),
        ]
    )
    world.say(message)


def f(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"t": list(shape), "d": dtype, "r": [-2.0, 2.0]}


def i(*shape: int, most: int = 2) -> dict[str, Any]:
    return {"t": list(shape), "d": "int64", "r": [0, most]}


def _gradients(world: GuardedWorld, handle: Any, results: list[Any], shape: list[int], leaves: int) -> None:
    """Differentiate a call."""
    gradients = tuple(
        world.tensor(f(*shape)) if index == 0 or world.rng.random() < 0.2 else None
        for index in range(len(results))
    )
    for _ in range(world.rng.choice((1, 1, 2))):
        world.say(CallBackwardMessage(handle, gradients, tuple(world.new_id() for _ in range(leaves))))


def recurrent(world: GuardedWorld) -> None:
    """A recurrent layer as one call, and its backward pass."""
    rng = world.rng
    kind = rng.choice(["lstm", "gru", "rnn_tanh", "rnn_relu"])
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    steps, batch, features, hidden = rng.choice((0, 1, 3)), 2, 3, 4
    x = world.tensor(f(steps, batch, features))
    state = world.tensor(f(1, batch, hidden))
    weights = [
        world.tensor(f(gates * hidden, features)),
        world.tensor(f(gates * hidden, rng.choice((hidden, hidden, hidden, 5)))),
        world.tensor(f(gates * hidden)),
        world.tensor(f(gates * hidden)),
    ]
    first = (state, world.tensor(f(1, batch, hidden))) if kind == "lstm" else state
    results = [world.new_id() for _ in range(3 if kind == "lstm" else 2)]
    handle = world.new_id()
    leaves = rng.choice(((), (0,), (0, 2), (2, 3, 4)))
    args = (x, first, weights, True, 1, 0.0, rng.random() < 0.5, False, False)
    world.say(CallMessage(f"torch.{kind}", args, {}, leaves, handle, tuple(results)))
    if leaves:
        _gradients(world, handle, results, [steps, batch, hidden], len(leaves))


def _pick(x: Any) -> Any:
    """Fails where a value is above 1."""
    return torch.arange(6.0).index_select(0, (x > 1).long().flatten() * 100) * 2


def _scaled(x: Any) -> Any:
    y = x * 2
    y += x.sum()
    return y, y.softmax(-1)


def _solved(x: Any) -> Any:
    return torch.linalg.inv(x[:3, :3]), torch.linalg.cholesky(x[:3, :3] @ x[:3, :3].T)


def _looked_up(x: Any) -> Any:
    table = torch.arange(12.0).reshape(4, 3)
    return torch.nn.functional.embedding(x.long()[:, 0], table) + 1


def _classified(x: Any) -> Any:
    return torch.nn.functional.cross_entropy(x, (x[:, 0] * 3).long())


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4, 3), 0.5))
        self.steps = torch.nn.Buffer(torch.zeros(3))

    def forward(self, x: Any) -> Any:
        y = (x @ self.weight).relu()
        self.steps.add_(y.mean(0))
        return y.log_softmax(-1)


_PLANS: dict[str, Any] = {}
#: How many tensors each plan returns.
_RESULTS = {"_pick": 1, "_scaled": 2, "_solved": 2, "_looked_up": 1, "_classified": 1, "layer": 1}


def _plans() -> dict[str, Any]:
    if not _PLANS:
        for function in (_pick, _scaled, _solved, _looked_up, _classified):
            _PLANS[function.__name__] = sy.func2plan(args_shape=[(4, 4)])(function)
        layer = _Layer()
        plan = sy.Plan(name="layer", forward_func=layer.forward, state_tensors=list(layer.parameters()))
        with torch.no_grad():
            plan.build(torch.zeros(4, 4))
        _PLANS["layer"] = plan
    return _PLANS


def plan(world: GuardedWorld) -> None:
    """A plan, and its backward pass."""
    rng = world.rng
    name = rng.choice(sorted(_plans()))
    held = copy.deepcopy(_plans()[name])
    with speaking_for("eve"):
        pointer = held.send(world.worker)
    world.kept.append((held, pointer))
    obj_id = pointer.id_at_location
    given = world.tensor(f(*rng.choice(((4, 4), (4, 4), (4, 4), (2, 4), (4, 5)))))
    leaves = rng.choice(((), (0,)))
    wants = not leaves and rng.random() < 0.5
    handle = world.new_id() if leaves else None
    returned = () if wants else tuple(world.new_id() for _ in range(_RESULTS[name]))
    world.say(PlanCallMessage(obj_id, (given,), leaves, handle, returned, wants_specs=wants))
    if leaves:
        _gradients(world, handle, list(returned), [4, 4], 1)


def _raises_above(x: Any) -> Any:
    if bool((x > 1).any()):
        raise ValueError(f"the largest value is {x.max()}")
    return x * 2


def _as_many_as_above(x: Any) -> Any:
    return x[x > 0]


def _plain_product(x: Any) -> Any:
    return x @ x.T


def owners_callable(world: GuardedWorld) -> None:
    """A callable of the owner's."""
    function = world.rng.choice([_raises_above, _as_many_as_above, _plain_product])
    obj_id = world.put(ObjectWrapper(function))
    world.say(CallObjectMessage(obj_id, (world.tensor(f(4, 4)),), {}, world.new_id()))


def text(world: GuardedWorld) -> None:
    """A text of the owner's."""
    obj_id = world.put(String(world.kind * len(world.kind)))
    method = world.rng.choice(["upper", "split", "find", "title", "encode"])
    world.say(CallMethodMessage(obj_id, method, ("a",) if method == "find" else (), {}, world.new_id()))


def _transformed(x: Any) -> Any:
    if float(x.sum()) > 2:
        raise ValueError("too large")
    return x * 2


def batch(world: GuardedWorld) -> None:
    """Rows of a data set of the owner's."""
    rng = world.rng
    rows = tensor_of(f(6, 3), world.kind, world.hidden)
    labels = tensor_of(i(6), world.kind, world.hidden)
    transform = _transformed if rng.random() < 0.5 else None
    obj_id = world.put(BaseDataset(rows, labels, transform=transform))
    chosen = rng.choice([(0, 1, 2), (5,), (0, 5, 0), (), (6,), (2, 4)])
    world.say(GetShapeMessage(obj_id))
    world.say(BatchMessage(obj_id, chosen))


#: Mechanisms of releases with options that are right, and some that are not.
_RELEASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mean", {"bounds": (-2.0, 2.0)}),
    ("laplace", {"bounds": (-2.0, 2.0)}),
    ("variance", {"bounds": (-2.0, 2.0)}),
    ("count", {}),
    ("count", {"between": (0.0, 1.0)}),
    ("histogram", {"edges": [-2.0, 0.0, 2.0]}),
    ("exponential", {"bounds": (-2.0, 2.0)}),
    ("quantile", {"fraction": 0.5, "bounds": (-2.0, 2.0), "candidates": 8}),
    ("mean", {"bounds": (2.0, -2.0)}),
    ("median", {}),
)


def release(world: GuardedWorld) -> None:
    """A release of private rows, and of what was computed from them. The number itself is the owner's to give."""
    rng = world.rng
    rows = Ref(world.put(tensor_of(f(6, 2), world.kind, world.hidden)))
    with_budget, name = rng.random() < 0.8, f"rows {rows.id}"
    if with_budget:
        world.worker.set_budget(dataset=rows.id, epsilon=2.0, name=name)
    computed = world.new_id()
    operation, *args = rng.choice(
        [
            ("aten.mul.Tensor", rows, 2.0),
            ("aten.index_select.default", rows, 1, world.private(i(1, most=1))),
            ("aten.select.int", rows, 1, 0),
            ("aten.log.default", rows),
            ("aten.special_zeta.default", rows, rows),
            ("aten.special_zeta.other_scalar", rows, -2.5),
        ]
    )
    world.say(Operation(operation, None, args, {}, (computed,)))
    for obj_id in (rows.id, computed):
        mechanism, options = rng.choice(_RELEASES)
        world.say(ReleaseMessage(obj_id, mechanism, 0.5, 0.0, options), _kind_of)
    if with_budget:
        world.say(BudgetMessage(name), lambda state: (state.spent, state.left, len(state.releases)))


def _kind_of(reply: Any) -> str:
    return str(spec_of(reply)) if isinstance(reply, torch.Tensor) else type(reply).__name__


def released_only(world: GuardedWorld) -> None:
    """Data that may only be released: whatever else is asked of it, it is refused."""
    rng = world.rng
    rows = tensor_of(f(6, 2), world.kind, world.hidden)
    ref = Ref(world.put(PrivateTensor(released_only=True).on(rows)))
    name = f"rows {ref.id}"
    world.worker.set_budget(dataset=ref.id, epsilon=2.0, name=name)
    run_operation(world, rng.choice(recorded_calls()[rng.choice(ROWS)]), lambda _record: ref)
    question(world, ref.id)
    mechanism, options = rng.choice(_RELEASES)
    world.say(ReleaseMessage(ref.id, mechanism, 0.5, 0.0, options), _kind_of)
    world.say(BudgetMessage(name), lambda state: (state.spent, state.left, len(state.releases)))


def requests(world: GuardedWorld) -> None:
    """Requests to the owner, who approves some; what was approved is the owner's to give, and nothing else is told."""
    rng = world.rng
    rows = Ref(world.put(tensor_of(f(6, 2), world.kind, world.hidden)))
    world.put(tensor_of(f(6, 2), world.kind, world.hidden))
    world.worker.set_budget(dataset=rows.id, epsilon=0.1, name=f"rows {rows.id}")
    computed = world.new_id()
    name, *args = rng.choice(
        [
            ("aten.mean.default", rows),
            ("aten.log.default", rows),
            ("aten.mul.Tensor", rows, 2.0),
            ("aten.index_select.default", rows, 0, world.private(i(3, most=99))),
        ]
    )
    world.say(Operation(name, None, args, {}, (computed,)))
    asked = []
    for obj_id in rng.choices([rows.id, computed, world.some_id()], k=3):
        mechanism, options = rng.choice(_RELEASES)
        message = rng.choice(
            [ObjectRequestMessage((obj_id, "eve", "")), ReleaseMessage(obj_id, mechanism, 0.5, 0.0, options)]
        )
        reply = world.say(AskMessage(message, "why not"), _told_of)
        if reply is not None:
            asked.append((reply.id, message))
            decide = rng.choice(
                [lambda one: world.worker.approve(one, 2), world.worker.deny, lambda _one: None]
            )
            decide(reply.id)
    is_written = rng.random() < 0.5
    if is_written:  # it is not what was approved any more, whether the values change or not
        world.say(Operation("aten.mul_.Tensor", None, [Ref(computed), Ref(computed)], {}, ()))
    # NB: what is given away is taken first.
    is_given = {one.id: (one.status, one.ask.kind) == ("approved", "get") for one in world.worker.requests}
    for request, message in sorted(asked, key=lambda pair: not is_given[pair[0]]):
        world.say(RequestMessage("tell", request), _told_of)
        is_changed = is_written and is_given[request] and message.request[0] == computed
        for _ in range(2 if is_given[request] and not is_changed else 0):
            # The owner gives it away: the value, or that there is none.
            with speaking_for("eve"), contextlib.suppress(RemoteError):
                world.worker.recv_msg(RequestMessage("take", request))
        if not is_changed:
            world.say(RequestMessage("take", request), _kind_of)
        world.say(message, _kind_of)
        world.say(RequestMessage("withdraw", request), _told_of)
    world.say(RequestMessage("list"), lambda told: [_told_of(one) for one in told])


def _told_of(told: Any) -> Any:
    return told.id, told.kind, told.what, told.status, told.reply, told.uses_left


def shares(world: GuardedWorld) -> None:
    """Programs on shares of the owner's: every party is a worker like this one."""
    rng, parties = world.rng, world.parties()
    secret = tensor_of(i(2, 2, most=9), world.kind, world.hidden)
    node = AdditiveSharingTensor(crypto_provider=parties[2])
    node.child = {}
    for party, value in zip(parties, (torch.full_like(secret, 77), secret - 77), strict=False):
        obj_id = world.new_id()
        party.register_obj(value, obj_id)
        node.child[party.id] = new_pointer(party, obj_id, spec_of(value))
        node.child[party.id].garbage_collect_data = False
    compute = rng.choice(_ON_SHARES)

    def run() -> Any:
        with speaking_for("eve"):
            result = compute(new_wrapper(node))
            world.kept.append(result)
            return result.get()

    try:
        heard: Any = run()
    except Exception as error:  # noqa: BLE001
        heard = f"{type(error).__name__}: {error}"
    world.commands.append("a program on shares")
    world.note(_bytes_of(heard))


_ON_SHARES: tuple[Callable[[Any], Any], ...] = (
    lambda s: s,
    lambda s: s * s,
    lambda s: s + 1,
    lambda s: s @ s,
    lambda s: s > 0,
    lambda s: s.child.refresh(),
)


#: (command, how often it is chosen)
COMMANDS: tuple[tuple[Callable[[GuardedWorld], None], int], ...] = (
    (operation, 70),
    (question, 12),
    (recurrent, 4),
    (plan, 5),
    (owners_callable, 2),
    (text, 1),
    (batch, 2),
    (release, 2),
    (released_only, 2),
    (requests, 2),
    (shares, 1),
)


def run_program(world: GuardedWorld, length: int, first: str, commands: Sequence[Any] = COMMANDS) -> None:
    """An operation of the row `first`, and further commands until there are `length`."""
    run_operation(world, world.rng.choice(recorded_calls()[first]))
    chosen, weights = zip(*commands, strict=True)
    for command in world.rng.choices(chosen, weights, k=length - 1):
        command(world)


def compare(
    hook: Any, count: int, seed: int, commands: Sequence[Any] = COMMANDS, first: str | None = None
) -> int:
    """Run programs of one to six commands in two worlds; how many messages were sent.

    !! AssertionError where their users hear something else. The programs begin with all rows of the table in turn.
    """
    rng = random.Random(seed)
    sent = 0
    for number in range(count):
        name = first or ROWS[(seed * count + number) % len(ROWS)]
        program, length = rng.getrandbits(40), rng.randint(1, 6)
        pair = []
        for kind in rng.sample(WORLDS, 2):
            with counted_ids():
                pair.append(GuardedWorld(hook, kind, program))
                run_program(pair[-1], length, name, commands)
            sent += len(pair[-1].commands)
        one, other = pair
        assert one.log == other.log, difference(one, other)
    return sent


def difference(one: GuardedWorld, other: GuardedWorld) -> str:
    for place, (first, second) in enumerate(zip(one.log, other.log, strict=False)):
        if first != second:
            parts = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
            return f"{one.kind} and {other.kind}: {one.commands[: place + 1]} is answered by {parts}"
    return f"{len(one.log)} and {len(other.log)} answers"
