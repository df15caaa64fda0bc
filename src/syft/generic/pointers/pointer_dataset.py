"""Alias of syft.federated.pointer_dataset."""

from syft.federated.pointer_dataset import PointerDataset as PointerDataset
