"""The Protocols of `syft.core.interfaces` say what is there: the classes that stand behind them have all of it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import syft
from syft.core import interfaces
from syft.federated.federated_client import FederatedClient
from syft.mpc.drivers import Lockstep
from syft.mpc.network.driver import NetworkDriver
from syft.policy.owner_policy import OwnerPolicy
from syft.policy.permissions import Policy
from syft.workers.base import BaseWorker
from syft.workers.entry import Entry
from syft.workers.store import ObjectStorage

PAIRS: list[tuple[Any, Any]] = [
    (interfaces.StoredEntry, Entry),
    (interfaces.Rules, Policy),
    (interfaces.Rules, OwnerPolicy),
    (interfaces.Store, ObjectStorage),
    (interfaces.Worker, BaseWorker),
    (interfaces.Driver, Lockstep),
    (interfaces.Driver, NetworkDriver),
    (interfaces.TrainingOffers, FederatedClient),
    (interfaces.OwnerBudgets, type(interfaces.IMPLEMENTATIONS[interfaces.OwnerBudgets])),
]


def methods_of(protocol: Any) -> dict[str, Any]:
    return {
        name: member
        for kind in reversed(protocol.__mro__)
        if kind.__module__ == interfaces.__name__
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("__") and name != "_no_init_or_replace_init"
    }


def _parameters(method: Any) -> list[inspect.Parameter]:
    found = inspect.signature(method).parameters.values()
    return [p for p in found if p.name != "self" and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@pytest.mark.parametrize(("protocol", "behind"), PAIRS, ids=lambda kind: kind.__name__)
def test_a_class_has_every_method_of_its_protocol_with_its_parameters(protocol: Any, behind: Any) -> None:
    wanted = methods_of(protocol)
    for name, method in wanted.items():
        assert hasattr(behind, name), name
        found, expected = _parameters(getattr(behind, name)), _parameters(method)
        assert len(found) >= len(expected), name
        for have, want in zip(found, expected, strict=False):
            assert want.kind is want.POSITIONAL_ONLY or have.name == want.name, name
    assert wanted or protocol is interfaces.StoredEntry


def test_a_worker_is_recognised_by_what_it_can_do(make_worker: Any) -> None:
    worker = make_worker("dan")
    assert isinstance(worker, interfaces.Worker) and isinstance(worker, interfaces.Store)
    assert not isinstance(object(), interfaces.Store)


def test_what_an_upper_room_keeps_with_a_worker_is_found_by_its_class(make_worker: Any) -> None:
    worker = make_worker("dan")
    assert worker.known_extension(FederatedClient) is None
    kept = worker.extension(FederatedClient)
    assert (
        type(kept) is interfaces.IMPLEMENTATIONS[interfaces.TrainingOffers]
        and worker.extension(FederatedClient) is kept
    )
    assert worker.known_extension(FederatedClient) is kept


def test_nothing_is_attached_to_workers_by_a_string() -> None:
    root = Path(syft.__file__).parent
    found = [p for p in root.rglob("*.py") for word in ("_attached", "EXTENSIONS[") if word in p.read_text()]
    assert found == []
