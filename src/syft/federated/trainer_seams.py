"""Whether the parts of a Trainer go together: clients, engine, strategy, aggregation, privacy.

One duty: an error, as a sentence, before anybody trains. Imports `aggregation`, `clients`, `engines`, `strategies`,
`secure_aggregation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from syft.federated.aggregation import Aggregation, PlainSum, Privacy, hides
from syft.federated.buffered import Buffered
from syft.federated.clients import Client, DatasetClient, WorkerClient
from syft.federated.compression import Compression, Quantize, TopK
from syft.federated.engines import Engine, SerialEngine, ThreadEngine, make_engine
from syft.federated.local_training import make_optimizer
from syft.federated.secure_aggregation import MaskedSum, ShareAggregation
from syft.federated.secure_aggregation.over_network import NetworkMaskedSum
from syft.federated.strategies.base import Strategy
from syft.federated.strategies.scaffold import Scaffold
from syft.federated.trainer_settings import check_count


def engine_for(
    engine: str | Engine | None,
    clients: Mapping[str, Client],
    deadline: float | None,
    schedule: Buffered | None,
) -> Engine:
    """The engine that was asked for, or the one that fits."""
    at_work = schedule.at_work if isinstance(schedule, Buffered) else None
    if engine == "threads" and at_work is not None:
        return ThreadEngine(at_work)
    if engine is not None:
        return make_engine(engine)
    if not all(isinstance(client, (DatasetClient, WorkerClient)) for client in clients.values()):
        return ThreadEngine(at_work or min(32, len(clients)))
    return SerialEngine() if deadline is None else ThreadEngine(at_work)


def check_seams(strategy: Strategy, aggregation: Aggregation, privacy: Privacy | None) -> None:
    if not isinstance(aggregation, Aggregation) or isinstance(aggregation, type):
        raise TypeError(
            f"aggregation has weighted_sum(updates, weights), e.g. PlainSum(); this is {aggregation!r}."
        )
    if privacy is not None and (not isinstance(privacy, Privacy) or isinstance(privacy, type)):
        raise TypeError(f"privacy has clip, noise and round_done; this is {privacy!r}.")
    if strategy.needs_single_updates and (type(aggregation) is not PlainSum or privacy is not None):
        raise ValueError(hides(type(strategy).__name__, aggregation, privacy))


def check_own_settings(
    settings: Mapping[str, Mapping[str, Any]], aggregation: Aggregation, strategy: Strategy, optimizer: str
) -> None:
    """!! ValueError where clients have to train alike"""
    if settings and isinstance(aggregation, NetworkMaskedSum):
        raise ValueError(
            "Trainer was given client_settings and a masked sum over a network, whose workers take part only if all "
            "of them are told the same. Leave one of the two out."
        )
    own = [each["optimizer_args"] for each in settings.values() if "optimizer_args" in each]
    if own and isinstance(strategy, Scaffold):
        raise ValueError(
            "Trainer was given optimizer_args of single clients, and Scaffold computes with one learning rate for "
            "all. Leave them out, or use another strategy."
        )
    for args in own:
        make_optimizer(optimizer, args, [nn.Parameter(torch.zeros(1))])
        strategy.check_training(optimizer, args)


def check_compression(
    compression: Any,
    aggregation: Aggregation,
    strategy: Strategy,
    engine: Engine,
    schedule: Buffered | None,
) -> None:
    """!! TypeError, ValueError for what compressed updates cannot be used with"""
    if compression is None:
        return
    if not isinstance(compression, Compression):
        raise TypeError(
            f"Trainer was given compression={compression!r}: it is Quantize(bits), TopK(fraction) or RandomK(fraction)."
        )
    kind, summed = type(compression).__name__, type(aggregation).__name__
    if isinstance(strategy, Scaffold):
        raise ValueError(
            f"Scaffold reads clients' gradients off their updates, and {kind} changes those. Use another strategy, or "
            "leave compression out."
        )
    if compression.error_feedback and getattr(engine, "copies_clients", False):
        raise ValueError(
            f"{type(engine).__name__} makes clients anew for each round, so they hold nothing back. Use "
            "error_feedback=False, or engine='serial' or 'threads'."
        )
    if type(aggregation) is PlainSum:
        return
    if isinstance(compression, TopK):
        raise ValueError(
            f"With TopK every client sends other places, which {summed} would have to show, and places tell about the "
            "data. Use RandomK(fraction), whose places all clients have in common."
        )
    if isinstance(compression, Quantize):
        raise ValueError(
            f"With Quantize every client has steps of its own, and {summed} adds up words of one step. Let it send fewer "
            "bits itself: MaskedSum(clip=..., fraction_bits=..., word_bits='fit')."
        )
    if schedule is not None:
        raise ValueError(
            f"In asynchronous rounds clients have models, and places, of several rounds, and {summed} adds up those of "
            "one. Leave schedule=..., compression=... or aggregation=... out."
        )


def smallest_sum(aggregation: Aggregation, min_clients: int) -> int:
    """Of how many updates this trainer sees the sum, at least; 1 if it sees each. For owners who insist."""
    if isinstance(aggregation, ShareAggregation):
        return min_clients
    if not isinstance(aggregation, MaskedSum):
        return 1
    if isinstance(aggregation.threshold, int):
        return aggregation.threshold
    # A threshold that follows the number of updates is lowest where they are fewest.
    return aggregation.setting(max(2, min_clients), 1).threshold


def checked_quorum(min_clients: int, per_round: int, strategy: Strategy) -> int:
    check_count("min_clients", min_clients)
    if min_clients > per_round:
        raise ValueError(
            f"Trainer was given min_clients={min_clients}, and a round asks {per_round}. Ask more clients, or "
            "lower it."
        )
    if (why := strategy.too_few(per_round)) is not None:
        raise ValueError(f"A round asks {per_round} client(s), and {why}. Ask more clients.")
    return min_clients
