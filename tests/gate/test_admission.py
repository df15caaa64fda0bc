"""`admit`: it sees no values, says what torch says, and is bounded whatever it is asked."""

from __future__ import annotations

import time

import pytest
import torch

from syft.core.shapes import contiguous_spec
from syft.core.spec import make_spec, spec_of
from syft.exceptions import OperationNotAdmittedError
from syft.operations import admit, is_admitted, run


def floats(*shape: int, dtype: torch.dtype = torch.float32):
    return contiguous_spec(shape, dtype)


def test_it_takes_no_tensor_wherever_it_stands():
    tensor = torch.ones(3)
    for args, kwargs in (
        ((tensor, floats(3)), {}),
        (([floats(3), [tensor]],), {}),
        ((floats(3),), {"other": tensor}),
    ):
        with pytest.raises(TypeError, match="specs of tensors and public values; got a Tensor"):
            admit("aten.add.Tensor", args, kwargs)


@pytest.mark.parametrize("value", [object(), {"a": 1}, {1}, b"bytes", slice(1), lambda: 1])
def test_it_takes_no_other_objects(value):
    with pytest.raises(TypeError, match="public values"):
        admit("aten.add.Tensor", (floats(3), value))


@pytest.mark.parametrize(
    ("operation", "args"),
    [
        ("aten.mm.default", (floats(3, 4), floats(5, 6))),
        ("aten.add.Tensor", (floats(3), floats(4))),
        ("aten.view.default", (floats(3, 4), [5])),
        ("aten.cat.default", ([floats(3, 4), floats(3, 5)], 0)),
        ("aten.add_.Tensor", (floats(3), floats(2, 3))),
        ("aten.add_.Tensor", (floats(3, dtype=torch.int64), floats(3))),
        ("aten.index_select.default", (floats(3), 4, floats(2, dtype=torch.int64))),
        ("aten.addmm.default", (floats(3), floats(2, 3), floats(4, 3))),
    ],
)
def test_wrong_shapes_and_types_are_told_as_torch_tells_them(operation, args):
    with pytest.raises((RuntimeError, IndexError)) as told:
        admit(operation, args)
    assert not isinstance(told.value, OperationNotAdmittedError)


def test_an_operation_that_is_not_in_the_table_is_refused_by_a_sentence_that_names_it():
    for name in ("aten.nonzero.default", "aten.set_.source_Tensor", "aten.mm.out", "no.such.thing", "", 7):
        with pytest.raises(OperationNotAdmittedError, match="admitted_operations") as told:
            admit(name, (floats(3),))
        assert told.value.operation == name


def test_a_mask_as_an_index_is_refused_since_its_result_has_as_many_elements_as_it_holds():
    with pytest.raises((ValueError, OperationNotAdmittedError)):
        admit("aten.index.Tensor", (floats(4), [floats(4, dtype=torch.bool)]))


def test_results_views_and_writes_are_told():
    made = admit("aten.mm.default", (floats(3, 4), floats(4, 5)))
    assert made.answer.spec is floats(3, 5) and made.results[0].view_of is None and made.writes == ()
    assert made.result_bytes == 60 and made.memory >= 60 and made.work >= 60
    view = admit("aten.select.int", (floats(3, 4), 0, 1))
    assert view.results[0].view_of == 0 and view.results[0].spec.offset == 4 and view.result_bytes == 0
    written = admit("aten.add_.Tensor", (floats(3, 4), floats(4)))
    assert written.writes == (0,) and written.results == ()
    several = admit("aten._foreach_add_.List", ([floats(3), floats(2)], [floats(3), floats(2)]))
    assert several.writes == (0, 1)
    norm = ([floats(2, 3, 4)] + [floats(3)] * 4, {"training": True, "momentum": 0.1, "eps": 1e-5})
    assert admit("aten.native_batch_norm.default", *norm).writes == (3, 4)
    norm[1]["training"] = False
    assert admit("aten.native_batch_norm.default", *norm).writes == ()


def test_reshape_is_a_view_or_a_copy_as_the_strides_say():
    assert admit("aten.reshape.default", (floats(3, 4), [12])).results[0].view_of == 0
    turned = make_spec(torch.Size((4, 3)), (1, 4), 0, torch.float32)
    assert admit("aten.reshape.default", (turned, [12])).results[0].view_of is None


