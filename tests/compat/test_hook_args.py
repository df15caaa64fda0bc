"""hook_args as documented: bare results, functions for everything, ids that are popped (COMPAT item 38)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.core import hook_args
from syft.exceptions import ResponseSignatureError
from syft.tensors.logging import LoggingTensor


def logged(value: float) -> Any:
    return LoggingTensor().on(torch.tensor([value]))


def test_a_single_argument_comes_back_bare_unless_a_tuple_is_asked_for(quiet: None) -> None:
    x = logged(1.0)
    assert hook_args.build_unwrap_args_with_rules((x,), (1,))((x,)) is x.child
    assert hook_args.build_unwrap_args_with_rules((x,), (1,), True)((x,)) == (x.child,)
    assert hook_args.build_unwrap_args_with_rules((5,), (0,))((5,)) == 5
    unwrap, _ = hook_args.build_unwrap_args_from_function((x,))
    assert unwrap((x,)) is x.child
    unwrap, _ = hook_args.build_unwrap_args_from_function((x,), return_tuple=True)
    assert unwrap((x,)) == (x.child,)


def test_a_tuple_of_one_inside_the_arguments_stays_a_tuple(quiet: None) -> None:
    x = logged(1.0)
    args = ((x,), [x])
    unwrap = hook_args.build_unwrap_args_with_rules(args, hook_args.build_rule(args))
    assert unwrap(args) == ((x.child,), [x.child])
    new_self, new_args, _ = hook_args.unwrap_args_from_method("f", x, ((x,),), {})
    assert new_self is x.child and new_args == ((x.child,),)


@given(st.recursive(st.just(0), lambda inner: st.lists(inner).map(tuple) | st.lists(inner), max_leaves=8))
def test_rules_without_a_tensor_give_a_function_that_finds_none(rules: Any) -> None:
    find = hook_args.build_get_tensor_type((0, rules))
    assert callable(find) and find((1, rules)) is None


def test_a_path_given_as_layer_is_walked_first() -> None:
    find = hook_args.build_get_tensor_type((0, 1), layer=[1])
    assert find((5, (6, torch.ones(1)))) is torch.Tensor


def test_ids_are_popped_from_the_callers_list_and_too_many_are_no_error(bob: Any) -> None:
    ids = [30, 20, 10]
    pointer = hook_args.register_response("add", torch.ones(1), ids, bob)
    assert pointer.id_at_location == 10
    assert ids == [30, 20]
    hook_args.register_response("split", (torch.ones(1), torch.ones(1)), ids, bob)
    assert ids == []
    with pytest.raises(ResponseSignatureError):
        hook_args.register_response("add", torch.ones(1), ids, bob)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_stored_result_belongs_to_the_worker_that_stores_it(bob: Any, me: Any, requires_grad: bool) -> None:
    result = torch.ones(1, requires_grad=requires_grad)
    hook_args.register_response("ones", result, [77], bob)
    assert bob.get_obj(77).owner is bob
    assert result.owner is me
