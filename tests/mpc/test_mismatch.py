"""A client that gives the holders of a group different programs, and looks at what the last holder sees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mpc.network_parties import Parties, node_of
from syft.exceptions import SyftError
from syft.messaging.message import Ref
from syft.mpc import ring
from syft.mpc.binding import Share, program_digest
from syft.mpc.correlations import Place, Square, Triple
from syft.mpc.drivers import RoundMismatchError
from syft.mpc.kernels import Bilinear
from syft.mpc.network import execution, messages
from syft.mpc.network.membership import Membership
from syft.mpc.network.messages import PeerFailedError
from syft.mpc.protocols import beaver
from syft.mpc.provider import Provider

pytestmark = pytest.mark.network

COUNT = 200
MUL = Bilinear("mul")
NAMES = ("alice", "bob", "carol", "dan")


class View:
    """What the last holder has seen: its own parts of correlations, and frames by run and sender."""

    def __init__(self) -> None:
        self.taken: list[tuple[torch.Tensor, ...]] = []
        self.frames: dict[tuple[int, int], tuple[torch.Tensor, ...]] = {}


@pytest.fixture(params=[2, 3])
def group(request: Any, hook: Any, me: Any) -> Iterator[Parties]:
    made = Parties(hook, NAMES[: request.param + 1])
    with made.closing:
        made.introduce()
        yield made


def watch(last: Membership, monkeypatch: pytest.MonkeyPatch) -> View:
    view, take, deliver = View(), execution.HolderSource.take, Membership.deliver

    def taking(self: Any, kind: Any) -> Any:
        found = tuple(take(self, kind))
        if self._membership is last:
            view.taken.append(tuple(one.clone() for one in found))
        return found

    def delivering(self: Any, channel: Any, message: Any) -> None:
        if self is last and type(message) is messages.Frame:
            view.frames[message.run, channel.rank] = tuple(one.clone() for one in message.tensors)
        deliver(self, channel, message)

    monkeypatch.setattr(execution.HolderSource, "take", taking)
    monkeypatch.setattr(Membership, "deliver", delivering)
    return view


def group_made(secret: Any) -> None:
    """Bring the members together, by a program that they agree on."""
    assert node_of(secret).run(beaver.square).get().shape == (COUNT,)


def ask(client: Any, secret: Any, names: list[str], kinds: tuple[Any, ...], digest: bytes) -> list[Any]:
    """Every holder is asked for a program of its own in one run; gives what each said."""
    driver, pointers = node_of(secret).group.driver, node_of(secret).pointers
    driver._run += 1
    client.provider._recv_msg(messages.DealCorrelations(driver._group, driver._run, kinds, digest))
    client.provider.flush()
    for holder, pointer, name in zip(client.holders, pointers, names, strict=True):
        ref = Ref(pointer.id_at_location)
        args = (ref, ref) if name == "beaver.spdz_mul" else (ref,)
        holder._recv_msg(messages.RunProgram(driver._group, driver._run, name, args, {}, (driver._run,)))
        holder.flush()
    said = []
    for holder in client.holders:
        try:
            said.append(holder.sync())
        except SyftError as error:
            said.append(error)
    return said


def digest_of(name: str) -> bytes:
    share = Share((COUNT,), torch.int64)
    return program_digest(name, (share, share) if name == "beaver.spdz_mul" else (share,), {}, ())


def solved(view: View, run: int, turn: int, honest: int) -> list[set[int]]:
    """Candidates for what the honest holders' shares add up to, element by element.

    Their mask of y was dealt as their share of a * a. With d = X - a and e = X - b, and the correction
    (a + a_last)^2 - b, that is X^2 + (2A - 1) X + A^2 + e = correction with A = a_last - d. The derivative is odd, so
    each root modulo 2 has one above it modulo 2^64 (Hensel).
    """
    mask, correction = view.taken[turn][:2]
    d, e = (sum(view.frames[run, rank][i] for rank in range(honest)) for i in (0, 1))
    found = []
    for a, dd, ee, c in zip(mask.tolist(), d.tolist(), e.tolist(), correction.tolist(), strict=True):  # type: ignore[union-attr]
        big_a = a - dd
        constant = big_a * big_a + ee - c
        roots = set()
        for root in (0, 1):
            x = root
            for _ in range(7):
                value, slope = x * x + (2 * big_a - 1) * x + constant, 2 * x + 2 * big_a - 1
                x = (x - value * pow(slope, -1, 1 << 64)) % (1 << 64)
            if (x * x + (2 * big_a - 1) * x + constant) % (1 << 64) == 0 and x % 2 == root:
                roots.add(x)
        found.append(roots)
    return found


def attacked(
    group: Parties, monkeypatch: pytest.MonkeyPatch, digest: bytes
) -> tuple[View, list[list[Any]], torch.Tensor, list[int]]:
    """Two runs in which the honest holders multiply and the last one squares."""
    client = group.client()
    secret = client.share(torch.arange(COUNT) * 1_000_003 - 7)
    honest = len(client.holders) - 1
    group_made(secret)
    shares = group.stored(node_of(secret))
    view = watch(group.membership(client.holders[-1].id), monkeypatch)
    names = ["beaver.spdz_mul"] * honest + ["beaver.square"]
    said, runs = [], []
    for _ in range(2):
        said.append(ask(client, secret, names, (Square((COUNT,)),), digest))
        runs.append(node_of(secret).group.driver._run)
    wanted = ring.reconstruct(shares[:-1]) if honest > 1 else shares[0]
    for holder in group.servers.values():  # what they sent has arrived
        for peer in holder._known_workers.values():
            if not getattr(peer, "is_in_process", True):
                with contextlib.suppress(SyftError):
                    peer.sync()
    return view, said, wanted, runs


@pytest.mark.parametrize("told", ["beaver.square", "beaver.spdz_mul"])
def test_no_frame_leaves_a_holder_that_was_given_another_program(
    group: Parties, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    view, said, _, _ = attacked(group, monkeypatch, digest_of(told))
    assert not view.frames
    last = group.names[-2]
    for answers in said:
        assert all(isinstance(one, (RoundMismatchError, PeerFailedError)) for one in answers)
        text = " ".join(map(str, answers))
        assert "'alice'" in text and f"'{last}'" in text and "another program" in text


@pytest.mark.parametrize("told", ["beaver.square", "beaver.spdz_mul"])
def test_masks_of_another_program_are_unrelated_so_the_attack_finds_nothing(
    group: Parties, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """Without the agreement, too: the frames go out, and say nothing."""
    monkeypatch.setattr(execution, "_check_agreement", lambda *_args: None)
    monkeypatch.setattr(execution, "_check_dealt", lambda *_args: None)
    view, _, wanted, runs = attacked(group, monkeypatch, digest_of(told))
    honest = len(group.names) - 2
    assert len(view.frames) == 2 * honest
    guesses = [solved(view, run, turn, honest) for turn, run in enumerate(runs)]
    right = sum(
        value % (1 << 64) in first | second
        for value, first, second in zip(wanted.tolist(), *guesses, strict=True)
    )
    assert right == 0
    for frames in view.frames.values():
        for tensor in frames:
            ones = (tensor.view(torch.uint8).unsqueeze(-1) >> torch.arange(8)).bitwise_and(1).double().mean()
            assert abs(float(ones) - 0.5) < 6 * 0.5 / (64 * COUNT) ** 0.5


def test_a_provider_that_was_told_another_program_is_named(group: Parties) -> None:
    client = group.client()
    secret = client.share(torch.arange(COUNT))
    group_made(secret)
    said = ask(
        client,
        secret,
        ["beaver.spdz_mul"] * len(client.holders),
        (Triple(MUL, (COUNT,), (COUNT,)),),
        digest_of("beaver.square"),
    )
    assert f"'{client.provider.id}' dealt for another program" in " ".join(map(str, said))


# -- masks that serve again -------------------------------------------------------------------------------------------


def masked_forms(client: Any, secrets: list[Any]) -> list[Any]:
    """The masked form of each secret, which its first product makes."""
    for secret in secrets:
        (secret * (secret + 0)).get()
    return [node_of(secret)._remembered.masked[()] for secret in secrets]


def ask_masked(client: Any, secret: Any, form: Any, names: list[str], kind: Any, digest: bytes) -> list[Any]:
    """Every holder is asked for a program of its own in one run, on a secret that is masked; gives what each said."""
    node = node_of(secret)
    driver = node.group.driver
    driver._run += 1
    client.provider._recv_msg(messages.DealCorrelations(driver._group, driver._run, (kind,), digest))
    client.provider.flush()
    for rank, (holder, name) in enumerate(zip(client.holders, names, strict=True)):
        ref = Ref(node.pointers[rank].id_at_location)
        is_product = name == "beaver.spdz_mul"
        masked = ((0, form.operands[rank].id_at_location),) if is_product else ()
        args = (ref, ref) if is_product else (ref,)
        command = messages.RunProgram(driver._group, driver._run, name, args, {}, (driver._run,), (), masked)
        holder._recv_msg(command)
        holder.flush()
    said = []
    for holder in client.holders:
        try:
            said.append(holder.sync())
        except SyftError as error:
            said.append(error)
    return said


@pytest.mark.parametrize("told", ["square", "product"])
def test_a_masked_operand_at_some_holders_and_a_square_at_the_last(
    group: Parties, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    client = group.client()
    secret = client.share(torch.arange(COUNT) * 1_000_003 - 7)
    (form,) = masked_forms(client, [secret])
    share = Share((COUNT,), torch.int64)
    product = program_digest("beaver.spdz_mul", ((share, form.place), share), {}, ())
    kinds = {"square": Square((COUNT,)), "product": Triple(MUL, (COUNT,), (COUNT,), form.place)}
    digests = {"square": digest_of("beaver.square"), "product": product}
    honest = len(client.holders) - 1
    view = watch(group.membership(client.holders[-1].id), monkeypatch)
    names = ["beaver.spdz_mul"] * honest + ["beaver.square"]
    said = ask_masked(client, secret, form, names, kinds[told], digests[told])
    assert all(isinstance(one, (RoundMismatchError, PeerFailedError)) for one in said)
    assert not view.frames


def test_a_client_cannot_have_a_product_with_the_mask_of_another_secret(group: Parties) -> None:
    """With op(m, b) for the mask m of a stranger's secret and a known b, a client and one holder would have m."""
    client = group.client()
    mine, other = (client.share(torch.arange(COUNT) + n) for n in (1, 2))
    my_form, other_form = masked_forms(client, [mine, other])
    share = Share((COUNT,), torch.int64)
    kind = Triple(MUL, (COUNT,), (COUNT,), other_form.place)
    names = ["beaver.spdz_mul"] * len(client.holders)
    for place in (my_form.place, other_form.place):
        digest = program_digest("beaver.spdz_mul", ((share, place), share), {}, ())
        said = ask_masked(client, mine, my_form, names, kind, digest)
        last = said[-1]
        assert isinstance(last, RoundMismatchError)
        assert "the provider dealt a" in str(last) or "dealt for another program" in str(last)


def test_shares_of_products_with_different_masks_are_unrelated() -> None:
    """The place of the mask is part of what a triple is bound to, at every holder."""
    provider, run = Provider(2), 7
    places = [Place(1, b"program", 0), Place(2, b"program", 0)]
    deals = [provider.make(Triple(MUL, (COUNT,), (COUNT,), place), Place(run, b"p", 0)) for place in places]
    for mine, other in zip(deals[0].take(0), deals[1].take(0), strict=True):
        assert not (mine == other).any()
