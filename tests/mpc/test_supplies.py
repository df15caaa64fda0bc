"""Supplies on disk: each call once over restarts, crashes and older copies; the provider hears nothing of them."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from mpc.network_parties import Parties
from mpc.worker_nursery import Nursery, options_among
from syft.exceptions import QuotaExceededError, SyftError
from syft.mpc import supplies
from syft.mpc.group import Group
from syft.mpc.network import messages, supplying
from syft.mpc.party import RoundMismatchError
from syft.mpc.reuse import remembered
from syft.mpc.sharing import secret_of
from syft.mpc.supplies import (
    SupplyDirectory,
    SupplyError,
    SupplyMismatchError,
    SupplyUsedUpError,
    keep_supplies,
)
from syft.policy.quotas import Quota, Quotas
from syft.workers.network.client_worker import NetworkClientWorker

HALF = dict(base=2, precision_fractional=16)
SHAPE = (1, 1, 4, 4)
NAMES = ("alice", "bob", "carol")


class World:
    """Three workers whose holders keep supplies below a folder; they can be ended and started again."""

    def __init__(self, hook: Any, folder: Path) -> None:
        self.hook, self.folder = hook, folder
        self.start()

    def start(self) -> None:
        self.parties = Parties(self.hook, NAMES)
        self.kept = [
            keep_supplies(self.parties.servers[name], self.folder / name, self.folder / "keys" / name)
            for name in NAMES[:2]
        ]
        self.parties.introduce()
        client = self.parties.client()
        self.workers = [*client.holders, client.provider]

    def stop(self) -> None:
        self.parties.closing.close()
        for one in self.kept:
            one.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def shared(self, value: Any) -> Any:
        return value.fix_precision(**HALF).share(*self.workers[:-1], crypto_provider=self.workers[-1])

    def parts(self, name: str = "alice") -> list[Path]:
        return sorted(self.folder.glob(f"{name}/parts/*/*/*-*"))

    @contextlib.contextmanager
    def hearing(self) -> Any:
        """What is said to the provider inside."""
        said: list[Any] = []
        provider, tell = self.workers[-1], type(self.workers[-1])._recv_msg

        def telling(worker: Any, message: Any, *rest: Any) -> Any:
            if worker is provider:
                said.append(type(message).__name__)
            return tell(worker, message, *rest)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(provider), "_recv_msg", telling)
            yield said


@pytest.fixture
def world(hook: Any, me: Any, tmp_path: Path) -> Any:
    made = World(hook, tmp_path)
    yield made
    made.stop()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    ).eval()


def test_calls_of_a_supply_over_a_restart(world: World) -> None:
    x, plain = torch.rand(SHAPE), net()
    with torch.no_grad():
        expected = plain(x)
        made = sy.mpc.provide(world.shared(net()), SHAPE, count=7, store="night", lot=4)
        assert made.calls == 7 and made.correlations > 5 and len(world.parts()) == 7
        for path in world.folder.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path

        def right(fast: Any) -> None:
            """A right call, of which the provider hears nothing but who is in the group, before its first."""
            with world.hearing() as said:
                assert (fast(world.shared(x)).get().float_precision() - expected).abs().max() < 1e-2
            assert said in ([], ["JoinGroup", "MeetPeers", "ExchangeSeeds"])
            with world.hearing() as said:
                group = Group.of(world.workers[:-1], world.workers[-1])
                assert group.offline.correlations == dealt
            assert said == ["GroupCosts"]

        model = world.shared(net())
        fast = sy.mpc.supplied("night", model)
        dealt = Group.of(world.workers[:-1], world.workers[-1]).offline.correlations
        assert fast.left() == 7
        for left in (6, 5):
            right(fast)
            assert fast.left() == left
        world.restart()
        # NB: of the lot that was begun, two calls go with masks that nobody has any more.
        model, dealt = world.shared(net()), 0
        fast = sy.mpc.supplied("night", model)
        assert fast.left() == 3
        with world.hearing() as said:
            with pytest.raises(SupplyMismatchError, match=r"shapes \(1, 1, 4, 4\).*\(2, 1, 4, 4\)"):
                fast(world.shared(torch.rand(2, 1, 4, 4)))
            with torch.enable_grad(), pytest.raises(SupplyMismatchError, match="gradients off"):
                fast(world.shared(x))
        assert not said and fast.left() == 3
        for _ in range(3):
            right(fast)
        assert world.parts("alice") == world.parts("bob") == []
        with pytest.raises(SupplyUsedUpError, match="No call is left"):
            fast(world.shared(x))
        # Another model of these shapes can use what is made now, and it goes on after what there was.
        sy.mpc.provide(model, SHAPE, count=1, store="night")
        dealt = Group.of(world.workers[:-1], world.workers[-1]).offline.correlations
        right(sy.mpc.supplied("night", model))


def test_two_lots_in_one_session_and_weights_that_change(world: World) -> None:
    model, x = world.shared(nn.Linear(4, 2)), torch.rand(1, 4)
    with torch.no_grad():
        sy.mpc.provide(model, (1, 4), count=8, store="s", lot=2)
        fast = sy.mpc.supplied("s", model)
        secret = world.shared(x)
        first = [fast(secret).get().float_precision() for _ in range(3)]
        assert max((one - first[0]).abs().max() for one in first) < 1e-2
        model.weight.add_(1)  # in the middle of a lot
        with pytest.raises(SupplyMismatchError, match="the weights were written to"):
            fast(secret)
        again = fast(secret).get().float_precision()  # another lot
        assert (again - first[0] - x.sum()).abs().max() < 1e-2
        other = world.shared(nn.Linear(4, 3))
        with pytest.raises(SupplyMismatchError, match="made for another model"):
            sy.mpc.supplied("s", other)(secret)
        sy.mpc.supplied("s", model).drop()
        with pytest.raises(SupplyError, match="has no supply 's'"):
            fast.left()


def test_a_function_of_three_holders(hook: Any, me: Any, tmp_path: Path) -> None:
    parties = Parties(hook, ("alice", "bob", "dan", "carol"))
    with parties.closing:
        kept = [keep_supplies(parties.servers[name], tmp_path / name) for name in ("alice", "bob", "dan")]
        parties.introduce()
        share = parties.client().share
        a, b = share(torch.tensor([1.0, 2.0])), share(torch.tensor([3.0, -4.0]))

        def function(x: Any, y: Any) -> Any:
            return torch.relu(x * y) + y

        sy.mpc.provide(function, a, b, count=2, store="f")
        fast = sy.mpc.supplied("f", function)
        with pytest.raises(SupplyError, match="not known whose supply"):
            fast.left()
        for left in (1, 0):
            assert (fast(a, b).get().float_precision() - torch.tensor([6.0, -4.0])).abs().max() < 0.02
            assert fast.left() == left
    for one in kept:
        one.close()


def test_who_is_set_back_cannot_use_anything_twice(world: World) -> None:
    """An older copy of one holder's directory: refused by its own list of marks, and by the other holder."""
    x, old = torch.rand(1, 4), world.folder / "old"
    with torch.no_grad():
        sy.mpc.provide(world.shared(nn.Linear(4, 2)), (1, 4), count=2, store="s", lot=1)
        shutil.copytree(world.folder / "alice", old)
        marks = (world.folder / "keys" / "alice.spent").read_bytes()
        model = world.shared(nn.Linear(4, 2))
        for _ in range(2):
            sy.mpc.supplied("s", model)(world.shared(x)).get()
        world.stop()
        shutil.rmtree(world.folder / "alice")
        shutil.copytree(old, world.folder / "alice")
        world.start()
        model = world.shared(nn.Linear(4, 2))
        with pytest.raises(SupplyUsedUpError, match=r"No call is left.* 2 are not at all holders"):
            sy.mpc.supplied("s", model)(world.shared(x))
        with pytest.raises(SupplyUsedUpError, match="an older copy of"):
            world.kept[0].take(None, "s", 0, 0)
        # With its list set back, too, alice is deceived; bob is not, and no program runs.
        world.stop()
        shutil.rmtree(world.folder / "alice")
        shutil.copytree(old, world.folder / "alice")
        (world.folder / "keys" / "alice.spent").write_bytes(marks)
        world.start()
        group = Group.of(world.workers[:-1], world.workers[-1])
        with pytest.raises(SupplyUsedUpError, match="is not here"):
            supplying.take(group.driver, "s", 0, 0)


