"""hook_args, name by name: rules, unwrapping, rewrapping, registering, and the caches between."""

from __future__ import annotations

import collections
import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.core import hook_args
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.overload import overloaded
from syft.exceptions import (
    PureFrameworkTensorFoundError,
    RemoteObjectFoundError,
    ResponseSignatureError,
    UnregisteredTypeError,
)
from syft.tensors.logging import LoggingTensor
from syft.tensors.pointer import PointerTensor

pytestmark = pytest.mark.usefixtures("quiet")

SEED_001 = {
    "register_type_rule": "(new_type_rules)",
    "register_forward_func": "(new_forward_rules)",
    "register_backward_func": "(new_backward_rules)",
    "register_ambiguous_method": "(*method)",
    "register_ambiguous_function": "(*function)",
    "default_backward_func": "(tensorcls)",
    "default_register_tensor": "(*tensorcls)",
    "unwrap_args_from_method": "(attr, method_self, args, kwargs)",
    "unwrap_args_from_function": "(attr, args, kwargs, return_args_type)",
    "build_unwrap_args_from_function": "(args, return_tuple)",
    "hook_response": "(attr, response, wrap_type, wrap_args, new_self)",
    "build_wrap_reponse_from_function": "(response, wrap_type, wrap_args)",
    "build_rule": "(args)",
    "build_unwrap_args_with_rules": "(args, rules, return_tuple)",
    "build_get_tensor_type": "(rules, layer)",
    "one": "(_args)",
    "one_layer": "(idx1)",
    "two_layers": "(idx1, idx2)",
    "three_layers": "(idx1, *ids)",
    "four_layers": "(idx1, *ids)",
    "build_wrap_response_with_rules": "(response, rules, wrap_type, wrap_args, return_tuple, return_list)",
    "zero_fold": "(*a, **k)",
    "one_fold": "(return_tuple, **kwargs)",
    "two_fold": "(lambdas, args, **kwargs)",
    "three_fold": "(lambdas, args, **kwargs)",
    "four_fold": "(lambdas, args, **kwargs)",
    "five_fold": "(lambdas, args, **kwargs)",
    "six_fold": "(lambdas, args, **kwargs)",
    "seven_fold": "(lambdas, args, **kwargs)",
    "eight_fold": "(lambdas, args, **kwargs)",
    "many_fold": "(lambdas, args, **kwargs)",
    "typed_identity": "(a)",
    "register_response": "(attr, response, response_ids, owner)",
    "build_register_response_function": "(response)",
    "register_tensor": "(tensor, owner, response_ids)",
    "build_register_response": "(response, rules, return_tuple)",
}
CACHES = (
    "hook_method_args_functions",
    "hook_method_response_functions",
    "get_tensor_type_functions",
    "register_response_functions",
)


def logged(*values: float) -> torch.Tensor:
    return LoggingTensor().on(torch.tensor(values))


def node(*values: float) -> LoggingTensor:
    return logged(*values).child


@pytest.fixture
def kind():
    """A tensor type that is registered for the test and forgotten after it."""

    class Fresh(AbstractTensor):
        def __init__(self, colour: str = "red", **kwargs):
            super().__init__(**kwargs)
            self.colour = colour

        def get_class_attributes(self):
            return {"colour": self.colour}

    yield Fresh
    for registry in (hook_args.type_rule, hook_args.forward_func, hook_args.backward_func):
        registry.pop(Fresh, None)


class TestNames:
    @pytest.mark.parametrize(("name", "parameters"), SEED_001.items(), ids=list(SEED_001))
    def test_every_function_of_the_document_has_its_signature(self, name, parameters):
        signature = inspect.signature(getattr(hook_args, name))
        shown = ", ".join(
            {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
            for p in signature.parameters.values()
        )
        assert f"({shown})" == parameters

    def test_the_registries_and_caches_exist(self):
        for name in (*CACHES, "type_rule", "forward_func", "backward_func", "get_element_at"):
            assert isinstance(getattr(hook_args, name), dict), name
        assert {int, float, str, bool, type(None), slice, type(...)} <= set(hook_args.base_types)
        assert "__getitem__" in hook_args.ambiguous_methods
        assert "torch.cat" in hook_args.ambiguous_functions
        assert hook_args.one("anything") == 1
        assert hook_args.get_child(node(1.0)).tolist() == [1.0]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("hook_method_args", "unwrap_args_from_method"),
            ("hook_function_args", "unwrap_args_from_function"),
            ("build_hook_args_function", "build_unwrap_args_from_function"),
            ("build_args_hook", "build_unwrap_args_with_rules"),
            ("build_hook_response_function", "build_wrap_reponse_from_function"),
            ("build_response_hook", "build_wrap_response_with_rules"),
        ],
    )
    def test_the_names_of_2019_are_the_same_functions(self, old, new):
        assert getattr(hook_args, old) is getattr(hook_args, new)


