"""Every kind of message that a worker answers, from a user without rights: another's object might as well not be there.

The kinds are those of the table that the worker itself uses, and the fields are made from their types.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, get_type_hints

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syft as sy
from syft.messaging.message import ObjectMessage, Operation, Ref, SearchMessage
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules
from syft.workers import handlers

RULES = read_rules('[limits]\nmax_bytes = "1 MB"\nmax_objects = 50\n')
THERE, ABSENT = 7_000_001, 7_000_002
SECRET = 123_456.75
for _room in (
    "dp.release_training",
    "dp.release",
    "mpc.methods",
    "federated.fit_handlers",
    "execution.remote",
):
    importlib.import_module(f"syft.{_room}")  # each adds its kinds to the table
KINDS = sorted(handlers.HANDLERS, key=lambda kind: f"{kind.__module__}.{kind.__name__}")
OPERATIONS = [
    "aten.add.Tensor",
    "aten.clone.default",
    "aten.sum.default",
    "aten.zero_.default",
    "no.such.thing",
]
TEXTS = st.sampled_from([*OPERATIONS, "get", "shape", "__class__", "#ana", "ana", ""])


def worker_of_ana(hook: Any) -> Any:
    """A worker that denies by default, with a tensor that another user has brought."""
    worker = sy.VirtualWorker(hook, id="ward", auto_add=False, policy=OwnerPolicy(RULES))
    with speaking_for("ana"):
        worker.recv_msg(ObjectMessage(torch.full((3,), SECRET), THERE))
    return worker


def values(hint: Any, obj_id: Any) -> st.SearchStrategy[Any]:
    """Values for a field of a message. Where an id may stand, it is most often `obj_id`."""
    text = str(hint)
    if hint is bool:
        return st.booleans()
    if hint is int or text.startswith("int |"):
        return st.sampled_from([obj_id, 0, 1, 8])
    if hint is float:
        return st.sampled_from([0.0, 1.0])
    if hint is str or text.startswith("str |"):
        return TEXTS
    if "dict" in text:
        return st.just({})
    if "Ref" in text and "tuple" not in text:
        return st.just(Ref(obj_id))
    ids = st.sampled_from([obj_id, Ref(obj_id), 8_000_001, "#ana"])
    if "tuple" in text or "list" in text or "Sequence" in text:
        return st.lists(ids, max_size=3).map(tuple)
    return st.one_of(ids, st.lists(ids, max_size=2).map(tuple))


@st.composite
def messages(draw: st.DrawFn, kind: Any, obj_id: int) -> Any:
    hints = get_type_hints(kind)
    made = {name: draw(values(hints.get(name, Any), obj_id)) for name in kind.__struct_fields__}
    if "user" in made:
        made["user"] = "ana"  # who it claims to be
    if kind is SearchMessage:
        return SearchMessage([draw(TEXTS)])
    if kind is Operation:
        made["cmd_args"], made["return_ids"] = [Ref(obj_id)] * draw(st.sampled_from([1, 2])), (8_000_001,)
    return kind(**made)


def heard(worker: Any, message: Any) -> str:
    """All that the user `eve` is told, with ids left out."""
    with speaking_for("eve"):
        try:
            told = f"reply {worker.recv_msg(message)!r}"
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what the user hears)
            told = f"{type(error).__name__}: {error}"
    return re.sub(r"700000[12]|0x[0-9a-f]+|\d{9,}", "ID", told)


def held_by_ana(worker: Any) -> Any:
    entry = worker._entries[THERE]
    return entry.value.tolist(), entry.holder, entry.allowed, entry.value._version


#: Kinds that are refused with the reason that the user may not, where an id is known: ids of tensors are random numbers.
TOLD_APART = frozenset(
    """AttributeMessage BatchMessage CallBackwardMessage CallMethodMessage CallObjectMessage ForceObjectDeleteMessage
    ForwardMessage GetShapeMessage IsNoneMessage ObjectMessage ObjectRequestMessage Operation PlanCallMessage
    ReleaseMessage RemoteGetMessage ShareMessage TrainConfigMessage""".split()
)
STRUCTS = [kind for kind in KINDS if hasattr(kind, "__struct_fields__") and "mpc" not in kind.__module__]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_another_has_is_as_what_is_not_there(kind: Any, hook: Any, data: Any) -> None:
    message = data.draw(messages(kind, THERE))
    absent = _with_id(message, ABSENT)
    worker = worker_of_ana(hook)
    before = held_by_ana(worker)
    of_hers, of_nothing = heard(worker, message), heard(worker_of_ana(hook), absent)
    assert held_by_ana(worker) == before
    assert str(SECRET) not in of_hers
    assert of_hers == of_nothing or (kind.__name__ in TOLD_APART and "NotPermittedError" in of_hers)


def _with_id(value: Any, obj_id: int) -> Any:
    """A message that is about another object."""
    if isinstance(value, Ref):
        return Ref(obj_id) if value.id == THERE else value
    if hasattr(value, "__struct_fields__"):
        return type(value)(**{n: _with_id(getattr(value, n), obj_id) for n in value.__struct_fields__})
    if isinstance(value, (tuple, list)):
        return type(value)(_with_id(item, obj_id) for item in value)
    return obj_id if value == THERE and type(value) is int else value


def test_the_owner_of_the_object_hears_more(hook: Any) -> None:
    """So that equal answers above are no accident of messages that are never read."""
    worker = worker_of_ana(hook)
    with speaking_for("ana"):
        worker.recv_msg(Operation("aten.clone.default", None, [Ref(THERE)], {}, (8_000_001,)))
    assert 8_000_001 in worker._entries
    assert "ID" in heard(worker, Operation("aten.clone.default", None, [Ref(THERE)], {}, (8_000_002,)))
    assert "SearchMessage" in {kind.__name__ for kind in STRUCTS} and SearchMessage in KINDS
