"""One torch thread: parties take turns in one process, and threads that wait for each other only cost time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mpc.network_parties import HOLDERS, Parties
from syft.mpc.drivers import programs_name
from syft.mpc.group import Group


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def parties(hook: Any, me: Any) -> Iterator[Parties]:
    """Two holders and a provider on a network."""
    made = Parties(hook, (*HOLDERS, "carol"))
    with made.closing:
        made.introduce()
        yield made


@pytest.fixture
def client(parties: Parties) -> SimpleNamespace:
    return parties.client()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that groups are asked to run, from here on."""
    names: list[str] = []
    run = Group.run

    def noted(group: Any, protocol: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(programs_name(protocol))
        return run(group, protocol, *args, **kwargs)

    monkeypatch.setattr(Group, "run", noted)
    return names
