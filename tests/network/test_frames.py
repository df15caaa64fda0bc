"""Frames of a connection: what was damaged is found, also when it was added up while it came."""

from __future__ import annotations

import gc
import os
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft import serde
from syft.exceptions import ProtocolError
from syft.transport import session_frames as frames
from syft.transport.memory import KEPT, allocate
from syft.transport.session_frames import Arriving, Head, Kind

MB = 1 << 20
ROW = 8192


def whole(payload: bytes, head: Head | None = None) -> memoryview:
    pieces = frames.encode(head or Head(Kind.COMMANDS, number=3, count=1), [payload])
    return memoryview(bytearray(b"".join(pieces)))


def tell(arriving: Arriving, frame: memoryview, ends: list[int]) -> None:
    for end in ends:
        arriving(frame, end)


@settings(max_examples=60, deadline=None)
@given(
    length=st.sampled_from([0, 1, 32_768, 32_769, 3 * ROW, 3 * ROW + 1, 200_000, MB + 5]),
    cuts=st.lists(st.floats(0, 1), max_size=6),
)
def test_a_frame_is_decoded_the_same_however_it_came(length: int, cuts: list[float]) -> None:
    payload = random.Random(length).randbytes(length)
    frame = whole(payload)
    arriving = Arriving()
    tell(arriving, frame, sorted(int(cut * len(frame)) for cut in cuts))
    head, found = frames.decode(frame, arriving)
    assert head == Head(Kind.COMMANDS, number=3, count=1)
    assert found == payload
    assert frames.decode(frame) == (head, found)


@pytest.mark.parametrize("place", [5, 9, 56, 63, 64, 64 + ROW, 300_000, 524_288, 700_000, -1])
@pytest.mark.parametrize("ends", [[], [524_288], [100, 524_288, 700_100], [524_288, MB + 64]])
def test_a_flipped_bit_is_found_wherever_it_is(place: int, ends: list[int]) -> None:
    frame = whole(os.urandom(MB))
    frame[place] ^= 0x10
    arriving = Arriving()
    tell(arriving, frame, ends)
    with pytest.raises(ProtocolError):
        frames.decode(frame, arriving)


def test_sums_of_one_frame_are_not_those_of_another() -> None:
    arriving = Arriving()
    lost, frame = whole(os.urandom(MB)), whole(os.urandom(MB))
    arriving(lost, 600_000)  # and the connection went on with another
    arriving(frame, 600_000)
    assert frames.decode(frame, arriving)[0].number == 3
    arriving(lost, 600_000)
    assert frames.decode(frame, arriving)[0].number == 3


def test_sums_are_used_once() -> None:
    arriving = Arriving()
    frame = whole(os.urandom(MB))
    arriving(frame, len(frame))
    frames.decode(frame, arriving)
    frame[500_000] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        frames.decode(frame, arriving)


def test_a_frame_that_was_copied_within_this_machine_is_not_added_up_and_the_next_one_is() -> None:
    arriving = Arriving()
    frame = whole(os.urandom(MB))
    frame[500_000] ^= 1  # no line did this: it stands for work that is not done
    arriving.note_copied(frame)
    assert frames.decode(frame, arriving)[0].number == 3
    with pytest.raises(ProtocolError, match="checksum"):
        frames.decode(frame, arriving)
    arriving.note_copied(whole(os.urandom(MB)))
    with pytest.raises(ProtocolError, match="checksum"):
        frames.decode(frame, arriving)


def test_a_frame_that_is_sent_again_is_added_up_however_it_came() -> None:
    """What it was made of may have been written to since its sums were taken: NOTE [Lent memory]."""
    arriving = Arriving()
    frame = whole(os.urandom(MB), Head(Kind.COMMANDS, frames.AGAIN, number=3, count=1))
    arriving.note_copied(frame)
    assert frames.decode(frame, arriving)[0].flags == frames.AGAIN
    frame[500_000] ^= 1
    arriving.note_copied(frame)
    with pytest.raises(ProtocolError, match="checksum"):
        frames.decode(frame, arriving)


