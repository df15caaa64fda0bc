"""A worker with the owner's data that wants tokens, and its users."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

import syft as sy
from syft.identity.tokens import TokenAuthority
from syft.workers.owner_policy import OwnerPolicy, read_rules

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
