"""Historical path of `syft.federated`."""

from syft.federated.dataloader import FederatedDataLoader as FederatedDataLoader
from syft.federated.dataset import BaseDataset as BaseDataset
from syft.federated.dataset import FederatedDataset as FederatedDataset
from syft.frameworks.torch.federated import dataloader as dataloader
from syft.frameworks.torch.federated import dataset as dataset
from syft.frameworks.torch.federated import utils as utils
