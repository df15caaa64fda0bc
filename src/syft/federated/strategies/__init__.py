"""What the server does with the updates of a round: one strategy per file, with its paper.

base                                   the interface and the registry
fedavg, fedprox                        weighted mean
adaptive; fedadagrad, fedadam, fedyogi an optimizer at the server
scaffold                               control variates
median, trimmed_mean, krum             some clients may send anything
"""

from syft.federated.strategies.base import STRATEGIES, LocalRule, Strategy, make_strategy, register_strategy
from syft.federated.strategies.fedadagrad import FedAdagrad
from syft.federated.strategies.fedadam import FedAdam
from syft.federated.strategies.fedavg import FedAvg
from syft.federated.strategies.fedprox import FedProx
from syft.federated.strategies.fedyogi import FedYogi
from syft.federated.strategies.krum import Krum, MultiKrum
from syft.federated.strategies.median import Median
from syft.federated.strategies.scaffold import Scaffold
from syft.federated.strategies.trimmed_mean import TrimmedMean

__all__ = [
    "STRATEGIES",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedProx",
    "FedYogi",
    "Krum",
    "LocalRule",
    "Median",
    "MultiKrum",
    "Scaffold",
    "Strategy",
    "TrimmedMean",
    "make_strategy",
    "register_strategy",
]
