"""Who reads what a peer sends, how frames travel, and what a round costs in calls."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from typing import Any

import pytest
import torch

from mpc.network_parties import HOLDERS, Parties, node_of
from syft import serde
from syft.messaging.message import SyncMessage
from syft.mpc.binding import encoded, kind_digest
from syft.mpc.correlations import Square, Triple
from syft.mpc.network import messages
from syft.mpc.protocols import beaver
from syft.serde.errors import SerdeError
from syft.serde.lone_frames import lone_frame
from syft.transport.session_lending import Lending
from syft.transport.session_outbox import Outbox
from syft.workers.network import incoming
from syft.workers.network.sessions import ServerSession

pytestmark = pytest.mark.network


# -- lending ----------------------------------------------------------------------------------------------------


def _lent(take: Any) -> tuple[Lending, threading.Thread]:
    """A lending whose serving thread rests."""
    lending = Lending(take)
    assert not lending.read(0.0), "nothing is lent before the serving thread says so"
    serving = threading.Thread(target=lending.lend)
    serving.start()
    return lending, serving


def test_whoever_waits_reads_until_something_comes_for_the_serving_thread() -> None:
    came = [True, True, False]
    lending, serving = _lent(lambda _seconds: came.pop(0))
    read = 0
    while came and serving.is_alive():
        read += lending.read(0.0)
    serving.join(120)
    assert not serving.is_alive()
    assert not lending.read(0.0), "it is the serving thread's again"
    assert read + len(came) == 3


def test_who_is_about_to_send_much_gives_the_connection_back() -> None:
    lending, serving = _lent(lambda _seconds: True)
    lending.call_back()
    serving.join(120)
    assert not serving.is_alive()
    lending.lend()  # returns at once: nobody has waited since
    assert not lending.is_free


def test_a_connection_that_nobody_reads_goes_back_by_itself() -> None:
    lending, serving = _lent(lambda _seconds: True)
    serving.join(120)
    assert not serving.is_alive() and not lending.is_free


def test_one_who_waits_for_his_turn_is_woken() -> None:
    woken = threading.Event()
    inside, go_on = threading.Event(), threading.Event()

    def take(_seconds: float) -> bool:
        inside.set()
        assert go_on.wait(120)
        return True

    lending = Lending(take)
    lending.read(0.0)
    lending.wakers[1] = woken.set
    serving = threading.Thread(target=lending.lend)
    serving.start()
    assert woken.wait(120), "the serving thread lends"
    woken.clear()
    reader = threading.Thread(target=lending.read, args=(0.0,))
    reader.start()
    if inside.wait(5):  # unless it went back meanwhile, on a busy machine
        assert not lending.is_free and not lending.read(0.0), "one at a time"
        go_on.set()
        assert woken.wait(120), "the one who read has left"
    go_on.set()
    reader.join(120)
    serving.join(120)
    assert not serving.is_alive()


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many frames a thread that waited took itself, and how many it left to the serving thread."""
    counted: Counter[bool] = Counter()
    plain = ServerSession.take_without_lock

    def take(self: ServerSession, *args: Any) -> bool:
        found = plain(self, *args)
        counted[found] += 1
        return found

    monkeypatch.setattr(ServerSession, "take_without_lock", take)
    return counted


def test_the_thread_that_computes_reads_what_its_peer_sends(client: Any, borrowed: Counter[bool]) -> None:
    x = client.share(torch.tensor([0.5, -1.0, 2.0]))
    for _ in range(20):  # on a busy machine a connection may go back in between
        found = torch.sigmoid(x).get().float_precision()
        assert (found - torch.sigmoid(torch.tensor([0.5, -1.0, 2.0]))).abs().max() < 0.01
        if borrowed[True] >= 4:
            return
    raise AssertionError(f"only {borrowed[True]} frames were read by those who waited for them")


