"""A tensor type written outside the package: everything a user's own file needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.hook_args import default_register_tensor
from syft.core.overload import Module, Overloaded, overloaded
from syft.exceptions import UnknownCommandError, UnsupportedOperationError


class ScaledTensor(AbstractTensor):
    """Stands for `factor * child`: has an attribute, and overloads one name of each kind."""

    calls: list[str] = []

    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def get_class_attributes(self) -> dict[str, Any]:
        return {"factor": self.factor}

    @overloaded.method
    def neg(self, _self):
        """A method: `self` is the node, `_self` is one level down."""
        ScaledTensor.calls.append(f"neg of factor {self.factor}")
        return -_self

    @overloaded.method
    def div(self, _self, *args, **kwargs):
        ScaledTensor.calls.append("div")
        return _self.div(*args, **kwargs)

    @staticmethod
    @overloaded.module
    def torch(module):
        @overloaded.function
        def tanh(x):
            """A function of torch: its arguments are one level down."""
            ScaledTensor.calls.append("torch.tanh")
            return x * 3

        module.tanh = tanh

        def sigmoid(x):
            """Without the decorator it is handed the nodes themselves."""
            ScaledTensor.calls.append(f"torch.sigmoid of a {type(x).__name__}")
            return ScaledTensor(factor=x.factor * 2).on(x.child, wrap=False)

        module.sigmoid = sigmoid

        @overloaded.module
        def nn(module):
            @overloaded.module
            def functional(module):
                @overloaded.function
                def linear(x, weight, bias=None):
                    """A function of torch.nn.functional, which the dispatcher would only see as addmm."""
                    ScaledTensor.calls.append("torch.nn.functional.linear")
                    return F.linear(x, weight, bias)

                module.linear = linear

            module.functional = functional

        module.nn = nn


class StrictTensor(AbstractTensor):
    """Refuses what it has no rule for."""

    passes_unknown_ops = False


class ListeningTensor(AbstractTensor):
    heard: list[tuple[str, int]] = []

    @classmethod
    def on_function_call(cls, command):
        name, _, args, _ = command
        cls.heard.append((name, len(args)))


default_register_tensor(ScaledTensor, StrictTensor, ListeningTensor)


@pytest.fixture(autouse=True)
def forget_calls():
    ScaledTensor.calls.clear()
    ListeningTensor.heard.clear()


def scaled(values, factor: float = 5.0, **options) -> torch.Tensor:
    return ScaledTensor(factor).on(torch.tensor(values, **options))


class TestOverloads:
    def test_a_method_is_found_under_all_its_names(self):
        x = scaled([1.0, 2.0])
        for compute in (lambda: -x, lambda: x.neg(), lambda: torch.neg(x), lambda: x.__neg__()):
            result = compute()
            assert result.child.child.tolist() == [-1.0, -2.0]
            assert ScaledTensor.calls.pop() == "neg of factor 5.0" and not ScaledTensor.calls

    def test_an_operator_is_found_under_the_name_of_its_method(self):
        x = scaled([4.0])
        for compute in (lambda: x / 2, lambda: x.div(2), lambda: torch.div(x, 2), lambda: x / scaled([2.0])):
            assert compute().child.child.tolist() == [2.0]
            assert ScaledTensor.calls.pop() == "div"

    def test_a_function_of_torch(self):
        x = scaled([1.0, 2.0])
        assert torch.tanh(x).child.child.tolist() == [3.0, 6.0]
        assert x.tanh().child.child.tolist() == [3.0, 6.0]
        assert ScaledTensor.calls == ["torch.tanh", "torch.tanh"]

    def test_a_function_without_the_decorator_takes_the_nodes(self):
        result = torch.sigmoid(scaled([1.0]))
        assert type(result) is Wrapper
        assert result.child.factor == 10.0 and result.child.child.tolist() == [1.0]
        assert ScaledTensor.calls == ["torch.sigmoid of a ScaledTensor"]

    def test_a_function_of_nn_functional_arrives_by_its_public_name(self):
        x, weight, bias = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)
        result = F.linear(ScaledTensor(5.0).on(x), weight, bias=bias)
        assert torch.equal(result.child.child, F.linear(x, weight, bias))
        assert ScaledTensor.calls == ["torch.nn.functional.linear"]

    def test_an_overload_takes_only_what_its_user_wrote(self):
        class Short(AbstractTensor):
            @staticmethod
            @overloaded.module
            def torch(module):
                @overloaded.module
                def nn(module):
                    @overloaded.module
                    def functional(module):
                        @overloaded.function
                        def relu(x):
                            return x * 10

                        module.relu = relu

                    module.functional = functional

                module.nn = nn

        default_register_tensor(Short)
        x = Short().on(torch.tensor([1.0]))
        assert F.relu(x).child.child.tolist() == [10]  # torch passes `inplace=False` on
        with pytest.raises(TypeError, match="inplace"):
            F.relu(x, inplace=True)

    def test_what_is_not_overloaded_passes_through(self):
        assert (scaled([2.0]) * 3).child.child.tolist() == [6.0]
        assert ScaledTensor.calls == []

    def test_bare_nodes_have_the_overloads_as_methods(self):
        node = scaled([1.0]).child
        result = node.neg()
        assert type(result) is ScaledTensor and result.factor == 5.0 and result.child.tolist() == [-1.0]
        assert node.torch.tanh(node).child.tolist() == [3.0]

    def test_the_decorators_are_those_of_the_document(self):
        assert isinstance(overloaded, Overloaded)
        assert overloaded.method is Overloaded.overload_method
        assert overloaded.function is Overloaded.overload_function
        assert overloaded.module is Overloaded.overload_module
        assert isinstance(ScaledTensor.torch, Module) and isinstance(ScaledTensor.torch.nn.functional, Module)


class TestAttributes:
    def test_results_inherit_them(self):
        x = scaled([1.0, 2.0], factor=7.0)
        for result in (
            x * 2,
            -x,
            torch.tanh(x),
            x[0],
            x.max(),
            *x.unbind(),
            torch.cat([x, x]),
            x.max(0).values,
        ):
            assert result.child.factor == 7.0

    def test_two_factors_do_not_mix_up(self):
        assert (scaled([1.0], factor=2.0) * 1).child.factor == 2.0
        assert (scaled([1.0], factor=3.0) * 1).child.factor == 3.0

    def test_gradients_inherit_them(self):
        x = scaled([1.0], factor=7.0, requires_grad=True)
        torch.tanh(x * x).sum().backward()
        assert x.grad.child.factor == 7.0 and x.grad.child.child.tolist() == [6.0]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(self.layer(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(Inner(), nn.Sequential(nn.Dropout(0.0), Inner()))
        self.head = nn.Linear(3, 1)

    def forward(self, x):
        return -self.head(self.body(x))


def reference(model: Outer, x: torch.Tensor) -> torch.Tensor:
    """What the overloads make of the model, in plain torch: tanh is times three."""
    for inner in (model.body[0], model.body[1][1]):
        x = inner.layer(x) * 3
    return -model.head(x)


class TestNestedModules:
    def test_forward_and_gradients(self):
        torch.manual_seed(0)
        model, x = Outer(), torch.randn(4, 3)
        wanted = reference(model, x)
        wanted.sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        result = model(ScaledTensor(2.0).on(x))
        assert type(result) is Wrapper and result.child.factor == 2.0
        assert torch.equal(result.child.child, wanted)
        assert ScaledTensor.calls == ["torch.nn.functional.linear", "torch.tanh"] * 2 + [
            "torch.nn.functional.linear",
            "neg of factor 2.0",
        ]
        result.sum().backward()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(_plain(parameter.grad), gradient)

    def test_parameters_of_the_type(self):
        model, x = Outer(), torch.randn(4, 3)
        wanted = reference(model, x)
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(ScaledTensor(2.0).on(parameter.detach())))
        result = model(x)
        assert torch.equal(result.child.child, wanted)
        result.sum().backward()
        assert all(type(p.grad) is Wrapper for p in model.parameters())

    def test_below_another_type(self):
        class Quiet(AbstractTensor):
            pass

        default_register_tensor(Quiet)
        chain = Quiet().on(scaled([1.0, 2.0], requires_grad=True))
        result = torch.tanh(chain)
        assert str(result) == "(Wrapper)>Quiet>ScaledTensor>tensor([3., 6.])"
        assert ScaledTensor.calls == ["torch.tanh"]
        result.sum().backward()
        assert _plain(chain.grad).tolist() == [3.0, 3.0]


def _plain(tensor):
    while type(tensor) is Wrapper or isinstance(tensor, AbstractTensor):
        tensor = tensor.child
    return tensor


class TestInheritance:
    def test_a_subtype_inherits_replaces_and_joins_overloads(self):
        class Louder(ScaledTensor):
            @overloaded.method
            def neg(self, _self):
                return _self * 0

        class Other(AbstractTensor):
            @overloaded.method
            def exp(self, _self):
                return _self + 100

        class Both(Louder, Other):
            pass

        default_register_tensor(Louder, Both)
        x = Both(2.0).on(torch.tensor([1.0]))
        assert (-x).child.child.tolist() == [0.0]
        assert torch.tanh(x).child.child.tolist() == [3.0]
        assert torch.exp(x).child.child.tolist() == [101.0]
        assert (-scaled([1.0])).child.child.tolist() == [-1.0]


class TestStrictTypes:
    def test_the_error_names_the_type_the_operation_and_the_cure(self):
        x = StrictTensor().on(torch.ones(2))
        with pytest.raises(
            UnsupportedOperationError, match=r"StrictTensor has no rule for aten\.exp\.default.*Overload it"
        ):
            x.exp()
        with pytest.raises(NotImplementedError, match=r"StrictTensor.*aten\.addmm"):
            nn.Linear(2, 2)(StrictTensor().on(torch.ones(1, 2)))

    def test_a_rule_makes_an_operation_known(self):
        class WithRule(StrictTensor):
            pass

        def rule(cls, func, args, kwargs):
            (node,) = args
            return cls().on(node.child + 41, wrap=False)

        WithRule.aten_rules[torch.ops.aten.exp.default] = rule
        default_register_tensor(WithRule)
        assert torch.exp(WithRule().on(torch.ones(1))).child.child.tolist() == [42.0]
        assert StrictTensor.aten_rules == {}, "a subtype's rules are its own"
        with pytest.raises(UnsupportedOperationError, match=r"WithRule.*aten\.sin"):
            torch.sin(WithRule().on(torch.ones(1)))

    def test_what_is_below_a_strict_type_is_reached_through_it_only(self):
        chain = StrictTensor().on(scaled([1.0]))
        with pytest.raises(UnsupportedOperationError, match="StrictTensor"):
            torch.tanh(chain)
        assert ScaledTensor.calls == []

    def test_printing_and_copies_need_no_rule(self):
        x = StrictTensor().on(torch.ones(1))
        assert str(x) == "(Wrapper)>StrictTensor>tensor([1.])"
        assert x.detach().child is x.child and x.shape == (1,)


class TestListening:
    def test_every_public_call_is_heard_once_by_its_name(self):
        x = ListeningTensor().on(torch.ones(2, 2))
        x + 1
        x.mul_(2)
        torch.exp(x)
        F.gelu(x)
        nn.Softmax(dim=0)(x)
        x[0]
        x @ x
        names = [name for name, _ in ListeningTensor.heard]
        assert names == [
            "add",
            "mul_",
            "torch.exp",
            "torch.nn.functional.gelu",
            "torch.nn.functional.softmax",
            "__getitem__",
            "matmul",
        ]

    def test_metadata_is_no_call(self):
        x = ListeningTensor().on(torch.ones(2))
        x.shape, x.dtype, x.size(), x.dim(), x.requires_grad, x.grad, x.is_leaf, len(x), str(x)
        assert ListeningTensor.heard == []

    def test_a_listener_below_another_type_hears_it_once(self):
        chain = ScaledTensor(2.0).on(ListeningTensor().on(torch.ones(2)))
        chain * 3
        assert [name for name, _ in ListeningTensor.heard] == ["mul"]

    def test_a_listener_below_a_strict_type_hears_it_too(self):
        chain = StrictTensor().on(ListeningTensor().on(torch.ones(2)))
        with pytest.raises(UnsupportedOperationError):
            chain * 3
        assert [name for name, _ in ListeningTensor.heard] == ["mul"]


class TestHandleFuncCommand:
    def test_functions_and_methods_by_name_on_nodes_and_chains(self):
        x = scaled([1.0, 2.0])
        node = ScaledTensor.handle_func_command(("torch.tanh", None, (x.child,), {}))
        assert type(node) is ScaledTensor and node.child.tolist() == [3.0, 6.0]
        chain = ScaledTensor.handle_func_command(("mul", x, (2,), {}))
        assert type(chain) is Wrapper and chain.child.child.tolist() == [2.0, 4.0]
        total = ScaledTensor.handle_func_command(("torch.sum", None, (x,), {"dim": 0}))
        assert total.item() == 3.0
        relu = ScaledTensor.handle_func_command(("torch.nn.functional.relu", None, (x,), {}))
        assert relu.child.child.tolist() == [1.0, 2.0]

    def test_a_name_that_is_no_torch_function(self):
        for name in ("torch.os.system", "__class__", "eval", "torch.nothing"):
            with pytest.raises(UnknownCommandError, match=name):
                ScaledTensor.handle_func_command((name, None, (), {}))
