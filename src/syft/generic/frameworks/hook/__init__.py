"""Historical path of the hook and hook_args."""

from syft.core.lazy import submodules_on_demand

__getattr__ = submodules_on_demand(__name__)