class TestRules:
    def test_the_example_of_the_document(self, bob):
        pointer = torch.tensor([1]).send(bob)
        assert hook_args.build_rule(([torch.tensor([1, 2]), pointer], 42)) == ([1, 1], 0)
        assert hook_args.build_rule(([torch.tensor([1, 2]), pointer.child], 42)) == ([1, 1], 0)

    def test_what_counts_as_a_tensor_and_what_does_not(self):
        tensors = (torch.ones(1), torch.nn.Parameter(torch.ones(1)), np.ones(1), logged(1.0), node(1.0))
        assert hook_args.build_rule(tensors) == (1, 1, 1, 1, 1)
        others = (1, 1.5, "x", True, None, ..., slice(1), torch.Size([1]), torch.float32, object(), {1, 2})
        assert hook_args.build_rule(others) == (0,) * len(others)

    def test_containers_keep_their_structure(self):
        pair = collections.namedtuple("pair", "a b")
        rule = hook_args.build_rule((pair(torch.ones(1), 2), {"k": [torch.ones(1), 0]}, []))
        assert rule == ((1, 0), {"k": [1, 0]}, [])
        assert hook_args.build_rule(torch.ones(2, 2).max(1)) == (1, 1)

    def test_a_subclass_of_tensor_is_a_tensor(self):
        class Mine(torch.Tensor):
            pass

        assert hook_args.build_rule((torch.ones(1).as_subclass(Mine),)) == (1,)

    def test_a_node_type_nobody_registered(self, kind):
        with pytest.raises(
            UnregisteredTypeError, match=r"Fresh is not registered.*default_register_tensor\(Fresh\)"
        ):
            hook_args.build_rule((kind(),))


class TestReachingIn:
    def test_layers(self):
        nested = (0, (1, (2, (3, "deep"))))
        assert hook_args.one_layer(0)(nested) == 0
        assert hook_args.two_layers(1, 0)(nested) == 1
        assert hook_args.three_layers(1, 1, 0)(nested) == 2
        assert hook_args.four_layers(1, 1, 1, 0)(nested) == 3
        assert set(hook_args.get_element_at) == {1, 2, 3, 4}
        assert hook_args.get_element_at[4](1, 1, 1, 1)(nested) == "deep"

    def test_the_example_of_the_document(self):
        find = hook_args.build_get_tensor_type((0, [1, (0, 0)], 0))
        assert find((5, [torch.ones(1), (1, 2)], 6)) is torch.Tensor
        assert find((5, [logged(1.0), (1, 2)], 6)) is Wrapper
        assert find((5, [node(1.0), (1, 2)], 6)) is LoggingTensor

    @pytest.mark.parametrize("depth", range(1, 9))
    def test_four_levels_and_beyond(self, depth):
        args = node(1.0)
        for _ in range(depth):
            args = (0, args)
        find = hook_args.build_get_tensor_type(hook_args.build_rule(args))
        assert find(args) is LoggingTensor

    def test_the_first_tensor_wins_and_no_tensor_gives_none(self):
        find = hook_args.build_get_tensor_type((0, {"a": [0], "b": [1]}, 1))
        assert find((0, {"a": [0], "b": [node(1.0)]}, torch.ones(1))) is LoggingTensor
        assert hook_args.build_get_tensor_type((0, [0, (0,)]))((5, [6, (7,)])) is None


class TestFolds:
    @pytest.mark.parametrize("n", range(2, 9))
    def test_n_functions_on_n_arguments(self, n):
        names = "two three four five six seven eight".split()
        fold = getattr(hook_args, f"{names[n - 2]}_fold")
        functions = [lambda x, by=1, i=i: (x + i) * by for i in range(n)]
        wanted = tuple((10 + i) * 3 for i in range(n))
        assert fold(functions, [10] * n, by=3) == wanted == hook_args.many_fold(functions, [10] * n, by=3)

    def test_zero_and_one(self):
        assert hook_args.zero_fold([], (), anything=1) == ()
        assert hook_args.one_fold(False)([lambda x: x + 1], [1]) == 2
        assert hook_args.one_fold(True)([lambda x: x + 1], [1]) == (2,)

    def test_typed_identity(self):
        same = hook_args.typed_identity(5)
        assert same(7) == 7
        with pytest.raises(AssertionError, match=r"int.*Tensor"):
            same(torch.ones(1))


