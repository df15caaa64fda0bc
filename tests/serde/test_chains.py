"""Chains, pointers, objects, workers, messages and errors come back; workers are resolved by the one that reads."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import syft as sy
from syft import exceptions, serde
from syft.core.shapes import ALIAS, Answer
from syft.core.spec import TensorSpec, make_spec, spec_of
from syft.messaging import message
from syft.serde.message_types import MESSAGES

# -- chains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda t: sy.LoggingTensor().on(t),
        lambda t: sy.PlusIsMinusTensor().on(t),
        lambda t: sy.LocalTensor().on(t),
        lambda t: sy.PrivateTensor(allowed_users=("ann", "bo")).on(t),
        lambda t: sy.AutogradTensor(requires_grad=False).on(t),
        lambda t: sy.LoggingTensor().on(sy.PlusIsMinusTensor().on(t)),
        lambda t: sy.PolynomialTensor().on(t),
    ],
)
def test_a_chain_comes_back_link_by_link(there_and_back: Any, quiet: None, make: Any) -> None:
    chain = make(torch.randn(3, 4))
    chain.tag("#c").describe("a chain")
    back = there_and_back(chain)
    a, b = chain, back
    while hasattr(a, "child"):
        assert type(a) is type(b)
        a, b = a.child, b.child
    assert torch.equal(a, b)
    assert back.shape == chain.shape and back.stride() == chain.stride()
    assert back.tags == {"#c"} and back.description == "a chain"
    assert back.requires_grad == chain.requires_grad


def test_what_a_link_knows_travels(there_and_back: Any) -> None:
    private = sy.PrivateTensor(allowed_users=("ann",)).on(torch.ones(2))
    assert there_and_back(private).child.allowed_users == ("ann",)
    polynomial = sy.PolynomialTensor()
    polynomial.addfunction("cube", 3, [(-1.0, 1.0, lambda t: t**3)])
    back = there_and_back(polynomial.on(torch.tensor([0.5])))
    assert back.child.functions == polynomial.functions
    assert torch.allclose(back.child.get_val("cube", torch.tensor([0.5])), torch.tensor([0.125]))
    autograd = sy.AutogradTensor(retain_grad=True).on(torch.ones(2))
    assert there_and_back(autograd).child.retain_grad
    assert there_and_back(autograd).requires_grad


def test_a_chain_behaves_after_the_way(there_and_back: Any) -> None:
    x = there_and_back(sy.PlusIsMinusTensor().on(torch.tensor([5.0])).requires_grad_())
    y = sy.PlusIsMinusTensor().on(torch.tensor([2.0]))
    assert (x + y).child.child.item() == 3.0
    (x * x).sum().backward()
    assert x.grad.child.child.item() == 10.0


def test_bare_nodes_numpy_nodes_parameters_and_empty_wrappers(there_and_back: Any) -> None:
    node = there_and_back(sy.LoggingTensor().on(torch.ones(2), wrap=False))
    assert type(node) is sy.LoggingTensor and torch.equal(node.child, torch.ones(2))
    array = there_and_back(sy.NumpyTensor(numpy_tensor=np.eye(2)).wrap())
    assert (array.child.child == np.eye(2)).all()
    parameter = sy.LoggingTensor().on(torch.ones(2)).requires_grad_()
    parameter._is_param = True
    back = there_and_back(parameter)
    assert isinstance(back, torch.nn.Parameter) and back.requires_grad
    assert there_and_back(sy.Wrapper()).child is None


def test_fixed_precision_comes_back(there_and_back: Any) -> None:
    x = torch.tensor([1.5, -2.25]).fix_precision(base=2, precision_fractional=16)  # type: ignore[attr-defined]
    back = there_and_back(x)
    assert (back.child.base, back.child.precision_fractional, back.dtype) == (2, 16, torch.float32)
    assert torch.equal(back.float_precision(), torch.tensor([1.5, -2.25]))
    bits = there_and_back(x > 0)
    assert torch.equal(bits.float_precision(), torch.tensor([1.0, 0.0]))  # a comparison is a number, 0 or 1


def test_a_shared_secret_is_handed_to_who_knows_the_holders(workers: Any, there_and_back: Any) -> None:
    x = (
        torch.tensor([1.5, -2.25])
        .fix_precision()
        .share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    )  # type: ignore[attr-defined]
    x.child.child.tag("#secret")
    back = there_and_back(x)
    shared = back.child.child
    assert shared.tags == {"#secret"}
    assert [w.id for w in shared.locations] == ["alice", "bob"] and shared.crypto_provider is workers.charlie
    assert not any(p.garbage_collect_data for p in shared.pointers)
    assert torch.allclose(shared.virtual_get().float() / 1000, torch.tensor([1.5, -2.25]))
    assert torch.allclose((back + back).get().float_precision(), torch.tensor([3.0, -4.5]))


# -- pointers --------------------------------------------------------------------------------------


def test_a_pointer_is_resolved_by_the_worker_that_reads(bob: Any, alice: Any, there_and_back: Any) -> None:
    x = torch.randn(3, 4).t().tag("#x").describe("values").send(bob)  # type: ignore[attr-defined]
    wanted = x.child.id
    back = there_and_back(x, alice)
    assert back.location is bob and back.id_at_location == x.id_at_location
    assert back.child.owner is alice and back.child.id == wanted
    assert back.child.spec is x.child.spec
    assert back.tags == {"#x"} and back.description == "values"
    assert torch.equal(there_and_back(x).copy().get(), x.copy().get())


def test_a_pointer_from_a_frame_deletes_nothing_unless_it_takes_over(bob: Any) -> None:
    x = torch.ones(2).send(bob)  # type: ignore[attr-defined]
    data = serde.serialize(x)
    back = serde.deserialize(data)
    assert not back.child.garbage_collect_data
    del back
    assert len(bob._objects) == 1
    heir = serde.deserialize(data, take_over=True)
    x.child.garbage_collect_data = False
    assert heir.child.garbage_collect_data
    del x
    assert len(bob._objects) == 1
    del heir
    assert len(bob._objects) == 0


def test_a_refused_frame_deletes_nothing(bob: Any) -> None:
    x = torch.ones(2).send(bob)  # type: ignore[attr-defined]
    data = serde.serialize([x, sy.String("later")]).replace(b"later", b"lat\xffr")
    with pytest.raises(serde.SerdeError):
        serde.deserialize(data, take_over=True)
    simple = serde.simplify(None, [x])
    with pytest.raises(serde.SerdeError):
        serde.detail(None, (*simple, ("no such type",)))
    assert len(bob._objects) == 1


def test_a_pointer_to_nobody_known_is_refused(bob: Any, hook: Any) -> None:
    data = serde.serialize(torch.ones(2).send(bob))  # type: ignore[attr-defined]
    lonely = sy.VirtualWorker(hook, id="lonely", auto_add=False)
    with pytest.raises(serde.UnknownWorkerError, match="does not know"):
        serde.deserialize(data, lonely)
    with pytest.raises(exceptions.WorkerNotFoundException):
        serde.deserialize(data, lonely)


def test_pointers_of_all_kinds_come_back(workers: Any, there_and_back: Any) -> None:
    multi = torch.ones(2).send(workers.alice, workers.bob)  # type: ignore[attr-defined]
    back = there_and_back(multi)
    assert list(back.child.child) == ["alice", "bob"] and back.shape == (2,)
    text = sy.String("some text").tag("#t").send(workers.bob)
    copy = there_and_back(text)
    assert type(copy) is sy.StringPointer and copy.tags == {"#t"}
    assert copy.upper().get() == "SOME TEXT"
    call = sy.ObjectWrapper(len).send(workers.bob)
    assert type(there_and_back(call)) is sy.CallablePointer
    value = sy.ObjectWrapper({"a": 1}).send(workers.bob)
    assert type(there_and_back(value)) is sy.ObjectPointer


def test_objects_come_back(there_and_back: Any) -> None:
    text = there_and_back(sy.String("añ", id=7).tag("#a"))
    assert text == "añ" and text.id == 7 and text.tags == {"#a"}
    assert there_and_back(sy.ObjectWrapper([1, torch.ones(1)], id="box")).obj[0] == 1
    with pytest.raises(serde.UnserializableError, match="builtin_function"):
        serde.serialize(sy.ObjectWrapper(len))


def test_workers_travel_by_id(bob: Any, alice: Any, there_and_back: Any) -> None:
    assert there_and_back(bob) is bob
    assert there_and_back({"who": [alice]}, bob)["who"][0] is alice
    assert b"objects" not in serde.serialize(bob)


# -- messages --------------------------------------------------------------------------------------

EXAMPLES: dict[type, Any] = {
    message.Ref: message.Ref(3),
    message.Operation: message.Operation(
        "aten.add.Tensor",
        None,
        [message.Ref(1), message.Ref("b"), 2.5, None],
        {"alpha": 2},
        (7, 8),
        True,
        "ann",
    ),
    message.CallMessage: message.CallMessage("torch.lstm", (message.Ref(1),), {"a": (1,)}, (0,), 5, (6, 7)),
    message.CallBackwardMessage: message.CallBackwardMessage(5, (message.Ref(1), None), (2,)),
    message.ObjectMessage: message.ObjectMessage([1, 2], 4, frozenset({"ann"}), "ann"),
    message.ObjectRequestMessage: message.ObjectRequestMessage((4, "ann", "why"), True),
    message.ForwardMessage: message.ForwardMessage(1, "bob", 2, None),
    message.ShareMessage: message.ShareMessage(1, ("alice", "bob"), (2, 3)),
    message.RemoteGetMessage: message.RemoteGetMessage(1, "ann"),
    message.IsNoneMessage: message.IsNoneMessage(1),
    message.GetShapeMessage: message.GetShapeMessage("x"),
    message.AttributeMessage: message.AttributeMessage(1, "grad", 2, message.Ref(3), True, None),
    message.CallObjectMessage: message.CallObjectMessage(1, (message.Ref(2), 3), {"k": 1}, 4),
    message.CallMethodMessage: message.CallMethodMessage(1, "upper", (), {}, 4),
    message.ForceObjectDeleteMessage: message.ForceObjectDeleteMessage((1, 2, 3)),
    message.SearchMessage: message.SearchMessage(("#a", 3)),
    message.ReleaseMessage: message.ReleaseMessage(1, "mean", 0.5, 0.0, {"bounds": (0.0, 1.0)}, "ann"),
    message.AskMessage: message.AskMessage(message.ObjectRequestMessage((4, "ann", "why")), "why", 2, "ann"),
    message.RequestMessage: message.RequestMessage("tell", "abc", "ann"),
    message.BudgetMessage: message.BudgetMessage("#ages", "ann"),
    message.PlanCommandMessage: message.PlanCommandMessage("fetch", (1,)),
    message.Found: message.Found(1, "tensor", spec_of(torch.ones(2, 3)), ("#a",), "text"),
}


def test_every_message_is_registered() -> None:
    assert set(EXAMPLES) <= set(MESSAGES)
    assert all(serde.is_registered(cls) for cls in MESSAGES)
    assert {
        cls for cls in vars(message).values() if isinstance(cls, type) and issubclass(cls, message.Message)
    } - {message.Message, message.MessageRecord} <= set(MESSAGES)


@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
def test_messages_come_back(there_and_back: Any, cls: type) -> None:
    back = there_and_back(EXAMPLES[cls])
    assert type(back) is cls
    assert back == EXAMPLES[cls]


def test_a_message_carries_tensors(there_and_back: Any) -> None:
    back = there_and_back(message.ObjectMessage(torch.arange(1000), 4))
    assert torch.equal(back.object, torch.arange(1000))


def test_a_message_with_fields_of_other_types_is_refused() -> None:
    for wrong in (
        ("Operation", 1, None, ("list",), ("dict",), ("tuple",), False, None),
        ("Operation", "aten.add.Tensor", None, ("list",), ("list",), ("tuple",), False, None),
        ("IsNoneMessage",),
        ("IsNoneMessage", 1, 2),
        ("ObjectMessage", 1, 2, ("frozenset", 3), None),
    ):
        with pytest.raises(serde.SerdeError):
            serde.detail(None, wrong)


def test_metadata_and_answers_come_back(there_and_back: Any) -> None:
    spec = make_spec(torch.Size([2, 3]), (1, 2), 4, torch.bfloat16)
    assert there_and_back(spec) is spec
    inner = Answer(parts=(spec, None), kind=list)
    back = there_and_back(((1, 2), Answer(parts=(spec, ALIAS, None, inner), kind=tuple)))[1]
    assert back.kind is tuple and back.parts[0] is spec
    assert back.parts[1] is ALIAS, "answers are compared with `is`"
    assert back.parts[3].kind is list and back.parts[3].parts == (spec, None)
    assert there_and_back(Answer(spec=spec)).spec is spec
    assert isinstance(there_and_back(Answer(asks=True)), Answer)


def test_a_new_message_travels_once_it_is_registered(there_and_back: Any) -> None:
    class Ping(message.MessageRecord, frozen=True):
        number: int
        note: str | None = None

    assert not serde.is_registered(Ping)
    serde.register_record(Ping, "test.Ping")
    assert there_and_back(Ping(3, "a")) == Ping(3, "a")
    assert msgspec.structs.asdict(there_and_back(Ping(4))) == {"number": 4, "note": None}


# -- errors ----------------------------------------------------------------------------------------


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001
        return caught


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        KeyError("missing"),
        RuntimeError("a", 3, None, 2.5),
        FileNotFoundError(2, "No such file"),
        ZeroDivisionError(),
        exceptions.GetNotPermittedError("not you"),
        exceptions.TensorsNotCollocatedException(torch.ones(1), torch.ones(1), "add"),
        exceptions.UnsupportedOperationError("op", torch.Tensor),
        exceptions.DependencyError("lz4"),
        exceptions.CompressionNotFoundException("no"),
        serde.SerdeError("frame"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_errors_come_back_with_their_traceback(there_and_back: Any, error: Exception) -> None:
    back = there_and_back(raised(error))
    assert type(back) is type(error)
    assert str(back) == str(error) and back.args == error.args
    assert "in raised" in back.remote_traceback
    assert "in raised" in "".join(traceback.format_exception(back))


def test_attributes_of_errors_travel(there_and_back: Any, bob: Any) -> None:
    assert there_and_back(exceptions.ResponseSignatureError([3, 4])).get_attributes() == {
        "ids_generated": [3, 4]
    }
    missing = there_and_back(exceptions.ObjectNotFoundError(5, bob))
    assert (missing.obj_id, missing.worker_id) == (5, "bob")


def test_an_unlisted_error_arrives_as_its_nearest_base(there_and_back: Any) -> None:
    class Odd(ValueError):
        def __init__(self) -> None:
            super().__init__(object())

    back = there_and_back(raised(Odd()))
    assert type(back) is ValueError
    assert str(back).startswith("Odd: ")
    assert "Odd" in back.remote_traceback


def test_an_error_that_no_list_names_is_never_made() -> None:
    for name in ("SystemExit", "KeyboardInterrupt", "os.system", "__import__", "BaseException"):
        with pytest.raises(serde.SerdeError, match="list"):
            serde.detail(None, ("error", name, ["x"], [], "text"))


def test_an_error_is_registered_by_its_room(there_and_back: Any) -> None:
    class QuotaError(exceptions.SyftError):
        used = 0

    serde.register_exception(QuotaError, "used")
    error = QuotaError("full")
    error.used = 7
    back = there_and_back(error)
    assert type(back) is QuotaError and back.used == 7
    with pytest.raises(ValueError, match="already"):
        serde.register_exception(QuotaError)


def test_specs_are_metadata() -> None:
    assert isinstance(serde.deserialize(serde.serialize(spec_of(torch.ones(2)))), TensorSpec)
