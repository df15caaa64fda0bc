"""Secure aggregation: sums of updates that nobody sees one by one.

Modules, in the order they import each other:

    errors          what is raised when a round cannot go on, or must not
    encoding        reals as words of Z_2^64, or of fewer bits, with room for the sum
    shamir          t-of-n sharing of 32-byte secrets
    keys            key agreement, keys of one purpose each, sealed shares, signatures
    graph           with whom a client shares keys: all others, or a few
    setting         what everybody agrees on before a round
    masks           pseudo-random masks, expanded and added fast
    words           what is added up, and how it is packed
    messages        one record per message of a round; all of them travel through `syft.serde`
    client, server  the two state machines of Bonawitz et al. 2017 and Bell et al. 2020; they do no I/O
    masked_sum      `MaskedSum`: a whole round in one process, as the Trainer's `aggregation`
    shares          `ShareAggregation`: through additive shares at two or more holders
    kept_updates    updates that stay at a worker on a network, which masks them itself
    over_network    `NetworkMaskedSum`: what becomes of a MaskedSum with such workers. Not imported here: it stands on
                    `network_clients`
"""

from syft.federated.secure_aggregation.client import SecureClient
from syft.federated.secure_aggregation.errors import (
    ProtocolViolationError,
    SecureAggregationError,
    TooFewClientsError,
)
from syft.federated.secure_aggregation.graph import SparseGraph
from syft.federated.secure_aggregation.keys import Identity
from syft.federated.secure_aggregation.masked_sum import MaskedSum, RoundReport
from syft.federated.secure_aggregation.server import SecureServer, SecureSum
from syft.federated.secure_aggregation.setting import RoundSetting
from syft.federated.secure_aggregation.shares import ShareAggregation

__all__ = [
    "Identity",
    "MaskedSum",
    "ProtocolViolationError",
    "RoundReport",
    "RoundSetting",
    "SecureAggregationError",
    "SecureClient",
    "SecureServer",
    "SecureSum",
    "ShareAggregation",
    "SparseGraph",
    "TooFewClientsError",
]
