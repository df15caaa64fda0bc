"""The chain of tensor types and the engine that walks it. Imports only `syft.exceptions`."""

from syft.core.lazy import submodules_on_demand as _on_demand

__getattr__ = _on_demand("syft.core")
