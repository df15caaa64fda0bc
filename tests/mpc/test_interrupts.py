"""A run is atomic: what an interrupted one leaves behind, and several threads on one group, change no later result."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import syft.mpc
import syft.workers.network
from mpc.lower import deal, revealed, spread
from mpc.network_parties import Parties, node_of
from syft.exceptions import SyftError
from syft.mpc.correlations import Square
from syft.mpc.drivers import Lockstep
from syft.mpc.network.driver import NetworkDriver
from syft.mpc.protocols import beaver, securenn, select
from syft.mpc.protocols.truncate import truncate
from syft.mpc.provider import LocalSource
from syft.workers.network import presence

ROOT = str(Path(syft.mpc.__file__).parent)
LINKS = str(Path(syft.workers.network.__file__).parent)


class Interrupting:
    """KeyboardInterrupt at the nth line of ours (in `rooms`) that is run, wherever that is.

    Lines that begin with `with` are left out: a tracer stops between the end of a block and the release of its lock,
    where CPython looks for no signal.
    """

    def __init__(self, at: int | None = None, rooms: tuple[str, ...] = (ROOT,)) -> None:
        self.at, self.lines, self.rooms = at, 0, rooms

    def __enter__(self) -> Interrupting:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_what: Any) -> None:
        sys.settrace(None)

    def _trace(self, frame: Any, event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.rooms):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith("with "):
            self.lines += 1
            if self.lines == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


X = spread(6, 40)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], torch.Tensor]] = {
    "product": (beaver.spdz_mul, (X,), X * X),
    "square": (beaver.square, (), X * X),
    "relu": (select.relu, (), X.relu()),
    "securenn.relu": (securenn.relu, (), X.relu()),
}


def run(driver: Lockstep, name: str) -> torch.Tensor:
    program, more, _ = PROGRAMS[name]
    given = [deal(one, driver.holders) if isinstance(one, torch.Tensor) else one for one in (X, *more)]
    found: torch.Tensor = revealed(driver.run(program, *given))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("holders", [2, 3])
def test_an_interrupt_at_any_line_costs_only_its_own_run(name: str, holders: int) -> None:
    if name.startswith("securenn") and holders != 2:
        return
    driver, expected = Lockstep(holders), PROGRAMS[name][2]
    run(driver, name)  # fills the caches
    with Interrupting() as counting:
        run(driver, name)
    stride = max(1, counting.lines // 80)
    places = range(1, counting.lines, stride)
    interrupted = 0
    for at in places:
        try:
            with Interrupting(at):
                run(driver, name)
        except KeyboardInterrupt:
            interrupted += 1
        assert torch.equal(run(driver, name), expected), f"wrong after an interrupt at line {at}"
    # NB: words that are redrawn make the number of lines vary from run to run.
    assert interrupted >= (0.8 if name.startswith("securenn") else 1) * len(places)
    assert not driver.provider._ready


@pytest.mark.parametrize("ahead", [0, 3])
def test_an_interrupt_between_two_parties_takes(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every take of every party, one after the other, with and without correlations made ahead of time."""
    driver, take, calls = Lockstep(3), LocalSource.take, 0
    driver.provider.provide(Square(tuple(X.shape)), count=ahead)
    stop = 0

    def taking(self: Any, kind: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == stop:
            raise KeyboardInterrupt
        return take(self, kind)

    monkeypatch.setattr(LocalSource, "take", taking)
    for stop in range(1, 100):
        calls = 0
        try:
            run(driver, "relu")
        except KeyboardInterrupt:
            calls = stop
            for name in ("relu", "square", "product"):
                assert torch.equal(run(driver, name), PROGRAMS[name][2])
        else:
            break
    assert 3 <= stop < 99


@pytest.mark.parametrize("rank", range(3))
def test_an_interrupt_at_every_yield(rank: int) -> None:
    driver, step = Lockstep(3), 0

    def interrupted(party: Any, x: torch.Tensor) -> Any:
        running, reply, count = select.relu(party, x), None, 0
        while True:
            count += 1
            try:
                one = running.send(reply)
            except StopIteration as done:
                return done.value
            if party.rank == rank and count == step:
                raise KeyboardInterrupt
            reply = yield one

    while step < 20:
        step += 1
        try:
            found = driver.run(interrupted, deal(X, 3))
        except KeyboardInterrupt:
            assert torch.equal(run(driver, "relu"), X.relu())
        else:
            assert torch.equal(revealed(found), X.relu())
            break
    assert 3 <= step < 20


def test_holders_that_take_different_kinds_are_told() -> None:
    def diverging(party: Any, x: torch.Tensor) -> Any:
        return (yield from (beaver.square(party, x) if party.first else truncate(party, x, 10)))

    driver = Lockstep(2)
    with pytest.raises(
        syft.mpc.drivers.RoundMismatchError,
        match=r"Truncation at position 0 of run 1, where the others take a Square",
    ):
        driver.run(diverging, deal(X, 2))
    assert torch.equal(run(driver, "square"), X * X)


# -- threads --------------------------------------------------------------------------------------------------------


def test_threads_on_one_driver_get_right_results() -> None:
    driver = Lockstep(2)
    driver.provider.provide(Square(tuple(X.shape)), count=10)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            names = [name for _ in range(30) for name in PROGRAMS]
            found = list(threads.map(lambda name: (name, run(driver, name)), names))
    finally:
        sys.setswitchinterval(before)
    assert all(torch.equal(result, PROGRAMS[name][2]) for name, result in found)
    alone = Lockstep(2)
    for name in PROGRAMS:
        run(alone, name)
    assert driver.cost.rounds == 30 * alone.cost.rounds
    assert driver.cost.bytes_sent == [30 * one for one in alone.cost.bytes_sent]


def test_threads_on_one_group_get_right_results(make_worker: Any) -> None:
    alice, bob, provider = (make_worker(name) for name in ("alice", "bob", "provider"))
    values = torch.tensor([[1.5, -2.0], [0.25, 3.0]])
    secret = values.fix_precision().share(alice, bob, crypto_provider=provider)  # type: ignore[attr-defined]

    def work(_number: int) -> float:
        found = torch.relu((secret * secret) @ secret - 1).get().float_precision()
        return float((found - torch.relu((values * values) @ values - 1)).abs().max())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert max(threads.map(work, range(40))) < 0.02
    finally:
        sys.setswitchinterval(before)


# -- on a network ---------------------------------------------------------------------------------------------------


def in_the_end(compute: Callable[[], Any]) -> Any:
    """The result, after the errors that tell of the abandoned run at each of three parties."""
    for _ in range(3):
        try:
            return compute().get().tolist()
        except SyftError as error:
            if "interrupted" not in str(error) and "not asked" not in str(error):
                raise
    return compute().get().tolist()


@pytest.mark.network
def test_a_client_that_is_interrupted_between_two_parties_goes_on(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every command of a run: later results are right, or an error says what happened, and nobody waits."""
    client = parties.client(patience=5.0)
    x = client.share(torch.tensor([3, -4]), protocol="snn")
    assert (x * x).get().tolist() == [9, 16]
    stop, calls, local = 0, 0, syft.local_worker
    plain = type(local).send_msg

    def sending(self: Any, message: Any, *more: Any) -> Any:
        nonlocal calls
        if type(message).__name__ in ("RunProgram", "DealCorrelations"):
            calls += 1
            if calls == stop:
                raise KeyboardInterrupt
        return plain(self, message, *more)

    monkeypatch.setattr(type(local), "send_msg", sending)
    for compute, expected in ((lambda: x * x, [9, 16]), (lambda: torch.relu(x), [3, 0])):
        for stop in range(1, 9):
            calls = 0
            try:
                compute()
            except KeyboardInterrupt:
                stop = 0
            else:
                break
            assert in_the_end(compute) == expected
        assert stop
    assert isinstance(node_of(x).group.driver, NetworkDriver)


@pytest.mark.network
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # finalizers are interrupted, too
@pytest.mark.parametrize(
    "places", [8, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize("protocol", [None, "snn"])
def test_a_client_that_is_interrupted_at_any_line_keeps_its_secrets(
    parties: Parties, protocol: str | None, places: int
) -> None:
    """In the driver and in the links below it: the session goes on, its shares are there, and results are right."""
    client = parties.client(patience=2.0)  # an interrupt may make a holder wait for so long, twice
    x = client.share(torch.tensor([3, -4]), protocol=protocol)
    compute, rooms = lambda: torch.relu(x * x - 10), (ROOT, LINKS)
    for _ in range(2):
        assert compute().get().tolist() == [0, 6]
    with Interrupting(rooms=rooms) as counting:
        compute().get()
    for at in range(7, counting.lines * 9 // 10, counting.lines // places):
        with contextlib.suppress(KeyboardInterrupt, SyftError), Interrupting(at, rooms):
            compute().get()
        assert presence.current_look() is None
        assert in_the_end(compute) == [0, 6]


@pytest.mark.network
@pytest.mark.parametrize("method", ["__enter__", "__exit__"])
def test_an_interrupt_beside_a_wait_for_parties_leaves_no_watch_behind(
    parties: Parties, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or later calls to other workers would fail as soon as a member of that group is gone."""
    client = parties.client()
    x = client.share(torch.tensor([3, -4]))
    (x * x).get()
    original, raised = getattr(presence.among_parties, method), []
    here = threading.get_ident()  # the parties have threads of this process, and wait for others as well

    def interrupted(self: Any, *what: Any) -> None:
        if method == "__enter__":
            original(self, *what)
        if not raised and threading.get_ident() == here:
            raised.append(True)
            raise KeyboardInterrupt
        if method == "__exit__":
            original(self, *what)

    monkeypatch.setattr(presence.among_parties, method, interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # as a notebook keeps the last traceback
        (x * x).get()
    assert raised and presence.current_look() is None
    assert presence.patience_with(client.alice._link) == client.alice._link.patience
    assert in_the_end(lambda: x * x) == [9, 16] and kept.value is not None


@pytest.mark.network
def test_threads_of_one_client_share_a_group(parties: Parties, client: Any) -> None:
    x = client.share(torch.tensor([3, -4]))
    failures: list[Any] = []

    def work() -> None:
        found = [((x * x).get().tolist(), torch.relu(x).get().tolist()) for _ in range(8)]
        failures.extend(one for one in found if one != ([9, 16], [3, 0]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures and not any(thread.is_alive() for thread in threads)