def test_what_was_decoded_is_not_held() -> None:
    gc.collect()
    KEPT.trim()
    payload = os.urandom(2 * MB)
    frame = allocate(2 * MB + 64)
    frame[:] = whole(payload)
    arriving = Arriving()
    arriving(frame, MB)
    arriving.note_copied(frame)
    _head, found = frames.decode(frame, arriving)
    assert found == payload
    del frame, found
    assert KEPT.free_bytes >= 2 * MB


def test_chunks_that_do_not_add_up_show_nothing_of_what_was_there_before() -> None:
    gc.collect()
    KEPT.trim()
    before = allocate(2 * MB)
    before[:] = b"s" * len(before)
    del before
    assembly = frames.Assembly(4 * MB)
    first = Head(Kind.CHUNK, number=1, total=2 * MB, offset=0)
    assert assembly.take(first, memoryview(bytes(MB))) is None
    last = Head(Kind.COMMANDS, frames.LAST_CHUNK, number=1, count=1, total=2 * MB, offset=MB)
    with pytest.raises(ProtocolError):
        assembly.take(last, memoryview(bytes(MB - 1)))
    assert assembly.take(first, memoryview(bytes(MB))) is None
    assert assembly.take(last, memoryview(bytes(MB))) == bytes(2 * MB)


def _received(tensor: torch.Tensor) -> memoryview:
    data = serde.serialize(tensor)
    frame = allocate(len(data))
    frame[:] = data
    return frame


DERIVED: dict[str, Any] = {
    "itself": lambda tensor: tensor,
    "parameter": lambda tensor: tensor,
    "view": lambda tensor: tensor[3:7],
    "detached": lambda tensor: tensor.detach().t(),
    "numpy": lambda tensor: tensor.numpy()[:, 1],
    "storage": lambda tensor: tensor.untyped_storage(),
}


@pytest.mark.parametrize("derive", DERIVED)
def test_memory_is_not_used_again_while_a_tensor_lies_in_it(derive: str) -> None:
    gc.collect()
    KEPT.trim()
    sent = torch.arange(500_000.0).reshape(500, 1000)
    if derive == "parameter":
        sent = torch.nn.Parameter(sent)
    found = serde.deserialize(_received(sent))
    kept: Any = DERIVED[derive](found)
    expected = torch.as_tensor(kept).detach().clone() if derive != "storage" else None
    del found
    gc.collect()
    assert KEPT.free_bytes == 0
    other = serde.deserialize(_received(torch.zeros(500, 1000)))
    if expected is not None:
        assert torch.equal(torch.as_tensor(kept).detach(), expected)
    else:
        assert torch.equal(torch.tensor([], dtype=torch.float32).set_(kept), sent.flatten())
    del kept, other, expected
    gc.collect()
    assert KEPT.free_bytes >= 2 * 2_000_000


def test_a_tensor_cannot_reach_beyond_its_frame() -> None:
    gc.collect()
    KEPT.trim()
    before = allocate(4 * MB)
    before[:] = b"s" * len(before)
    del before
    found = serde.deserialize(_received(torch.zeros(1_000_000)))
    storage = found.untyped_storage()
    assert storage.nbytes() == 4_000_000
    assert not storage.resizable()
    with pytest.raises(RuntimeError):
        found.as_strided((1_000_001,), (1,))
    with pytest.raises(RuntimeError):
        found.resize_(1_000_100)


@pytest.mark.parametrize("shape", [(300_000,), (1,), (500, 600), (300_000, 1)])
def test_what_arrives_is_nobodys_view(shape: tuple[int, ...]) -> None:
    found = serde.deserialize(_received(torch.ones(shape)))
    assert found.shape == torch.Size(shape)
    assert not found._is_view()
    assert found.is_leaf
    found.requires_grad_()
    found.sum().backward()
    assert torch.equal(found.grad, torch.ones(shape))
