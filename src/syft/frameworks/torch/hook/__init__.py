"""Historical path of `TorchHook`: a module in 2019, a package in 2020."""

from syft.core.lazy import submodules_on_demand
from syft.hooking.torch_hook import TorchHook

__all__ = ["TorchHook"]

__getattr__ = submodules_on_demand(__name__)