def test_a_client_that_names_different_parts_to_the_holders_gets_nothing(world: World) -> None:
    """Holders who used different correlations in one run would open equations in the secret."""
    secret = world.shared(torch.rand(3))
    sy.mpc.provide(lambda a: a * a, secret, count=2, store="s", lot=1)
    driver = Group.of(world.workers[:-1], world.workers[-1]).driver
    send, turned = type(world.workers[0])._recv_msg, []

    def crossed(worker: Any, message: Any, *rest: Any) -> Any:
        if type(message) is messages.TakePart and worker is world.workers[1]:
            message = messages.TakePart(message.group, message.run, message.name, 1, 0)
            turned.append(message)
        return send(worker, message, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.workers[0]), "_recv_msg", crossed)
        with pytest.raises(SupplyUsedUpError, match="different things"):
            supplying.take(driver, "s", 0, 0)
        assert turned
    # The same by a client that does not look: the holders do.
    world.restart()
    secret = world.shared(torch.rand(3))
    sy.mpc.provide(lambda a: a * a, secret, count=2, store="t", lot=1)
    driver = Group.of(world.workers[:-1], world.workers[-1]).driver
    said: list[Any] = []

    def lying(worker: Any, message: Any, *rest: Any) -> Any:
        if type(message) is messages.TakePart:
            lot = world.workers.index(worker)
            reply = send(worker, messages.TakePart(message.group, message.run, message.name, lot, 0), *rest)
            said.append(reply)
            return (said[0][0], *reply[1:])
        return send(worker, message, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.workers[0]), "_recv_msg", lying)
        portion = supplying.take(driver, "t", 0, 0)
        with supplying.taking_from(portion):
            remembered(secret_of(secret.child)).forget()
            product = secret * secret
        with pytest.raises((RoundMismatchError, messages.PeerFailedError), match=r"another program|Mismatch"):
            product.get()