def test_as_strided_reaches_only_what_the_tensor_holds():
    whole = floats(4, 4)
    assert admit("aten.as_strided.default", (whole, [2, 2], [4, 1], 1)).results[0].view_of == 0
    column = make_spec(torch.Size((4,)), (4,), 1, torch.float32)
    part = make_spec(torch.Size((4,)), (1,), 4, torch.float32)
    for args in (
        (whole, [17], [1]),
        (whole, [2], [16]),
        (whole, [1], [1], 16),
        (column, [4], [1]),
        (part, [4], [1], 0),
        (part, [5], [1]),
        (make_spec(torch.Size((4,)), (0,), 0, torch.float32), [2], [1]),
        (whole, [2], [-1], 3),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            admit("aten.as_strided.default", args)
    assert admit("aten.as_strided.default", (part, [2, 2], [2, 1])).results[0].spec.offset == 4


def test_what_shares_memory_with_itself_is_not_written():
    expanded = make_spec(torch.Size((3, 4)), (0, 1), 0, torch.float32)
    with pytest.raises(RuntimeError, match="more than one element"):
        admit("aten.add_.Tensor", (expanded, 1))


@pytest.mark.parametrize(
    ("operation", "args", "kwargs"),
    [
        ("aten.mvlgamma.default", (floats(3), 200_000_000), {}),
        ("aten.split.Tensor", (make_spec(torch.Size((2**40,)), (0,), 0, torch.float32), 1), {}),
        ("aten.unbind.int", (make_spec(torch.Size((2**40,)), (0,), 0, torch.float32),), {}),
        ("aten.chunk.default", (floats(2**20), 2**30), {}),
        ("aten.tensor_split.sections", (floats(3), 2**40), {}),
        ("aten.zeros.default", ([2**62, 2**62],), {}),
        ("aten.empty_strided.default", ([2, 2], [2**62, 1]), {}),
        ("aten.adaptive_max_pool2d.default", (floats(1, 1, 4, 4), [2**40, 0]), {}),
        ("aten.round.decimals", (floats(3),), {"decimals": 10**9}),
        ("aten.polygamma.default", (10**9, floats(3)), {}),
        ("aten.matrix_power.default", (floats(3, 3), -(2**63)), {}),
        ("torch.lstm", (floats(2**30, 1, 1), [floats(1, 1, 1)] * 2, [floats(4, 1)] * 2, False, 1, 0.0, *[False] * 3), {}),
        ("aten.scaled_dot_product_attention.default", (floats(1, 0, 2, 2),) * 3, {"enable_gqa": True}),
        ("aten.add.Tensor", ([[1] * 70_000],), {}),
        ("aten.einsum.default", ("a" * 1000, [floats(3)]), {}),
    ],
)  # fmt: skip
def test_it_is_refused_at_once_what_would_take_for_ever(operation, args, kwargs):
    began = time.process_time()
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        admit(operation, args, kwargs)
    assert time.process_time() - began < 5  # torch imports its meta kernels, the first time


def test_a_series_far_below_zero_fails_and_does_not_run_for_ever():
    two, far = torch.tensor([2.0], dtype=torch.float64), torch.tensor([-1e15 + 0.5], dtype=torch.float64)
    outcome = run(admit("aten.special_zeta.default", (spec_of(two), spec_of(far))), (two, far))
    assert outcome.failure is not None and outcome.results[0].tolist() == [0.0]


def test_the_least_integer_divided_by_minus_one_fails_and_the_process_lives():
    least, minus = torch.tensor([-(2**63)]), torch.tensor([-1])
    for name, kwargs in (
        ("aten.div.Tensor_mode", {"rounding_mode": "trunc"}),
        ("aten.fmod.Tensor", {}),
        ("aten.remainder.Tensor", {}),
        ("aten.floor_divide.default", {}),
    ):
        outcome = run(admit(name, (spec_of(least), spec_of(minus)), kwargs), (least, minus), kwargs)
        assert outcome.failure is not None and outcome.results[0].tolist() == [0]


def test_a_failed_write_leaves_zeros():
    target, index = torch.ones(3), torch.tensor([5])
    admission = admit("aten.index_fill_.int_Scalar", (spec_of(target), 0, spec_of(index), 2.0))
    assert run(admission, (target, 0, index, 2.0)).failure is not None
    assert target.tolist() == [0.0, 0.0, 0.0]


def test_arguments_that_share_memory_with_what_is_written_are_read_as_they_were():
    memory = torch.arange(5.0)
    target, source = memory[:-1], memory[1:]
    run(admit("aten.add_.Tensor", (spec_of(target), spec_of(source))), (target, source))
    assert memory.tolist() == [1.0, 3.0, 5.0, 7.0, 4.0]


def test_equal_calls_share_one_admission_and_other_numbers_do_not():
    x = floats(3)
    assert admit("aten.add.Scalar", (x, 1)) is admit("aten.add.Scalar", (x, 1))
    others = [admit("aten.add.Scalar", (x, value)) for value in (1, 1.0, True, -0.0, 0.0, float("nan"))]
    assert len(set(map(id, others))) == len(others)
    assert admit("aten.add.Scalar", (x, float("nan"))) is others[-1]


def test_random_numbers_leave_the_generator_of_torch_as_it_was():
    x = torch.zeros(1000)
    before = torch.default_generator.get_state()
    drawn = [run(admit("aten.rand_like.default", (spec_of(x),)), (x,)).results[0] for _ in range(2)]
    assert torch.equal(torch.default_generator.get_state(), before)
    assert not torch.equal(*drawn)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_recurrent_layers_run_as_torch_does_it(name):
    torch.manual_seed(0)
    gates = {"lstm": 4, "gru": 3}.get(name, 1)
    x, state = torch.randn(5, 2, 4), torch.zeros(1, 2, 3)
    weights = [
        torch.randn(3 * gates, 4),
        torch.randn(3 * gates, 3),
        torch.randn(3 * gates),
        torch.randn(3 * gates),
    ]

    def arguments(convert):
        states = [convert(state), convert(state)] if name == "lstm" else convert(state)
        return convert(x), states, [convert(w) for w in weights], True, 1, 0.0, True, False, False

    admission = admit(f"torch.{name}", arguments(spec_of))
    assert is_admitted(f"torch.{name}") and admission.way == "decomposed"
    outcome = run(admission, arguments(torch.clone))
    with torch.no_grad():  # as a worker runs it: with gradients, some processors round otherwise
        plain = getattr(torch, name)(*arguments(torch.clone))
    assert outcome.failure is None
    assert all(torch.equal(a, b) for a, b in zip(plain, outcome.results, strict=True))
