"""Historical path of `syft.dp`."""

from syft.frameworks.torch.dp import pate as pate