class TestUnwrapping:
    def test_a_method(self):
        x, y, z = logged(1.0), logged(2.0), logged(3.0)
        new_self, args, kwargs = hook_args.unwrap_args_from_method(
            "addcmul", x, (y,), {"tensor2": z, "value": 2}
        )
        assert new_self is x.child and args == (y.child,) and kwargs == {"tensor2": z.child, "value": 2}
        below, (inner,), _ = hook_args.unwrap_args_from_method("add", new_self, args, {})
        assert below is x.child.child and inner is y.child.child

    def test_a_function_with_and_without_the_type_of_the_tensors(self):
        x, y = logged(1.0), logged(2.0)
        args, kwargs, child_type = hook_args.unwrap_args_from_function("torch.stack", ([x, y],), {"dim": 0})
        assert args == ([x.child, y.child],) and kwargs == {"dim": 0} and child_type is LoggingTensor
        *_, child_type, arg_type = hook_args.unwrap_args_from_function(
            "torch.mul", (x, 3), {}, return_args_type=True
        )
        assert (child_type, arg_type) == (LoggingTensor, Wrapper)

    def test_the_type_of_a_signature_changes_from_call_to_call(self):
        """`x.div()` takes a tensor or a number: each call is unwrapped for what it is."""
        x, y = logged(1.0), logged(2.0)
        for other in (y, 2.0, y, 3, y, None, [y, 4], (y, (y,))):
            _, (new,), _ = hook_args.unwrap_args_from_method("div", x, (other,), {})
            if other is y:
                assert new is y.child
            elif isinstance(other, list):
                assert new[0] is y.child and new[1] == 4
            elif isinstance(other, tuple):
                assert new == (y.child, (y.child,))
            else:
                assert new is other

    def test_named_tuples_and_dictionaries_stay_what_they_are(self):
        pair = collections.namedtuple("pair", "a b")
        x = logged(1.0)
        ordered = collections.OrderedDict(p=x, q=1)
        (new, mapping, found), _, _ = hook_args.unwrap_args_from_function(
            "f", (pair(x, 1), {"k": x}, ordered), {}
        )
        assert type(new) is pair and new.a is x.child and new.b == 1
        assert mapping == {"k": x.child}
        assert type(found) is collections.OrderedDict and found["p"] is x.child and list(found) == ["p", "q"]

    def test_a_pointer_says_where_it_is(self, bob):
        pointer = torch.tensor([1.0]).send(bob)
        with pytest.raises(RemoteObjectFoundError, match="location") as caught:
            hook_args.unwrap_args_from_method("add", pointer.child, (1,), {})
        assert caught.value.pointer is pointer.child
        assert caught.value.pointer.location is bob

    def test_a_plain_tensor_has_nothing_to_unwrap(self):
        with pytest.raises(PureFrameworkTensorFoundError, match=r"plain torch tensor.*LoggingTensor\(\)\.on"):
            hook_args.unwrap_args_from_method("add", torch.ones(1), (1,), {})
        with pytest.raises(PureFrameworkTensorFoundError, match="without any tensor"):
            hook_args.unwrap_args_from_function("torch.zeros", (3,), {})

    def test_building_by_hand(self):
        x = logged(1.0)
        unwrap, find = hook_args.build_unwrap_args_from_function((x, 2))
        assert unwrap((x, 2)) == (x.child, 2) and find((x, 2)) is Wrapper
        assert hook_args.build_unwrap_args_with_rules((x,), (1,), return_tuple=True)((x,)) == (x.child,)
        assert hook_args.build_unwrap_args_with_rules((x, 5), (0, 0))((x, 5)) == (x, 5)

    @given(
        st.recursive(
            st.sampled_from(["tensor", 1, "text", None]),
            lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=3).map(tuple),
            max_leaves=12,
        )
    )
    def test_any_structure_is_unwrapped_and_wrapped_back(self, shape):
        def build(part):
            if isinstance(part, (list, tuple)):
                return type(part)(build(p) for p in part)
            return logged(1.0) if part == "tensor" else part

        def check(chain, unwrapped):
            if isinstance(chain, (list, tuple)):
                assert type(unwrapped) is type(chain) and len(unwrapped) == len(chain)
                for c, u in zip(chain, unwrapped, strict=True):
                    check(c, u)
            else:
                assert unwrapped is (chain.child if type(chain) is Wrapper else chain)

        args = (build(shape), logged(2.0))
        unwrapped, _, _ = hook_args.unwrap_args_from_function("anything", args, {})
        check(args, unwrapped)
        wrapped = hook_args.hook_response("anything", unwrapped, Wrapper)
        check(wrapped, unwrapped)


