"""`NumpyTensor`: torch operations on the memory of a numpy array."""

from __future__ import annotations

import copy
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from syft.exceptions import ChainError, UnsupportedOperationError
from syft.tensors.logging import LoggingTensor
from syft.tensors.numpy_array import NumpyTensor


def chain_of(values) -> torch.Tensor:
    return NumpyTensor(numpy_tensor=np.asarray(values)).wrap()


SQUARE = [[1.0, -2.0, 0.5], [4.0, 0.25, -6.0], [-7.0, 8.0, 9.0]]

OPERATIONS = {
    "matmul": lambda x, y: x.matmul(y),
    "mm": lambda x, y: x.mm(y),
    "@": lambda x, y: x @ y,
    "transpose": lambda x, y: x.transpose(0, 1),
    "t": lambda x, y: x.t(),
    "add": lambda x, y: x.add(y),
    "torch.add with alpha": lambda x, y: torch.add(x, y, alpha=2),
    "sub from a number": lambda x, y: 1 - x,
    "div": lambda x, y: x / y,
    "comparison": lambda x, y: x < y,
    "sum": lambda x, y: x.sum(),
    "mean over a dimension": lambda x, y: x.mean(0, keepdim=True),
    "indexing": lambda x, y: x[1:, ::2],
    "boolean indexing": lambda x, y: x[x > 0],
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "softmax": lambda x, y: torch.softmax(x, 1),
    "linear": lambda x, y: torch.nn.functional.linear(x, y),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "long": lambda x, y: x.long(),
    "expand": lambda x, y: x[:, :1].expand(3, 4),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_gives_what_torch_gives_as_a_numpy_array(name):
    operation = OPERATIONS[name]
    x, y = np.array(SQUARE), np.array(SQUARE)[::-1].copy()
    expected = operation(torch.tensor(x), torch.tensor(y))
    result = operation(chain_of(x), chain_of(y))
    assert isinstance(result.child, NumpyTensor)
    assert isinstance(result.child.child, np.ndarray)
    assert result.shape == expected.shape and result.dtype == expected.dtype
    np.testing.assert_array_equal(result.child.child, expected.numpy())


def test_several_results_are_several_arrays():
    values, indices = chain_of(SQUARE).max(dim=1)
    assert values.child.child.tolist() == [1.0, 4.0, 9.0]
    assert indices.child.child.dtype == np.int64
    assert [part.child.child.tolist() for part in chain_of([1, 2, 3]).split(2)] == [[1, 2], [3]]


def test_a_number_comes_out_as_a_number():
    assert chain_of([1.5, 2.0]).sum().item() == 3.5
    assert bool(chain_of([3]).eq(3).all())


@given(
    npst.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.int32, np.uint8]),
        npst.array_shapes(max_dims=3, max_side=4),
        elements=st.integers(0, 100),
    )
)
@settings(max_examples=50, deadline=None)
def test_shape_dtype_and_values_are_those_of_the_array(array):
    chain = NumpyTensor(numpy_tensor=array).wrap()
    assert tuple(chain.shape) == array.shape
    assert chain.dtype == torch.from_numpy(array).dtype
    assert chain.stride() == torch.from_numpy(array).stride()
    assert (chain + chain).tolist() == (array + array).tolist()


def test_the_array_is_not_copied():
    array = np.arange(4.0)
    chain = NumpyTensor(numpy_tensor=array).wrap()
    assert chain.child.child is array
    array[0] = 42.0
    assert chain.sum().item() == 48.0
    assert np.shares_memory(chain.reshape(2, 2).child.child, array)
    assert np.shares_memory(chain.detach().child.child, array)


def test_operations_in_place_write_into_the_array():
    array = np.arange(4.0).reshape(2, 2)
    chain = NumpyTensor(numpy_tensor=array).wrap()
    assert chain.add_(1) is chain
    assert array.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    chain[0] = 7
    chain.t()[0, 1] = -1
    chain *= 2
    assert array.tolist() == [[14.0, 14.0], [-2.0, 8.0]]
    torch.add(chain, 1, out=chain)
    assert array.tolist() == [[15.0, 15.0], [-1.0, 9.0]]


def test_transposing_in_place_gives_another_view_of_the_same_memory():
    array = np.arange(6.0).reshape(2, 3)
    chain = NumpyTensor(numpy_tensor=array).wrap().t_()
    assert chain.shape == (3, 2)
    chain[2, 0] = 100.0
    assert array[0, 2] == 100.0