def test_disks_that_are_full_or_damaged_and_workers_that_keep_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = world.shared(nn.Linear(4, 2)), torch.rand(1, 4)
    with torch.no_grad():
        write = supplies.write_file

        def full(path: Path, *rest: Any, **how: Any) -> None:
            if path.name == "0-1":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(path, *rest, **how)

        monkeypatch.setattr(supplies, "write_file", full)
        with pytest.raises(SupplyError, match="Its disk is full"):
            sy.mpc.provide(model, (1, 4), count=3, store="s")
        monkeypatch.undo()
        fast = sy.mpc.supplied("s", model)
        expected = model(world.shared(x)).get().float_precision()
        assert (fast(world.shared(x)).get().float_precision() - expected).abs().max() < 1e-2
        with pytest.raises(SupplyUsedUpError):
            fast(world.shared(x))
        with pytest.raises(SupplyError, match="for other calls"):
            sy.mpc.provide(model, (2, 4), store="s")
        sy.mpc.provide(model, (1, 4), count=2, store="d", lot=1)
        (path,) = [one for one in world.parts("bob") if one.match("d/0-0")]
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)
        fast = sy.mpc.supplied("d", model)
        with pytest.raises(SupplyError, match="is damaged"):
            fast(world.shared(x))
        assert (fast(world.shared(x)).get().float_precision() - expected).abs().max() < 1e-2
        for server in world.parties.servers.values():
            server.extension(supplies.Supplies).keeper = None
        with pytest.raises(SupplyError, match="--supplies DIR"):
            sy.mpc.provide(model, (1, 4), store="e")
        with pytest.raises(SupplyError, match="keeps no supplies"):
            fast.left()


def test_what_users_may_not_call_a_supply_and_where_there_is_none(world: World, hook: Any) -> None:
    for name in ("../x", "", "a/b", "x" * 65, ".hidden"):
        with pytest.raises(ValueError, match="cannot be called"):
            world.kept[0].put(None, name, 0, 0, b"", b"")
    near = [sy.VirtualWorker(hook, id=f"supplies-{n}") for n in range(3)]
    secret = torch.rand(3).fix_precision().share(*near[:2], crypto_provider=near[2])
    with pytest.raises(SupplyError, match="workers on a network"):
        sy.mpc.provide(lambda a: a * a, secret, store="s")
    for lot in (0, True, 1.5):
        with pytest.raises(ValueError, match="number of calls"):
            sy.mpc.provide(lambda a: a * a, secret, store="s", lot=lot)
    with pytest.raises(TypeError, match="cannot be called"):
        sy.mpc.supplied("s", 3)
    sealed = torch.tensor([1]).share(
        *world.workers[:-1], crypto_provider=world.workers[-1], protocol="spdz2k"
    )
    with pytest.raises(SupplyError, match="MACs are not kept"):
        sy.mpc.provide(lambda a: a * a, sealed, store="s")


