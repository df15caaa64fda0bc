"""Historical path of how tensors become bytes."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
