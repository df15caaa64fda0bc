"""What an operation takes is told before it takes it, whatever shapes, strides and steps it is given."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import GetNotPermittedError, OperationNotAdmittedError, QuotaExceededError
from syft.messaging.message import (
    CallMessage,
    CallMethodMessage,
    ObjectMessage,
    ObjectRequestMessage,
    Operation,
    Ref,
)
from syft.policy.caller import speaking_for
from syft.policy.owner_policy import OwnerPolicy, read_rules

MOST = 10_000_000
#: What is too large, or is no operation of which the size can be told. Nothing of it has run.
REFUSED = (QuotaExceededError, OperationNotAdmittedError, ValueError, RuntimeError, TypeError)
N = 250_000_000  # floats: 1 GB


@pytest.fixture
def small(make_worker: Any) -> Iterator[Any]:
    """A worker whose users may hold 10 MB, and a user who speaks."""
    rules = f'[limits]\nmax_bytes = "{MOST // 10**6} MB"\nmax_objects = 1000\n'
    worker = make_worker("small", policy=OwnerPolicy(read_rules(rules)))
    worker.register_obj(torch.ones(2, 2), "private", allowed=["bob"])
    with speaking_for("eve"):
        yield worker


def op(worker: Any, name: str, args: list[Any], *ids: Any, **kwargs: Any) -> Any:
    return worker.recv_msg(Operation(name, None, args, kwargs, ids))


def send(worker: Any, **tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        worker.recv_msg(ObjectMessage(tensor, name))


def held(worker: Any) -> int:
    return int(worker._holdings.quotas.usage("eve").bytes)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.fixture
def given(small: Any) -> Any:
    """Tensors that are small, and look large."""
    send(
        small,
        one=torch.ones(1),
        bit=torch.ones(1, dtype=torch.bool),
        imaginary=torch.ones(1, dtype=torch.complex64),
        size=torch.tensor(N),
        fives=torch.ones([1] * 5),
        many=torch.ones([1] * 17),
        kernel=torch.ones(1, 1, 2, 2, 2),
        forty=torch.ones(40),
        out=torch.zeros(0),
    )
    op(small, "aten.expand.default", [Ref("one"), [N]], "long")
    op(small, "aten.expand.default", [Ref("one"), [15811, 15811]], "square")
    op(small, "aten.expand.default", [Ref("bit"), [N]], "mask")
    op(small, "aten.expand.default", [Ref("imaginary"), [N]], "complex")
    op(small, "aten.zeros.default", [[N, 0]], "empty")
    op(small, "aten.zeros.default", [[15811, 0]], "rows")
    op(small, "aten.zeros.default", [[15811, 1]], "thin")
    op(small, "aten.zeros.default", [[0, 15811]], "columns")
    return small


CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "contiguous": ("aten.contiguous.default", [Ref("long")], {}),
    "to": ("aten.to.dtype", [Ref("long"), torch.float64], {}),
    "_to_copy": ("aten._to_copy.default", [Ref("long")], {}),
    "clone": ("aten.clone.default", [Ref("long")], {}),
    "public contiguous": ("contiguous", [Ref("long")], {}),
    "sum over nothing": ("aten.sum.dim_IntList", [Ref("empty"), [1]], {}),
    "mm over nothing": ("aten.mm.default", [Ref("rows"), Ref("columns")], {}),
    "matmul over nothing": ("torch.matmul", [Ref("rows"), Ref("columns")], {}),
    "mm of expanded": ("aten.mm.default", [Ref("square"), Ref("square")], {}),
    "a copy of expanded": ("aten.mm.default", [Ref("square"), Ref("thin")], {}),
    "arange": ("aten.arange.start_step", [0, 1, 4e-9], {"dtype": torch.float32}),
    "public arange": ("torch.arange", [0, 1, 4e-9], {}),
    "linspace": ("torch.linspace", [0, 1, N], {}),
    "pad": ("aten.constant_pad_nd.default", [Ref("many"), [1] * 34, 0.0], {}),
    "public pad": ("torch.nn.functional.pad", [Ref("many"), [1] * 34], {}),
    "interpolate": ("torch.nn.functional.interpolate", [Ref("fives")], {"scale_factor": 630.0}),
    "upsample": ("aten.upsample_nearest3d.default", [Ref("fives"), [630, 630, 630]], {}),
    "stride": (
        "aten.convolution.default",
        [Ref("kernel"), Ref("fives"), None, [630], [0], [1], True, [0], 1],
        {},
    ),
    "padding": (
        "aten.convolution.default",
        [Ref("fives"), Ref("fives"), None, [1], [315], [1], False, [0], 1],
        {},
    ),
    "repeat": ("aten.repeat.default", [Ref("many"), [3] * 17], {}),
    "tile": ("torch.tile", [Ref("many"), [3] * 17], {}),
    "a tensor as size": ("aten.zeros.default", [[Ref("size")]], {}),
    "a tensor as size, public": ("torch.zeros", [[Ref("size")]], {}),
    "nonzero": ("aten.nonzero.default", [Ref("long")], {}),
    "public nonzero": ("torch.nonzero", [Ref("long")], {}),
    "masked_select": ("aten.masked_select.default", [Ref("long"), Ref("mask")], {}),
    "index": ("aten.index.Tensor", [Ref("long"), [Ref("mask")]], {}),
    "unique": ("torch.unique", [Ref("long")], {}),
    "cartesian_prod": ("aten.cartesian_prod.default", [[Ref("forty")] * 5], {}),
    "repeat_interleave": ("aten.repeat_interleave.self_int", [Ref("one"), N], {}),
    "fft": ("aten._fft_r2c.default", [Ref("long"), [0], 0, True], {}),
    "on the way": ("torch.einsum", ["i,j,ij->", Ref("column"), Ref("column"), Ref("square")], {}),
    "arange out": ("aten.arange.start_out", [0, 1, 4e-9], {"out": Ref("out")}),
    "public arange out": ("torch.arange", [0, 1, 4e-9], {"out": Ref("out")}),
    "sum out": ("aten.sum.IntList_out", [Ref("empty"), [1]], {"out": Ref("out")}),
    "mm out": ("aten.mm.out", [Ref("rows"), Ref("columns")], {"out": Ref("out")}),
    "pad out": ("aten.constant_pad_nd.out", [Ref("many"), [1] * 34, 0.0], {"out": Ref("out")}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_looks_small_is_not_run(given: Any, name: str) -> None:
    command, args, kwargs = CASES[name]
    if name == "on the way":
        op(given, "aten.expand.default", [Ref("one"), [15811]], "column")
    before, at_most = held(given), peak() + (400 << 20)
    with pytest.raises(REFUSED):
        op(given, command, args, "result", **kwargs)
    assert held(given) == before
    assert peak() < at_most


def test_what_is_small_is_run(given: Any) -> None:
    send(given, x=torch.arange(6.0).reshape(2, 3))
    op(given, "aten.reshape.default", [Ref("x"), [-1]], "flat")
    op(given, "aten.split.Tensor", [Ref("x"), 1], "row1", "row0")
    assert given._objects["flat"].tolist() == [0, 1, 2, 3, 4, 5]
    assert given._objects["row1"].tolist() == [[3, 4, 5]]


def test_a_view_of_what_fills_the_quota_is_free(small: Any) -> None:
    op(small, "aten.zeros.default", [[2_400_000]], "most")
    op(small, "aten.reshape.default", [Ref("most"), [2, -1]], "shaped")
    op(small, "aten.flatten.using_ints", [Ref("shaped")], "flat")
    op(small, "aten.add_.Scalar", [Ref("flat"), 1])
    assert held(small) == 9_600_000
    assert small._objects["most"][0] == 1


@pytest.mark.parametrize(
    ("command", "args", "kwargs"),
    [
        ("aten.unbind.int", [Ref("view")], {}),
        ("aten.split.Tensor", [Ref("view"), 1], {}),
        ("aten.chunk.default", [Ref("view"), 10**6], {}),
        ("aten.tensor_split.sections", [Ref("view"), 10**6], {}),
        ("aten.unbind_copy.int", [Ref("view")], {}),
        ("torch.unbind", [], {"input": Ref("view")}),
        ("torch.split", [Ref("view"), 1], {}),
        ("torch.tensor_split", [Ref("view"), Ref("sections")], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pieces_are_counted_beforehand(
    small: Any, command: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    send(small, one=torch.ones(1), sections=torch.tensor(10**6))
    op(small, "aten.expand.default", [Ref("one"), [10**6]], "view")
    started = time.process_time()
    with pytest.raises(REFUSED):
        op(small, command, args, "first", "second", **kwargs)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("r", [65, 300_000, 20_000_000, 2**63])
def test_combinations_of_many_are_refused_at_once(small: Any, r: int) -> None:
    send(small, x=torch.ones(1000))
    started = time.process_time()
    with pytest.raises(REFUSED):
        op(small, "torch.combinations", [Ref("x"), r], "result")
    assert time.process_time() - started < 1.0


# -- memory that nobody was charged for ------------------------------------------------------------


@pytest.mark.parametrize("obj_id", ["x" * 129, "x" * 10**7, 2**64, -(2**70)], ids=["129", "10 MB", "+", "-"])
def test_ids_are_short(small: Any, obj_id: Any) -> None:
    with pytest.raises(QuotaExceededError, match="Choose a shorter one"):
        small.recv_msg(ObjectMessage(torch.ones(1), obj_id))
    small.recv_msg(ObjectMessage(torch.ones(1), 1))
    with pytest.raises(QuotaExceededError, match="Choose a shorter one"):
        op(small, "aten.neg.default", [Ref(1)], obj_id)
    assert obj_id not in small._objects
    small.recv_msg(ObjectMessage(torch.ones(1), "x" * 128))
    small.recv_msg(ObjectMessage(torch.ones(1), 2**64 - 1))


def test_what_is_logged_is_short(small: Any) -> None:
    with pytest.raises(GetNotPermittedError):
        small.recv_msg(ObjectRequestMessage(("private", None, "r" * 10**6), keep=True))
    assert max(len(r.reason) for r in small.policy.audit_log) < 250
    with pytest.raises(GetNotPermittedError) as refusal:
        small.policy.check_get(None, "i" * 10**6, frozenset(), "short")
    assert len(str(refusal.value)) < 1000
    assert max(len(str(r.obj_id)) for r in small.policy.audit_log) < 250


def test_lists_of_users_are_short_and_charged(small: Any) -> None:
    many = frozenset(f"user{i}" for i in range(1001))
    with pytest.raises(QuotaExceededError, match="1001 users"):
        small.recv_msg(ObjectMessage(torch.ones(1), 1, many))
    with pytest.raises(QuotaExceededError, match="1 users"):
        small.recv_msg(ObjectMessage(torch.ones(1), 1, frozenset({"u" * 10**6})))
    assert 1 not in small._objects and held(small) == 0
    small.recv_msg(ObjectMessage(torch.ones(1), 1, frozenset(f"user{i}" for i in range(1000))))
    assert held(small) > 50_000


def test_texts_cost_what_they_take(small: Any) -> None:
    small.recv_msg(ObjectMessage(sy.String("\N{GRINNING FACE}" * 10_000), 1))
    assert held(small) >= 40_000
    small.recv_msg(ObjectMessage(torch.ones(1).tag(*(f"#{i}" for i in range(1000))), 2))
    assert held(small) >= 40_000 + 50_000


def test_what_a_call_keeps_is_charged(small: Any) -> None:
    """The graph of a recurrent network keeps the values of every step."""
    lstm = torch.nn.LSTM(4, 64)
    weights = [w.detach() for w in lstm.parameters()]
    send(small, x=torch.zeros(200, 8, 4), h=torch.zeros(1, 8, 64), c=torch.zeros(1, 8, 64))
    send(small, **{f"w{i}": w for i, w in enumerate(weights)})
    args = (
        Ref("x"),
        (Ref("h"), Ref("c")),
        [Ref(f"w{i}") for i in range(4)],
        True,
        1,
        0.0,
        True,
        False,
        False,
    )
    before = held(small)
    small.recv_msg(CallMessage("torch.lstm", args, {}, (0,), "record", ("a", "b", "y")))
    assert held(small) - before > 3 * 200 * 8 * 64 * 4
    calls = [
        CallMessage("torch.lstm", args, {}, (0,), f"r{i}", (f"a{i}", f"b{i}", f"y{i}")) for i in range(20)
    ]
    with pytest.raises(QuotaExceededError):
        list(map(small.recv_msg, calls))
    assert held(small) <= MOST


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("__mul__", (10**9,)),
        ("ljust", (10**9,)),
        ("center", (10**9, "-")),
        ("zfill", (10**9,)),
        ("expandtabs", (10**9,)),
        ("replace", ("a", "b" * 10**6)),
        ("replace", ("", "b" * 10**6)),
        ("join", ("x" * 10**6,)),
    ],
)
def test_texts_are_measured_beforehand(small: Any, method: str, args: tuple[Any, ...]) -> None:
    small.recv_msg(ObjectMessage(sy.String("\taaaaaaaaaa"), "text"))
    at_most = peak() + (200 << 20)
    with pytest.raises(QuotaExceededError, match="was not run"):
        small.recv_msg(CallMethodMessage("text", method, args, {}, "result"))
    assert peak() < at_most
    small.recv_msg(CallMethodMessage("text", "upper", (), {}, "result"))
    assert small._objects["result"].child == "\tAAAAAAAAAA"


def test_pieces_of_a_text_are_measured_beforehand(small: Any) -> None:
    small.recv_msg(ObjectMessage(sy.String("a," * 10**6), "text"))
    with pytest.raises(QuotaExceededError, match="split was not run"):
        small.recv_msg(CallMethodMessage("text", "split", (",",), {}, "result"))