# -- in processes of their own -------------------------------------------------------------------------------------


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_holder_behind_walls_is_killed_between_two_calls(tmp_path: Path, hook: Any, me: Any) -> None:
    """`syft worker --supplies`, users' commands in processes of their own, which cannot open files: the broker does."""
    nursery, folder = Nursery(), tmp_path

    def ask(name: str) -> None:
        kept = (
            []
            if name == "carol"
            else ["--supplies", f"{folder}/{name}-kept", "--supplies-key", f"{folder}/{name}-key"]
        )
        nursery.ask(*options_among(name, NAMES, folder), *kept)

    try:
        for name in NAMES:
            ask(name)
        pids = nursery.wait(3)
        workers = [
            NetworkClientWorker(hook, f"unix://{folder}/{name}", name, auto_add=False) for name in NAMES
        ]

        def shared(values: list[int]) -> Any:
            return torch.tensor(values).share(*workers[:2], crypto_provider=workers[2])

        def square(secret: Any) -> Any:
            return secret * secret

        sy.mpc.provide(square, shared([0, 0]), count=3, store="s", lot=2)
        fast = sy.mpc.supplied("s", square)
        assert fast(shared([3, 4])).get().tolist() == [9, 16]
        os.kill(pids["alice"], signal.SIGKILL)
        ask("alice")
        nursery.wait(1)
        with contextlib.suppress(SyftError):  # whoever was told that alice is gone
            shared([1, 1]).get()
        assert fast(shared([5, 6])).get().tolist() == [25, 36]
        with pytest.raises(SupplyUsedUpError):
            fast(shared([7, 8]))
        for worker in workers:
            worker.close()
    finally:
        nursery.close()


# -- the directory by itself ---------------------------------------------------------------------------------------


def test_users_are_charged_over_restarts(tmp_path: Path) -> None:
    quotas = Quotas(lambda _user: Quota(None, 5_200))
    kept = SupplyDirectory(tmp_path, quotas=quotas)
    kept.put("ana", "s", 0, 0, b"", bytes(500))
    kept.put("ana", "s", 0, 1, b"", bytes(300))
    with pytest.raises(QuotaExceededError):
        kept.put("ana", "s", 0, 2, b"", bytes(300))
    kept.put("ben", "s", 0, 0, b"", bytes(800))
    used = {user: one.bytes for user, one in quotas.users().items()}
    assert kept.listing("ana") == [("s", b"", [(0, 0), (0, 1)])] and kept.listing("eve") == []
    with pytest.raises(SupplyError, match="Another process"):
        SupplyDirectory(tmp_path)
    kept.close()
    again = Quotas(lambda _user: Quota(None, 5_200))
    kept = SupplyDirectory(tmp_path, quotas=again)
    assert {user: one.bytes for user, one in again.users().items()} == used
    assert kept.take("ana", "s", 0, 0) == bytes(500)
    with pytest.raises(SupplyUsedUpError):
        kept.take("ana", "s", 0, 0)
    kept.drop("ana", "s")
    kept.drop("ben", "s")
    assert again.users() == {}
    kept.close()


def test_what_a_supply_is_for_is_paid_for_and_nothing_stays_of_what_is_refused(tmp_path: Path) -> None:
    """Descriptions of a megabyte under ever new names would fill the owner's disk at no charge."""
    quotas = Quotas(lambda _user: Quota(None, 100_000))
    kept = SupplyDirectory(tmp_path, quotas=quotas)
    for about, content in ((bytes(1_000_000), b"x"), (b"", bytes(200_000))):
        with pytest.raises(QuotaExceededError):
            kept.put("eve", "s", 0, 0, about, content)
        assert kept.listing("eve") == [] and quotas.usage("eve").bytes == 0
    with contextlib.suppress(QuotaExceededError):
        for number in range(1_000):
            kept.put("eve", f"s{number}", 0, 0, b"", b"x")
    names = [name for name, _, _ in kept.listing("eve")]
    assert 10 < len(names) < 30
    on_disk = sum(path.stat().st_size for path in (tmp_path / "parts").rglob("*") if path.is_file())
    assert on_disk < quotas.usage("eve").bytes <= 100_000
    for name in names:
        kept.drop("eve", name)
    assert quotas.usage("eve").bytes == 0
    kept.close()


