"""The chain: `Wrapper > interpreters > tensor` behaves like the tensor it stands for."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.hook_args import default_register_tensor
from syft.exceptions import (
    ChainError,
    LocalTensorError,
    MixedChainsError,
    UnknownCommandError,
    UnregisteredTypeError,
    UnsupportedOperationError,
    ValueNotHereError,
)
from syft.tensors.logging import LoggingTensor
from syft.tensors.plusisminus import PlusIsMinusTensor
from syft.tensors.private import PrivateTensor

pytestmark = pytest.mark.usefixtures("quiet")


def logged(value) -> torch.Tensor:
    return LoggingTensor().on(value if isinstance(value, torch.Tensor) else torch.tensor(value))


def swapped(value) -> torch.Tensor:
    return PlusIsMinusTensor().on(value if isinstance(value, torch.Tensor) else torch.tensor(value))


def two_deep(value) -> torch.Tensor:
    return LoggingTensor().on(swapped(value))


def plain(tensor):
    while type(tensor) is Wrapper or isinstance(tensor, AbstractTensor):
        tensor = tensor.child
    return tensor


every_depth = pytest.mark.parametrize("chain", [logged, two_deep], ids=["one deep", "two deep"])


class TestBuilding:
    def test_on_puts_a_node_between_wrapper_and_tensor(self):
        tensor = torch.tensor([1.0, 2.0])
        chain = LoggingTensor().on(tensor)
        assert type(chain) is Wrapper
        assert isinstance(chain, torch.Tensor)
        assert type(chain.child) is LoggingTensor
        assert chain.child.child is tensor
        assert chain.is_wrapper and not chain.child.is_wrapper

    def test_on_without_wrap_returns_the_bare_node(self):
        tensor = torch.ones(2)
        node = LoggingTensor().on(tensor, wrap=False)
        assert type(node) is LoggingTensor and node.child is tensor
        assert type(node.wrap()) is Wrapper and node.wrap().child is node

    def test_on_a_chain_goes_below_its_wrapper(self):
        chain = LoggingTensor().on(PlusIsMinusTensor().on(torch.ones(2)))
        assert [type(chain), type(chain.child), type(chain.child.child)] == [
            Wrapper,
            LoggingTensor,
            PlusIsMinusTensor,
        ]
        assert type(chain.child.child.child) is torch.Tensor

    def test_the_wrapper_presents_the_metadata_of_the_tensor(self):
        tensor = torch.arange(12, dtype=torch.int16).view(3, 4).t()[1:]
        chain = logged(tensor)
        for read in ("shape", "dtype", "device", "layout", "ndim"):
            assert getattr(chain, read) == getattr(tensor, read)
        assert chain.stride() == tensor.stride() and chain.storage_offset() == tensor.storage_offset()
        assert len(chain) == 3 and chain.numel() == 9 and not chain.is_contiguous()
        assert chain.child.shape == tensor.shape and chain.child.dtype == tensor.dtype
        assert len(chain.child) == 3

    def test_printing(self):
        assert str(logged([1.0, 2.0])) == "(Wrapper)>LoggingTensor>tensor([1., 2.])"
        assert repr(two_deep([1])) == "(Wrapper)>LoggingTensor>PlusIsMinusTensor>tensor([1])"
        assert str(logged([1]).child) == "LoggingTensor>tensor([1])"
        assert f"{logged([1])}" == "(Wrapper)>LoggingTensor>tensor([1])"
        assert f"{logged(torch.tensor(1.23456)):.2f}" == "1.23"
        assert str(Wrapper()) == "(Wrapper)>None"

    def test_a_leaf_stays_a_leaf_and_a_history_stays_connected(self):
        leaf = torch.ones(2, requires_grad=True)
        chain = logged(leaf)
        assert chain.is_leaf and chain.requires_grad
        later = logged(leaf * 3)
        assert not later.is_leaf
        later.sum().backward()
        assert leaf.grad.tolist() == [3.0, 3.0]

    def test_a_node_without_dimensions_has_no_length_and_a_node_is_true(self):
        node = LoggingTensor().on(torch.tensor(0.0), wrap=False)
        with pytest.raises(TypeError, match="LoggingTensor with no dimensions"):
            len(node)
        assert bool(node)


class TestComputing:
    @every_depth
    def test_functions_methods_and_operators(self, chain):
        x, y = torch.randn(3, 4), torch.randn(4, 2)
        for compute in (
            lambda a, b: a @ b,
            lambda a, b: torch.mm(a, b),
            lambda a, b: a.matmul(b).exp().mean(0),
            lambda a, b: F.linear(a, b.t()),
            lambda a, b: 2 * a / 3,
            lambda a, b: 1 / (b * b * 9),
            lambda a, b: -a,
            lambda a, b: a[1:, [0, 2]],
            lambda a, b: a[a > 0],
        ):
            result = compute(chain(x), chain(y))
            assert type(result) is Wrapper
            assert torch.equal(plain(result), compute(x, y))

    @pytest.mark.parametrize("side", ["left", "right"])
    @every_depth
    def test_a_plain_tensor_is_lifted_into_the_chain(self, chain, side):
        x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
        result = chain(x) * y if side == "left" else x * chain(y)
        assert str(result).startswith(str(chain(x))[:20])
        assert plain(result).tolist() == [3.0, 10.0]

    def test_lifting_into_a_longer_chain_adds_the_types_that_are_missing(self):
        result = logged([2.0]) * two_deep([3.0])
        assert str(result) == "(Wrapper)>LoggingTensor>PlusIsMinusTensor>tensor([6.])"

    @every_depth
    def test_comparisons_return_boolean_chains(self, chain):
        x = chain([1, 2, 3])
        for got, want in (
            (x < 2, [True, False, False]),
            (x <= 2, [True, True, False]),
            (x > 2, [False, False, True]),
            (x >= 2, [False, True, True]),
            (x == 2, [False, True, False]),
            (x != 2, [True, False, True]),
            (x == torch.tensor([1, 0, 3]), [True, False, True]),
        ):
            assert type(got) is Wrapper and got.dtype is torch.bool
            assert plain(got).tolist() == want

    def test_several_results_keep_their_container(self):
        x = logged([[3.0, 1.0], [2.0, 5.0]])
        largest = x.max(dim=1)
        assert type(largest) is torch.return_types.max
        assert plain(largest.values).tolist() == [3.0, 5.0]
        assert plain(largest.indices).tolist() == [0, 1]
        parts = x.unbind()
        assert isinstance(parts, tuple) and [plain(p).tolist() for p in parts] == [[3.0, 1.0], [2.0, 5.0]]
        assert isinstance(torch.split(x, 1), (tuple, list))
        q, r = torch.linalg.qr(x)
        torch.testing.assert_close(plain(q @ r), plain(x))

    def test_tensors_in_keyword_arguments_and_in_lists_are_unwrapped(self):
        x, w, b = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4)
        result = F.linear(input=logged(x), weight=logged(w), bias=logged(b))
        assert torch.equal(plain(result), F.linear(x, w, b))
        assert plain(torch.cat([logged([1.0]), torch.tensor([2.0]), logged([3.0])])).tolist() == [1, 2, 3]
        assert plain(torch.stack(tensors=(logged([1.0]), logged([2.0])))).tolist() == [[1.0], [2.0]]
        assert plain(torch.where(logged([True, False]), logged([1.0, 1.0]), 0.0)).tolist() == [1.0, 0.0]
        indexed = torch.index_put(logged([0.0, 0.0]), (logged([1]),), logged([7.0]))
        assert plain(indexed).tolist() == [0.0, 7.0]

    def test_values_can_be_read_when_they_are_here(self):
        chain = two_deep([[1.0, 2.0]])
        assert chain.tolist() == [[1.0, 2.0]]
        assert chain.sum().item() == 3.0 and float(chain.sum()) == 3.0 and bool(chain.sum() > 2)
        assert np.array_equal(chain.numpy(), np.array([[1.0, 2.0]], dtype=np.float32))
        assert np.asarray(chain).dtype == np.float32
        with pytest.raises(RuntimeError, match=r"requires grad.*detach\(\)\.numpy"):
            logged(torch.ones(2, requires_grad=True)).numpy()
        assert [plain(row).tolist() for row in chain] == [[1.0, 2.0]]

    def test_values_elsewhere_cannot_be_read(self, bob):
        pointer = torch.tensor([1.0]).send(bob)
        for read in (
            lambda: pointer.tolist(),
            lambda: pointer.numpy(),
            lambda: LoggingTensor().on(pointer).tolist(),
        ):
            with pytest.raises(ValueNotHereError, match=r"'bob'.*\.get\(\)"):
                read()

    @every_depth
    def test_tensor_split_reads_its_indices_from_a_chain(self, chain):
        parts = torch.tensor_split(chain(torch.arange(5.0)), chain([1, 3]))
        assert [plain(p).tolist() for p in parts] == [[0.0], [1.0, 2.0], [3.0, 4.0]]
        assert len(chain(torch.arange(4.0)).tensor_split(chain(torch.tensor(2)), dim=0)) == 2

    def test_tensor_split_at_indices_that_are_elsewhere_says_so(self, bob):
        pointer = torch.arange(4.0).send(bob)
        with pytest.raises(ValueNotHereError, match=r"tolist.*'bob'"):
            torch.tensor_split(pointer, torch.tensor([1]).send(bob))

    def test_conjugate_and_negative_views_are_done_at_once(self):
        x = torch.tensor([1 + 2j, 3 - 1j])
        assert torch.equal(plain(logged(x).conj() * 1), (x.conj() * 1).resolve_conj())
        assert torch.equal(plain(logged(x).conj().imag + 0), x.conj().imag + 0)

    def test_random_functions_use_the_same_generator_as_plain_torch(self):
        torch.manual_seed(3)
        wanted = F.dropout(torch.ones(50), 0.5)
        torch.manual_seed(3)
        assert torch.equal(plain(F.dropout(logged(torch.ones(50)), 0.5)), wanted)


class TestBareNodes:
    def test_operators_on_both_sides(self):
        node = LoggingTensor().on(torch.tensor([2.0, 4.0]), wrap=False)
        for result, want in (
            (node + 1, [3, 5]),
            (1 + node, [3, 5]),
            (1 - node, [-1, -3]),
            (3 * node, [6, 12]),
            (8 / node, [4, 2]),
            (2**node, [4, 16]),
            (9 // node, [4, 2]),
            (9 % node, [1, 1]),
            (-node, [-2, -4]),
            (node @ torch.ones(2), 6),
            (torch.ones(2) @ node, 6),
            (node > 3, [False, True]),
        ):
            assert type(result) is LoggingTensor, result
            assert result.child.tolist() == want

    def test_methods_and_functions_return_bare_nodes(self):
        node = LoggingTensor().on(torch.tensor([2.0, 4.0]), wrap=False)
        assert type(node.sum()) is LoggingTensor and node.sum().child.item() == 6
        assert type(torch.exp(node)) is LoggingTensor
        assert type(F.relu(node)) is LoggingTensor
        assert type(node[0]) is LoggingTensor

    def test_in_place_returns_the_same_node(self):
        node = LoggingTensor().on(torch.tensor([2.0]), wrap=False)
        before = node
        node += 1
        assert node is before and node.mul_(2) is before and node.child.tolist() == [6.0]


class TestWritingInPlace:
    @every_depth
    def test_methods_return_self(self, chain):
        x = chain([1.0, -2.0])
        assert (
            x.mul_(3) is x and x.abs_() is x and torch.relu_(x) is x and F.relu(x, inplace=True) is not None
        )
        assert x.fill_(4) is x and x.zero_() is x and x.copy_(torch.ones(2)) is x
        assert plain(x).tolist() == [1.0, 1.0]

    @every_depth
    def test_operators_return_the_left_operand(self, chain):
        x = before = chain([7.0, 8.0])
        x *= 2
        x /= 4
        x **= 2
        x //= 1
        x %= 5
        assert x is before and plain(x).tolist() == [2.0, 1.0]

    def test_overloaded_names_return_self_however_deep_they_are(self):
        for chain, want in ((logged, [3.0]), (swapped, [-1.0]), (two_deep, [-1.0])):
            x = before = chain([1.0])
            assert x.add_(1) is x
            x += 1
            assert x is before
            assert plain(x).tolist() == want
            y = chain([1.0])
            y -= torch.tensor([1.0])
            assert plain(y).tolist() == ([0.0] if chain is logged else [2.0])

    @every_depth
    def test_views_and_aliases_see_the_write(self, chain):
        base = chain(torch.zeros(2, 3))
        row, flat, same = base[1], base.view(6), base.detach()
        row.fill_(5)
        assert plain(flat).tolist() == [0, 0, 0, 5, 5, 5]
        flat[0] = 9
        assert plain(same)[0, 0] == 9 and plain(base)[0, 0] == 9
        base.t().mul_(2)
        assert plain(row).tolist() == [10, 10, 10]

    def test_a_view_is_a_view_to_autograd(self):
        leaf = logged(torch.ones(3, requires_grad=True))
        whole = leaf * 2
        part = whole[1:]
        assert part._is_view() and part._base is whole
        part.mul_(5)
        whole.sum().backward()
        assert plain(leaf.grad).tolist() == [2.0, 10.0, 10.0]

    def test_writing_below_an_overload_is_seen_by_autograd(self):
        leaf = swapped(torch.tensor([1.0, 2.0, 3.0], requires_grad=True))
        whole = leaf * 2
        whole[0].mul_(5)
        whole[1:].sub_(whole[:2] * 1.0)  # adds
        assert plain(whole).tolist() == [10.0, 14.0, 10.0]
        whole.sum().backward()
        assert plain(leaf.grad).tolist() == [20.0, 4.0, 2.0]

    def test_a_saved_value_that_was_overwritten_is_noticed(self):
        for chain in (logged, swapped, two_deep):
            x = chain(torch.ones(2, requires_grad=True))
            y = x.exp()
            y.add_(1)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()

    @pytest.mark.parametrize("chain", [logged, swapped, two_deep])
    def test_a_leaf_that_requires_grad_is_refused_before_it_is_written(self, chain):
        x = chain(torch.ones(2, requires_grad=True))
        for write in (lambda: x.add_(1), lambda: x.mul_(2)):
            with pytest.raises(RuntimeError, match="leaf Variable"):
                write()
        assert plain(x).tolist() == [1.0, 1.0]
        with torch.no_grad():
            x.mul_(2)
        assert plain(x).tolist() == [2.0, 2.0] and x.is_leaf

    @every_depth
    def test_changing_the_shape_in_place(self, chain):
        x = chain(torch.arange(6.0).view(1, 2, 3))
        assert x.squeeze_(0) is x and x.shape == (2, 3) and x.child.shape == (2, 3)
        assert x.t_() is x and x.shape == (3, 2) and plain(x).tolist() == [[0, 3], [1, 4], [2, 5]]
        assert x.unsqueeze_(0) is x and x.transpose_(0, 1).shape == (3, 1, 2)
        y = chain(torch.arange(4.0))
        assert y.resize_(2, 2) is y and plain(y).tolist() == [[0, 1], [2, 3]]
        assert plain(y.resize_(3)).tolist() == [0, 1, 2]

    @every_depth
    def test_out_is_written_resized_and_returned(self, chain):
        x, right, wrong = chain([1.0, 2.0]), chain([0.0, 0.0]), chain(torch.empty(0))
        view = right[1:]
        assert torch.mul(x, 3, out=right) is right and plain(view).tolist() == [6.0]
        assert torch.mul(x, 3, out=wrong) is wrong
        assert wrong.shape == (2,) and plain(wrong).tolist() == [3.0, 6.0]
        assert plain(wrong * 2).tolist() == [6.0, 12.0]

    def test_out_of_an_overload_is_written_and_returned(self):
        for chain, want in ((logged, [2.0, 3.0]), (swapped, [0.0, 1.0]), (two_deep, [0.0, 1.0])):
            out = chain(torch.empty(0))
            assert torch.add(chain([1.0, 2.0]), 1, out=out) is out
            assert out.shape == (2,) and plain(out).tolist() == want

    def test_several_out(self):
        values, indices = logged(torch.empty(0)), logged(torch.empty(0, dtype=torch.int64))
        torch.max(logged([[1.0, 3.0]]), 1, out=(values, indices))
        assert plain(values).tolist() == [3.0] and values.shape == (1,)
        assert plain(indices).tolist() == [1] and indices.shape == (1,)

    def test_a_plain_tensor_can_be_written_with_the_value_of_a_local_chain(self):
        target = torch.zeros(2)
        assert target.copy_(logged([1.0, 2.0])) is target and target.tolist() == [1.0, 2.0]
        target[0] = logged(torch.tensor(9.0))
        assert target.tolist() == [9.0, 2.0]


class TestData:
    @every_depth
    def test_setting_data_changes_the_value_that_is_computed_with(self, chain):
        x = chain(torch.ones(2, requires_grad=True))
        x.data = chain([1.0, 2.0, 3.0])
        assert x.shape == (3,) and x.requires_grad and x.is_leaf
        assert plain(x * 2).tolist() == [2.0, 4.0, 6.0]
        x.data = torch.tensor([5.0])
        assert type(x) is Wrapper and plain(x).tolist() == [5.0]
        assert str(x).startswith("(Wrapper)>LoggingTensor>")

    def test_data_shares_the_child_and_forgets_the_history(self):
        x = logged(torch.ones(2, requires_grad=True))
        assert x.data.child is x.child and not x.data.requires_grad
        y = x * x
        x.data.mul_(3)  # not noticed by autograd, as in torch
        y.sum().backward()
        assert plain(x).tolist() == [3.0, 3.0]

    def test_a_module_of_chains_changes_its_precision(self):
        module = nn.Linear(2, 1)
        for name, parameter in list(module.named_parameters()):
            setattr(module, name, nn.Parameter(logged(parameter.detach())))
        weight = module.weight
        module.double()
        assert module.weight is weight and plain(weight).dtype is torch.float64
        assert module(logged(torch.ones(1, 2, dtype=torch.float64))).dtype is torch.float64


class TestCopies:
    def test_detach_shares_the_child(self):
        x = logged(torch.ones(2, requires_grad=True))
        assert x.detach().child is x.child and not x.detach().requires_grad

    def test_copy_shares_and_deepcopy_does_not(self):
        x = logged(torch.ones(2, requires_grad=True)).tag("a")
        x.describe("first")
        x.note = ["mine"]
        shallow, deep = copy.copy(x), copy.deepcopy(x)
        assert shallow.child is x.child and shallow.requires_grad and shallow.note is x.note
        assert deep.child is not x.child and deep.requires_grad and deep.is_leaf
        assert deep.note == ["mine"] and deep.note is not x.note
        assert deep.tags == {"a"} and deep.description == "first" and deep.id != x.id
        with torch.no_grad():
            deep.mul_(7)
        assert plain(x).tolist() == [1.0, 1.0]

    def test_deepcopy_of_a_parameter_and_its_gradient(self):
        parameter = nn.Parameter(logged([1.0, 2.0]))
        (parameter * 3).sum().backward()
        made = copy.deepcopy(parameter)
        assert isinstance(made, nn.Parameter) and type(made) is Wrapper
        assert plain(made.grad).tolist() == [3.0, 3.0]
        assert made.grad.child is not parameter.grad.child
        shared = [parameter, parameter]
        first, second = copy.deepcopy(shared)
        assert first is second

    def test_deepcopy_of_a_result_is_refused_like_in_torch(self):
        x = logged(torch.ones(2, requires_grad=True)) * 2
        with pytest.raises(RuntimeError, match=r"leaves.*detach"):
            copy.deepcopy(x)

    def test_pickling_is_refused_with_advice(self):
        for save in (pickle.dumps, lambda chain: torch.save({"x": chain}, io.BytesIO())):
            with pytest.raises(TypeError, match=r"LoggingTensor chain cannot be pickled.*\.get\(\)"):
                save(logged([1.0]))
        with pytest.raises(TypeError, match="empty wrapper cannot be pickled"):
            pickle.dumps(Wrapper())

    def test_sharing_memory_is_refused(self):
        with pytest.raises(ChainError, match=r"share_memory_.*LoggingTensor.*memory"):
            logged([1.0]).share_memory_()


class TestGradients:
    @pytest.mark.parametrize("chain", [logged, swapped, two_deep])
    def test_through_overloads(self, chain):
        values, others = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
        sign = 1 if chain is logged else -1
        x, y = chain(values.clone().requires_grad_()), chain(others.clone().requires_grad_())
        ((x + y) * (x - y) + F.relu(x)).sum().backward()
        a, b = values.clone().requires_grad_(), others.clone().requires_grad_()
        ((a + sign * b) * (a - sign * b) + sign * F.relu(a)).sum().backward()
        assert torch.equal(plain(x.grad), a.grad) and torch.equal(plain(y.grad), b.grad)
        assert str(x.grad).startswith(str(x)[:25])

    @pytest.mark.parametrize("chain", [logged, swapped, two_deep])
    def test_double_backward(self, chain):
        x = chain(torch.tensor([2.0, 3.0], requires_grad=True))
        y = ((x + 1) * x * x).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        shift = 1 if chain is logged else -1
        a = torch.tensor([2.0, 3.0], requires_grad=True)
        (want_first,) = torch.autograd.grad(((a + shift) * a * a).sum(), a, create_graph=True)
        (want_second,) = torch.autograd.grad(want_first.sum(), a)
        assert torch.equal(plain(first), want_first) and torch.equal(plain(second), want_second)

    def test_a_plain_tensor_that_meets_a_chain_gets_its_gradient(self):
        w = torch.tensor([2.0], requires_grad=True)
        (logged([3.0]) * w + logged([1.0])).sum().backward()
        assert plain(w.grad).tolist() == [3.0]

    def test_hooks_run_and_may_change_the_gradient(self):
        x = logged(torch.ones(2, requires_grad=True))
        seen, accumulated = [], []
        middle = x * 2
        middle.register_hook(lambda g: seen.append(plain(g).tolist()) or g * 10)
        x.register_post_accumulate_grad_hook(lambda t: accumulated.append(plain(t.grad).tolist()))
        middle.retain_grad()
        middle.sum().backward()
        assert seen == [[1.0, 1.0]] and accumulated == [[20.0, 20.0]]
        assert plain(middle.grad).tolist() == [10.0, 10.0]

    def test_no_grad_and_inference_mode(self):
        x = logged(torch.ones(2, requires_grad=True))
        with torch.no_grad():
            assert not (x * 2).requires_grad and not (x + 2).requires_grad
        with torch.inference_mode():
            assert plain((logged([1.0, 2.0]) * 2)[1].add_(1)).item() == 5.0

    def test_gradients_accumulate_and_keep_their_id(self):
        x = logged(torch.ones(2, requires_grad=True))
        (x * 2).sum().backward()
        first, first_id = x.grad, x.grad.id
        (x * 3).sum().backward()
        assert x.grad is first and x.grad.id == first_id
        assert plain(x.grad).tolist() == [5.0, 5.0]

    def test_torch_func(self):
        gradient = torch.func.grad(lambda t: (t * t).sum())(logged([1.0, 2.0]))
        assert plain(gradient).tolist() == [2.0, 4.0]

    def test_custom_functions_take_chains(self):
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return 3 * x * x * grad

        x = two_deep(torch.tensor([2.0], requires_grad=True))
        Cube.apply(x).sum().backward()
        assert plain(x.grad).tolist() == [12.0]

    def test_checkpointing(self):
        x = logged(torch.tensor([3.0], requires_grad=True))
        torch.utils.checkpoint.checkpoint(lambda t: (t * t).sum(), x, use_reentrant=False).backward()
        assert plain(x.grad).tolist() == [6.0]


class TestPrivacyIsNotBypassed:
    def test_an_overload_below_a_private_node_does_not_widen_the_list_of_users(self):
        x = PrivateTensor(allowed_users=("ann", "ben")).on(swapped([1.0]))
        y = PrivateTensor(allowed_users=("ben",)).on(swapped([1.0]))
        assert (x + y).child.allowed_users == ("ben",)
        assert (x * y).child.allowed_users == ("ben",)

    def test_a_local_tensor_is_refused_also_when_the_pointer_is_below_a_private_node(self, bob):
        remote = PrivateTensor(allowed_users=("ann",)).on(torch.ones(2).send(bob))
        with pytest.raises(sy.exceptions.TensorsNotCollocatedException, match="'bob'"):
            remote * torch.ones(2)


class TestErrorsAreSentences:
    def test_unregistered_type(self):
        class Forgotten(AbstractTensor):
            pass

        with pytest.raises(
            UnregisteredTypeError, match=r"Forgotten is not registered.*default_register_tensor"
        ):
            Forgotten().on(torch.ones(2)) * 2
        default_register_tensor(Forgotten)
        assert str(Forgotten().on(torch.ones(1)) * 2) == "(Wrapper)>Forgotten>tensor([2.])"

    @pytest.mark.parametrize(
        "call",
        [
            lambda a, b: a + b,
            lambda a, b: a * b,
            lambda a, b: torch.cat([a, b]),
            lambda a, b: a.copy_(b),
            lambda a, b: a == b,
        ],
    )
    def test_mixed_chains(self, call):
        with pytest.raises(MixedChainsError, match=r"LoggingTensor and a PlusIsMinusTensor.*same type"):
            call(logged([1.0]), swapped([1.0]))

    def test_a_name_that_torch_does_not_have(self):
        with pytest.raises(UnknownCommandError, match=r"torch\.frobnicate.*not a known torch operation"):
            LoggingTensor.handle_func_command(("torch.frobnicate", None, (), {}))
        with pytest.raises(AttributeError, match="frobnicate"):
            logged([1.0]).frobnicate()

    def test_get_on_a_tensor_that_is_here(self):
        for here in (torch.ones(1), logged([1.0])):
            with pytest.raises(
                LocalTensorError, match=r"\.get\(\) was called on a tensor that is on this machine"
            ):
                here.get()

    def test_an_empty_wrapper(self):
        empty = Wrapper()
        for call in (
            lambda: empty + 1,
            lambda: empty * logged([1.0]),
            lambda: logged([1.0]) * empty,
            lambda: logged([1.0]) + empty,
            lambda: empty.tolist(),
        ):
            with pytest.raises(ChainError, match=r"empty wrapper.*\.get\(\)"):
                call()

    def test_a_result_that_no_chain_can_hold(self):
        with pytest.raises(UnsupportedOperationError, match=r"LoggingTensor.*sparse.*to_dense"):
            logged([[1.0, 0.0]]).to_sparse()

    def test_errors_of_torch_come_through_as_they_are(self):
        with pytest.raises(RuntimeError, match="must match the size"):
            logged(torch.ones(2)) * logged(torch.ones(3))

    def test_errors_inside_an_overload_say_whose_overload_it_was(self):
        with pytest.raises(RuntimeError, match="must match the size") as caught:
            logged(torch.ones(2)) + logged(torch.ones(3))
        assert "LoggingTensor ran its overload of add" in caught.value.__notes__[0]
