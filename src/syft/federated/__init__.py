"""Federated learning: training where the data is.

Modules, in the order they import each other:

    partition          parts for simulations
    held_dataset       what a worker can hold: HeldDataset, LazyDataset
    collated           rows as a collator makes them
    dataset            BaseDataset, FederatedDataset, `federate`
    pointer_dataset    PointerDataset, and how a worker makes a batch
    dataloader         FederatedDataLoader
    utils              averages and sums of models
    local_training     what a client does: one loop
    personal           layers that stay with a client
    compression        updates in fewer bytes
    plan_module        models and losses as plans, which travel
    offers             what a worker tells of the data it offers
    train_config       TrainConfig
    federated_client   FederatedClient: training at a worker, in one message
    network_clients    workers on a network as clients of a Trainer
    round_handlers     what such a worker does
    strategies, engines, secure_aggregation   what the Trainer can be told to use
    buffered           asynchronous rounds
    trainer            Trainer: training in rounds
"""

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.federated import round_handlers as _round_handlers  # noqa: F401  (adds what workers do in rounds)
from syft.federated.buffered import Buffered
from syft.federated.callbacks import Callback, EarlyStopping, ProgressBar, TensorBoard
from syft.federated.collated import collated
from syft.federated.compression import Quantize, RandomK, TopK
from syft.federated.dataloader import FederatedDataLoader
from syft.federated.dataset import BaseDataset, FederatedDataset, federate
from syft.federated.federated_client import FederatedClient
from syft.federated.held_dataset import HeldDataset, LazyDataset
from syft.federated.history import History
from syft.federated.outside import from_lightning
from syft.federated.partition import (
    label_table,
    partition_dirichlet,
    partition_iid,
    partition_shards,
    plot_label_distribution,
    subsets,
)
from syft.federated.pointer_dataset import PointerDataset
from syft.federated.rounds import NotEnoughClientsError
from syft.federated.secure_aggregation import MaskedSum, ShareAggregation
from syft.federated.strategies import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedProx,
    FedYogi,
    Krum,
    Median,
    MultiKrum,
    Scaffold,
    TrimmedMean,
)
from syft.federated.tracking import MLflow, WandB
from syft.federated.train_config import TrainConfig
from syft.federated.trainer import Trainer
from syft.federated.utils import (
    accuracy,
    add_model,
    extract_batches_per_worker,
    federated_avg,
    scale_model,
)

__getattr__ = _on_demand("syft.federated")

__all__ = [
    "BaseDataset",
    "Buffered",
    "Callback",
    "EarlyStopping",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedProx",
    "FedYogi",
    "FederatedClient",
    "FederatedDataLoader",
    "FederatedDataset",
    "HeldDataset",
    "History",
    "Krum",
    "LazyDataset",
    "MLflow",
    "MaskedSum",
    "Median",
    "MultiKrum",
    "NotEnoughClientsError",
    "PointerDataset",
    "ProgressBar",
    "Quantize",
    "RandomK",
    "Scaffold",
    "ShareAggregation",
    "TensorBoard",
    "TopK",
    "TrainConfig",
    "Trainer",
    "TrimmedMean",
    "WandB",
    "accuracy",
    "add_model",
    "collated",
    "extract_batches_per_worker",
    "federate",
    "federated_avg",
    "from_lightning",
    "label_table",
    "partition_dirichlet",
    "partition_iid",
    "partition_shards",
    "plot_label_distribution",
    "scale_model",
    "subsets",
]
