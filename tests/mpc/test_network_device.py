"""Programs among workers on a network of which some keep their shares on a device.

Without a GPU the CPU stands for a device that some of the workers were given: they then draw wide words, whatever the
others have. The same tests run on a CUDA device where there is one (`make gpu`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fake_cuda import CUDA, fake_cuda
from mpc.network_parties import Parties, node_of
from syft.cli import main
from syft.core.placing import device_of_worker
from syft.exceptions import SyftError
from syft.isolation.broker import Broker
from syft.messaging.message import Ref
from syft.mpc import drivers
from syft.mpc.binding import purpose
from syft.mpc.correlations import Square, Triple
from syft.mpc.integrity.sealed import Sealed
from syft.mpc.kernels import Bilinear
from syft.mpc.network import execution, messages
from syft.mpc.network.driver import NetworkDriver
from syft.mpc.protocols import fss
from syft.mpc.provider import Provider, drawn_shapes, expand
from syft.mpc.randomness import BoundStream, Stream, new_seed
from syft.workers.network.server_worker import NetworkServerWorker
from syft.workers.virtual import VirtualWorker

pytestmark = pytest.mark.network

CPU = torch.device("cpu")
NAMES = ("alice", "bob", "carol")
needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]
#: Who has a device, and which one.
PLACES = [
    pytest.param(NAMES, CPU, id="all"),
    pytest.param(("alice",), CPU, id="the first holder"),
    pytest.param(("bob", "carol"), CPU, id="the last holder and the provider"),
    pytest.param(NAMES, torch.device("cuda", 0), id="all on a GPU", marks=needs_gpu),
    pytest.param(("bob",), torch.device("cuda", 0), id="one holder on a GPU", marks=needs_gpu),
    pytest.param(("carol",), torch.device("cuda", 0), id="the provider on a GPU", marks=needs_gpu),
]


@contextlib.contextmanager
def parties_with(hook: Any, where: dict[str, torch.device]) -> Iterator[SimpleNamespace]:
    made = Parties(hook, NAMES)
    with made.closing:
        for name, device in where.items():
            made.servers[name].device = device
        made.introduce()
        client = made.client()
        client.parties = made
        yield client


@pytest.mark.parametrize(("who", "device"), PLACES)
def test_results_are_those_of_torch_whoever_has_a_device(
    hook: Any, me: Any, monkeypatch: pytest.MonkeyPatch, who: tuple[str, ...], device: torch.device
) -> None:
    drawn: list[torch.device] = []
    plain_draw = Stream.wide_words

    def noting_draw(self: Any, shape: Any, where: Any) -> Any:
        drawn.append(where)
        return plain_draw(self, shape, where)

    with parties_with(hook, dict.fromkeys(who, device)) as client:
        monkeypatch.setattr(Stream, "wide_words", noting_draw)
        x, y = torch.randn(4, 6), torch.randn(6, 3)
        xs, ys = client.share(x), client.share(y)
        for ours, plain in (
            (xs @ ys + 1, x @ y + 1),
            (xs * torch.arange(6.0), x * torch.arange(6.0)),
            (torch.relu(xs), x.relu()),
            (xs.max(1)[0], x.max(1)[0]),
            (xs.softmax(1), x.softmax(1)),
        ):
            assert (ours.get().float_precision() - plain).abs().max() < 0.01
        assert torch.equal((xs < 0).get().float_precision().bool(), x < 0)
        for share, name in zip(client.parties.stored(node_of(xs)), NAMES[:2], strict=True):
            assert share.device == (device if name in who else CPU)
    is_wide = any(name in who for name in NAMES[:2])
    assert bool(drawn) == is_wide
    assert {d.type for d in drawn} == (
        {device.type, "cpu"} if 0 < len(who) < 3 else {device.type}
    ) or not is_wide


@pytest.mark.parametrize("device", [CPU, pytest.param(torch.device("cuda", 0), marks=needs_gpu)])
def test_a_model_infers_with_what_was_dealt_ahead_and_trains(
    hook: Any, me: Any, device: torch.device
) -> None:
    import syft as sy

    torch.manual_seed(0)
    plain, shared = (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)) for _ in range(2))
    shared.load_state_dict(plain.state_dict())
    data, target = torch.randn(8, 4), torch.randn(8, 2)
    with parties_with(hook, dict.fromkeys(NAMES, device)) as client:
        shared.fix_precision(base=2, precision_fractional=16)
        shared.share(*client.holders, crypto_provider=client.provider)
        options = {"base": 2, "precision_fractional": 16}
        secret, hidden = (
            t.fix_precision(**options).share(*client.holders, crypto_provider=client.provider)
            for t in (data, target)
        )
        with torch.no_grad():
            sy.mpc.provide(shared, (8, 4))
            answer = shared(secret)
            assert (answer.get().float_precision() - plain(data)).abs().max() < 1e-3
        for model, x, y in ((plain, data, target), (shared, secret, hidden)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
        shared.get().float_precision()
    for ours, theirs in zip(shared.parameters(), plain.parameters(), strict=True):
        assert (ours - theirs).abs().max() < 5e-3


def test_wide_words_lie_at_other_places_of_the_stream() -> None:
    """A provider that was told of no device, and holders that were: what it deals has nothing to do with their masks."""
    kind = Square((5,))
    assert purpose(3, b"p", 0, kind) != purpose(3, b"p", 0, kind, is_wide=True)
    seeds = [new_seed(), new_seed()]
    for device in (None, CPU):
        dealing = Provider(2, seeds).begin(7, b"p", device)
        corrections = dealing.corrections(kind)
        meant = purpose(7, b"p", 0, kind, device is not None)
        fields = [
            expand(
                kind,
                iter(BoundStream(seed).at(meant).draw_all(drawn_shapes(kind, rank == 1), device)),
                lambda sent=sent: sent,
                rank == 1,
            )
            for rank, (seed, sent) in enumerate(zip(seeds, corrections, strict=True))
        ]
        a, square = (sum(parts) for parts in zip(*fields, strict=True))
        assert torch.equal(a * a, square)


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda:99", "torch finds .* CUDA device"),
        ("mps", "the CPU or on a CUDA device"),
        ("gpu", "names no device"),
    ],
)
def test_a_worker_says_that_it_has_no_such_device(hook: Any, device: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VirtualWorker(hook, id="zoe", device=device, auto_add=False)
    assert device_of_worker("cpu", "zoe") is None


@pytest.mark.usefixtures("own_log")
def test_the_command_says_what_a_device_needs(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["--device", "cuda:99"], "--isolation none"),
        (["--device", "cuda:99", "--isolation", "none"], "torch finds"),
    ):
        assert main(["worker", "--id", "zoe", "--listen", "tcp://127.0.0.1:0", *arguments]) != 0
        assert words in capsys.readouterr().err


def test_a_worker_with_a_device_is_not_isolated(hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = NetworkServerWorker(hook, id="zoe")
    monkeypatch.setattr(worker, "device", CUDA)
    with pytest.raises(ValueError, match="keeps its tensors on meta"):
        Broker(worker)
    assert "--isolation none --device meta" in " ".join(sorted_options(worker._command()))


def sorted_options(arguments: list[str]) -> list[str]:
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    return [part for name in ("--isolation", "--device") for part in (name, pairs[name])]


def test_a_holder_without_the_device_of_a_run_says_so(hook: Any, me: Any, monkeypatch: Any) -> None:
    with parties_with(hook, {}) as client:
        x = client.share(torch.tensor([1, -2]))
        monkeypatch.setattr(NetworkDriver, "_devices", lambda _self: ("cuda:0", "cpu", "cpu"))
        with pytest.raises(SyftError, match=r"asked to run .* on cuda:0, and it keeps its tensors on cpu"):
            (x * x).get()


def test_parties_who_disagree_about_wide_words_send_nothing(hook: Any, me: Any) -> None:
    with parties_with(hook, {}) as client:
        x = node_of(client.share(torch.tensor([1, -2])))
        driver = x.group.driver
        group = driver.joined()
        for rank, (holder, device) in enumerate(zip(client.holders, ("cpu", ""), strict=True)):
            share = Ref(x.pointers[rank].id_at_location)
            me.send_msg(
                messages.RunProgram(group, 50, "beaver.square", (share,), {}, (rank,), (), (), device), holder
            )
            holder.flush()
        with pytest.raises(SyftError, match="another program"):
            client.holders[0].sync()
        with pytest.raises(SyftError):
            client.holders[1].sync()


# -- protocols that are computed on the CPU -----------------------------------------------------------------------


@pytest.mark.parametrize("device", [CPU, pytest.param(torch.device("cuda", 0), marks=needs_gpu)])
@pytest.mark.parametrize("protocol", ["snn", "fss", "spdz2k", "tree2"])
def test_every_protocol_is_right_where_workers_have_a_device(
    hook: Any, me: Any, protocol: str, device: torch.device
) -> None:
    x = torch.tensor([-3, 0, 4, 2**40, -(2**40)])
    with parties_with(hook, dict.fromkeys(NAMES, device)) as client:
        xs = client.share(x, protocol=protocol)
        assert (xs < 0).get().tolist() == [1, 0, 0, 0, 1]
        assert torch.relu(client.share(x, protocol=protocol)).get().tolist() == x.relu().tolist()
        assert (xs * xs + torch.ones(5, dtype=torch.int64)).get().tolist() == (x * x + 1).tolist()


@pytest.mark.parametrize(  # NB: "cpu:0" is where "cpu" is, and another name
    "device", [torch.device("cpu", 0), pytest.param(torch.device("cuda", 0), marks=needs_gpu)]
)
@pytest.mark.parametrize("protocol", ["snn", "spdz2k"])
def test_protocols_of_the_cpu_in_one_process_give_results_on_the_device(
    workers: Any, monkeypatch: pytest.MonkeyPatch, protocol: str, device: torch.device
) -> None:
    moved: list[torch.device] = []
    plain = drivers.shares_at

    def noting(value: Any, where: torch.device) -> Any:
        moved.append(where)
        with pytest.MonkeyPatch.context() as patch:  # it calls itself for the parts of a value
            patch.setattr(drivers, "shares_at", plain)
            return plain(value, where)

    monkeypatch.setattr(drivers, "shares_at", noting)
    if device.type == "cpu":  # it stands for a device
        monkeypatch.setattr(drivers, "device_of", lambda _arguments: device)
        for name in ("alice", "bob"):
            monkeypatch.setattr(getattr(workers, name), "device", device)
    x = torch.tensor([-3, 0, 4, 2**40, -(2**40)], device=device)
    xs = x.share(workers.alice, workers.bob, crypto_provider=workers.charlie, protocol=protocol)
    for got, expected in (((xs < 0), x < 0), (torch.relu(xs), x.relu())):
        opened = got.get()
        assert opened.device == x.device
        assert opened.tolist() == expected.long().tolist()
    if protocol != "spdz2k" or device.type == "cpu":
        assert moved
        assert moved == [CPU, device] * (len(moved) // 2)


# -- where tensors lie ---------------------------------------------------------------------------------------


def test_frames_leave_from_the_cpu_and_arrive_on_the_device() -> None:
    with fake_cuda():
        mine, other = torch.empty(3, dtype=torch.int64, device=CUDA), torch.empty(2, dtype=torch.uint8)
        sent = execution.departing({0: (mine, other), 1: (mine,)})
        assert [t.device for tensors in sent.values() for t in tensors] == [CPU, CPU, CPU]
        assert sent[0][0] is sent[1][0]
        assert sent[0][1] is other
        assert [t.device for t in execution._arrived(sent[0], CUDA)] == [CUDA, CUDA]
        assert execution._arrived(sent[0], None) is sent[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_holder_expands_on_its_device(rank: int) -> None:
    kind = Triple(Bilinear("matmul"), (2, 3), (3, 2))
    seed = new_seed()
    membership = SimpleNamespace(
        rank=rank, holders=2, last_run=1, dealing={rank: seed}, stream=BoundStream(seed)
    )
    with fake_cuda():
        source = execution.HolderSource(membership, b"p", device=CUDA)  # type: ignore[arg-type]
        received = (torch.empty(2, 2, dtype=torch.int64),) if rank else ()
        fields = tuple(source.expand(kind, 0, lambda: received))
    assert [t.device for t in fields] == [CUDA] * 3
    assert [tuple(t.shape) for t in fields] == [(2, 3), (3, 2), (2, 2)]


def test_secrets_lie_on_the_device_of_their_holders_and_come_back_to_where_they_were(workers: Any) -> None:
    """The data is on the CPU, the holders have a device: the program says nothing about it."""
    alice, bob, carol = workers.alice, workers.bob, workers.charlie
    with fake_cuda(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "words", lambda _self, shape: torch.empty(tuple(shape), dtype=torch.int64))
        patch.setattr(alice, "device", CUDA)
        patch.setattr(bob, "device", CUDA)
        x, y = (
            torch.empty(3, 4)
            .fix_precision(base=2, precision_fractional=16)
            .share(alice, bob, crypto_provider=carol)
            for _ in range(2)
        )
        made = (torch.relu(x @ y.t()) * 2.5 + torch.ones(3)).max(1)[0]
        for secret in (x, made, made.cpu(), made.to(CUDA)):
            shares = [p.location._entries[p.id_at_location].value for p in node_of(secret).pointers]
            assert [share.device for share in shares] == [CUDA, CUDA]
        assert made.to(CUDA).get().child.child.device == CUDA
        assert made.get().child.child.device == CPU


def test_a_provider_keeps_what_it_made_ahead_where_it_is_looked_for() -> None:
    """A correlation with MACs is made on the CPU, whatever the device it was asked for."""
    provider = Provider(2)
    for kind, device in ((Sealed(Square((5,))), None), (Square((5,)), CPU), (fss.Key(5), CPU)):
        provider.provide(kind, count=2, device=CPU)
        assert provider.ready(kind, device) == 2
        assert provider._whole(kind, device) is not None
        assert provider.ready(kind, device) == 1


def test_a_worker_keeps_what_arrives_and_what_it_makes_on_its_device(hook: Any, me: Any) -> None:
    bob = VirtualWorker(hook, id="bob_with_a_device", auto_add=False)
    bob.device = CUDA
    with fake_cuda():
        x = torch.empty(3, 2).send(bob)
        made = [x, x + torch.ones(2).send(bob), torch.zeros_like(x), x.to("cpu"), x.new_ones(4)]
        assert {bob._entries[t.child.id_at_location].value.device for t in made} == {CUDA}