class TestRewrapping:
    def test_the_example_of_the_document(self, bob):
        pointer = torch.tensor([1.0]).send(bob).child
        wrap = hook_args.build_wrap_reponse_from_function(pointer, Wrapper, {})
        made = wrap(pointer)
        assert type(made) is Wrapper and made.child is pointer

    def test_hook_response_rebuilds_the_chain(self):
        tensor = torch.ones(2)
        made = hook_args.hook_response("add", tensor, LoggingTensor)
        assert type(made) is LoggingTensor and made.child is tensor
        chain = hook_args.hook_response("add", made, Wrapper)
        assert type(chain) is Wrapper and chain.child is made
        assert hook_args.hook_response("add", tensor, None) is tensor

    def test_the_structure_of_a_response_may_change_from_call_to_call(self):
        t = torch.ones(2)
        for response in (t, (t, 3), 3, [t, (t, t)], (3, t), None, t):
            made = hook_args.hook_response("f", response, LoggingTensor)
            assert hook_args.build_rule(made) == hook_args.build_rule(response)

    def test_wrap_args_go_to_every_new_node_and_are_not_remembered(self, kind):
        hook_args.default_register_tensor(kind)
        first = hook_args.hook_response("mul", (torch.ones(1), 2), kind, {"colour": "blue"})
        second = hook_args.hook_response("mul", (torch.ones(1), 2), kind, {"colour": "green"})
        third = hook_args.hook_response("mul", (torch.ones(1), 2), kind)
        assert [first[0].colour, second[0].colour, third[0].colour] == ["blue", "green", "red"]

    def test_an_in_place_name_returns_the_tensor_it_was_called_on(self):
        x, other = node(1.0), torch.ones(1)
        for name in ("add_", "__iadd__", "zero_"):
            assert hook_args.hook_response(name, other, LoggingTensor, new_self=x) is x
        for name in ("add", "__add__"):
            assert hook_args.hook_response(name, other, LoggingTensor, new_self=x) is not x

    def test_torch_named_tuples_stay_what_they_are(self):
        largest = torch.tensor([[1.0, 2.0]]).max(1)
        made = hook_args.hook_response("max", largest, LoggingTensor)
        assert type(made) is torch.return_types.max and type(made.values) is LoggingTensor

    def test_tuples_and_lists_on_demand(self):
        t = torch.ones(1)
        wrap = hook_args.build_wrap_response_with_rules
        assert isinstance(wrap(t, 1, LoggingTensor, {}, return_tuple=True)(t), tuple)
        assert isinstance(wrap((t, t), (1, 1), LoggingTensor, {}, return_list=True)((t, t)), list)
        assert isinstance(wrap([t], [1], LoggingTensor, {}, return_tuple=True)([t]), tuple)

    def test_an_unregistered_type_is_named(self, kind):
        with pytest.raises(UnregisteredTypeError, match="Fresh"):
            hook_args.hook_response("add", torch.ones(1), kind)


class TestNothingRunsTwice:
    """A changed signature is found by looking, so a call is never tried, caught and tried again."""

    def test_a_call_with_ever_new_signatures_runs_once_each(self):
        calls = []

        class Counting(AbstractTensor):
            @overloaded.method
            def mul(self, _self, other):
                calls.append(type(other))
                return _self * other

        hook_args.default_register_tensor(Counting)
        x = Counting().on(torch.ones(2))
        for other in (2, Counting().on(torch.ones(2)), 3.0, torch.ones(2), 2, torch.tensor(4)):
            before = len(calls)
            x * other
            assert len(calls) == before + 1
        assert calls == [int, torch.Tensor, float, torch.Tensor, int, torch.Tensor]

    @pytest.mark.parametrize(
        "error", [IndexError, AssertionError, TypeError, KeyError, AttributeError, ValueError]
    )
    def test_an_error_inside_the_call_comes_out_once_and_as_itself(self, error):
        calls = []

        class Failing(AbstractTensor):
            @overloaded.method
            def mul(self, _self, other):
                calls.append("public")
                raise error("from inside")

            @classmethod
            def interpret(cls, func, args, kwargs):
                calls.append("aten")
                raise error("from inside")

        hook_args.default_register_tensor(Failing)
        x = Failing().on(torch.ones(2))
        with pytest.raises(error, match="from inside"):
            x.mul(2)
        assert calls == ["public"]
        with pytest.raises(error, match="from inside"):
            x.exp()
        assert calls == ["public", "aten"]

    def test_an_error_inside_registering_comes_out_once(self):
        class Full:
            calls = 0

            def register_obj(self, obj, obj_id=None):
                self.calls += 1
                raise IndexError("the store is full")

        owner = Full()
        with pytest.raises(IndexError, match="store is full"):
            hook_args.register_response("add", torch.ones(1), [1], owner)
        assert owner.calls == 1


