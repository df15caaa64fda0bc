"""A worker with the owner's data that wants tokens, and its users."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

import syft as sy
from syft.identity.tokens import TokenAuthority
from syft.policy.owner_policy import OwnerPolicy, read_rules

PATIENTS = torch.tensor([[51.0, 120.0], [62.0, 131.0], [47.0, 118.0]])


@contextlib.contextmanager
def serving(
    hook: Any,
    authority: TokenAuthority,
    policy: str = "",
    id: str = "hospital",
    more: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """A worker with `#patients`, and more."""
    patients: Any = PATIENTS.clone()
    with sy.NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id=id,
        data=[patients.tag("#patients"), *more],
        tokens=authority.verifier(id),
        policy=OwnerPolicy(read_rules(policy)),
        **options,
    ) as server:
        yield server


def user(server: Any, authority: TokenAuthority, name: str) -> Any:
    return sy.connect(server.address, token=authority.issue(name, 60), auto_add=False)


def id_of(client: Any, tag: str) -> Any:
    found = client.search(tag)[0]
    return (found.child if isinstance(found, torch.Tensor) else found).id_at_location


def attempt(client: Any, *messages: Any) -> list[Any]:
    """Ask all; the answers, and the errors in their places."""
    said = []
    for message in messages:
        try:
            said.append(client._link.ask(message))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is looked at)
            said.append(error)
    return said
