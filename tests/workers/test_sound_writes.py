"""What commands write into: never handed to kernels, which would write beside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.core.commands import aten_operations, command_named
from syft.execution.operation import Operation as PlannedOperation
from syft.execution.operation import Slot
from syft.execution.program import Input, Program
from syft.execution.replay import Replay
from syft.workers import pipeline
from syft.workers.sound_arguments import sound
from syft.workers.sound_writes import outs_of, overlaps_itself, without_outs


def expanded(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(1, dtype=dtype).expand(shape)


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    return pipeline._run(command_named(name), list(args), kwargs)


#: Each writes past the four bytes of an expanded `out` if torch is given it.
INTO_EXPANDED: dict[str, tuple[Any, dict[str, tuple[int, ...]]]] = {
    "narrow_copy.out": ((torch.ones(64), 0, 0, 64), {"out": (64,)}),
    "_softmax.out": ((torch.ones(5, 5), 1, False), {"out": (5, 5)}),
    "_log_softmax.out": ((torch.ones(5, 5), 1, False), {"out": (5, 5)}),
    "_softmax_backward_data.out": (
        (torch.ones(5, 5), torch.ones(5, 5), 1, torch.float32),
        {"grad_input": (5, 5)},
    ),
    "_log_softmax_backward_data.out": (
        (torch.ones(5, 5), torch.ones(5, 5), 1, torch.float32),
        {"out": (5, 5)},
    ),
    "avg_pool3d.out": ((torch.ones(1, 1, 8, 8, 8), [2, 2, 2]), {"out": (1, 1, 4, 4, 4)}),
    "log_sigmoid_forward.output": ((torch.ones(5, 5),), {"output": (5, 5), "buffer": (0,)}),
    "max_unpool2d.out": (
        (torch.ones(1, 2, 1, 1), torch.ones(1, 2, 1, 1, dtype=torch.int64), [3, 4]),
        {"out": (1, 2, 3, 4)},
    ),
    "adaptive_max_pool3d.out": (
        (torch.ones(4, 8, 8, 8), [4, 4, 4]),
        {"out": (4, 4, 4, 4), "indices": (4, 4, 4, 4)},
    ),
    "reflection_pad3d.out": ((torch.ones(3, 3, 5, 5), [1] * 6), {"out": (3, 5, 7, 7)}),
    "replication_pad2d.out": ((torch.ones(1, 3, 3), [0, 2, 0, 1]), {"out": (1, 4, 5)}),
}


@pytest.mark.parametrize("name", list(INTO_EXPANDED))
def test_an_out_whose_elements_share_memory_is_refused(name: str) -> None:
    args, shapes = INTO_EXPANDED[name]
    outs = {
        out: expanded(*shape, dtype=torch.int64 if out == "indices" else torch.float32)
        for out, shape in shapes.items()
    }
    with pytest.raises(ValueError, match=r"share memory.*`clone\(\)`"):
        run(f"aten.{name}", *args, **outs)


@pytest.mark.parametrize(
    "name", ["torch.softmax", "torch.nn.functional.avg_pool3d", "torch.narrow_copy", "torch.norm"]
)
def test_public_functions_do_not_write_into_such_an_out_either(name: str) -> None:
    args, out = {
        "torch.softmax": ((torch.ones(5, 5), 1), (5, 5)),
        "torch.nn.functional.avg_pool3d": ((torch.ones(1, 1, 8, 8, 8), 2), (1, 1, 4, 4, 4)),
        "torch.narrow_copy": ((torch.ones(64), 0, 0, 64), (64,)),
        "torch.norm": ((torch.ones(64, 2), 2, 1), (64,)),
    }[name]
    with pytest.raises(ValueError, match="share memory"):
        run(name, *args, out=expanded(*out))
    written = torch.zeros(out)
    assert run(name, *args, out=written) is written
    assert torch.equal(written, command_named(name).function(*args))


def test_an_out_that_stands_at_its_position_is_looked_at_too() -> None:
    with pytest.raises(ValueError, match="share memory"):
        run("torch.norm", torch.ones(64, 2), 2, 1, False, expanded(64))


def test_plans_do_not_write_into_such_an_out_either() -> None:
    def program(out: PlannedOperation) -> Program:
        narrowed = PlannedOperation("torch.narrow_copy", (Slot(0), 0, 0, 64), {"out": Slot(1)}, Slot(2))
        return Program((Slot(0),), (Input((64,), torch.float32),), 0, (), (out, narrowed), Slot(2))

    made = PlannedOperation("torch.zeros", (64,), {}, Slot(1))
    replay = Replay(program(made))
    assert torch.equal(replay.run([torch.ones(64)], []), torch.ones(64))
    overlapping = PlannedOperation("as_strided", (Slot(0), (64,), (0,)), {}, Slot(1))
    with pytest.raises(ValueError, match="share memory"):
        Replay(program(overlapping)).run([torch.ones(64)], [])


def test_an_out_of_another_shape_is_resized_and_one_of_another_type_cast() -> None:
    short, whole = torch.zeros(1, dtype=torch.float64), torch.rand(20)
    assert run("aten.mul.out", whole, whole, out=short) is short
    assert torch.equal(short, (whole * whole).double())
    assert run("aten._softmax.out", whole, 0, False, out=torch.zeros(3)).shape == (20,)
    with pytest.raises(ValueError, match=r"cannot be cast to the torch.int64"):
        run("aten.mul.out", whole, whole, out=torch.zeros(20, dtype=torch.int64))


def test_an_out_that_is_an_argument_is_read_before_it_is_written() -> None:
    x = torch.arange(6.0)
    run("aten.flip.out", x, [0], out=x)
    assert x.tolist() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]


def test_several_outs_are_all_written_or_none_is() -> None:
    x, values = torch.tensor([[3.0, 1.0], [2.0, 5.0]]), torch.zeros(2)
    with pytest.raises(ValueError, match="share memory"):
        run("aten.max.dim_max", x, 1, max=values, max_values=expanded(2, dtype=torch.int64))
    assert not values.any()
    indices = torch.zeros(2, dtype=torch.int64)
    assert run("aten.max.dim_max", x, 1, max=values, max_values=indices) == (values, indices)
    assert values.tolist() == [3.0, 5.0] and indices.tolist() == [0, 1]


def test_tensors_are_made_in_the_type_of_the_out() -> None:
    out = torch.zeros(0, dtype=torch.int64)
    run("aten.arange.start_out", 0, 5, 2, out=out)
    assert out.tolist() == [0, 2, 4]


def test_an_out_that_is_left_unwritten_is_cleared_and_no_more_than_that() -> None:
    whole = torch.ones(4)
    run("aten.empty.memory_format", [2])
    for name in ("aten.empty.out", "torch.empty"):
        run(name, [2], out=whole[1:3])
        assert whole.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_what_has_no_form_without_out_is_refused() -> None:
    without = {
        name
        for name in aten_operations()
        if outs_of(command_named(name).function) and without_outs(command_named(name).function) is None
    }
    assert without == {
        "aten._batch_norm_with_update.out",
        "aten._native_batch_norm_legit.out",
        "aten.adaptive_avg_pool3d_backward.grad_input",
        "aten.normal.out",
        "aten.rrelu_with_noise.out",
    }
    with pytest.raises(ValueError, match="Call it without an out"):
        run("aten.rrelu_with_noise.out", torch.ones(200), torch.ones(200), out=torch.ones(1))


def test_every_out_is_written_by_ourselves() -> None:
    for name in aten_operations():
        if outs_of(command_named(name).function):
            assert sound(command_named(name)) is not None, name


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("aten.cumsum_.default", (0,)),
        ("aten.index_add_.default", (0, torch.tensor([0]), torch.ones(1, 5))),
        ("aten.renorm_.default", (2, 0, 1.0)),
        ("aten.tril_.default", ()),
        ("triu_", ()),
        ("scatter_", (0, torch.zeros(5, 5, dtype=torch.int64), 1.0)),
    ],
)
def test_what_overlaps_itself_is_not_written_in_place(name: str, args: Any) -> None:
    for overlapping in (expanded(5, 5), torch.zeros(9).as_strided((5, 5), (1, 1))):
        with pytest.raises(ValueError, match="share memory"):
            run(name, overlapping, *args)
    run(name, torch.zeros(5, 10)[:, ::2], *args)


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((5,), (0,), True),
        ((1, 5), (0, 1), False),
        ((0, 5), (0, 0), False),
        ((3, 3), (3, 1), False),
        ((3, 3), (1, 3), False),
        ((3, 3), (2, 1), True),
        ((2, 3, 4), (100, 4, 1), False),
        ((), (), False),
    ],
)
def test_overlaps_are_told_by_strides(shape: Any, strides: Any, overlaps: bool) -> None:
    assert overlaps_itself(torch.zeros(300).as_strided(shape, strides)) is overlaps


def test_the_gaps_of_what_a_plan_leaves_unwritten_are_cleared() -> None:
    gaps = PlannedOperation("torch.empty_strided", ((2,), (4999,)), {}, Slot(1))
    whole = PlannedOperation("as_strided", (Slot(1), (5000,), (1,), 0), {}, Slot(2))
    replay = Replay(Program((Slot(0),), (Input((1,), torch.float32),), 0, (), (gaps, whole), Slot(2)))
    for _ in range(20):
        remains = [torch.full((5000,), 7.0) for _ in range(4)]
        del remains
        assert not replay.run([torch.ones(1)], []).any()