class TestRegistrationsTakeEffectAtOnce:
    def test_default_register_tensor(self, kind):
        with pytest.raises(UnregisteredTypeError):
            kind().on(torch.ones(2)) * 2
        hook_args.default_register_tensor(kind)
        made = kind("blue").on(torch.ones(2)) * 2
        assert made.child.colour == "blue" and made.child.child.tolist() == [2.0, 2.0]

    def test_each_registry_by_its_function(self, kind):
        hook_args.register_type_rule({kind: hook_args.one})
        hook_args.register_forward_func({kind: hook_args.get_child})
        hook_args.register_backward_func({kind: hook_args.default_backward_func(kind)})
        assert (kind("blue").on(torch.ones(1)) * 2).child.colour == "blue"

    @pytest.mark.parametrize(
        "register",
        [
            lambda registry, key, value: registry.__setitem__(key, value),
            lambda registry, key, value: registry.update({key: value}),
            lambda registry, key, value: registry.__ior__({key: value}),
            lambda registry, key, value: (registry.pop(key), registry.setdefault(key, value)),
            lambda registry, key, value: (registry.__delitem__(key), registry.__setitem__(key, value)),
        ],
        ids=["[]=", "update", "|=", "pop and setdefault", "del and []="],
    )
    def test_a_rule_changed_in_the_dictionary_counts_for_the_next_call(self, kind, register):
        hook_args.default_register_tensor(kind)
        x = kind().on(torch.ones(2))
        assert (x * 2).child.child.tolist() == [2.0, 2.0]  # builds and caches
        register(hook_args.forward_func, kind, lambda n: n.child + 10)
        assert (x * 2).child.child.tolist() == [22.0, 22.0]
        register(hook_args.backward_func, kind, lambda child, **attrs: kind("new").on(child, wrap=False))
        assert (x * 2).child.colour == "new"

    def test_a_type_that_is_taken_out_is_unknown_again(self, kind):
        hook_args.default_register_tensor(kind)
        x = kind().on(torch.ones(2))
        x * 2
        del hook_args.type_rule[kind]
        with pytest.raises(UnregisteredTypeError, match="Fresh"):
            x * 2

    def test_a_container_of_ones_own(self):
        class Box:
            def __init__(self, *items):
                self.items = items

            def __iter__(self):
                return iter(self.items)

        x = logged(1.0)
        assert hook_args.unwrap_args_from_function("f", (Box(x), x), {})[0][0].__class__ is Box
        hook_args.register_type_rule({Box: lambda box: [hook_args.build_rule(i) for i in box]})
        try:
            # Same type, other structure: each is unwrapped for what it holds.
            for items in ((x, 1), (1, x), (x, x, x), (1,)):
                (found, _), _, _ = hook_args.unwrap_args_from_function("f", (Box(*items), x), {})
                wanted = [i.child if i is x else i for i in items]
                assert found.items == items if len(items) == 1 else found == wanted
        finally:
            del hook_args.type_rule[Box]


