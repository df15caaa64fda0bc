"""Large messages between parties look into the memory of tensors until they are confirmed: NOTE [Lent memory]."""

from __future__ import annotations

import pytest
import torch

from syft.mpc.network.messages import Frame
from syft.transport import session_frames as frames
from syft.transport.session_outbox import _WINDOW_BYTES, Outbox

MB = 1 << 20


def pack(outbox: Outbox, count: int, is_lent: bool = True) -> tuple[torch.Tensor, frames.Head]:
    tensor = torch.arange(count // 8)
    outbox.add(Frame(b"ticket", 1, (tensor,)))
    return tensor, outbox.pack(0, 1 << 40, is_lent).head


def sent_bytes(outbox: Outbox, head: frames.Head) -> bytes:
    sent = outbox.unconfirmed[-1]
    return b"".join(map(bytes, frames.encode(head, sent.payload, sent.sums)))


def test_a_lent_message_is_not_copied_and_says_what_it_said_at_first() -> None:
    outbox = Outbox()
    tensor, head = pack(outbox, MB)
    sent = outbox.unconfirmed[-1]
    assert sent.sums is not None and not sent.is_borrowed and not outbox.has_changed()
    assert sent_bytes(outbox, head) == b"".join(map(bytes, frames.encode(head, sent.payload)))
    frames.decode(sent_bytes(outbox, head))
    tensor[77] += 1
    assert outbox.has_changed()
    with pytest.raises(Exception, match="damaged"):  # a peer takes no other words, either
        frames.decode(sent_bytes(outbox, head))
    outbox.confirm(head.number, 0)
    assert not outbox.has_changed()


def test_small_messages_and_those_in_chunks_are_not_lent() -> None:
    outbox = Outbox()
    pack(outbox, 1 << 12)
    assert outbox.unconfirmed[-1].sums is None
    tensor, _ = pack(outbox, frames.CHUNK_BYTES + MB)
    assert outbox.unconfirmed[-1].sums is None and outbox.unconfirmed[-1].is_borrowed
    tensor[0] += 1
    assert not outbox.has_changed()
    pack(outbox, MB, is_lent=False)
    assert outbox.unconfirmed[-1].sums is None and not outbox.unconfirmed[-1].is_borrowed


@pytest.mark.parametrize("sizes", [[15, 25], [15, 16, 2], [25, 8], [1] * 40, [8, 8, 8, 15, 30], [16, 16, 1]])
@pytest.mark.parametrize("lent", [(True,), (True, False), (False, True)])
def test_whoever_waits_for_room_has_asked_for_the_last_message_to_be_confirmed(
    sizes: list[int], lent: tuple[bool, ...]
) -> None:
    outbox = Outbox()
    for number, size in enumerate(sizes):
        _, head = pack(outbox, size * MB - 4096, lent[number % len(lent)] or size > 16)
        if outbox.is_full():
            assert head.flags & frames.CONFIRM
            assert outbox._sent_bytes > _WINDOW_BYTES
            outbox.confirm(outbox.numbered, 0)
            assert outbox.has_room()
