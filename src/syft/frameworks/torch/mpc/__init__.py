"""The package that documents of 2020 call `syft.frameworks.torch.mpc`."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
