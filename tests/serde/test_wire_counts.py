"""Bytes on the wire, and memory that serialising takes: what is sent above the data itself is small and constant."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
import torch

import syft as sy
from syft import serde
from syft.messaging.message import ObjectMessage, Operation, Ref


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_a_tensor_takes_its_data_and_at_most_two_lines_of_the_cache(size: int) -> None:
    tensor = torch.zeros(size)
    assert 0 < len(serde.serialize(tensor)) - tensor.nbytes <= 128


def test_an_operation_takes_about_a_hundred_bytes() -> None:
    command = Operation("aten.add.Tensor", None, [Ref(2**59 + 1), Ref(2**59 + 2)], {}, (2**59 + 3,))
    assert len(serde.serialize(command)) <= 115


def test_a_small_tensor_with_its_id_takes_about_a_hundred_bytes() -> None:
    assert len(serde.serialize(ObjectMessage(torch.zeros(10), 2**59))) <= 117


def test_a_plan_takes_less_than_seventy_bytes_for_each_operation(hook: Any) -> None:
    def size(length: int) -> int:
        def run(x: Any) -> Any:
            for _ in range(length):
                x = x + 1
            return x

        return len(serde.serialize(sy.func2plan(args_shape=[(3,)])(run)))

    short, long = size(10), size(60)
    assert short <= 1000 and (long - short) / 50 <= 66


def test_frames_and_reading_from_writable_memory_copy_nothing() -> None:
    tensor = torch.zeros(1_000_000)
    received = bytearray(serde.serialize(tensor))
    serde.serialize_frames(tensor)
    tracemalloc.start()
    try:
        frames = serde.serialize_frames(tensor)
        back = serde.deserialize(received)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 100_000
    assert sum(len(memoryview(part).cast("B")) for part in frames) > tensor.nbytes
    received[-4:] = torch.tensor([7.0]).numpy().tobytes()
    assert back[-1] == 7.0, "it is the memory that was received"


def test_serialising_to_bytes_copies_once() -> None:
    tensor = torch.zeros(1_000_000)
    serde.serialize(tensor)
    tracemalloc.start()
    try:
        data = serde.serialize(tensor)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data) <= taken < 1.1 * len(data)
