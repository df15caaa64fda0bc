"""Clients that come and go between the rounds of a Trainer.

One duty: all that depends on who the clients are, changed at once or not at all. Imports `buffered`, `clients`,
`network_clients`, `trainer_seams`, `trainer_settings`.

NOTE [What stays of a client that leaves]
Here nothing does: its layers (`local=`), what compression held back, a strategy's memory of it, and updates that are in
no model yet go with it. A client that comes back under the name is a new one, and gets the newest model. What a worker
on a network keeps, it keeps by itself: layers of the last trainings, and plans for as long as it is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syft.federated.aggregation import Aggregation
from syft.federated.buffered import check_schedule
from syft.federated.clients import Client, WorkerClient, make_clients
from syft.federated.network_clients import NetworkClient
from syft.federated.secure_aggregation.over_network import for_clients
from syft.federated.trainer_seams import check_own_settings, smallest_sum
from syft.federated.trainer_settings import checked_client_settings, count_per_round

if TYPE_CHECKING:
    from syft.federated.trainer import Trainer


def add_clients(trainer: Trainer, clients: Any, client_settings: Any) -> tuple[str, ...]:
    """See `Trainer.add_clients`."""
    _check_between_rounds(trainer, "add_clients")
    travelling = next((c.work for c in trainer.clients.values() if isinstance(c, NetworkClient)), None)
    made = make_clients(clients, trainer._work, trainer.dataset_key, trainer.user, travelling)
    if known := sorted(made.keys() & trainer.clients.keys()):
        raise ValueError(
            f"add_clients() was given {known[0]!r}, and there is a client of that name. Remove it first, or use another "
            "name."
        )
    together = {**trainer.clients, **made}
    most = getattr(trainer.privacy, "clients", None)
    if isinstance(most, int) and len(together) > most:
        raise ValueError(
            f"With these clients there are {len(together)}, and {type(trainer.privacy).__name__} was made for "
            f"clients={most}. Make it for as many as there will be at a time."
        )
    own = checked_client_settings(client_settings, made)
    settings = {**{n: s for n, s in trainer._client_settings.items() if n not in made}, **own}
    _change(trainer, together, settings)
    return tuple(sorted(made))


def remove_clients(trainer: Trainer, names: tuple[str, ...]) -> None:
    """See `Trainer.remove_clients`."""
    _check_between_rounds(trainer, "remove_clients")
    if unknown := [name for name in names if name not in trainer.clients]:
        known = ", ".join(map(repr, list(trainer.clients)[:5]))
        raise ValueError(
            f"remove_clients() was given {unknown[0]!r}, which is not a client. There are {known or 'none'}"
            f"{' and more' if len(trainer.clients) > 5 else ''}."
        )
    left = {name: client for name, client in trainer.clients.items() if name not in names}
    settings = {name: own for name, own in trainer._client_settings.items() if name not in names}
    _change(trainer, left, settings)
    if trainer._buffered is not None:
        trainer._buffered.discard(names)


def aggregation_for(trainer: Trainer, clients: Mapping[str, Client]) -> Aggregation:
    """What the trainer was given, as it is done with these clients."""
    return for_clients(
        trainer._given_aggregation,
        clients,
        trainer.engine,
        trainer._training.deadline,
        trainer._form.length,
        trainer.layout.dtype,
        trainer.privacy,
    )


def seat(trainer: Trainer, clients: Mapping[str, Client], aggregation: Aggregation) -> None:
    """Give a trainer its clients, which were checked."""
    trainer.clients = dict(sorted(clients.items()))
    trainer.aggregation = aggregation
    schedule, (fraction, count) = trainer.schedule, trainer._asked
    present = len(clients)
    trainer.per_round = count_per_round(present, fraction, None) if count is None else min(count, present)
    least = trainer.min_clients if schedule is None else schedule.size
    for client in clients.values():
        if isinstance(client, WorkerClient):
            client.smallest_sum = smallest_sum(aggregation, least)


def _change(
    trainer: Trainer, clients: Mapping[str, Client], settings: Mapping[str, Mapping[str, Any]]
) -> None:
    aggregation = aggregation_for(trainer, clients)
    check_own_settings(settings, aggregation, trainer.strategy, trainer._training.optimizer)
    if trainer.schedule is not None and len(clients) > len(trainer.clients):
        check_schedule(
            trainer.schedule, clients, trainer.engine, trainer.strategy, aggregation, trainer.privacy
        )
    seat(trainer, clients, aggregation)
    trainer._client_settings = {name: dict(own) for name, own in settings.items()}
    trainer.strategy.change_clients(tuple(trainer.clients))


def _check_between_rounds(trainer: Trainer, what: str) -> None:
    if trainer._is_in_round:
        raise RuntimeError(
            f"{what}() was called in the middle of a round. Call it before fit(), after it, or in a callback's "
            "on_round_end()."
        )