def test_what_is_stolen_moved_or_missing_is_of_no_use(tmp_path: Path) -> None:
    key = tmp_path / "elsewhere" / "key"
    kept = SupplyDirectory(tmp_path / "a", key)
    secret = b"a holder's part " * 100
    for call in range(4):
        kept.put("ana", "s", 0, call, b"about", secret)
    (folder,) = (tmp_path / "a" / "parts").glob("*/s")
    assert all(secret[:16] not in path.read_bytes() for path in folder.iterdir())
    (folder / "0-0").rename(folder / "0-2")  # in the place of another
    with pytest.raises(SupplyError, match="of another place"):
        kept.take("ana", "s", 0, 2)
    (folder / "0-1").write_bytes(b"short")
    with pytest.raises(SupplyError, match="damaged"):
        kept.take("ana", "s", 0, 1)
    kept.close()
    thief = tmp_path / "thief"
    shutil.copytree(tmp_path / "a", thief)
    with pytest.raises(SupplyError, match=r"key .* is missing"):
        SupplyDirectory(thief)
    with pytest.raises(SupplyError, match="another key"):
        _with_key(thief, tmp_path / "other")
    (tmp_path / "elsewhere" / "key.spent").unlink()
    with pytest.raises(SupplyError, match="could be used twice"):
        SupplyDirectory(tmp_path / "a", key)


def _with_key(path: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "key").write_bytes(bytes(32))
    (folder / "key.spent").write_bytes(b"")
    SupplyDirectory(path, folder / "key")


def _take_all(folder: Path, told: int) -> None:
    """In a process of its own: take what there is, and tell what was handed out."""
    kept = SupplyDirectory(folder)
    for _, call in kept.listing("ana")[0][2]:
        content = kept.take("ana", "s", 0, call)
        os.write(told, content)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that is killed is forked")
def test_nothing_is_handed_out_twice_whenever_the_process_is_killed(tmp_path: Path) -> None:
    """kill -9 at random moments while parts are taken; what was told was handed out."""
    kept = SupplyDirectory(tmp_path)
    for call in range(40):
        kept.put("ana", "s", 0, call, b"", bytes([call]))
    kept.close()
    chance, handed, deaths = random.Random(), b"", 0
    while len(handed) < 20:
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            try:
                _take_all(tmp_path, theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        handed += os.read(ours, 1)  # it has begun
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        deaths += 1
        with os.fdopen(ours, "rb") as rest:
            handed += rest.read()
    kept = SupplyDirectory(tmp_path)
    left = {call for _, call in kept.listing("ana")[0][2]}
    assert len(handed) == len(set(handed)) and deaths >= 1
    for call in left & set(handed):  # killed between the mark and the removal of the file
        with pytest.raises(SupplyUsedUpError, match="used before"):
            kept.take("ana", "s", 0, call)
    assert len(left | set(handed)) >= 40 - deaths  # at most the part at hand is lost
    kept.close()


@pytest.mark.parametrize("moment", ["fsync", "unlink"])
def test_a_crash_between_the_mark_and_the_use(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is lost, and never handed out, whatever of the two writes reached the disk."""
    kept = SupplyDirectory(tmp_path)
    kept.put(None, "s", 0, 0, b"", b"part")

    class Crash(BaseException):
        pass

    def crash(*_: Any, **__: Any) -> None:
        raise Crash

    if moment == "fsync":
        monkeypatch.setattr(supplies.os, "fsync", crash)
    else:
        monkeypatch.setattr(Path, "unlink", crash)
    with pytest.raises(Crash):
        kept.take(None, "s", 0, 0)
    monkeypatch.undo()
    kept.close()
    kept = SupplyDirectory(tmp_path)
    with pytest.raises(SupplyUsedUpError, match="used before"):
        kept.take(None, "s", 0, 0)
    kept.close()
    with (tmp_path / "key.spent").open("ab") as file:
        file.write(b"torn")
    SupplyDirectory(tmp_path).close()
    assert (tmp_path / "key.spent").stat().st_size % 16 == 0
