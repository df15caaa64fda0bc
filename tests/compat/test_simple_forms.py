"""`syft.serde.msgpack` and `syft.serde.protobuf`: what objects consist of, under the names of 2020."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syft as sy
from syft.exceptions import UndefinedProtocolTypeError, UndefinedProtocolTypePropertyError
from syft.frameworks.torch.tensors.interpreters.gradients import AddBackward, GradFunc, PowBackward
from syft.mpc.sharing import AdditiveSharingTensor
from syft.serde import SerdeError, msgpack, protobuf
from syft.tensors.pointer import PointerTensor


def code(cls: type) -> int:
    return msgpack.proto_type_info(cls).code


def text(value: str) -> tuple[int, tuple[bytes]]:
    return code(str), (value.encode(),)


def test_collections_are_the_number_of_their_type_and_their_items(me: Any) -> None:
    simplify = msgpack.serde._simplify
    assert simplify(me, ("hello", 1)) == (code(tuple), (text("hello"), 1))
    assert simplify(me, ["hello", 1.5]) == (code(list), (text("hello"), 1.5))
    assert simplify(me, {"hello"}) == (code(set), (text("hello"),))
    assert simplify(me, {"hello": None}) == (code(dict), ((text("hello"), None),))
    assert simplify(me, range(1, 7, 2)) == (code(range), (1, 7, 2))
    assert simplify(me, slice(1, None)) == (code(slice), (1, None, None))
    assert simplify(me, ...) == (code(type(...)), (b"",))
    assert simplify(me, ["a"], shallow=True) == (code(list), ("a",))
    assert msgpack.native_serde._detail_collection_list(me, ("a",), shallow=True) == ["a"]


def test_tensors_and_arrays(me: Any) -> None:
    x = torch.rand(3)
    number, contents = msgpack.serde._simplify(me, x)
    assert number == code(torch.Tensor) and contents[0] == x.id and type(contents[1]) is bytes
    array = np.arange(6.0).reshape(2, 3)
    number, contents = msgpack.serde._simplify(me, array)
    assert number == code(np.ndarray) and contents[0] == array.tobytes()
    assert contents[1:] == tuple(msgpack.serde._simplify(me, part) for part in (array.shape, "float64"))
    simple = msgpack.torch_serde.simplified_tensor_serializer(me, x)
    assert torch.equal(msgpack.torch_serde.simplified_tensor_deserializer(me, simple), x)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.just(...)
    | st.builds(range, st.integers(0, 9), st.integers(0, 9))
    | st.builds(torch.Size, st.lists(st.integers(0, 9))),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.sets(st.text())
        | st.dictionaries(st.text() | st.integers(0, 9), inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_what_is_taken_apart_is_made_again(value: Any) -> None:
    for module in (msgpack, protobuf):
        made = module.deserialize(module.serialize(value))
        assert made == value and type(made) is type(value)
    simple = msgpack.serde._simplify(None, value)
    made = msgpack.deserialize(msgpack.serialize(simple, simplified=True))
    assert made == value and type(made) is type(value)


@pytest.mark.parametrize("module", [msgpack, protobuf])
def test_tensors_pointers_and_plans_come_back(module: Any, me: Any, bob: Any) -> None:
    x = torch.tensor([1.0, 2.0]).tag("#x")
    assert x.id
    made = module.deserialize(module.serialize(x, me), me)
    assert torch.equal(made, x) and made.id == x.id and "#x" in made.tags
    pointer = x.send(bob)
    made = module.deserialize(module.serialize(pointer, me), me)
    assert made.id == pointer.id and made.location is bob
    assert isinstance(module.deserialize(module.serialize(torch.nn.Parameter(x))), torch.nn.Parameter)
    number = np.float32(2.5)
    assert module.deserialize(module.serialize(number)) == number

    @sy.func2plan(args_shape=[(1,)])
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert module.deserialize(module.serialize(double, me), me)(torch.ones(1)).item() == 2
    again = protobuf.serde._unbufferize(me, protobuf.serde._bufferize(me, double))
    assert again(torch.ones(1)).item() == 2


def test_the_full_form_of_a_worker_has_what_it_holds(me: Any, make_worker: Any) -> None:
    worker = make_worker("full")
    x = torch.tensor([7])
    worker.set_obj(x)
    assert (
        msgpack.serde._force_full_simplify(me, worker)[0]
        == msgpack.proto_type_info(sy.VirtualWorker).forced_code
    )
    made = msgpack.deserialize(msgpack.serialize(worker, me, force_full_simplification=True), me)
    assert made.id == "full" and made.get_obj(x.id).item() == 7
    with pytest.raises(UndefinedProtocolTypePropertyError, match="forced_code"):
        msgpack.proto_type_info(str).forced_code


def test_what_is_no_simple_form_is_refused(me: Any) -> None:
    with pytest.raises(UndefinedProtocolTypeError, match="number of no type"):
        msgpack.serde._detail(me, (10**6, ()))
    with pytest.raises(UndefinedProtocolTypeError, match="Register the type"):
        msgpack.proto_type_info(object)
    with pytest.raises(SerdeError, match="does not travel"):
        msgpack.serialize(object())
    with pytest.raises(SerdeError, match="does not travel"):
        msgpack.serialize(np.array([object()]))
    with pytest.raises(SerdeError, match="is no simple form"):
        msgpack.serde._detail(me, "a text")
    with pytest.raises(SerdeError, match="not of a tensor"):
        msgpack.torch_serde._deserialize_tensor(me, "syft", sy.serde.serialize(5))


def test_the_tables_name_the_types_that_travel() -> None:
    serde = msgpack.serde
    serde._simplify(None, "a")
    assert (
        str in serde.MAP_TO_SIMPLIFIERS_AND_DETAILERS
        and torch.Tensor in serde.MAP_TO_SIMPLIFIERS_AND_DETAILERS
    )
    assert sy.Plan in serde.OBJ_SIMPLIFIER_AND_DETAILERS and all(
        issubclass(cls, Exception) for cls in serde.EXCEPTION_SIMPLIFIER_AND_DETAILERS
    )
    simplifiers, _forced, detailers = serde._generate_simplifiers_and_detailers()
    assert len(simplifiers) == len(detailers) > 20
    assert sy.serde.msgpack is msgpack


def test_bytes_of_pointers_and_secrets_by_their_classes(me: Any, alice: Any, bob: Any) -> None:
    pointer = torch.tensor([3]).send(bob).child
    assert PointerTensor.unbufferize(me, PointerTensor.bufferize(me, pointer)).location is bob
    node = torch.tensor([3]).share(alice, bob).child
    made = AdditiveSharingTensor.unbufferize(me, AdditiveSharingTensor.bufferize(me, tensor=node))
    assert made.get().tolist() == [3]
    with pytest.raises(SerdeError, match="was given the bytes of"):
        PointerTensor.unbufferize(me, AdditiveSharingTensor.bufferize(me, node))
    with pytest.raises(SerdeError, match="was given a Tensor"):
        PointerTensor.bufferize(me, torch.ones(1))


def test_gradient_functions_are_taken_apart_and_made_again(me: Any) -> None:
    x, grad = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 10.0])
    made = GradFunc.detail(me, GradFunc.simplify(me, PowBackward(x, 2)))
    assert isinstance(made, PowBackward) and made.gradient(grad)[0].tolist() == [6.0, 40.0]
    made = GradFunc.detail(me, GradFunc.simplify(me, AddBackward(x, x)))
    assert all(math.isclose(g, 1.0) for g in (made.gradient(grad)[0] / grad).tolist())
    with pytest.raises(SerdeError, match="not the name of a gradient function"):
        GradFunc.detail(me, ("os.system", ()))


def test_a_node_of_ciphertexts_encrypts_what_it_stands_on() -> None:
    from syft.frameworks.torch.tensors.interpreters.paillier import PaillierTensor

    public, private = sy.keygen()
    node = PaillierTensor().on(torch.tensor([1.5]), wrap=False)
    assert node.encrypt(public).decrypt(private).tolist() == [1.5]
