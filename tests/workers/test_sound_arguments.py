"""Commands whose arguments would reach memory beside their tensors: torch reads and writes there, or ends the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from syft.core.commands import command_named
from syft.exceptions import UnknownCommandError
from syft.messaging.message import ObjectMessage, Operation, Ref
from syft.workers import pipeline
from syft.workers.caller import speaking_for
from syft.workers.owner_policy import OwnerPolicy, read_rules
from syft.workers.restricted import Failure
from syft.workers.sound_arguments import sound

FAR = 2**45


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def far(*shape: int) -> torch.Tensor:
    return torch.full(shape, FAR)


NAN = torch.tensor([float("nan")])
BRAIN = torch.ones(1, dtype=torch.bfloat16)
LEAST, LEAST32 = ints(-(2**63)), torch.tensor([-(2**31)], dtype=torch.int32)
LOG_PROBS = torch.zeros(10, 1, 5).log_softmax(-1)
NO_HEADS = (ones(1, 4, 1, 3), ones(2, 0, 16, 2), ones(4, 1, 3))
MASK3 = [True, True, True]

#: name -> (arguments, keywords): each reads or writes beyond its tensors if torch is asked to run it.
REACHING: dict[str, tuple[Any, dict[str, Any]]] = {
    "gelu_backward": ((ones(1).expand(5, 4), ones(4)), {}),
    "_embedding_bag_per_sample_weights_backward": (
        (ones(1, 1), ones(1000, 1), far(1), ints(0), ints(0), 0),
        {},
    ),
    "_embedding_bag_per_sample_weights_backward#bag": (
        (ones(1, 1), ones(1000, 1), ints(0), ints(0), far(1), 0),
        {},
    ),
    "_embedding_bag_backward": (
        (ones(1, 4), far(1), ints(0), ints(0), ints(1), ints(0), 3, False, 0, False, None),
        {},
    ),
    "_embedding_bag_backward#offsets": (
        (ones(1, 4), ints(0, 0), ints(0, 1), ints(), ints(1), ints(0), 3, False, 0, False, None),
        {},
    ),
    "_embedding_bag_dense_backward": ((ones(1, 4), far(1), ints(0), ints(1), ints(0), 3, False, 0, None), {}),
    "_embedding_bag_dense_backward#bag": (
        (ones(1, 4), ints(0), far(1), ints(1), ints(0), 3, False, 0, None),
        {},
    ),
    "_embedding_bag": ((ones(3, 4), ints(0, 1), ints(0, -FAR, 1)), {}),
    "embedding_dense_backward": ((ones(1, 4), far(1), 3, -1, True), {}),
    "max_pool2d_with_indices_backward": (
        (ones(1, 1, 1, 1), ones(1, 1, 2, 2), [2, 2], [2, 2], [0, 0], [1, 1], False, far(1, 1, 1, 1)),
        {},
    ),
    "max_pool3d_with_indices_backward": (
        (
            ones(1, 1, 1, 1, 1),
            ones(1, 1, 2, 2, 2),
            [2, 2, 2],
            [2, 2, 2],
            [0, 0, 0],
            [1, 1, 1],
            False,
            far(1, 1, 1, 1, 1),
        ),
        {},
    ),
    "adaptive_max_pool2d_backward": ((ones(1, 1, 1, 1), ones(1, 1, 2, 2), far(1, 1, 1, 1)), {}),
    "adaptive_max_pool3d_backward": ((ones(1, 1, 1, 1, 1), ones(1, 1, 2, 2, 2), far(1, 1, 1, 1, 1)), {}),
    "fractional_max_pool3d_backward": (
        (ones(1, 1, 1, 1, 1), ones(1, 1, 2, 2, 2), [2, 2, 2], [1, 1, 1], far(1, 1, 1, 1, 1)),
        {},
    ),
    "fractional_max_pool3d_backward#sizes": (
        (
            ones(1, 1, 1, 1, 1),
            ones(1, 1, 2, 2, 2),
            [2, 2, 2],
            [],
            torch.zeros(1, 1, 1, 1, 1, dtype=torch.int64),
        ),
        {},
    ),
    "_adaptive_avg_pool2d_backward": ((ones(10**6, 1, 1), ones(1, 2, 2)), {}),
    "avg_pool2d_backward": (
        (ones(1, 3, 1, 1), ones(10**6, 3, 2, 2), [2, 2], [2, 2], [0, 0], False, True, None),
        {},
    ),
    "reflection_pad1d_backward": ((ones(1, 1, 4), ones(10**6, 1, 2), [1, 1]), {}),
    "reflection_pad2d_backward": ((ones(1, 4, 4), ones(1, 2, 2), []), {}),
    "replication_pad2d_backward": ((ones(1, 1, 4, 4), ones(10**6, 1, 2, 2), [1, 1, 1, 1]), {}),
    "grid_sampler_2d_backward": (
        (ones(1, 1, 1, 1), ones(1, 1, 9, 9), ones(1, 1000, 1000, 2), 0, 0, False, [True, True]),
        {},
    ),
    "segment_reduce": ((ones(4), "sum"), {"lengths": far(1), "unsafe": True}),
    "segment_reduce#offsets": ((ones(4), "sum"), {"offsets": ints(0, FAR), "unsafe": True}),
    "_segment_reduce_backward": ((ones(1), ones(1), ones(4), "sum"), {"lengths": far(1)}),
    "_ctc_loss": ((LOG_PROBS, ints(FAR, 1)[None], [10], [2]), {}),
    "_ctc_loss_backward": (
        (ones(1), LOG_PROBS, ints(FAR, 1)[None], [10], [2], ones(1), torch.zeros(1, 10, 5), 0),
        {},
    ),
    "nll_loss_backward": ((ones(1), ones(1, 3), far(1), None, 0, -100, ones()), {}),
    "nll_loss2d_backward": (
        (ones(1, 1, 1), ones(1, 3, 1, 1), far(1, 1, 1), None, 0, -100, ones()),
        {},
    ),
    "native_batch_norm_backward": (
        (ones(2, 4), ones(2, 4), None, None, None, ones(0), ones(0), True, 1e-5, MASK3),
        {},
    ),
    "native_batch_norm": ((ones(2, 10**6), None, None, ones(1), ones(1), False, 0.1, 1e-5), {}),
    "native_layer_norm_backward": (
        (ones(1), ones(10**6, 4), [4], ones(10**6, 1), ones(10**6, 1), None, None, MASK3),
        {},
    ),
    "_weight_norm_interface_backward": ((ones(1), ones(10**6, 4), ones(10**6, 1), ones(10**6, 1), 0), {}),
    "_pdist_backward": ((ones(1), ones(3000, 4), 2.0, ones(1)), {}),
    "_log_softmax_backward_data": ((ones(1, 3), ones(10**6, 3), 1, torch.float32), {}),
    "_fft_c2c": ((torch.ones(3, dtype=torch.complex64), [2**40], 0, True), {}),
    "unfold_backward": ((ones(1, 1), [10**6], 0, 3, 1), {}),
    "convolution_backward": (
        (
            ones(2, 4, 8, 8),
            ones(2, 3, 6, 6),
            ones(3, 4, 3, 3),
            [4],
            [1, 1],
            [0, 0],
            [1, 1],
            True,
            [2**40, 0],
            1,
            MASK3,
        ),
        {},
    ),
    "_scaled_dot_product_flash_attention_for_cpu": (
        (ones(1000, 2, 20, 8), ones(1, 2, 20, 8), ones(1, 2, 20, 8)),
        {},
    ),
    "lstm.data": (
        (
            ones(6, 3),
            ints(),
            [ones(1, 2, 4), ones(1, 2, 4)],
            [ones(16, 3), ones(16, 4), ones(16), ones(16)],
            True,
            1,
            0.0,
            False,
            False,
        ),
        {},
    ),
    "lstm.input": (
        (
            ones(5, 2, 3),
            [ones(1, 2, 4), ones(1, 2, 4)],
            [ones(0, 3), ones(16, 4), ones(16), ones(16)],
            True,
            1,
            0.0,
            False,
            False,
            False,
        ),
        {},
    ),
    "lu_unpack": ((torch.eye(300), torch.tensor([], dtype=torch.int32)), {}),
    "linalg_eigvals": ((torch.full((3, 3), float("nan")),), {}),
    "repeat_interleave.Tensor": ((torch.tensor([2**62] * 4),), {}),
    "_fft_c2c#negative": ((torch.ones(3, 2, 3, 4, dtype=torch.complex64), [2, -1, 0], 2, True), {}),
    "_fft_r2c#negative": ((ones(1, 51, 10), [-2], 0, True), {}),
    "_pdist_forward": ((ones(3, 5, 0, 2, 4), 2.0), {}),
    "native_batch_norm#statistics": ((ones(1, 2, 3), None, None, None, None, False, 0.5, 1e-5), {}),
    "native_batch_norm#overlap": (
        (ones(1, 2, 3), None, None, ones(1).expand(2), ones(2), True, 0.5, 1e-5),
        {},
    ),
    "_native_batch_norm_legit.no_stats": ((ones(1, 2, 3), None, None, False, 0.5, 1e-5), {}),
    "_batch_norm_no_update": ((ones(2, 3, 1), None, None, None, None, 0.1, 1e-5), {}),
    "grid_sampler_2d": ((ones(1, 1, 1, 1), torch.zeros(1, 9, 9, 2), 7, 0, True), {}),
    "grid_sampler_2d#padding": ((ones(1, 1, 1, 1), torch.zeros(1, 9, 9, 2), 0, 3, True), {}),
    "grid_sampler_3d": ((ones(1, 1, 1, 1, 1), torch.zeros(1, 2, 2, 2, 3), 2, 0, True), {}),
    "grid_sampler_2d_backward#mode": (
        (ones(1, 1, 9, 9), ones(1, 1, 1, 1), torch.zeros(1, 9, 9, 2), 7, 0, True, [True, True]),
        {},
    ),
    "grid_sampler_3d_backward#mode": (
        (ones(1, 1, 2, 2, 2), ones(1, 1, 1, 1, 1), torch.zeros(1, 2, 2, 2, 3), -7, 0, True, [True, True]),
        {},
    ),
    "grid_sampler_2d_backward#nan": (
        (ones(2, 3, 5, 5), ones(2, 3, 5, 5), NAN.expand(2, 5, 5, 2), 0, 1, False, [True, True]),
        {},
    ),
    "_chunk_cat": (([ones(), ones()], 0, 1), {}),
    "_pad_packed_sequence": ((ones(4), ints(2, 2, -FAR, 0), True, 0.5, 0), {}),
    "_pad_packed_sequence#strides": ((ones(400), ints(1).expand(400), True, 0.5, 0), {}),
    "_pack_padded_sequence_backward": ((ones(4, 2), [4, 1, 2], ints(1).expand(4), False), {}),
    "trace_backward": ((ones(), [-(2**63), -2]), {}),
    "_weight_norm_interface": ((BRAIN.expand(4, 3).clone(), BRAIN.expand(4), 0), {}),
    "rrelu_with_noise": ((ones(10**6), ones(1), 0.1, 0.3, True), {}),
    "rrelu_with_noise#expanded": ((ones(10**6), ones(1).expand(10**6), 0.1, 0.3, True), {}),
    "_foreach_add.List": (([ones(3)], [ones(3)] * 200), {}),
    "_foreach_copy_": (([ones(3)] * 3, [ones(3)]), {}),
    "_foreach_mul.ScalarList": (([ones(3)] * 3, [1.0]), {}),
    "lcm": ((LEAST, ints(-7)), {}),
    "lcm_": ((ints(-7), LEAST.clone()), {}),
    "lcm.out": ((LEAST, ints(-7)), {"out": ints(1)}),
    "div.Tensor_mode": ((LEAST, ints(-1)), {"rounding_mode": "trunc"}),
    "div.Scalar_mode": ((LEAST, -1), {"rounding_mode": "trunc"}),
    "divide_.Tensor_mode": ((LEAST.clone(), ints(-1)), {"rounding_mode": "trunc"}),
    "div.Tensor_mode#int32": ((LEAST32, torch.tensor([-1], dtype=torch.int32)), {"rounding_mode": "trunc"}),
    "smooth_l1_loss_backward": ((ints(1, 1), ints(1, 1), ints(1, 3), 1, 1e-5), {}),
    "huber_loss_backward": ((ones(2), ones(2).double(), ones(2), 1, 1.0), {}),
    "binomial": ((NAN, ones(1)), {}),
    "binomial#many": ((torch.tensor([1e30]), ones(1)), {}),
    "random_.from": ((ones(4), 2**63 - 1, None), {}),
    "special_laguerre_polynomial_l": ((ones(3), torch.full((3,), 1e9)), {}),
    "special_laguerre_polynomial_l.n_scalar": ((ones(3), 2**40), {}),
    "special_legendre_polynomial_p": ((ones(3), torch.full((3,), float("inf"))), {}),
    "special_legendre_polynomial_p.out": ((ones(3), torch.full((3,), 1e9)), {"out": ones(3)}),
    "_adaptive_avg_pool3d": ((ones(2, 4, 1, 2, 4), [2**31, 3, 0]), {}),
    "adaptive_avg_pool3d": ((ones(2, 4, 1, 2, 4), [2**31, 3, 0]), {}),
    "max_pool1d": ((ones(1, 2, 3), [2**62], [2], [0], [1], True), {}),
    "linalg_matrix_power": ((torch.eye(1), -(2**63)), {}),
    "matrix_power": ((torch.eye(1), -(2**63)), {}),
    "combinations": ((ones(1), 10**6, True), {}),
    "scaled_dot_product_attention": (NO_HEADS, {"enable_gqa": True}),
}


def operation(name: str) -> str:
    packet, _, overload = name.partition("#")[0].partition(".")
    return f"aten.{packet}.{overload or 'default'}"


@pytest.mark.parametrize("name", list(REACHING))
def test_what_would_reach_beyond_its_tensors_is_not_run(name: str) -> None:
    args, kwargs = REACHING[name]
    assert sound(command_named(operation(name))) is not None, (
        "torch would be asked to run it, and this process end"
    )
    with pytest.raises((ValueError, IndexError), match="was not run"):
        pipeline._run(command_named(operation(name)), list(args), kwargs)


def test_torch_itself_does_end_the_process() -> None:
    """Or the checks are for nothing: then take them out."""
    program = (
        "import torch; torch.ops.aten.max_pool2d_with_indices_backward(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 2, 2), "
        f"[2, 2], [2, 2], [0, 0], [1, 1], False, torch.full((1, 1, 1, 1), {FAR}))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode < 0


@pytest.mark.parametrize(
    "name",
    """_thnn_differentiable_gru_cell_backward.default _thnn_differentiable_lstm_cell_backward.default
    _thnn_fused_gru_cell.default _logcumsumexp.out range.step _foreach_copy.default _index_put_impl_.default
    _unsafe_index.Tensor _masked_softmax_backward.default _grid_sampler_2d_cpu_fallback.default""".split(),
)
def test_what_torch_keeps_for_itself_and_no_program_needs_is_no_command(name: str) -> None:
    with pytest.raises(UnknownCommandError):
        command_named(f"aten.{name}")


@pytest.mark.parametrize(
    "name", ["aten.fbgemm_pack_gemm_matrix_fp16.default", "aten.choose_qparams_optimized.default"]
)
def test_what_packs_pointers_into_tensors_is_no_command(name: str) -> None:
    for spelling in (name, "torch." + name.split(".")[1]):
        with pytest.raises(UnknownCommandError):
            command_named(spelling)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("aten.embedding_backward.default", (ones(1, 4), far(1), 3, -1, True, False), {}),
        ("torch.repeat_interleave", (torch.tensor([2**62] * 4),), {}),
        ("torch.linalg.eigvals", (torch.full((3, 3), float("nan")),), {}),
        ("torch.native_batch_norm", (ones(2, 10**6), None, None, ones(1), ones(1), False, 0.1, 1e-5), {}),
        (
            "torch.nn.functional.ctc_loss",
            (LOG_PROBS, ints(FAR, 1)[None], torch.tensor([10]), torch.tensor([2])),
            {},
        ),
        ("torch.lcm", (LEAST, ints(-7)), {}),
        ("torch.nn.functional.scaled_dot_product_attention", NO_HEADS, {"enable_gqa": True}),
        ("torch.div", (LEAST, ints(-1)), {"rounding_mode": "trunc"}),
        ("div_", (LEAST.clone(), -1), {"rounding_mode": "trunc"}),
        ("torch.grid_sampler_2d", (ones(1, 1, 1, 1), torch.zeros(1, 9, 9, 2), 7, 0, True), {}),
        ("torch.binomial", (ones(1), NAN), {}),
        ("torch.special.legendre_polynomial_p", (ones(3), torch.full((3,), 1e9)), {}),
        ("torch.linalg.matrix_power", (torch.eye(1), -(2**63)), {}),
        ("torch.combinations", (ones(1),), {"r": 10**6, "with_replacement": True}),
        ("torch.nn.functional.max_pool1d", (ones(1, 2, 3), 2**62), {"stride": 2, "ceil_mode": True}),
        ("torch.nn.functional.adaptive_avg_pool3d", (ones(2, 4, 1, 2, 4), [2**31, 3, 0]), {}),
    ],
)
def test_functions_made_of_several_operations_are_checked_on_the_way(
    name: str, args: Any, kwargs: dict[str, Any]
) -> None:
    command = command_named(name)
    assert sound(command) is not None
    with pytest.raises((ValueError, IndexError), match="was not run"):
        pipeline._run(command, list(args), kwargs)


def test_a_check_that_fails_on_data_of_others_does_not_show(make_worker: Any, me: Any) -> None:
    worker = make_worker("w")
    worker.set_obj(1, ones(1, 1, 1, 1))
    worker.set_obj(2, ones(1, 1, 2, 2))
    worker.set_obj(3, far(1, 1, 1, 1))
    worker.restrict(3, frozenset({"ana"}))
    command = Operation(
        operation("max_pool2d_with_indices_backward"),
        None,
        [Ref(1), Ref(2), [2, 2], [2, 2], [0, 0], [1, 1], False, Ref(3)],
        {},
        (4,),
    )
    assert pipeline.execute(worker, command) is None
    assert type(worker._objects[4]) is Failure
    assert worker._objects[4].shape == (1, 1, 2, 2)
    assert worker.allowed_users(4) == {"ana"}


@pytest.mark.parametrize(
    ("name", "tensors", "more", "kwargs"),
    [
        ("aten.scaled_dot_product_attention.default", NO_HEADS, (), {"enable_gqa": True}),
        ("torch.nn.functional.scaled_dot_product_attention", NO_HEADS, (), {"enable_gqa": True}),
        ("aten.fractional_max_pool2d_backward.default", (ones(1, 2, 2, 2), ones(1, 2, 4, 4)), ([1], []), {}),
        ("aten.round.decimals_out", (ints(1),), (), {"decimals": -(2**31)}),
    ],
)
def test_what_ends_the_process_without_data_too_is_refused_before_sizes_are_asked_for(
    make_worker: Any, name: str, tensors: Any, more: Any, kwargs: dict[str, Any]
) -> None:
    worker = make_worker("w", policy=OwnerPolicy(read_rules('[limits]\nmax_bytes = "1 MB"\n')))
    with speaking_for("eve"):
        for index, tensor in enumerate(tensors):
            worker.recv_msg(ObjectMessage(tensor, index))
        args = [*map(Ref, range(len(tensors))), *more]
        if name.endswith("_out"):
            kwargs = {**kwargs, "out": Ref(0)}
        with pytest.raises(ValueError, match="was not run"):
            worker.recv_msg(Operation(name, None, args, kwargs, (4,)))


def test_what_ctc_loss_leaves_unwritten_is_cleared() -> None:
    steps = 2000
    log_probs = torch.zeros(steps, 2, 5).log_softmax(-1)
    targets = torch.tensor([[1, 2], [2, 0]])
    expected = None
    for value in range(20):
        remains = [torch.full((2, steps, 5), 7e6 + value) for _ in range(4)]
        del remains
        loss, alpha = pipeline._run(
            command_named("aten._ctc_loss.default"), [log_probs, targets, [1, 3], [2, 1]], {}
        )
        assert not alpha[0, 1:].any()
        assert not alpha[1, 3:].any()
        assert not alpha[1, :, 3:].any()
        expected = (loss, alpha) if expected is None else expected
        assert torch.equal(alpha, expected[1])


def test_what_fold_makes_has_no_memory_beside_it() -> None:
    args = [torch.ones(1, 9, 16), [6, 6], [3, 3], [1, 1], [0, 0], [1, 1]]
    result = pipeline._run(command_named("aten.col2im.default"), args, {})
    assert torch.equal(result, torch.ops.aten.col2im.default(*args))
    assert result.untyped_storage().nbytes() == result.numel() * 4


@pytest.mark.parametrize("name", ["aten.mse_loss.default", "torch.nn.functional.smooth_l1_loss"])
def test_a_loss_has_no_memory_beside_it(name: str) -> None:
    result = pipeline._run(command_named(name), [torch.ones(1000), torch.zeros(1000)], {})
    assert result.untyped_storage().nbytes() == 4


@pytest.mark.parametrize("name", ["_embedding_bag", "_embedding_bag_forward_only"])
def test_what_an_embedding_bag_counts_has_no_memory_beside_it(name: str) -> None:
    args = [ones(5, 5), ints(1, 3, 3, 1, 4, 2), ints(0, 3, 6), False, 0, False, None, True]
    results = pipeline._run(command_named(f"aten.{name}.default"), args, {})
    for result, wanted in zip(results, getattr(torch.ops.aten, name).default(*args), strict=True):
        assert torch.equal(result, wanted)
        assert result.untyped_storage().nbytes() == result.numel() * result.itemsize


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("aten.div.Tensor_mode", (ints(7, -7), ints(2, -1)), {"rounding_mode": "trunc"}),
        ("aten.div.Tensor_mode", (LEAST, ints(-1)), {"rounding_mode": "floor"}),
        ("torch.div", (LEAST.double(), ints(-1)), {"rounding_mode": "trunc"}),
        ("aten.lcm.default", (ints(4, 6), ints(6, -9)), {}),
        ("aten.special_legendre_polynomial_p.n_scalar", (ones(3), 4), {}),
        ("aten._fft_c2c.default", (torch.ones(3, 4, dtype=torch.complex64), [0, 1], 0, True), {}),
        ("aten.grid_sampler_2d.default", (ones(1, 1, 3, 3), NAN.expand(1, 2, 2, 2), 0, 0, True), {}),
        ("torch.linalg.matrix_power", (torch.eye(2) * 2, -3), {}),
        ("torch.combinations", (ints(1, 2, 3),), {"r": 2}),
        ("torch.nn.functional.adaptive_avg_pool2d", (ones(1, 1, 4, 4), 2), {}),
        ("aten._pad_packed_sequence.default", (ones(4, 2), ints(2, 1, 1), True, 0.5, 5), {}),
    ],
)
def test_sound_arguments_give_what_torch_gives(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    command = command_named(name)
    found = pipeline._run(command, list(args), kwargs)
    torch.testing.assert_close(found, command.function(*args, **kwargs), equal_nan=True)


def test_ctc_targets_may_be_filled_up_with_anything() -> None:
    args = [LOG_PROBS, ints(1, 2, -1)[None], [10], [2]]
    loss, _ = pipeline._run(command_named("aten._ctc_loss.default"), args, {})
    assert torch.equal(loss, torch.ops.aten._ctc_loss.default(*args)[0])


def test_ctc_loss_and_its_gradient_are_those_of_torch(make_worker: Any) -> None:
    worker = make_worker("w")
    torch.manual_seed(0)
    data = torch.randn(12, 3, 5)
    lengths = torch.tensor([12, 7, 9]), torch.tensor([3, 1, 2])
    targets = torch.randint(1, 5, (3, 4))
    grads = []
    for place in (lambda t: t, lambda t: t.send(worker)):
        x = place(data.clone()).requires_grad_()
        loss = torch.nn.functional.ctc_loss(
            x.log_softmax(-1), place(targets), *[n.tolist() for n in lengths], reduction="sum"
        )
        loss.backward()
        grads.append(x.grad if place(data) is data else x.grad.get())
    torch.testing.assert_close(*grads)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.embed = nn.Embedding(20, 16, padding_idx=0, scale_grad_by_freq=True)
        self.bag = nn.EmbeddingBag(20, 4, mode="mean")
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.group, self.layer, self.out = nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.Linear(8, 3)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens).unsqueeze(1)
        x = torch.nn.functional.max_pool2d(self.group(self.norm(self.conv(x))), 2)
        x = self.layer(torch.nn.functional.adaptive_max_pool2d(x, 1).flatten(1))
        return self.out(torch.cat([x, self.bag(tokens)], 1)).log_softmax(-1)


def test_ordinary_training_passes_all_checks(make_worker: Any) -> None:
    worker = make_worker("w")
    torch.manual_seed(0)
    tokens, target = torch.randint(0, 20, (5, 8)), torch.tensor([0, 1, 2, -100, 1])
    here, there = Net(), Net()
    there.load_state_dict(here.state_dict())
    torch.nn.functional.nll_loss(here(tokens), target).backward()
    expected = [p.grad for p in here.parameters()]
    there.send(worker)
    torch.nn.functional.nll_loss(there(tokens.send(worker)), target.send(worker)).backward()
    for parameter, want in zip(there.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.get(), want)
