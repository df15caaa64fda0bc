"""Names of 2020 on tensors, bare pointers, strings, and the gradient functions, each compared with what it means."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import syft as sy
from syft.frameworks.torch.tensors.interpreters import build_gradients, gradients, gradients_core
from syft.frameworks.torch.tensors.interpreters.autograd import backwards_grad
from syft.frameworks.torch.tensors.interpreters.native import TorchTensor
from syft.generic.object import AbstractObject
from syft.generic.pointers.callable_pointer import CallablePointer, create_callable_pointer
from syft.generic.pointers.object_pointer import ObjectPointer
from syft.generic.pointers.object_wrapper import ObjectWrapper
from syft.generic.pointers.pointer_tensor import PointerTensor
from syft.generic.string import String
from syft.generic.tensor import initialize_tensor
from syft.tensors.autograd import AutogradTensor
from syft.tensors.logging import LoggingTensor
from syft.tensors.multi_pointer import MultiPointerTensor

# -- gradient functions -------------------------------------------------------------------------------------

OF_ONE = {
    "Asin": torch.asin,
    "Sigmoid": torch.sigmoid,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tanh": torch.tanh,
    "Relu": torch.relu,
    "Sum": torch.sum,
    "T": torch.t,
}
OF_TWO = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div}


def backward_class(name: str) -> Any:
    return getattr(gradients, f"{name}Backward")


@pytest.mark.parametrize("name", OF_ONE)
@pytest.mark.parametrize("is_remote", [False, True])
def test_gradient_functions_of_one_operand_agree_with_torch(bob: Any, name: str, is_remote: bool) -> None:
    x = torch.rand(2, 3, requires_grad=True)
    result = OF_ONE[name](x)
    grad = torch.rand_like(result)
    (expected,) = torch.autograd.grad(result, x, grad)
    if is_remote:
        (found,) = backward_class(name)(x.send(bob)).gradient(grad.send(bob))
        found = found.get()
    else:
        (found,) = backward_class(name)(x)(grad)
    torch.testing.assert_close(found, expected)


shapes = st.lists(st.integers(1, 3), max_size=3)


@hypothesis.given(st.sampled_from(sorted(OF_TWO)), shapes, shapes)
@hypothesis.settings(max_examples=60)
def test_gradient_functions_of_two_operands_agree_with_torch_for_all_shapes(
    name: str, one: list[int], other: list[int]
) -> None:
    try:
        torch.broadcast_shapes(one, other)
    except RuntimeError:
        hypothesis.reject()
    x, y = (torch.rand(s, dtype=torch.float64).add(0.5).requires_grad_() for s in (one, other))
    result = OF_TWO[name](x, y)
    grad = torch.rand_like(result)
    for found, expected in zip(
        backward_class(name)(x, y).gradient(grad), torch.autograd.grad(result, (x, y), grad), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "sizes",
    [
        ((2, 3), (3, 4)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
    ],
)
def test_the_gradient_of_matmul_agrees_with_torch(sizes: Any) -> None:
    x, y = (torch.rand(s, requires_grad=True) for s in sizes)
    result = x @ y
    grad = torch.rand_like(result)
    found = gradients.MatmulBackward(x, y).gradient(grad)
    for one, expected in zip(found, torch.autograd.grad(result, (x, y), grad), strict=True):
        torch.testing.assert_close(one, expected)


@pytest.mark.parametrize("power", [0, 1, 2, 3.5])
def test_the_gradient_of_pow_agrees_with_torch(power: float) -> None:
    x = torch.rand(3, requires_grad=True)
    grad = torch.rand(3)
    (expected,) = torch.autograd.grad(x**power, x, grad)
    torch.testing.assert_close(gradients.PowBackward(x, power).gradient(grad)[0], expected)


def test_a_number_has_no_gradient() -> None:
    x = torch.rand(3, requires_grad=True)
    assert gradients.MulBackward(x, 4).gradient(torch.ones(3))[1] is None


def test_backwards_grad_reaches_leaves_through_graphs_of_torch() -> None:
    x, y = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    inner = x.sin()
    function = gradients.MulBackward(inner, y)
    assert str(function) == "<MulBackward>" and str(gradients_core.forward_grad(y)) == "<Accumulate>"
    assert gradients_core.forward_grad(torch.ones(1)) is None
    backwards_grad(function, torch.ones(3))
    backwards_grad(gradients.MulBackward(x.sin(), y), torch.ones(3))
    torch.testing.assert_close(x.grad, 2 * x.detach().cos() * y.detach())
    torch.testing.assert_close(y.grad, 2 * x.detach().sin())


def test_a_gradient_function_without_a_gradient_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Subclass GradFunc"):
        gradients_core.GradFunc()(torch.ones(1))


def test_mismatching_dimensions_are_named() -> None:
    assert gradients_core.get_mismatch_dims((4, 1, 3), (2, 1), [], [], []) == ([0], [2], [1])


def test_the_text_of_a_gradient_function() -> None:
    assert build_gradients.split_signature("mul(self, other)") == ("mul", ["self", "other"])
    text = build_gradients.construct_grad_fn_class(
        {"name": "mul(self, other)", "self": "grad * other", "other": "grad * self"}
    )
    assert "class MulBackward(GradFunc):" in text and "grad_self_ = grad * self.other" in text
    assert text.endswith("return (grad_self_, grad_other,)\n")
    for wrong in ({"name": "mul"}, {"name": "mul(self)"}):
        with pytest.raises(ValueError, match=r"signature|gradient"):
            build_gradients.construct_grad_fn_class(wrong)


# -- bare pointers -----------------------------------------------------------------------------------------------


def test_a_bare_pointer_answers_to_its_names(alice: Any, bob: Any) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    pointer = x.send(bob).child
    assert pointer.get_shape() == (2, 3) and pointer.dim() == 2 and pointer.data is pointer
    made = PointerTensor.create_pointer(x, bob, pointer.id_at_location, ptr_id=5, garbage_collect_data=False)
    assert type(made) is PointerTensor and made.id == 5 and torch.equal(made.wrap().copy().get(), x)
    pointer.data = (x * 2).send(bob)
    assert torch.equal(made.wrap().copy().get(), x * 2)
    moved = pointer.move(alice)
    assert type(moved) is PointerTensor and moved.location is alice
    far = moved.remote_send(bob)
    assert far.location is alice and torch.equal(far.remote_get().get(), x * 2)
    pointer.shape = (6,)
    assert pointer.shape == torch.Size([6])


def test_a_bare_pointer_is_shared_where_it_is(alice: Any, bob: Any, charlie: Any) -> None:
    pointer = torch.tensor([1.5, 2.0]).send(bob).child
    assert pointer.fix_prec().wrap().float_prec().get().tolist() == [1.5, 2.0]
    whole = torch.tensor([1, 2]).send(bob).child
    assert whole.share(alice, bob, crypto_provider=charlie).wrap().get().get().tolist() == [1, 2]


def test_multi_pointers_hand_every_worker_its_part(alice: Any, bob: Any) -> None:
    node = torch.ones(2, 3).send(alice, bob).child
    assert node.dim() == 2
    assert MultiPointerTensor.dispatch([node, {"bob": 4}, 5], bob) == [node.child["bob"], 4, 5]


def test_commands_find_their_pointer(bob: Any) -> None:
    pointer = torch.ones(2).send(bob)
    assert ObjectPointer.find_a_pointer(("add", None, (1, pointer.child), {})) is pointer.child
    assert ObjectPointer.find_a_pointer(("add", None, (1,), {})) is None
    assert PointerTensor.handle_func_command(("torch.add", None, (pointer, 1), {})).get().tolist() == [
        2.0,
        2.0,
    ]
    assert TorchTensor.handle_func_command(("torch.add", None, (torch.ones(1), 1), {})).tolist() == [2.0]
    with pytest.raises(ValueError, match="no pointer in it"):
        ObjectPointer.handle_func_command(("add", None, (1,), {}))


# -- item 30: callables ---------------------------------------------------------------------------------------------


def plus_two(x: torch.Tensor) -> torch.Tensor:
    return x + 2


def times_three(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def test_a_callable_pointer_is_made_and_called(me: Any, bob: Any) -> None:
    bob.register_obj(ObjectWrapper(plus_two, id=91), 91)
    pointer = create_callable_pointer(
        bob, id=92, id_at_location=91, owner=me, tags={"#f"}, description="adds", garbage_collect_data=False
    )
    assert type(pointer) is CallablePointer and pointer.id == 92 and pointer.tags == {"#f"}
    assert pointer(torch.ones(2).send(bob)).get().tolist() == [3.0, 3.0]
    with me.registration_enabled():
        kept = create_callable_pointer(bob, 93, 91, me, None, None, False)
        create_callable_pointer(bob, 94, 91, me, None, None, False, register_pointer=False)
    assert me._objects[93] is kept and 94 not in me._objects
    other = ObjectWrapper.create_pointer(
        ObjectWrapper(plus_two, id=91), me, bob, 95, garbage_collect_data=False
    )
    assert type(other) is CallablePointer and other(torch.zeros(1).send(bob)).get().item() == 2.0


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_pointer_to_a_script_function_is_called(bob: Any) -> None:
    for function in (torch.jit.script(times_three), torch.jit.trace(times_three, torch.ones(2))):
        pointer = ObjectWrapper(function, id=96).send(bob)
        assert type(pointer) is CallablePointer
        assert pointer(torch.ones(2).send(bob)).get().tolist() == [3.0, 3.0]


# -- strings, objects and tensors ------------------------------------------------------------------------------------


def test_strings_are_formatted(bob: Any) -> None:
    assert String("{} is {name}").format(String("this"), name=String("it")) == "this is it"
    assert type(String("{}").format(1)) is String
    assert String("%s: %d") % (String("n"), 3) == "n: 3" and String("<%s>") % "x" == "<x>"
    assert not hasattr(String("x").send(bob), "format")
    with pytest.raises(IndexError):
        String("{}").format()


def test_strings_take_bytes_and_answer_to_their_names(bob: Any) -> None:
    assert String("é".encode("latin-1"), encoding="latin-1") == "é"
    assert String(b"\xff", errors="replace") == "\ufffd"
    text = String("old").on("new")
    assert text == "new" and text.add_string("a", String("b")) == "ab" and text.get_class_attributes() == {}
    text.send(location=bob, garbage_collect_data=False)
    pointer = String.create_pointer(text, location=bob, ptr_id=4)
    assert pointer.id == 4 and pointer.upper().get() == "NEW"


def test_tensors_are_initialised(me: Any, hook: Any) -> None:
    with me.registration_enabled():
        tensor = initialize_tensor(hook, torch.ones(2), id=72)
    assert tensor.id == 72 and tensor.owner is me and torch.equal(me._objects[72], torch.ones(2))
    with pytest.raises(TypeError, match="made already"):
        initialize_tensor(hook, torch.ones(2), init_args=(1,))


def test_a_dotted_attribute_is_read() -> None:
    chain = LoggingTensor().on(torch.ones(2, 3))
    assert AbstractObject.rgetattr(chain, "child.child.shape") == (2, 3)
    assert AbstractObject.rgetattr(chain, "child.nothing", None) is None
    with pytest.raises(AttributeError):
        String("x").get()


def test_bare_nodes_are_copied_and_refreshed(alice: Any, bob: Any, charlie: Any) -> None:
    node = LoggingTensor().on(torch.ones(2)).child
    copied = node.copy()
    copied.child.add_(1)
    assert node.child.tolist() == [1.0, 1.0]
    shared = torch.tensor([1.5]).fix_prec().share(alice, bob, crypto_provider=charlie)
    assert shared.child.refresh().wrap().get().float_prec().tolist() == [1.5]
    with pytest.raises(ValueError, match="without shares"):
        AutogradTensor().on(torch.ones(1)).child.refresh()


def test_names_of_every_tensor() -> None:
    x = torch.ones(2)
    assert not x.has_child() and LoggingTensor().on(x).has_child()
    assert x.torch_type() == "torch.FloatTensor" and x.long().torch_type() == "torch.LongTensor"
    assert torch.nn.Parameter(x)._is_parameter() and not x._is_parameter()
    assert torch.tensor([2.0**60])._requires_large_precision(63, 10, 3)
    assert not torch.tensor([1.0, 0.0])._requires_large_precision(63, 10, 3)
    assert not torch.empty(0)._requires_large_precision(63, 10, 3)
    for name in ("shape", "data", "grad", "clone"):
        assert getattr(TorchTensor, name) is getattr(torch.Tensor, name)


def test_a_logging_tensor_adds_by_hand(monkeypatch: Any) -> None:
    said: list[str] = []
    monkeypatch.setattr(LoggingTensor, "sink", said.append)
    node = LoggingTensor().on(torch.ones(2)).child
    result = node.manual_add(LoggingTensor().on(torch.ones(2)).child)
    assert (
        said == ["Log method manual_add"]
        and isinstance(result, LoggingTensor)
        and result.child.tolist() == [2.0, 2.0]
    )


def test_the_hook_makes_shapes_wrappers_and_zeros(hook: Any) -> None:
    from syft.generic.frameworks.hook.hook import FrameworkHook

    assert FrameworkHook.create_shape([1, 2]) == torch.Size([1, 2])
    assert FrameworkHook.create_zeros([2, 2], dtype=torch.int64).dtype is torch.int64
    assert FrameworkHook.create_wrapper(sy.core.chain.Wrapper).child is None
