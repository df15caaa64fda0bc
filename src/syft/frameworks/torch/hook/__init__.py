"""Historical path of `TorchHook`: a module in 2019, a package in 2020."""

from syft.hooking.torch_hook import TorchHook

__all__ = ["TorchHook"]
