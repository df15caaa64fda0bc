"""Passes that a worker has learnt, what is told of data sets, and statistics by group: commands for `guarded_worlds`."""

from __future__ import annotations

from typing import Any

from calls import tensor_of
from guarded_worlds import GuardedWorld, _kind_of, f, i

from syft.data.schema import ColumnInfo, DataSetInfo, PartInfo, mock_data, told_rows
from syft.federated.dataset import BaseDataset
from syft.federated.records import FitInstructions
from syft.messaging.message import (
    AskMessage,
    BudgetMessage,
    DatasetsMessage,
    GetShapeMessage,
    LearntMessage,
    ObjectRequestMessage,
    OffersMessage,
    Ref,
    ReleaseMessage,
    RoundMessage,
)
from syft.workers.network.learnt import Programs

_X, _Y, _INDEX = Ref(0), Ref(1), Ref(2)
#: Operations of passes on two tensors of (4, 4) and whole numbers of (4,); some fail by values, some always.
_STEPS: tuple[tuple[Any, ...], ...] = (
    ("aten.mul.Tensor", _X, _Y),
    ("aten.sub.Tensor", _X, _Y),
    ("aten.mm.default", _X, _Y),
    ("aten.threshold_backward.default", _X, _Y, 0.5),
    ("aten.index_select.default", _X, 0, _INDEX),
    ("aten.linalg_inv.default", _X),
    ("aten.linalg_cholesky.default", _X),
    ("aten.t.default", _X),
    ("aten.sum.dim_IntList", _X, [0], False),
    ("aten.linear.default", _X, _Y),
    ("aten.nonzero.default", _X),
    ("aten.masked_select.default", _X, _Y),
    ("aten.item.default", _X),
)


def learnt(world: GuardedWorld) -> None:
    """A pass of operations in one message, and again with other tensors, some of them in two places."""
    rng, programs = world.rng, Programs()
    operations = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name, *args = rng.choice(_STEPS)
        earlier = [_X, *map(Ref, range(3, 3 + len(operations)))]
        given = tuple(rng.choice(earlier) if value is _X else value for value in args)
        operations.append((name, given, {}, 1))
    outputs = tuple(range(3, 3 + len(operations)))
    told: tuple[Any, ...] = (tuple(operations), outputs)
    for _ in range(rng.choice((1, 2, 3))):
        first = world.tensor(f(4, 4)).id
        second = first if rng.random() < 0.4 else world.tensor(f(4, 4)).id
        ids = first, second, world.tensor(i(4, most=rng.choice((3, 99)))).id
        returned = tuple(world.new_id() for _ in outputs)
        message = LearntMessage(7, ids, returned, *told)
        try:
            resolved = programs.resolve(message)
        except Exception as error:  # noqa: BLE001  (what the session says, who knows no object)
            world.note(f"{type(error).__name__}: {error}")
            return
        world.say(resolved)
        told = ()
        world.say(GetShapeMessage(returned[-1]))
        world.say(ObjectRequestMessage((returned[0], "eve", ""), keep=True))


def datasets(world: GuardedWorld) -> None:
    """What is told of data sets, and mock data; nothing of it follows from values."""
    rng = world.rng
    for number in range(rng.choice((1, 2))):
        key = f"set {world.new_id()} {number}"
        rows = tensor_of(f(6, 2), world.kind, world.hidden)
        info = None
        if rng.random() < 0.5:
            column = ColumnInfo("x", "category", "int64", None, rng.choice((None, 3)))
            parts = PartInfo("inputs", (2,), "float32", (column, column)), PartInfo("target", (), "int64")
            info = DataSetInfo(key, parts, told_rows(len(rows), rng.choice(("exact", "rounded", "hidden"))))
        world.worker.add_dataset(
            BaseDataset(rows, tensor_of(i(6), world.kind, world.hidden)),
            key,
            allowed_users=rng.choice((None, ["ann"], ["eve"])),
            info=info,
            on_request=rng.random() < 0.5,
        )
    found = world.say(DatasetsMessage(None))
    world.say(OffersMessage(None))
    for one in (found or {}).values():
        world.note([t.tolist() for t in mock_data(one, 2).tensors])
    message = RoundMessage(
        world.some_id(), world.some_id(), {}, rng.choice((key, "nothing")), FitInstructions(0, 0, {})
    )
    world.say(message)
    world.say(AskMessage(message, "why not", rng.choice((1, 3))))


def grouped(world: GuardedWorld) -> None:
    """Statistics by group. The numbers, and with noise which groups there are, are the owner's to give."""
    rng = world.rng
    table = tensor_of(f(8, 3), world.kind, world.hidden).round()
    rows = world.put(table)
    name = f"table {rows}"
    world.worker.set_budget(
        dataset=rows, epsilon=2.0, delta=1e-5, name=name, person_column=rng.choice((None, 0))
    )
    options: dict[str, Any] = {"by": 1, "max_groups": rng.choice((1, 2, 0)), "max_rows": 2}
    if rng.random() < 0.5:
        options["keys"] = [0.0, 1.0, rng.choice((2.0, float("nan")))]
    mechanism = rng.choice(("group_count", "group_sum", "group_mean"))
    if mechanism != "group_count":
        options |= {"value": rng.choice((2, 3)), "bounds": (-2.0, 2.0)}
    world.say(ReleaseMessage(rows, mechanism, 0.5, rng.choice((0.0, 1e-6)), options), _kind_of)
    world.say(BudgetMessage(name), lambda state: (state.spent, state.left, len(state.releases)))


OFFERS = ((learnt, 4), (datasets, 2), (grouped, 2))