def test_writing_a_numpy_chain_into_a_plain_tensor_works():
    plain = torch.zeros(2)
    plain.add_(chain_of(np.ones(2, np.float32)))
    assert plain.tolist() == [1.0, 1.0]


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [read_only(np.arange(3)), np.arange(3)[::-1], np.arange(3, dtype=">i4")],
    ids=["read-only", "backwards", "big endian"],
)
def test_an_array_that_torch_cannot_look_at_is_copied_and_left_alone(array):
    before = array.tolist()
    chain = NumpyTensor(numpy_tensor=array).wrap()
    assert chain.tolist() == before
    chain.add_(10)
    assert array.tolist() == before
    assert chain.child.child.tolist() == [v + 10 for v in before]


def test_it_prints_the_array():
    assert str(chain_of([1, 2])) == "(Wrapper)>NumpyTensor>[1 2]"


def test_numpy_functions_take_the_node_and_the_chain():
    array = np.array([0.0, 1.0])
    node = NumpyTensor(numpy_tensor=array).child
    chain = LoggingTensor().on(node.wrap())
    for tensor in (node, node.wrap(), chain):
        assert np.shares_memory(np.asarray(tensor), array)
        assert tensor.tolist() == [0.0, 1.0]
    assert node.wrap().numpy() is array
    assert np.array(node, dtype=np.float32).dtype == np.float32
    copied = np.array(node, copy=True)
    copied[0] = 9
    assert array[0] == 0


def test_reading_what_requires_grad_as_an_array_says_to_detach():
    chain = chain_of([1.0]).requires_grad_()
    for read in (np.asarray, lambda x: x.numpy()):
        with pytest.raises(RuntimeError, match=re.escape(".detach()")):
            read(chain)
    assert chain.detach().numpy().tolist() == [1.0]
    assert chain.numpy(force=True).tolist() == [1.0]


def test_a_torch_tensor_becomes_an_array_over_the_same_memory():
    tensor = torch.zeros(2)
    chain = NumpyTensor().on(tensor)
    chain += 3
    assert isinstance(chain.child.child, np.ndarray)
    assert tensor.tolist() == [3.0, 3.0]


def test_a_copy_has_memory_of_its_own():
    array = np.zeros(2)
    chain = NumpyTensor(numpy_tensor=array).wrap()
    copied = copy.deepcopy(chain)
    copied += 1
    assert array.tolist() == [0.0, 0.0] and copied.tolist() == [1.0, 1.0]


def test_torch_functions_take_the_bare_node():
    result = torch.mul(NumpyTensor(numpy_tensor=np.array([2.0])).child, 3)
    assert isinstance(result, NumpyTensor)
    assert result.child.tolist() == [6.0]


def test_a_result_of_a_dtype_that_numpy_lacks_is_refused_with_a_cure():
    with pytest.raises(UnsupportedOperationError, match=r"torch\.bfloat16.*\.float\(\)"):
        chain_of([1.0]).bfloat16()


def test_a_sparse_result_is_refused_with_a_cure():
    with pytest.raises(UnsupportedOperationError, match="to_dense"):
        chain_of(SQUARE).to_sparse()


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([object()])])
def test_an_array_that_holds_no_numbers_is_refused_with_a_cure(array):
    with pytest.raises(TypeError, match="astype"):
        NumpyTensor(numpy_tensor=array)


def test_it_is_the_end_of_a_chain():
    with pytest.raises(ChainError, match=r"cannot stand on a LoggingTensor.*LoggingTensor\(\)\.on"):
        NumpyTensor().on(LoggingTensor().on(torch.ones(1)))


def test_a_node_without_an_array_says_how_to_give_it_one():
    with pytest.raises(ChainError, match="numpy_tensor="):
        NumpyTensor().wrap()


def test_gradients_are_those_of_torch_and_arrays_themselves():
    x = torch.tensor(SQUARE, dtype=torch.float64, requires_grad=True)
    (x @ x).relu().sum().backward()
    chain = chain_of(SQUARE).requires_grad_()
    (chain @ chain).relu().sum().backward()
    np.testing.assert_allclose(chain.grad.child.child, x.grad.numpy())


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_linear_layer_with_numpy_parameters_trains_like_a_plain_one(optimizer):
    torch.manual_seed(0)
    plain = torch.nn.Linear(3, 1)
    layer = torch.nn.Linear(3, 1)
    arrays = {name: p.detach().numpy().copy() for name, p in plain.named_parameters()}
    for name, array in arrays.items():
        setattr(layer, name, torch.nn.Parameter(NumpyTensor(numpy_tensor=array).wrap()))
    data = torch.randn(16, 3)
    target = data @ torch.tensor([[1.0], [-2.0], [0.5]]) + 1
    losses = []
    for model in (plain, layer):
        steps = optimizer(model.parameters(), lr=0.05)
        for _ in range(60):
            steps.zero_grad()
            loss = ((model(data) - target) ** 2).mean()
            loss.backward()
            steps.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    # The optimizer wrote into the very arrays.
    np.testing.assert_allclose(arrays["weight"], plain.weight.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(arrays["bias"], plain.bias.detach().numpy(), rtol=1e-5)