class TestCaches:
    @pytest.mark.parametrize("name", CACHES)
    def test_assigning_an_empty_dictionary_clears_a_cache(self, name, monkeypatch, bob):
        def use():
            x = logged(1.0, 2.0)
            hook_args.unwrap_args_from_function("torch.mul", (x, x), {})
            hook_args.hook_response("mul", (torch.ones(1), 1), LoggingTensor)
            hook_args.register_response("mul", torch.ones(1), [12345], bob)
            return (x * x).sum()

        use()
        assert len(getattr(hook_args, name)) > 0
        replacement = {}
        monkeypatch.setattr(hook_args, name, replacement)
        assert use().item() == 5.0
        assert len(replacement) > 0, "the new dictionary is the one that is used"

    def test_the_dispatcher_keeps_its_functions_in_the_documented_caches(self, monkeypatch):
        monkeypatch.setattr(hook_args, "hook_method_args_functions", {})
        logged(1.0) * 2
        (key, *_) = [k for k in hook_args.hook_method_args_functions if k[0] is LoggingTensor]
        assert key[1].name == "aten.mul.Tensor"

    def test_a_second_call_builds_nothing(self, monkeypatch):
        x = logged(1.0)
        hook_args.unwrap_args_from_method("mul", x, (2,), {})
        monkeypatch.setattr(hook_args, "build_unwrap_args_from_function", None)
        assert hook_args.unwrap_args_from_method("mul", x, (3,), {})[1] == (3,)

    def test_an_ambiguous_name_is_built_at_every_call(self, monkeypatch):
        built = []
        original = hook_args.build_unwrap_args_from_function
        monkeypatch.setattr(
            hook_args, "build_unwrap_args_from_function", lambda *a, **k: built.append(1) or original(*a, **k)
        )
        monkeypatch.setattr(hook_args, "ambiguous_methods", set(hook_args.ambiguous_methods))
        monkeypatch.setattr(hook_args, "ambiguous_functions", set(hook_args.ambiguous_functions))
        x = logged(1.0)
        for _ in range(3):
            hook_args.unwrap_args_from_method("my_method", x, (), {})
            hook_args.unwrap_args_from_function("my.function", (x,), {})
        assert len(built) == 2
        hook_args.register_ambiguous_method("my_method", "other")
        hook_args.register_ambiguous_function("my.function")
        for _ in range(3):
            hook_args.unwrap_args_from_method("my_method", x, (), {})
            hook_args.unwrap_args_from_function("my.function", (x,), {})
        assert len(built) == 8
        assert {"other", "my_method"} <= hook_args.ambiguous_methods

    def test_lengths_of_plain_lists_are_no_new_signatures(self):
        x = logged(*[1.0] * 9)
        x.view([9, 1])
        before = len(hook_args.hook_method_args_functions)
        for size in ([3, 3], [9], [1, 9], [1, 3, 3]):
            x.view(size)
        assert len(hook_args.hook_method_args_functions) == before


class TestRegisteringResponses:
    def test_the_example_of_the_document(self, bob):
        tensor = torch.tensor([1, 2])
        register = hook_args.build_register_response_function((1, tensor))
        number, pointer = register((1, tensor), owner=bob, response_ids=[77])
        assert number == 1 and type(pointer) is Wrapper and type(pointer.child) is PointerTensor
        assert pointer.location is bob and pointer.id_at_location == 77
        assert bob.get_obj(77).tolist() == [1, 2]

    def test_ids_are_taken_from_the_end(self, bob):
        given = [1, 2, 3]
        a, (b, c) = hook_args.register_response(
            "f", (torch.zeros(1), [torch.ones(1), torch.ones(2)]), given, bob
        )
        assert [t.id_at_location for t in (a, b, c)] == [3, 2, 1]
        assert given == [], "they are taken out of the caller's list"
        assert hook_args.register_response("f", (1, "x"), [], bob) == (1, "x")

    def test_too_few_ids_store_everything_and_tell(self, bob):
        with pytest.raises(ResponseSignatureError) as caught:
            hook_args.register_response("split", (torch.zeros(1), torch.ones(1), torch.ones(2)), [5], bob)
        used = caught.value.ids_generated
        assert len(used) == 3 and used[0] == 5 and len(set(used)) == 3
        assert [bob.get_obj(i).tolist() for i in used] == [[0.0], [1.0], [1.0, 1.0]]
        assert caught.value.get_attributes() == {"ids_generated": used}

    def test_register_tensor_takes_its_arguments_in_both_orders(self, bob):
        assert hook_args.register_tensor(torch.ones(1), bob, [8]).id_at_location == 8
        assert hook_args.register_tensor(torch.ones(1), [9], bob).id_at_location == 9
        assert hook_args.register_tensor(torch.ones(1), owner=bob).location is bob
        with pytest.raises(ResponseSignatureError):
            hook_args.register_tensor(torch.ones(1), bob, [])

    def test_a_tuple_on_demand(self, bob):
        build = hook_args.build_register_response
        tensor = torch.ones(1)
        (pointer,) = build(tensor, 1, return_tuple=True)(tensor, owner=bob, response_ids=[4])
        assert pointer.id_at_location == 4
        assert not isinstance(build(tensor, 1)(tensor, owner=bob, response_ids=[6]), tuple)
