"""Frames of plain commands, and plain replies, are read and written as all others are, only sooner."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from serde.mutation import mutate
from syft import serde
from syft.core.identity import identity_of, known_identity
from syft.messaging import message
from syft.messaging.message import Ref
from syft.serde import batch, codec, plain_commands
from syft.serde.batch import BatchWriter, deserialize_batch
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.plain_frames import OTHER, plain_frames, value_of_plain_frame

LONG = 0x1234_5678_9ABC_DEF0
PLAIN: list[Any] = [
    message.Operation("aten.add.Tensor", None, [Ref(LONG), 2], {}, (LONG + 1,)),
    message.Operation("aten.add.Tensor", None, [Ref(1), 0.5, None, True, "none", -(2**63)], {}, (2, 3), True),
    message.Operation("aten.zero_.default", None, [Ref(5)], {}, ()),
    message.PlanCallMessage(LONG, (Ref(1), Ref(LONG)), (), None, (7,), (), False),
    message.PlanCallMessage(0, (), (), None, (7, 8, 9), (), True),
    message.ObjectRequestMessage((LONG, None, ""), True),
    message.ObjectRequestMessage((3, None, "because"), False, True),
    message.PointersGoneMessage((1, LONG, 3)),
    message.PointersGoneMessage(()),
    message.SyncMessage(),
]
#: Read as everything else is.
OTHERS: list[Any] = [
    message.Operation("aten.sum.dim_IntList", None, [Ref(1), [0, 1]], {"keepdim": True}, (2,)),
    message.Operation("aten.add.Tensor", Ref(4), [Ref("name")], {}, ("text",)),
    message.Operation("aten.add.Tensor", None, (Ref(1), 2), {}, (3,), False, "eve"),
    message.PlanCallMessage("plan", (Ref(1),), (0,), 5, (7,), (0.1,)),
    message.ObjectRequestMessage(("name", "eve", "")),
    message.PointersGoneMessage((1, "name")),
    message.ObjectMessage(torch.arange(3.0), 5),
    message.StatusMessage(),
]


def _frame(*messages: Any) -> bytes:
    writer = BatchWriter()
    for each in messages:
        writer.add(each)
    return b"".join(map(bytes, writer.frames()))


def _read(frame: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    try:
        found = deserialize_batch(bytearray(frame), None, limits=limits)
    except Exception as error:  # noqa: BLE001  (all of them are compared)
        return type(error), str(error)
    return [_comparable(each) for each in found]


def _comparable(value: Any) -> Any:
    if isinstance(value, Exception):
        return type(value), str(value)
    return type(value), repr(value), [type(part) for part in getattr(value, "cmd_args", ())]


@pytest.fixture
def as_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Reads a frame as if there were no plain commands."""

    def read(frame: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(batch, "plain_commands", lambda _frame, _limits: None)
            return _read(frame, limits)

    return read


@pytest.mark.parametrize("each", PLAIN, ids=lambda m: type(m).__name__)
def test_a_plain_command_is_read_at_once_and_is_what_was_written(each: Any, as_others: Any) -> None:
    frame = _frame(each)
    (found,) = plain_commands.plain_commands(memoryview(frame), Limits()) or (None,)
    assert found == each
    assert type(found) is type(each)
    assert _read(frame) == as_others(frame)


@pytest.mark.parametrize("each", OTHERS, ids=lambda m: type(m).__name__)
def test_other_commands_are_not_taken_for_plain_ones(each: Any) -> None:
    assert plain_commands.plain_commands(memoryview(_frame(each, PLAIN[0])), Limits()) is None


def test_commands_that_were_changed_anywhere_are_read_as_others_are(as_others: Any) -> None:
    """20,000 frames: the same commands, or the same errors."""
    rng = random.Random(5)
    frames = [_frame(each) for each in PLAIN] + [_frame(*PLAIN), _frame(*PLAIN, *OTHERS), _frame()]
    taken = 0
    for _ in range(20_000):
        frame = mutate(rng, frames)
        if plain_commands.plain_commands(memoryview(frame), Limits()) is not None:
            taken += 1
            assert _read(frame) == as_others(frame), frame
    assert taken > 200


@pytest.mark.parametrize("limits", [Limits(max_bytes=40), Limits(max_header=30), Limits(max_objects=5)])
def test_limits_count_for_plain_commands_too(limits: Limits, as_others: Any) -> None:
    frame = _frame(*PLAIN)
    assert plain_commands.plain_commands(memoryview(frame), limits) is None
    assert _read(frame, limits) == as_others(frame, limits)


# -- replies ---------------------------------------------------------------------------------------


def _tensors() -> list[torch.Tensor]:
    made = [
        torch.randn(64, 10),
        torch.randn(3),
        torch.arange(500),
        torch.arange(500, dtype=torch.uint8).reshape(5, 1, 100),
        torch.randn(1, 200, 1, dtype=torch.float64),
        torch.tensor(5.0),
    ]
    for number, tensor in enumerate([*made, torch.randn(64, 10), torch.randn(64, 10)]):
        if number >= len(made):
            made.append(tensor)
        copy = tensor.clone()
        identity_of(copy).id = [7, LONG, 1 << 32, (1 << 32) - 1][number % 4]
        made.append(copy)
    return made


def _others() -> list[Any]:
    tagged = torch.randn(100)
    identity_of(tagged).tags = {"#x"}
    return [
        torch.randn(64, 10).t(),
        torch.randn(5, 0),
        torch.randn(100, dtype=torch.bfloat16),
        torch.ones(400, dtype=torch.bool),
        torch.randn(100).requires_grad_(),
        torch.nn.Parameter(torch.randn(100)),
        serde.mark_incompressible(torch.randn(100)),
        tagged,
        5,
        "text",
        (torch.randn(100),),
    ]


def _written(value: Any) -> bytes:
    """As it is written without `plain_frames`."""
    return codec.serialize(value)


def _as_others(frame: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As it is read without `value_of_plain_frame`."""
    with monkeypatch.context() as patch:
        patch.setattr(codec, "value_of_plain_frame", lambda *_: OTHER)
        return codec.deserialize(bytearray(frame))


def _shown(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value), repr(value)
    known = known_identity(value)
    names = None if known is None else (known._id, known._owner, known.tags, known.description)
    return (
        type(value),
        value.dtype,
        value.shape,
        value.stride(),
        value.requires_grad,
        bytes(value.numpy()),
        names,
    )


def test_a_plain_tensor_is_written_and_read_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):  # the first time, and when its head is known
        for value in [*_tensors(), None]:
            pieces = plain_frames(value)
            assert pieces is not None
            frame = b"".join(map(bytes, pieces))
            assert frame == _written(value)
            found = value_of_plain_frame(memoryview(bytearray(frame)), None, Limits())
            assert found is not OTHER
            assert _shown(found) == _shown(_as_others(frame, monkeypatch))


def test_other_values_are_not_taken_for_plain_ones() -> None:
    for value in _others():
        assert plain_frames(value) is None
        frame = memoryview(bytearray(_written(value)))
        assert value_of_plain_frame(frame, None, Limits()) is OTHER


def test_a_tensor_that_was_read_owns_its_memory_and_can_be_written_to() -> None:
    frame = bytearray(_written(_tensors()[-1]))
    first = value_of_plain_frame(memoryview(frame), None, Limits())
    second = value_of_plain_frame(memoryview(bytearray(frame)), None, Limits())
    first.zero_()
    assert second.abs().sum() > 0


def test_replies_that_were_changed_anywhere_are_read_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(6)
    frames = [_written(value) for value in [*_tensors(), *_others(), None] if not _is_long(value)]
    taken = 0
    for _ in range(20_000):
        frame = mutate(rng, frames)
        found = value_of_plain_frame(memoryview(bytearray(frame)), None, Limits())
        if found is not OTHER:
            taken += 1
            assert _shown(found) == _shown(_as_others(frame, monkeypatch)), frame
    assert taken > 200


def _is_long(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.nbytes > 4096


def test_limits_count_for_plain_replies_too() -> None:
    frame = memoryview(bytearray(_written(_tensors()[-1])))
    assert value_of_plain_frame(frame, None, Limits()) is not OTHER
    for limits in (Limits(max_bytes=100), Limits(max_header=10), Limits(max_objects=5), Limits(max_depth=2)):
        assert value_of_plain_frame(frame, None, limits) is OTHER
