"""The package that documents of 2019 call `syft.frameworks.torch.crypto`."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
