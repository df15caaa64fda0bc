"""Historical path of the parts of the hook."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