def test_two_groups_over_the_same_connections_and_frames_of_all_sizes(parties: Parties) -> None:
    wrong: list[Any] = []

    def work(size: int) -> None:
        client = parties.client()
        x = client.share(torch.arange(size))
        for _ in range(4):
            if not torch.equal((x * x).get(), torch.arange(size) ** 2):
                wrong.append(size)
            if not torch.equal((x > 3).get(), (torch.arange(size) > 3).long()):
                wrong.append(-size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 50, 40_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_what_was_on_its_way_to_a_group_that_ended_troubles_nobody(parties: Parties) -> None:
    client = parties.client()
    x = client.share(torch.tensor([3]))
    assert (x * x).get().tolist() == [9]
    channel = parties.membership("alice").channels[1]
    peer, frame = channel.peer, messages.Frame(channel.ticket, 9, (torch.zeros(1, dtype=torch.int64),))
    group = node_of(x).group.driver
    group._leave()
    client.bob.sync()
    del channel
    peer._link.post(frame, at_once=True)
    peer.sync()  # a stranger's ticket would be told of here


# -- how frames travel ------------------------------------------------------------------------------------------

_TENSORS = [
    torch.arange(3),
    torch.tensor(5),
    torch.zeros(0, 2, dtype=torch.int64),
    torch.ones(2, 200, dtype=torch.uint8),
    torch.arange(100).view(10, 10).t(),
    torch.arange(5000, dtype=torch.int16).view(50, 100),
]


@pytest.mark.parametrize("tensor", _TENSORS, ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_frames_travel_as_they_are(tensor: torch.Tensor) -> None:
    frame = messages.Frame(b"t" * 16, 7, (tensor, torch.arange(2000)))
    found = serde.deserialize(serde.serialize(frame))
    assert (found.ticket, found.run) == (frame.ticket, 7)
    for there, here in zip(found.tensors, frame.tensors, strict=True):
        assert torch.equal(there, here) and there.dtype == here.dtype
        there.add_(1)  # it is the receiver's own


@pytest.mark.parametrize(
    "simple",
    [
        ("mpc.Frame", b"", 1, (0, b"1234", 1)),  # too few bytes
        ("mpc.Frame", b"", 1, (0, b"12345678", -1, -1)),
        ("mpc.Frame", b"", 1, (0, b"12345678", True)),
        ("mpc.Frame", b"", 1, (0, 0, 1)),  # no such buffer
        ("mpc.Frame", b"", 1, (99, b"12345678", 1)),
        ("mpc.Frame", b"", 1, ("mpc.Agreement", b"", 1, b"")),
        ("mpc.Frame", b"", 1, ()),
        ("mpc.Frame", b"", 1, 5),
        ("mpc.Frame", b"", "1"),
        ("mpc.Frame", b""),
        ("mpc.Agreement", b"", 1, b"", b""),
        ("mpc.Agreement", b"", True, b""),
        ("mpc.Dealt", b"", 1, b"", None),
    ],
)
def test_frames_that_make_no_sense_are_refused(simple: Any) -> None:
    from syft.serde.reader import Reader

    with pytest.raises(SerdeError):
        Reader().read(simple)


_LONE = [
    messages.Agreement(b"t" * 16, 7, b"digest"),
    messages.Frame(b"t" * 16, 2**40, ()),
    messages.Frame(b"t" * 16, 7, (torch.arange(3), torch.ones(2, 300, dtype=torch.uint8))),
    messages.Frame(b"", 0, (torch.tensor(5), torch.arange(4000).view(40, 100))),
    messages.Dealt(b"t" * 16, 7, b"program", b"kind", (torch.arange(12, dtype=torch.int16).view(3, 4),)),
]


def _by_itself(message: Any) -> bytearray:
    pieces = lone_frame(message)
    assert pieces is not None
    return bytearray().join(pieces)


@pytest.mark.parametrize("message", _LONE, ids=lambda m: type(m).__name__)
def test_a_message_by_itself_is_read_as_it_was(message: Any) -> None:
    (found,) = serde.deserialize_batch(_by_itself(message))
    assert type(found) is type(message)
    assert [getattr(found, n) for n in message.__struct_fields__ if n != "tensors"] == [
        getattr(message, n) for n in message.__struct_fields__ if n != "tensors"
    ]
    for there, here in zip(getattr(found, "tensors", ()), getattr(message, "tensors", ()), strict=True):
        assert torch.equal(there, here) and there.dtype == here.dtype
        there.add_(1)  # it is the receiver's own


def test_a_large_tensor_by_itself_is_not_copied_and_a_small_one_keeps_no_frame() -> None:
    frame = _by_itself(messages.Frame(b"t" * 16, 7, (torch.arange(2), torch.arange(4000))))
    memory = torch.frombuffer(frame, dtype=torch.uint8)
    (found,) = serde.deserialize_batch(frame)
    begin, end = memory.data_ptr(), memory.data_ptr() + len(frame)
    small, large = found.tensors
    assert not begin <= small.data_ptr() < end
    assert begin <= large.data_ptr() < end and large.data_ptr() % 64 == begin % 64
    (kept,) = serde.deserialize_batch(bytes(frame))
    assert torch.equal(kept.tensors[1].add_(1), torch.arange(4000) + 1), "read-only memory is copied"


@pytest.mark.parametrize("tensor", [torch.ones(3), torch.zeros(0, dtype=torch.int64), _TENSORS[4]])
def test_a_message_with_other_tensors_travels_in_the_general_form(tensor: torch.Tensor) -> None:
    assert lone_frame(messages.Frame(b"t" * 16, 7, (torch.arange(3), tensor))) is None
    assert lone_frame("text") is None


def test_wrong_bytes_of_a_message_by_itself_are_refused() -> None:
    chance = random.Random(0)
    wrong = 0
    for message in _LONE:
        frame = _by_itself(message)
        for length in range(4, min(len(frame), 400)):
            with pytest.raises(SerdeError):
                serde.deserialize_batch(frame[:length])
        with pytest.raises(SerdeError):
            serde.deserialize_batch(frame + b"\0")
        for _ in range(2000):
            changed = bytearray(frame)
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(4, min(len(frame), 120))] = chance.randrange(256)
            try:
                (found,) = serde.deserialize_batch(changed)
            except SerdeError:
                wrong += 1
            else:
                assert type(found) in (messages.Agreement, messages.Frame, messages.Dealt)
    assert wrong > 2000


def test_what_a_message_by_itself_may_announce_is_limited() -> None:
    frame = _by_itself(_LONE[2])
    for limits in (serde.Limits(max_bytes=100), serde.Limits(max_header=10), serde.Limits(max_objects=5)):
        with pytest.raises(SerdeError):
            serde.deserialize_batch(frame, limits=limits)


def test_a_message_waits_behind_what_was_collected_before_it() -> None:
    outbox = Outbox()
    frame = _LONE[2]
    first = outbox.pack_alone(frame, 1 << 20)
    assert first is not None and (first.last, first.head.count) == (1, 1)
    outbox.add(SyncMessage())
    assert outbox.pack_alone(frame, 1 << 20) is None
    assert outbox.pack(0, 1 << 20).last == 2
    assert outbox.pack_alone(frame, 64) is None, "too long for the worker: `pack` says so"
    third = outbox.pack_alone(frame, 1 << 20)
    assert third is not None and third.last == outbox.numbered == 3
    assert [sent.last for sent in outbox.unconfirmed] == [1, 2, 3]
    assert outbox.confirm(3, 0) and not outbox.unconfirmed


def test_a_kind_is_named_by_what_it_is() -> None:
    kinds = [Square((1,)), Square((2,)), Triple(beaver.MUL, (1,), (1,)), Triple(beaver.MUL, (1,), (2,))]
    assert len({kind_digest(kind) for kind in kinds}) == len(kinds)
    assert kind_digest(Square((1,))) == kind_digest(Square((1,)))


def test_values_that_differ_are_encoded_differently() -> None:
    values = [None, 0, 1, 1.0, "1", b"1", (1,), ((1,),), (1, 1), {"a": 1}, {"a": 2}, torch.int64, torch.uint8]
    values += [
        torch.tensor([1]),
        torch.tensor([2]),
        torch.tensor([1], dtype=torch.int32),
        Square((1,)),
        "None",
    ]
    assert len({encoded(value) for value in values}) == len(values)
    assert encoded(True) == encoded(1) and encoded([1, 2]) == encoded((1, 2)) == encoded(torch.Size([1, 2]))
    with pytest.raises(TypeError, match="no public"):
        encoded(object())


# -- what a round costs -----------------------------------------------------------------------------------------


def test_python_calls_of_all_parties_per_round(hook: Any, me: Any) -> None:
    """Commands, dealing, agreement and frames of two holders and a provider, without what the client does."""
    main = threading.get_ident()
    calls = [0]

    def count(_frame: Any, event: str, _arg: Any) -> None:
        if event == "call" and threading.get_ident() != main:
            calls[0] += 1

    threading.setprofile(count)
    try:
        made = Parties(hook, (*HOLDERS, "carol"))
        with made.closing:
            made.introduce()
            client = made.client()
            x = client.share(torch.tensor([0.5, -1.0]))
            group = node_of(x.child).group
            best = sys.maxsize
            for _ in range(4):
                group.reset_costs()
                calls[0] = 0
                torch.log(x)
                for worker in (*client.holders, client.provider):
                    worker.sync()
                best = min(best, calls[0])
                rounds = group.online.rounds
            assert 10 < rounds < 20
            assert best / rounds < MOST_CALLS, f"{best / rounds:.0f} calls per round"
    finally:
        threading.setprofile(None)


MOST_CALLS = 800


def test_whoever_waits_for_a_peer_looks_for_as_long_as_parties_compute_between_rounds() -> None:
    """A client's next command is looked for less long: nobody computes meanwhile."""
    looked: list[float] = []

    class Connection:
        spin_seconds, progress = 0.0, 0

        def receive(self, timeout: float) -> bytes:
            looked.append(self.spin_seconds)
            if len(looked) < 3:
                raise TimeoutError
            raise ConnectionError("done")

    waiting = incoming.Incoming(Connection(), heartbeat=1.0)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        waiting.take(0.5, lambda head, payload: True)
    with pytest.raises(ConnectionError):
        waiting.next()
    assert looked == [1e-3, 200e-6, 200e-6]
