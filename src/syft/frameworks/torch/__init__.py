"""The package that documents of 2019 and 2020 call `syft.frameworks.torch`."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
