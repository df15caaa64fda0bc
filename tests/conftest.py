"""Fixtures that every room's tests share: one hook per session, fresh workers per test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
import torch

import forked
import syft as sy
from syft.core.session import session
from syft.tensors.logging import LoggingTensor

# Times of single examples depend on what else the machine does.
hypothesis.settings.register_profile("syft", deadline=None, derandomize=True)
hypothesis.settings.load_profile("syft")

# NB: at import, not in a fixture, so that tests may use the added names while they are collected.
_HOOK = sy.TorchHook(torch)

# Tests run side by side: threads of one would wait for the processors of the other.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def hook() -> Any:
    """The hook of this process."""
    return _HOOK


@pytest.fixture
def me(hook: Any) -> Iterator[Any]:
    """The local worker; it forgets at the end whom a test introduced and what it registered."""
    local = session.local_worker
    known_before, is_client = dict(local._known_workers), local.is_client_worker
    yield local
    local.is_client_worker = is_client
    local.clear_objects()
    local._known_workers.clear()
    local._known_workers.update(known_before)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: a collection of garbage need not walk it each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)  # when the fixtures of the file have ended: what is frozen is never collected
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Neither need it walk what the tests of a file have imported and cached, in those of the next one."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    forked.end()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of sockets and processes share the machine with others, and those of noise meet rare draws: one that fails
    is run once more, and reported.
    """
    for item in items:
        if item.get_closest_marker("network") or item.get_closest_marker("chance"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--transport",
        default=None,
        help="reach the workers of the fixtures over this transport, e.g. tcp, instead of in process",
    )


@pytest.fixture
def network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The network to make workers in, if `--transport` asks for one; else None."""
    transport = request.config.getoption("--transport")
    if transport is None:
        yield None
        return
    from over_network import network

    with network(transport, monkeypatch) as made:
        yield made


@pytest.fixture
def make_worker(hook: Any, me: Any, network: Any) -> Iterator[Any]:
    """`make_worker("dan")`: a worker that is emptied and forgotten after the test."""
    made: list[Any] = []

    def make(id: Any, **options: Any) -> Any:
        worker = network.make(hook, id, **options) if network else sy.VirtualWorker(hook, id=id, **options)
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.clear_objects()
        worker.remove_worker_from_local_worker_registry()


@pytest.fixture
def alice(make_worker: Any) -> Any:
    return make_worker("alice")


@pytest.fixture
def bob(make_worker: Any) -> Any:
    return make_worker("bob")


@pytest.fixture
def charlie(make_worker: Any) -> Any:
    return make_worker("charlie")


@pytest.fixture
def workers(alice: Any, bob: Any, charlie: Any) -> SimpleNamespace:
    """All three by name."""
    return SimpleNamespace(alice=alice, bob=bob, charlie=charlie)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """LoggingTensors say nothing."""
    monkeypatch.setattr(LoggingTensor, "sink", None)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LoggingTensors say, as a list instead of on the screen."""
    lines: list[str] = []
    monkeypatch.setattr(LoggingTensor, "sink", lines.append)
    return lines


@pytest.fixture
def own_log() -> Iterator[None]:
    """What the command `syft` does to the log ends with the test."""
    log = logging.getLogger("syft")
    before = log.handlers[:], log.level
    yield
    log.handlers[:], log.level = before
