"""Frames that announce more commands than anybody sends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from stopwatch import Stopwatch
from syft.exceptions import NetworkError, SyftError
from syft.transport import session_frames as frames
from syft.transport.session_frames import Head, Kind
from syft.workers.network import sessions

pytestmark = pytest.mark.network


def junk(client: Any, count: int) -> None:
    """A frame that holds nothing readable, as the next one of a client."""
    link = client._link
    start = link._outbox.numbered + 1
    link._connection.send(frames.encode(Head(Kind.COMMANDS, 0, start, 0, 0, count), [bytes(count)]))
    link._outbox._collected.first += count


def test_a_frame_of_a_million_commands_is_refused_at_once_and_others_do_not_wait(
    serve: Any, connect: Any
) -> None:
    server = serve()
    eve, bob = connect(server, patience=1.0), connect(server)
    bob.sync()
    clock = Stopwatch()
    junk(eve, 1_000_000)
    assert torch.ones(2).send(bob).get().tolist() == [1, 1]
    assert clock.seconds < 2.0
    with pytest.raises((NetworkError, SyftError), match="commands were announced in one frame"):
        eve.sync()


def test_as_many_as_are_allowed_are_each_an_error_and_the_first_is_told(serve: Any, connect: Any) -> None:
    server = serve()
    client = connect(server)
    clock = Stopwatch()
    junk(client, sessions.MOST_COMMANDS)
    with pytest.raises(SyftError, match=r"bytes|batch|cannot be read|format"):
        client.sync()
    client.sync()
    assert clock.seconds < 5.0
