"""Historical paths; aliases only, imported by nobody inside."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
