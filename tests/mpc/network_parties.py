"""Workers on a network that know each other, in threads of this process, for the tests of programs among them."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch

from syft.identity.tokens import TokenAuthority
from syft.mpc.methods import secret_of
from syft.mpc.network.membership import Membership
from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.network.server_worker import NetworkServerWorker

HOLDERS = ("alice", "bob")


class Parties:
    """Servers that know each other, and clients of them."""

    def __init__(self, hook: Any, names: tuple[str, ...], authority: TokenAuthority | None = None) -> None:
        self.hook, self.names, self.authority = hook, names, authority
        self.closing = contextlib.ExitStack()
        tokens = {name: authority.verifier(name) if authority else None for name in names}
        self.servers = {
            name: self.closing.enter_context(
                NetworkServerWorker(hook, "tcp://127.0.0.1:0", id=name, tokens=tokens[name])
            )
            for name in names
        }

    def introduce(self, patience: float = 30.0, **options: Any) -> None:
        for one in self.servers.values():
            for other in self.servers.values():
                if other is not one:
                    one.add_worker(self.connect(other.id, patience=patience, **self.shown(one.id), **options))

    def shown(self, user: str) -> dict[str, str]:
        """What proves who somebody is."""
        return {"token": self.authority.issue(user, 600)} if self.authority else {}

    def connect(self, name: str, **options: Any) -> NetworkClientWorker:
        client = NetworkClientWorker(self.hook, self.servers[name].address, name, auto_add=False, **options)
        return self.closing.enter_context(client)

    def client(self, **options: Any) -> SimpleNamespace:
        """A connection to each, and how to share with them."""
        links = {name: self.connect(name, **options) for name in self.names}
        *holders, provider = links.values()

        def share(tensor: torch.Tensor, **how: Any) -> Any:
            if tensor.is_floating_point():
                tensor = tensor.fix_precision()  # type: ignore[attr-defined]
            return tensor.share(*holders, crypto_provider=provider, **how)  # type: ignore[attr-defined]

        return SimpleNamespace(share=share, holders=holders, provider=provider, **links)

    def stored(self, node: Any) -> list[torch.Tensor]:
        """The shares of a secret, read where they are."""
        for pointer in node.pointers:
            pointer.location.sync()
        return [self.servers[p.location.id]._objects[p.id_at_location] for p in node.pointers]

    def membership(self, name: str) -> Membership:
        (found,) = [m for m in self.servers[name]._objects.values() if type(m) is Membership]
        return found


def node_of(secret: Any) -> Any:
    return secret_of(secret.child)
