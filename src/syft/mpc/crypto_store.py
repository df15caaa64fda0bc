"""`worker.crypto_store`: what programs of 2020 call to have correlated randomness made ahead of time.

The provider deals by itself whenever a program asks, so nothing has to be provided. `provide_primitives` makes triples
ahead of time; the randomness of comparisons has the shape of what is compared, and is dealt when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syft.core.session import session
from syft.exceptions import EmptyCryptoPrimitiveStoreError
from syft.mpc.correlations import Triple
from syft.mpc.documented.beaver import COMMANDS, bilinear
from syft.mpc.drivers import Lockstep
from syft.mpc.group import Group

#: Primitives of comparisons: dealt when they are needed.
ON_DEMAND = ("xor_add", "fss_eq", "fss_comp")


class CryptoStore:
    """The correlated randomness of a worker: what it provides as a crypto provider, and what it was dealt as a holder."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def provide_primitives(
        self,
        op: str | Sequence[str],
        kwargs_: dict[str, Any] | None = None,
        workers: Sequence[Any] = (),
        n_instances: int = 1,
        shapes: Sequence[Any] = (),
    ) -> None:
        """Deal `n_instances` ahead of time to `workers`, with this worker as the crypto provider.

        `op`      "mul", "matmul", "conv2d" and the other bilinear commands, one or several. "xor_add", "fss_eq" and
                  "fss_comp" are accepted and dealt when a comparison needs them.
        `shapes`  of the two operands, one pair per product (also as kwargs_["shapes"]); other entries of `kwargs_` are
                  parameters of a convolution
        """
        if not isinstance(n_instances, int) or n_instances < 1:
            raise ValueError(f"provide_primitives(n_instances={n_instances!r}): it is an int from 1 on.")
        me = session.require_local_worker()
        group = Group.of([me.get_worker(one, fail_hard=True) for one in workers], self.worker)
        for name in [op] if isinstance(op, str) else op:
            if name in ON_DEMAND:
                continue
            for kind in _kinds(name, kwargs_, shapes):
                group.provide(kind, count=n_instances)

    def get_keys(
        self,
        op: str,
        n_instances: int = 1,
        remove: bool = True,
        shapes: Any = (),
        provider: Any = None,
        **params: Any,
    ) -> list[Any]:
        """This holder's parts of triples that `provider` dealt it ahead of time; each can be taken once.

        !! EmptyCryptoPrimitiveStoreError if there are not as many.
        """
        if not remove:
            raise ValueError(
                "get_keys(remove=False): two openings under one mask reveal their difference, so what was dealt is taken "
                "once. Leave remove out."
            )
        dealt: list[Any] = []
        if op not in ON_DEMAND:
            for kind in _kinds(op, params, shapes):
                for group, rank in _groups_of(self.worker, provider):
                    wanted = min(n_instances - len(dealt), _ready_for(rank, group, kind))
                    parts = [group.driver.provider.take_ready(kind, rank) for _ in range(wanted)]
                    dealt += [part for part in parts if part is not None]
        if len(dealt) < n_instances:
            raise EmptyCryptoPrimitiveStoreError(self.worker, op, len(dealt), n_instances)
        return dealt


def _kinds(op: str, kwargs_: dict[str, Any] | None, shapes: Sequence[Any]) -> list[Triple]:
    """The triples that a command on operands of these shapes needs."""
    params = dict(kwargs_ or {})
    pairs = list(params.pop("shapes", None) or shapes)
    if pairs and isinstance(pairs[0][0], int):
        pairs = [tuple(pairs)]
    if not pairs:
        raise ValueError(
            f"The randomness of {op!r} has the shapes of what is multiplied: pass shapes=[(shape of x, shape of y)]. The "
            f"commands are {', '.join([*COMMANDS, *ON_DEMAND])}."
        )
    return [
        Triple(bilinear(op, tuple(one), tuple(other), params), tuple(one), tuple(other))
        for one, other in pairs
    ]


def _groups_of(holder: Any, provider: Any) -> list[tuple[Any, int]]:
    """The groups in this process in which a worker is a holder, with its place, of one provider or of all known here."""
    me = session.require_local_worker()
    providers = [provider] if provider is not None else [me, *me._known_workers.values()]
    found = []
    for one in dict.fromkeys(providers):
        for holders, group in one.__dict__.get("_sharing_groups", {}).items():
            if holder in holders and isinstance(group.driver, Lockstep):
                found.append((group, holders.index(holder)))
    return found


def _ready_for(rank: int, group: Any, kind: Triple) -> int:
    """How many correlations that were dealt already a holder has not taken yet, whoever else has."""
    return sum(deal.parts[rank] is not None for deal in group.driver.provider._ready.get((kind, None), ()))
